#!/usr/bin/env python3
"""How much faster a job is on several GPUs of one host than on one: the same job on 1, 2, ... of them by turns, from and to
memory (/dev/shm), tiles per second from the first unit that was given out to the last output. All outputs are compared
byte for byte. Prints a table.

    tools/bench_models.py --out m --nets unet3d,rrdbnet_x4
    scaling_bench.py --models m/unet3d.pt m/rrdbnet_x4.pt --gpus 1 2 4       # or packages of tools/compile_model.py
    scaling_bench.py --models m/unet3d.pt --gpus 1 2 --mpirun --kill     # ranks, and one worker is killed in each run
    scaling_bench.py --models s/unet3d.pt --gpus 1 2 --device cpu --size 96 --items 4   # tries the script itself
"""
from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tifffile
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/blackbox"))
from conftest import EXECUTABLE, picture  # noqa: E402


def dims_of(model: pathlib.Path) -> int:
    with zipfile.ZipFile(model) as archive:  # a package says its tile
        for name in archive.namelist():
            if name.endswith("extra/tilery_package.json"):
                return len(json.loads(archive.read(name))["tile"])
    extra = {"tilery.json": ""}
    torch.jit.load(str(model), map_location="cpu", _extra_files=extra)
    return json.loads(extra["tilery.json"])["dims"]


def make_items(folder: pathlib.Path, warm: pathlib.Path, dims: int, items: int, size: int) -> None:
    """Fills `folder`, with at most 8 different items, and `warm` with the first two of them."""
    folder.mkdir()
    for k in range(min(items, 8)):
        if dims == 3:
            plane = picture(size, size, seed=k)[..., 0].astype(np.uint16) * 256
            np.save(folder / f"v{k:03}.npy", np.stack([np.roll(plane, 3 * z, axis=0) for z in range(size)]))
        else:
            tifffile.imwrite(folder / f"p{k:03}.tif", picture(size, size, seed=k))
    made = sorted(folder.iterdir())
    for k in range(8, items):
        (folder / made[k % 8].name.replace(f"{k % 8:03}", f"{k:03}")).hardlink_to(made[k % 8])
    warm.mkdir()
    for path in made[:2]:
        (warm / path.name).hardlink_to(path)


def digest(folder: pathlib.Path) -> str:
    paths = sorted(folder.iterdir())
    with ThreadPoolExecutor() as pool:
        parts = pool.map(lambda path: path.name.encode() + hashlib.file_digest(path.open("rb"), "sha256").digest(), paths)
        return hashlib.sha256(b"".join(parts)).hexdigest()


def run(args: argparse.Namespace, model: pathlib.Path, folder: pathlib.Path, gpus: int, *, warm: bool = False
        ) -> tuple[dict, str]:
    devices = ",".join(f"cuda:{k}" for k in range(gpus)) if args.device == "cuda" else "cpu"
    command = [EXECUTABLE, "run", "--model", model, "--input", folder / ("warm" if warm else "in"),
               "--output", folder / "out/{stem}{ext}", "--devices", devices, "--work", folder / "work",
               "--execution.broadcast", args.broadcast, *args.option]
    if args.mpirun:
        command = ["mpirun", "-np", str(gpus), "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", *command]
    elif args.device == "cpu":
        command += ["--workers", str(gpus)]
    env = dict(os.environ)
    if args.kill and not warm:
        env |= {"TILERY_TEST_FAULT": "kill@submit:3", "TILERY_TEST_FAULT_ONCE": str(folder / "died")}
    done = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with code {done.returncode}:\n{done.stderr[-3000:]}")
    if args.kill and not warm and not (folder / "died").exists():
        sys.exit("no worker was killed: the run is too short")
    profile, found = json.loads((folder / "work/profile.json").read_text()), digest(folder / "out")
    if args.profiles and not warm:
        args.profiles.mkdir(parents=True, exist_ok=True)
        number = len(list(args.profiles.iterdir()))
        (args.profiles / f"{number:02}-{model.stem}-{gpus}.json").write_text(json.dumps(profile))
    for name in ("out", "work"):
        shutil.rmtree(folder / name)
    (folder / "died").unlink(missing_ok=True)
    return profile, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", type=pathlib.Path, required=True)
    parser.add_argument("--gpus", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--items", type=int, default=24)
    parser.add_argument("--size", type=int, default=512, help="extent of an item along each axis")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--mpirun", action="store_true", help="one rank per GPU instead of one process")
    parser.add_argument("--kill", action="store_true", help="kill one worker in each run")
    parser.add_argument("--broadcast", choices=["auto", "on", "off"], default="auto")
    parser.add_argument("--profiles", type=pathlib.Path, help="folder for the profile.json of each run")
    parser.add_argument("--option", action="append", default=[], help="handed on to `tilery run`, once for each word")
    args = parser.parse_args()
    print("| model | workers | tiles/s | speed-up | seconds | devices' worth | imbalance | model files read / passed on "
          "| bytes |")
    print("|---|---|---|---|---|---|---|---|---|")
    for model in args.models:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="scaling-", dir="/dev/shm"))
        try:
            make_items(folder / "in", folder / "warm", dims_of(model), args.items, args.size)
            run(args, model, folder, args.gpus[0], warm=True)  # tunes, and fills the caches
            rates: dict[int, list[float]] = {n: [] for n in args.gpus}
            last: dict[int, dict] = {}
            digests: set[str] = set()
            for _ in range(args.rounds):
                for n in args.gpus:
                    profile, found = run(args, model, folder, n)
                    last[n] = profile["together"]
                    rates[n].append(profile["tiles"] / last[n]["window_s"])
                    digests.add(found)
            first = statistics.median(rates[args.gpus[0]])
            for n in args.gpus:
                rate, t = statistics.median(rates[n]), last[n]
                print(f"| {model.stem} | {n} | {rate:.2f} | {rate / first:.3f} | {t['window_s']:.1f} | "
                      f"{t['worth']:.3f} | "
                      f"{100 * t['imbalance']:.1f} % | {t['model_read_bytes'] / 1e6:.0f} / "
                      f"{t['model_broadcast_bytes'] / 1e6:.0f} MB | {'equal' if len(digests) == 1 else 'DIFFERENT'} |",
                      flush=True)
        finally:
            shutil.rmtree(folder)
        if len(digests) != 1:
            sys.exit(f"{model}: outputs differ between runs")


if __name__ == "__main__":
    main()
