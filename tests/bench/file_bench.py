#!/usr/bin/env python3
"""File to file against the model alone, on a folder of pictures: tiles per second of `tilery run` over those of a plain
forward loop with the same cores and batch, both sides in turn. Prints a table.

    file_bench.py --model configs/models/upscaler_x2.pt --pictures 8 --size 1024 --rounds 3
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/blackbox"))
sys.path.insert(0, str(ROOT / "tests"))
from conftest import EXECUTABLE, picture  # noqa: E402


def plain_loop(model: str, tile: int, overlap: int, batch: int, lanes: int, scale: str) -> float:
    """Tiles per second of the best plain loop of forward passes, as engine_bench measures it."""
    p = subprocess.run([EXECUTABLE.parent / "engine_bench", model, "--tile", str(tile), "--overlap", str(overlap), "--scale", scale,
                        "--batch", str(batch), "--lanes", str(lanes), "--batches", "2", "--rounds", "2"], capture_output=True,
                       text=True, check=True)
    return max(float(line.split()[-2]) for line in p.stdout.splitlines() if line.startswith("plain loop"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(ROOT / "configs/models/upscaler_x2.pt"))
    parser.add_argument("--pictures", type=int, default=8)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--tile", type=int, default=256)
    parser.add_argument("--overlap", type=int, default=32)
    parser.add_argument("--scale", default="2", help="of the model")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="file-bench-"))
    (folder / "in").mkdir()
    for k in range(args.pictures):
        Image.fromarray(picture(args.size, args.size, seed=k)).save(folder / "in" / f"p{k}.png")
    lanes = len(os.sched_getaffinity(0))
    print("| round | plain forward, tiles/s | file to file, tiles/s | of it, start-up left out | ratio |")
    print("|---|---|---|---|---|")
    ratios = []
    for r in range(args.rounds):
        shutil.rmtree(folder / "out", ignore_errors=True)
        began = time.monotonic()
        p = subprocess.run([EXECUTABLE, "run", "--model", args.model, "--input", folder / "in", "--output", f"{folder}/out/",
                            "--tile", str(args.tile), "--overlap", str(args.overlap), "--json"], capture_output=True, text=True)
        wall = time.monotonic() - began
        assert p.returncode == 0, p.stderr
        summary = json.loads(p.stdout)
        work = pathlib.Path(summary["work"])
        worker = json.loads((work / "profile.json").read_text())["workers"][0]
        batch = json.loads((work / "numerics.json").read_text())["batch"]
        tiles = summary["tiles_inferred"]
        steady = tiles / worker["busy_s"]
        ceiling = plain_loop(args.model, args.tile, args.overlap, batch, lanes, args.scale)
        ratios.append(steady / ceiling)
        print(f"| {r + 1} | {ceiling:.2f} | {tiles / wall:.2f} | {steady:.2f} | {steady / ceiling:.3f} |", flush=True)
    print(f"\nmedian ratio {statistics.median(ratios):.3f}, {lanes} lanes, batch {batch}, {tiles} tiles")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
