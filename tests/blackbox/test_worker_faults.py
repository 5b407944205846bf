"""A worker that dies, throws, hangs or dawdles at a chosen place (worker/fault_points.h): the result is the undisturbed
one, nothing unfinished stays behind, and a unit that kills every worker is set aside by name."""
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest
from PIL import Image

from conftest import digests, EXECUTABLE, finish, leftovers, picture, small_and_big


def job(run, model, name, pictures=5, workers=1):
    """Small pictures in one unit each, and one that is staged, cut into units and assembled."""
    small_and_big(run.dir, pictures)
    return run.job(f"{name}.yaml", model={"path": model("identity")}, input={"path": "p*.png"},
                   tiling={"tile": 32, "overlap": 8}, output={"path": f"{name}/{{stem}}.png"},
                   execution={"workers": workers, "work": f"work-{name}"})


@pytest.fixture
def wanted(run, model):
    run.ok("run", job(run, model, "good"))
    found = digests(run.dir / "good")
    assert len(found) == 6
    return found


@pytest.mark.parametrize("rule", ["kill@read:4", "kill@stage:1", "kill@submit:5", "kill@write:3", "kill@assemble:1",
                                  "kill@rename:4", "kill@publish:6", "kill@report:2"])
def test_a_worker_that_dies_anywhere_changes_no_byte(run, model, wanted, rule):
    r = run.ok("run", job(run, model, "out"), "--json", timeout=200,
               env={"TILERY_TEST_FAULT": rule, "TILERY_TEST_FAULT_ONCE": str(run.dir / "died")}).json
    assert (run.dir / "died").exists()
    assert r["items_done"] == 6 and r["items_failed"] == 0
    assert digests(run.dir / "out") == wanted
    assert leftovers(run.dir) == []


@pytest.mark.parametrize("rule", ["hang@submit:5", "hang@assemble:1"])
def test_a_worker_that_hangs_is_killed_and_its_units_run_again(run, model, wanted, rule):
    """Its heart goes on beating: only that it gets nowhere shows that it hangs."""
    r = run.ok("run", job(run, model, "out"), "--json", timeout=200,
               env={"TILERY_TEST_FAULT": rule, "TILERY_TEST_FAULT_ONCE": str(run.dir / "hung"),
                    "TILERY_TEST_HUNG_S": "5"})
    assert (run.dir / "hung").exists()
    assert "signal 9" in r.err, r.err[-2000:]
    assert r.json["items_done"] == 6 and r.json["items_failed"] == 0
    assert digests(run.dir / "out") == wanted
    assert leftovers(run.dir) == []


def test_what_a_slow_worker_holds_at_the_end_is_done_by_another_too(run, model, wanted):
    """Here it never goes on; it is not hung yet by far when the run ends."""
    (run.dir / "held").touch()
    r = run.ok("run", job(run, model, "out", workers=2), "--json", timeout=100,
               env={"TILERY_TEST_FAULT": "hold@write:1/w1,delay@submit:100ms/w0", "TILERY_TEST_FAULT_HOLD": str(run.dir / "held")}).json
    assert run.profile("work-out")["units_twice"] >= 1
    assert r["items_done"] == 6 and r["reproducible"] is True
    assert digests(run.dir / "out") == wanted and leftovers(run.dir) == []


@pytest.mark.parametrize("place", ["stage", "assemble"])
def test_a_unit_that_kills_every_worker_is_set_aside_by_name(run, model, wanted, place):
    r = run("run", job(run, model, "out"), "--json", timeout=200, env={"TILERY_TEST_FAULT": f"kill@{place}:1"})
    assert r.code == 3 and r.json["items_failed"] == 1 and r.json["items_done"] == 5, r.err[-2000:]
    failures = run.profile("work-out")["failures"]
    assert [f["item"].rsplit("/", 1)[-1] for f in failures] == ["pbig.png"]
    assert "two workers" in failures[0]["reason"] and "signal 9" in failures[0]["reason"]
    run.ok("run", "out.yaml")  # undisturbed, it finishes
    assert digests(run.dir / "out") == wanted
    assert leftovers(run.dir) == []


def test_a_device_without_memory_is_retired_and_the_others_finish(run, model):
    # The second worker's first process and its fresh one; the first worker waits for that, with so many pictures that
    # it cannot hold all of them: what the first process gives back is not all that there is for the second one.
    run.ok("run", job(run, model, "good", pictures=40))
    hold, log = run.dir / "hold", run.dir / "work-out/log.jsonl"
    hold.touch()
    p = run.start("run", job(run, model, "out", pictures=40, workers=2), "--json",
                  env={"TILERY_TEST_FAULT": "exhaust@submit:1/w1,hold@read:1/w0", "TILERY_TEST_FAULT_HOLD": str(hold)})
    end = time.monotonic() + 100
    while not (log.exists() and "is retired" in log.read_text()):
        assert time.monotonic() < end, log.read_text()[-2000:]
        time.sleep(0.02)
    hold.unlink()
    out, err = p.communicate(timeout=200)
    assert p.returncode == 0, err[-2000:]
    assert "worker w1: TILERY_TEST_FAULT: at submit: asked 2000 bytes, 1000 free; a fresh process" in err
    assert "cpu is retired for this run, 1 of 2 workers are left" in err
    assert json.loads(out)["items_done"] == 41 and leftovers(run.dir) == []
    assert digests(run.dir / "out") == digests(run.dir / "good")
    assert any("is retired" in w for w in run.profile("work-out")["job"]["warnings"])


def test_with_no_memory_on_any_device_the_run_is_interrupted_and_can_be_resumed(run, model, wanted):
    r = run("run", job(run, model, "out", workers=2), "--json", timeout=200,
            env={"TILERY_TEST_FAULT": "exhaust@submit:2"})
    assert r.code == 75, r.err[-2000:]
    # Four processes ended, maybe over one and the same unit: it is not to blame.
    assert r.json["status"] == "interrupted" and r.json["items_failed"] == 0
    batch = json.loads((run.dir / "work-out/numerics.json").read_text())["batch"]
    assert batch > 1 and f"in batches of {batch}; " in r.err and f"--execution.batch {batch // 2}," in r.err
    assert "identity" in r.err and "asked 2000 bytes, 1000 free" in r.err and "the same command resumes" in r.err
    again = run.ok("run", "out.yaml", "--json").json
    assert again["status"] == "done" and digests(run.dir / "out") == wanted and leftovers(run.dir) == []
    first, total = r.json["tiles_inferred"], run.ok("plan", "out.yaml", "--json").json["tiles"]
    assert first + again["tiles_inferred"] == total, "what was finished is not run again"


def test_what_goes_away_is_tried_again(run, model, wanted):
    r = run.ok("run", job(run, model, "out"), "--json",
               env={"TILERY_TEST_FAULT": "throw@read:2,throw@write:3,throw@assemble:1"}).json
    assert r["items_done"] == 6 and r["items_failed"] == 0
    assert digests(run.dir / "out") == wanted and leftovers(run.dir) == []


def test_an_output_that_can_not_be_written_fails_alone(run, model, wanted):
    r = run("run", job(run, model, "out"), "--json", env={"TILERY_TEST_FAULT": "fail@rename:2"})
    assert r.code == 3 and r.json["items_failed"] == 1 and r.json["items_done"] == 5
    missing = set(wanted) - set(digests(run.dir / "out"))
    assert len(missing) == 1 and leftovers(run.dir) == []
    run.ok("run", "out.yaml")
    assert digests(run.dir / "out") == wanted


def test_slow_reading_changes_no_byte(run, model, wanted):
    run.ok("run", job(run, model, "out"), env={"TILERY_TEST_FAULT": "delay@read:150ms"})
    assert digests(run.dir / "out") == wanted


def test_two_jobs_that_write_into_one_folder_at_once_do_not_meet(run, model):
    for name in "ab":
        for k in range(3):
            Image.fromarray(picture(60 + k, 80, seed=k)).save(run.dir / f"{name}{k}.png")
        run.job(f"{name}.yaml", model={"path": model("identity")}, input={"path": f"{name}?.png"},
                tiling={"tile": 32, "overlap": 8}, output={"path": "out/{stem}.png"}, execution={"workers": 1})
    first = run.start("run", "a.yaml", env={"TILERY_TEST_FAULT": "delay@rename:3000ms"})
    end = time.monotonic() + 60
    while not list((run.dir / "out").glob(".tilery-*.part")) and time.monotonic() < end:
        time.sleep(0.02)
    run.ok("run", "b.yaml")
    _, err = first.communicate(timeout=100)
    assert first.returncode == 0, err[-2000:]
    assert sorted(digests(run.dir / "out")) == [f"{name}{k}.png" for name in "ab" for k in range(3)]
    assert leftovers(run.dir) == []


MEMORY_GROUPS = pathlib.Path("/sys/fs/cgroup/memory" if os.path.isdir("/sys/fs/cgroup/memory") else "/sys/fs/cgroup")


@pytest.fixture
def small_host():
    """small_host(bytes): a control group with so much memory; what enters it and takes more is ended by the kernel."""
    groups = []

    def make(limit):
        folder = MEMORY_GROUPS / f"tilery-test-{os.getpid()}-{len(groups)}"
        name = "memory.limit_in_bytes" if (MEMORY_GROUPS / "memory.limit_in_bytes").exists() else "memory.max"
        try:
            folder.mkdir()
            groups.append(folder)
            (folder / name).write_text(str(limit))
            return str(folder / "cgroup.procs")
        except OSError as error:
            pytest.skip(f"no control group for memory can be made here: {error}")
    yield make
    for folder in groups:
        for _ in range(100):
            try:
                folder.rmdir()
                break
            except OSError:
                time.sleep(0.1)


def test_a_host_whose_memory_is_full_is_told_of_and_the_job_goes_on_where_there_is_more(run, model, wanted, small_host):
    """The kernel ends the worker, and a fresh one. Nobody's unit is to blame for it."""
    procs = small_host(60 << 20)  # no worker with its model fits
    job(run, model, "out")
    words = [str(EXECUTABLE), "run", "out.yaml", "--json"]
    p = subprocess.run(["sh", "-c", 'echo $$ >"$0" && exec "$@"', procs, *words], cwd=run.dir, capture_output=True,
                       text=True, timeout=120)
    assert p.returncode == 75, p.stderr[-3000:]
    assert "the kernel has ended it, since there was no memory left" in p.stderr and "retired for this run" in p.stderr
    assert json.loads(p.stdout)["items_failed"] == 0
    run.ok("run", "out.yaml")
    assert digests(run.dir / "out") == wanted and leftovers(run.dir) == []


def test_a_scheduler_that_is_suspended_for_longer_than_a_lease_loses_nothing(run, model, wanted):
    """Its workers publish nothing meanwhile; no lease is taken from them when it goes on."""
    p = run.start("run", job(run, model, "out", workers=2), "--json", env={"TILERY_TEST_FAULT": "delay@submit:300ms"})
    run.wait_for("work-out", lambda s: s["units"]["done"] >= 3)
    os.kill(p.pid, signal.SIGSTOP)
    time.sleep(17)  # a lease is 15 s
    os.kill(p.pid, signal.SIGCONT)
    out, err = finish(p)
    result = json.loads(out)
    assert result["items_done"] == 6 and result["tiles_repeated"] == 0, err[-3000:]
    assert digests(run.dir / "out") == wanted and leftovers(run.dir) == []
