#!/usr/bin/env python3
"""Kills a random process of a running job at random moments, starts the same command again until it is done, and
compares the outputs with those of an undisturbed run, byte for byte.

    chaos.py --kills 200            # the long version
    chaos.py --kills 12 --seed 3    # as in the test suite

Victims: a worker, a supervisor, the scheduler, or the whole process group. Every run of the job starts with an empty
output folder and a new work folder; within one, the same command is repeated until it exits 0.
"""
from __future__ import annotations

import argparse
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
from PIL import Image

from conftest import EXECUTABLE, digests, leftovers, picture
import nets


def children(pid: int) -> list[int]:
    try:
        return [int(c) for c in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def victims(scheduler: int) -> dict[str, list[int]]:
    supervisors = children(scheduler)
    return {"scheduler": [scheduler], "supervisor": supervisors, "worker": [w for s in supervisors for w in children(s)]}


def make_job(folder: pathlib.Path, workers: int) -> pathlib.Path:
    """Small pictures (one unit each), a large one (bricks, staged) and a volume's worth of npy."""
    nets.save("slow", folder / "slow.pt")
    for k in range(6):
        Image.fromarray(picture(90 + 10 * k, 120, seed=k)).save(folder / f"in{k}.png")
    Image.fromarray(picture(420, 520, seed=7)).save(folder / "in-large.png")
    Image.fromarray(picture(300, 200, seed=8)).save(folder / "in-tiff.tif")
    (folder / "cache").mkdir()
    job = folder / "job.yaml"
    job.write_text(f"""
model: {{path: slow.pt}}
input: {{path: "in*"}}
tiling: {{tile: 64, overlap: 16}}
output: {{path: "out/{{stem}}{{ext}}"}}
execution: {{workers: {workers}, work: work}}
""")
    return job


def run_once(job: pathlib.Path) -> subprocess.Popen:
    # A cache of its own, which the undisturbed run fills: no later run has a one-shot probe among its children.
    return subprocess.Popen([EXECUTABLE, "run", job], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                            start_new_session=True, env={**os.environ, "XDG_CACHE_HOME": str(job.parent / "cache")})


def finish(p: subprocess.Popen, seconds: float = 120) -> int:
    _, err = p.communicate(timeout=seconds)
    # Two kills that happen to hit workers with the same unit set it aside, as they should; the next run takes it up.
    set_aside = p.returncode == 3 and "ended two workers" in err
    if p.returncode not in (0, 75, -signal.SIGKILL) and not set_aside:
        raise SystemExit(f"exit {p.returncode}:\n{err[-3000:]}")
    return p.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="chaos-"))
    job = make_job(folder, args.workers)
    began = time.monotonic()
    assert finish(run_once(job)) == 0
    whole_run = time.monotonic() - began
    wanted = digests(folder / "out")
    print(f"undisturbed: {whole_run:.1f} s, {len(wanted)} outputs", flush=True)

    kills = {"worker": 0, "supervisor": 0, "scheduler": 0, "group": 0}
    rounds = restarts = 0
    while sum(kills.values()) < args.kills:
        shutil.rmtree(folder / "out")
        shutil.rmtree(folder / "work")
        rounds += 1
        for attempt in range(1000):
            p = run_once(job)
            # Later attempts of a round are given more and more time, so that a round ends.
            time.sleep(rng.uniform(0, whole_run * (0.3 + 0.1 * attempt)))
            while p.poll() is None and sum(kills.values()) < args.kills:
                who = rng.choice(list(kills))
                try:
                    if who == "group":
                        os.killpg(p.pid, signal.SIGKILL)
                    else:
                        alive = victims(p.pid)[who]
                        if not alive:
                            time.sleep(0.02)
                            continue
                        os.kill(rng.choice(alive), signal.SIGKILL)
                except ProcessLookupError:
                    continue
                kills[who] += 1
                if who in ("scheduler", "group") or rng.random() < 0.5:
                    break
                time.sleep(rng.uniform(0.1, whole_run * 0.3))
            code = finish(p)
            for path in (folder / "out").glob("*") if (folder / "out").exists() else []:
                if not path.name.startswith("."):
                    assert wanted[path.name] == digests(folder / "out")[path.name], f"{path} is not whole"
            if code == 0:
                break
            restarts += 1
        assert code == 0, "the job did not end"
        assert digests(folder / "out") == wanted, f"round {rounds}: outputs differ; {folder} is kept"
        assert not leftovers(folder / "out") and not list((folder / "work/scratch").glob("*")), "something is left"
        print(f"round {rounds}: {sum(kills.values())} kills so far {kills}, {restarts} restarts, outputs identical",
              flush=True)
    shutil.rmtree(folder)
    print(f"{sum(kills.values())} kills {kills} in {rounds} rounds: all outputs byte-identical")
    return 0


if __name__ == "__main__":
    sys.exit(main())
