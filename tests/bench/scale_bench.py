#!/usr/bin/env python3
"""How planning, recognising finished work and memory grow with the job. Prints a table.

    scale_bench.py --items 100000 --volume-mb 3000
"""
from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/blackbox"))
sys.path.insert(0, str(ROOT / "tests"))
from conftest import EXECUTABLE  # noqa: E402
import nets  # noqa: E402


def timed(*args) -> tuple[float, int, subprocess.CompletedProcess]:
    """Seconds, peak memory of the scheduler itself (not of its workers) in kB, result."""
    began, peak = time.monotonic(), 0
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        p = subprocess.Popen([EXECUTABLE, *map(str, args)], stdout=out, stderr=err, text=True)
        while p.poll() is None:
            try:
                status = pathlib.Path(f"/proc/{p.pid}/status").read_text()
                peak = max([peak] + [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")])
            except (FileNotFoundError, ProcessLookupError):
                pass
            time.sleep(0.002 if time.monotonic() - began < 1 else 0.02)
        seconds = time.monotonic() - began
        out.seek(0), err.seek(0)
        return seconds, peak, subprocess.CompletedProcess(args, p.returncode, out.read(), err.read())


def help_time() -> None:
    times = [timed("--help")[0] for _ in range(20)]
    print(f"| `tilery --help` | {1000 * statistics.median(times):.1f} ms (median of 20) |")


def many_items(folder: pathlib.Path, items: int) -> None:
    """Tiny pictures: plan, and run with a second run that finds all done."""
    (folder / "in").mkdir()
    from PIL import Image
    import io
    data = io.BytesIO()
    Image.fromarray(np.full((16, 16, 3), 77, np.uint8)).save(data, "png")
    for k in range(items):
        (folder / "in" / f"p{k:06}.png").write_bytes(data.getvalue())
    nets.save("identity", folder / "identity.pt")
    flags = ("--model", folder / "identity.pt", "--input", folder / "in", "--output", f"{folder}/out/", "--tile", 16)
    s, kb, p = timed("plan", *flags, "--json")
    assert p.returncode == 0, p.stderr
    print(f"| plan of {items} tiny pictures | {s:.2f} s, {items / s:.0f} headers/s, {kb / 1000:.0f} MB |")
    s, kb, p = timed("run", *flags, "--json")
    assert p.returncode == 0, p.stderr
    profile = json.loads((pathlib.Path(json.loads(p.stdout)["work"]) / "profile.json").read_text())
    worker = max(w["peak_host_bytes"] for w in profile["workers"])
    print(f"| run of {items} tiny pictures | {s:.1f} s, scheduler {kb / 1000:.0f} MB, worker {worker / 1e6:.0f} MB |")
    s, kb, p = timed("run", *flags, "--json")
    assert json.loads(p.stdout)["items_unchanged"] == items
    print(f"| the same again, all done | {s:.2f} s, {kb / 1000:.0f} MB |")
    shutil.rmtree(folder / "in"), shutil.rmtree(folder / "out")


def volume(folder: pathlib.Path, mb: int) -> None:
    z = max(1, mb * 10**6 // (1024 * 1024))
    np.lib.format.open_memmap(folder / "v.npy", mode="w+", dtype=np.uint8, shape=(z, 1024, 1024)).flush()
    nets.save("identity", folder / "gray.pt", channels={"in": 1, "out": 1})
    s, kb, p = timed("run", "--model", folder / "gray.pt", "--input", folder / "v.npy", "--output", f"{folder}/vo/o.npy", "--tile",
                     128, "--overlap", 16, "--json")
    assert p.returncode == 0, p.stderr
    profile = json.loads((pathlib.Path(json.loads(p.stdout)["work"]) / "profile.json").read_text())
    worker = max(w["peak_host_bytes"] for w in profile["workers"])
    print(f"| volume of {mb} MB | {s:.1f} s, scheduler {kb / 1000:.0f} MB, worker {worker / 1e6:.0f} MB |")
    shutil.rmtree(folder / "vo")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, nargs="*", default=[100, 10_000, 100_000])
    parser.add_argument("--volume-mb", type=int, nargs="*", default=[256, 3000])
    args = parser.parse_args()
    print("| what | figure |\n|---|---|")
    help_time()
    for n in args.items:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="scale-bench-"))
        many_items(folder, n)
        shutil.rmtree(folder)
    for mb in args.volume_mb:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="scale-bench-"))
        volume(folder, mb)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
