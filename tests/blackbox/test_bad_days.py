"""Runs on a file system with the ways of NFS, on a slow disk, and under a clock that jumps (faulty_system.cc). Whatever
happens, the bytes are those of a quiet day."""
import json
import os
import time

import pytest

from conftest import digests, EXECUTABLE, finish, leftovers, small_and_big

LIBRARY = EXECUTABLE.parent.parent / "tests/bin/faulty_system.so"
pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="not with sanitizers, whose own libraries must come first")


def job(run, model, name, **execution):
    """Small pictures in one unit each, and one that is staged, cut into units and assembled."""
    small_and_big(run.dir)
    return run.job(f"{name}.yaml", model={"path": model("identity")}, input={"path": "p*.png"},
                   tiling={"tile": 32, "overlap": 8}, output={"path": f"{name}/{{stem}}.png"},
                   execution={"work": f"work-{name}", **execution})


@pytest.fixture
def wanted(run, model):
    run.ok("run", job(run, model, "good"))
    return digests(run.dir / "good")


def bad_day(run, rules):
    return {"LD_PRELOAD": str(LIBRARY), "TILERY_TEST_SYSTEM": rules, "TILERY_TEST_SYSTEM_FOLDER": str(run.dir)}


def run_with_hosts(run, model, rules):
    """Two hosts that join a run, as far as files go: what one process makes, another sees when it does."""
    env = {**bad_day(run, rules), "TILERY_TEST_FAULT": "delay@submit:30ms"}  # so that both have something to do
    job(run, model, "out", launch="join")
    time.sleep(2)  # the inputs are older than anything that is late
    p = run.start("run", "out.yaml", "--listen", "auto", "--json", env=env)
    hosts = [run.start("worker", "--join", "work-out", env=env) for _ in range(2)]
    out, err = finish(p)
    for host in hosts:
        finish(host)
    assert sum(w["units"] > 0 for w in run.profile("work-out")["workers"]) == 2
    return json.loads(out), err


def test_what_others_wrote_is_waited_for(run, model, wanted):
    result, err = run_with_hosts(run, model, "late=1500")
    assert result["items_done"] == 6 and result["tiles_repeated"] == 0, err[-3000:]
    assert digests(run.dir / "out") == wanted and leftovers(run.dir) == []


def test_stale_handles_are_opened_anew(run, model, wanted):
    result, err = run_with_hosts(run, model, "stale=23")
    assert result["items_done"] == 6 and result["items_failed"] == 0, err[-3000:]
    assert digests(run.dir / "out") == wanted and leftovers(run.dir) == []


def test_late_stale_and_slow_at_once(run, model, wanted):
    result, err = run_with_hosts(run, model, "late=700,stale=41,slow=100")
    assert result["items_done"] == 6 and result["items_failed"] == 0, err[-3000:]
    assert digests(run.dir / "out") == wanted and leftovers(run.dir) == []


def test_a_clock_that_jumps_changes_nothing(run, model, wanted):
    for jump in (3600 * 24, -3600 * 24 * 400):
        env = bad_day(run, f"clock={jump}")
        r = run.ok("run", job(run, model, f"out{jump}", workers=2), "--json", env=env)
        assert r.json["items_done"] == 6 and r.json["tiles_repeated"] == 0 and 0 < r.json["wall_s"] < 60
        assert digests(run.dir / f"out{jump}") == wanted
        again = run.ok("run", f"out{jump}.yaml", "--json", env=env).json
        assert again["items_unchanged"] == 6
    assert leftovers(run.dir) == []


def test_the_same_rules_without_a_run_that_heeds_them_do_harm(run):
    """The library does what it says."""
    (run.dir / "fresh").write_text("x")
    env = {**os.environ, **bad_day(run, "late=60000")}
    assert os.spawnve(os.P_WAIT, "/bin/cat", ["cat", str(run.dir / "fresh")], env) != 0
