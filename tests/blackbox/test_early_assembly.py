"""One volume is put together while its last units are still inferred: the same bytes, whatever is killed meanwhile."""
import json
import os
import signal
import time

import numpy as np
import pytest

from conftest import digests, leftovers, volume

BAND = 629 * 100 * 100 * 4  # bytes that are assembled at a time: as many planes as fit 24 MiB


def make_job(run, model, name, workers=1):
    """Two bands and a half, so that the first is whole when a good half of the units is done."""
    if not (run.dir / "v.npy").exists():
        np.save(run.dir / "v.npy", volume((1500, 100, 100)))
    return run.job(f"{name}.yaml", model={"path": model("ramp3d", channels={"in": 1, "out": 1})},
                   input={"path": "v.npy"}, tiling={"tile": 48, "overlap": 12}, output={"path": f"{name}/o.npy"},
                   execution={"workers": workers, "threads": 2, "work": f"work-{name}"})


@pytest.fixture
def wanted(run, model):
    run.ok("run", make_job(run, model, "good", workers=2))
    return digests(run.dir / "good")


def start_held(run, job):
    """Until the first band is written, and with a third of the units not inferred."""
    units = run.ok("plan", job, "--json").json["units"]
    held = units * 2 // 3
    p = run.start_held("run", job, "--json", rule=f"write:{held}")
    end = time.monotonic() + 90
    while not any(f.stat().st_size >= BAND for f in (run.dir / "out").glob(".tilery-*.part")):
        assert time.monotonic() < end and p.poll() is None, "nothing was assembled early"
        time.sleep(0.02)
    status = run.wait_for("work-out", lambda s: s["workers"] and s["units"]["done"] > 0)
    assert status["units"]["done"] < held and status["state"] == "running"
    return p, units, held, status


def wait_until_at_rest(run):
    """Whoever assembles has written all that it can, and waits for the rest: its file has stopped growing."""
    sizes = [-1]
    while len(sizes) < 20 or len(set(sizes[-20:])) > 1:  # two seconds
        sizes.append(sum(f.stat().st_size for f in (run.dir / "out").glob(".tilery-*.part")))
        time.sleep(0.1)


def test_a_volume_is_written_while_its_last_units_are_inferred(run, model, wanted):
    p, units, held, _ = start_held(run, make_job(run, model, "out"))
    wait_until_at_rest(run)
    run.go_on()
    out, err = p.communicate(timeout=200)
    assert p.returncode == 0, err[-2000:]
    assert json.loads(out)["tiles_repeated"] == 0
    assert digests(run.dir / "out") == wanted and leftovers(run.dir) == []
    trace = json.loads((run.dir / "work-out/trace.json").read_text())["traceEvents"]
    events = [e for e in trace if e["ph"] == "X" and e["args"]["unit"] >= 0]
    went_on = sorted(e["ts"] for e in events if e["name"] == "write" and e["args"]["unit"] < units - 1)[held - 1]
    assembly = [(e["name"], e["ts"], e["ts"] + e["dur"]) for e in events if e["args"]["unit"] == units - 1]
    assert "encode" in [name for name, _, end in assembly if end < went_on]
    assert not [name for name, begin, end in assembly if begin < went_on < end], "to wait is no work"


@pytest.mark.parametrize("who", ["worker", "scheduler", "group"])
def test_what_is_killed_while_it_assembles_early_changes_no_byte(run, model, wanted, who):
    job = make_job(run, model, "out")
    p, _, _, status = start_held(run, job)
    if who == "group":
        os.killpg(p.pid, signal.SIGKILL)
    else:
        os.kill(p.pid if who == "scheduler" else status["workers"][0]["pid"], signal.SIGKILL)
    run.go_on()
    _, err = p.communicate(timeout=200)
    if who == "worker":
        assert p.returncode == 0, err[-2000:]
    else:
        again = run.ok("run", job, "--json").json
        assert again["units_reused"] >= status["units"]["done"]
    assert digests(run.dir / "out") == wanted and leftovers(run.dir) == []


def test_a_worker_dies_of_what_it_assembles_early_and_only_that_is_set_aside(run, model, wanted):
    job = make_job(run, model, "out")
    r = run("run", job, "--json", env={"TILERY_TEST_FAULT": "kill@assemble:1"})
    assert r.code == 3 and r.json["items_failed"] == 1, r.err[-2000:]
    reason = run.profile("work-out")["failures"][0]["reason"]
    assert reason.startswith("assemble unit") and "two workers" in reason and "signal 9" in reason
    run.ok("run", job)
    assert digests(run.dir / "out") == wanted and leftovers(run.dir) == []
