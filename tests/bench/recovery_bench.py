#!/usr/bin/env python3
"""How long after a loss a unit has been done again by others.

    recovery_bench.py [--times 10]
    recovery_bench.py --host [--times 5]

Each time a run of one picture on the CPU. Its only worker kills itself (signal 9) as it begins the picture, and leaves a
file that says when. With --host (needs root and iproute2): of two hosts that have joined the run, the one that holds the
picture is cut off, without a word to either side. Printed: seconds from then until the picture is written, so until the
unit runs again, and a little more.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "blackbox"))

from PIL import Image

from conftest import EXECUTABLE, picture
import nets
import netlab


def recovery(folder: pathlib.Path, model: pathlib.Path) -> float:
    Image.fromarray(picture(96, 96, seed=1)).save(folder / "in.png")
    died = folder / "died"
    subprocess.run([EXECUTABLE, "run", "--model", model, "--input", folder / "in.png", "--output", folder / "out.png",
                    "--tile", "64", "--overlap", "16", "--devices", "cpu", "--work", folder / "work"],
                   env={**os.environ, "TILERY_TEST_FAULT": "kill@submit:1", "TILERY_TEST_FAULT_ONCE": str(died)},
                   check=True, capture_output=True)
    return (folder / "out.png").stat().st_mtime - died.stat().st_mtime


def recovery_of_host(folder: pathlib.Path, model: pathlib.Path) -> float:
    Image.fromarray(picture(96, 96, seed=1)).save(folder / "in.png")
    (folder / "job.yaml").write_text(f"""
model: {{path: {model}}}
input: {{path: {folder}/in.png}}
tiling: {{tile: 64, overlap: 16}}
output: {{path: {folder}/out.png}}
execution: {{work: {folder}/work, launch: join, devices: [cpu]}}
""")
    out = folder / "out.png"
    hosts = netlab.Hosts(folder / "net", 3)

    def begin(host: str, *words, **variables) -> subprocess.Popen:
        return subprocess.Popen([*hosts.entry(host), EXECUTABLE, *words], cwd=folder, env={**os.environ, **variables},
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def wait(what) -> None:
        end = time.monotonic() + 60
        while not what():
            if time.monotonic() > end:
                sys.exit(f"{folder}: it does not come to that")
            time.sleep(0.01)

    try:
        run = begin("host0", "run", "job.yaml", "--listen", "auto")
        status = folder / "work/status.json"
        begin("host1", "worker", "--join", "work", TILERY_TEST_FAULT="delay@submit:60000ms")
        wait(lambda: status.exists() and json.loads(status.read_text())["units"]["leased"] == 1)
        begin("host2", "worker", "--join", "work")
        wait(lambda: len(json.loads(status.read_text())["workers"]) == 2)
        time.sleep(2)
        if out.exists():
            sys.exit("the unit was not held by the first host")
        hosts.cut("host1")
        cut = time.time()
        wait(out.exists)
        run.wait(timeout=60)
        return out.stat().st_mtime - cut
    finally:
        hosts.down()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int)
    parser.add_argument("--host", action="store_true", help="a host is cut off, instead of the death of a worker")
    args = parser.parse_args()
    if args.host and netlab.missing():
        sys.exit(netlab.missing())
    times = args.times or (5 if args.host else 10)
    with tempfile.TemporaryDirectory() as top:
        model = pathlib.Path(top) / "model.pt"
        nets.save("identity", model)
        seconds = []
        for k in range(times):
            folder = pathlib.Path(top) / str(k)
            folder.mkdir()
            seconds.append((recovery_of_host if args.host else recovery)(folder, model))
    loss = "the cut of its host until its unit is done on another" if args.host else \
        "the worker's death until its unit is done by a fresh one"
    print(f"from {loss}: median {statistics.median(seconds):.2f} s, "
          f"most {max(seconds):.2f} s, of {times}")


if __name__ == "__main__":
    main()
