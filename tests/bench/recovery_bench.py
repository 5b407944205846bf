#!/usr/bin/env python3
"""How long after the death of a run's only worker process its unit has been done again by a fresh one.

    recovery_bench.py [--times 10]

Each time a run of one picture on the CPU; its worker kills itself (signal 9) as it begins the picture, and leaves a file
that says when. Printed: seconds from then until the picture is written, so until the unit runs again, and a little more.
"""
from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "blackbox"))

from PIL import Image

from conftest import EXECUTABLE, picture
import nets


def recovery(folder: pathlib.Path, model: pathlib.Path) -> float:
    Image.fromarray(picture(96, 96, seed=1)).save(folder / "in.png")
    died = folder / "died"
    subprocess.run([EXECUTABLE, "run", "--model", model, "--input", folder / "in.png", "--output", folder / "out.png",
                    "--tile", "64", "--overlap", "16", "--devices", "cpu", "--work", folder / "work"],
                   env={**os.environ, "TILERY_TEST_FAULT": "kill@submit:1", "TILERY_TEST_FAULT_ONCE": str(died)},
                   check=True, capture_output=True)
    return (folder / "out.png").stat().st_mtime - died.stat().st_mtime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10)
    times = parser.parse_args().times
    with tempfile.TemporaryDirectory() as top:
        model = pathlib.Path(top) / "model.pt"
        nets.save("identity", model)
        seconds = []
        for k in range(times):
            folder = pathlib.Path(top) / str(k)
            folder.mkdir()
            seconds.append(recovery(folder, model))
    print(f"from the worker's death until its unit is done by a fresh one: median {statistics.median(seconds):.2f} s, "
          f"most {max(seconds):.2f} s, of {times}")


if __name__ == "__main__":
    main()
