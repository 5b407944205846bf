"""Kill anything at any moment: the same command again finishes the job, and the result is the undisturbed one."""
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import time

import numpy as np
import pytest
from PIL import Image

from conftest import EXECUTABLE, digests, leftovers, picture


# Each worker stops before it writes its fourth result: some units are done, and many more are open.
SOME_DONE = "write:4"


def make_job(run, model, name="out", images=3, size=380, workers=2, **execution):
    """On two threads: what is under way at a time is the same on every machine."""
    for k in range(images):
        Image.fromarray(picture(size, size + 20 * k, seed=k)).save(run.dir / f"s{k}.png")
    return run.job(f"{name}.yaml", model={"path": model("conv")}, input={"path": "s*.png"},
                   tiling={"tile": 64, "overlap": 16}, output={"path": f"{name}/{{stem}}.png"},
                   execution={"workers": workers, "threads": 2, "work": f"work-{name}", **execution})


@pytest.fixture
def wanted(run, model):
    run.ok("run", make_job(run, model, "good"), timeout=400)
    return digests(run.dir / "good")


def draining(status):
    return status["state"] in ("draining", "interrupted")


def all_gone(pids, seconds=5):
    """Dead or only waiting to be reaped by whoever adopted them."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        states = []
        for pid in pids:
            try:
                states.append(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0])
            except FileNotFoundError:
                pass
        if all(s == "Z" for s in states):
            return True
        time.sleep(0.05)
    return False


def test_a_killed_worker_is_replaced(run, model, wanted):
    p = run.start_held("run", make_job(run, model), "--json", rule=SOME_DONE)
    status = run.wait_for("work-out", lambda s: s["tiles_done"] > 0 and len(s["workers"]) == 2)
    os.kill(status["workers"][0]["pid"], signal.SIGKILL)
    run.go_on()
    out, err = p.communicate(timeout=300)
    assert p.returncode == 0, err[-3000:]
    assert json.loads(out)["items_done"] == 3 and digests(run.dir / "out") == wanted


def test_a_killed_scheduler_leaves_no_process_and_its_work_is_reused(run, model, wanted):
    job = make_job(run, model)
    p = run.start_held("run", job, rule=SOME_DONE)
    status = run.wait_for("work-out", lambda s: s["tiles_done"] > 0 and s["workers"])
    os.kill(p.pid, signal.SIGKILL)
    p.wait()
    assert all_gone([w["pid"] for w in status["workers"]])
    assert run.status("work-out")["state"] == "stopped"
    again = run.ok("run", job, "--json", timeout=300).json
    assert again["units_reused"] + again["items_unchanged"] >= 1
    assert digests(run.dir / "out") == wanted and not leftovers(run.dir / "out")


def test_accepted_tiles_over_all_invocations_are_the_plan_exactly_once(run, model, wanted):
    job = make_job(run, model)
    plan = run.ok("plan", job, "--json").json
    p = run.start_held("run", job, "--json", rule=SOME_DONE)
    run.wait_for("work-out", lambda s: s["tiles_done"] > 0)
    p.send_signal(signal.SIGTERM)
    run.wait_for("work-out", draining)
    run.go_on()
    out, _ = p.communicate(timeout=60)
    assert p.returncode == 75
    first = json.loads(out)
    assert first["status"] == "interrupted" and 0 < first["tiles_inferred"] < plan["tiles"]
    second = run.ok("run", job, "--json", timeout=300).json
    assert first["tiles_inferred"] + second["tiles_inferred"] == plan["tiles"]
    assert digests(run.dir / "out") == wanted


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGUSR1"])
def test_signals_drain_with_75(run, model, wanted, name):
    p = run.start_held("run", make_job(run, model), rule=SOME_DONE)
    run.wait_for("work-out", lambda s: s["workers"])
    p.send_signal(getattr(signal, name))
    run.wait_for("work-out", draining)
    run.go_on()
    p.communicate(timeout=60)
    assert p.returncode == 75
    run.ok("run", "out.yaml", timeout=300)
    assert digests(run.dir / "out") == wanted


def test_a_second_signal_ends_at_once(run, model):
    p = run.start_held("run", make_job(run, model), rule=SOME_DONE)
    status = run.wait_for("work-out", lambda s: s["workers"])
    p.send_signal(signal.SIGTERM)
    run.wait_for("work-out", draining)  # it waits for workers that stand still
    p.send_signal(signal.SIGTERM)
    assert p.wait(timeout=5) == 75
    assert all_gone([w["pid"] for w in status["workers"]])


def test_a_second_run_does_nothing(run, model):
    Image.fromarray(picture(150, 150)).save(run.dir / "a.png")
    args = ("run", "--model", model("identity"), "--input", "a.png", "--output", "b.png", "--tile", 64, "--json")
    assert run.ok(*args).json["items_done"] == 1
    stamp = (run.dir / "b.png").stat()
    summary = run.ok(*args).json
    assert summary["tiles_inferred"] == 0 and summary["items_unchanged"] == 1 and summary["items_done"] == 0
    assert (run.dir / "b.png").stat().st_mtime_ns == stamp.st_mtime_ns


def test_each_change_redoes_exactly_what_it_affects(run, model):
    (run.dir / "in").mkdir()
    for k in range(3):
        Image.fromarray(picture(120, 130, seed=k)).save(run.dir / "in" / f"p{k}.png")

    def once(**changes):
        base = {"--model": model("ramp2d"), "--input": "in", "--output": "out/", "--tile": 64, "--overlap": 16}
        base.update({f"--{k.replace('_', '.')}": v for k, v in changes.items()})
        return run.ok("run", *(x for pair in base.items() for x in pair), "--json").json

    assert once()["items_done"] == 3
    assert once(tiling_overlap=24, overlap=24)["items_done"] == 3
    assert once(overlap=24)["items_unchanged"] == 3
    assert once(overlap=24, window="linear")["items_done"] == 3
    assert once(overlap=24, window="linear", tile=48)["items_done"] == 3
    assert once(overlap=24, window="linear", tile=48, model=model("identity"))["items_done"] == 3
    Image.fromarray(picture(120, 130, seed=9)).save(run.dir / "in/p1.png")
    last = dict(overlap=24, window="linear", tile=48, model=model("identity"))
    s = once(**last)
    assert (s["items_done"], s["items_unchanged"]) == (1, 2)
    Image.fromarray(picture(90, 91, seed=4)).save(run.dir / "in/p3.png")
    s = once(**last)
    assert (s["items_done"], s["items_unchanged"]) == (1, 3)
    (run.dir / "in/p0.png").unlink()
    s = once(**last)
    assert (s["items_done"], s["items_unchanged"]) == (0, 3)


def test_touching_an_input_without_changing_it_redoes_nothing(run, model):
    Image.fromarray(picture(120, 130)).save(run.dir / "a.png")
    args = ("run", "--model", model("identity"), "--input", "a.png", "--output", "b.png", "--tile", 64, "--json")
    run.ok(*args)
    os.utime(run.dir / "a.png")
    assert run.ok(*args).json["items_unchanged"] == 1
    shutil.copy(run.dir / "a.png", run.dir / "c.png")
    os.replace(run.dir / "c.png", run.dir / "a.png")  # another inode, the same bytes
    assert run.ok(*args).json["items_unchanged"] == 1


@pytest.mark.parametrize("size", [0, 0.5])
def test_a_cut_output_is_redone(run, model, size):
    Image.fromarray(picture(120, 130)).save(run.dir / "a.png")
    args = ("run", "--model", model("identity"), "--input", "a.png", "--output", "b.png", "--tile", 64, "--json")
    run.ok(*args)
    whole = (run.dir / "b.png").read_bytes()
    (run.dir / "b.png").write_bytes(whole[:int(len(whole) * size)])
    assert run.ok("run", *args[1:]).json["items_done"] == 1
    assert (run.dir / "b.png").read_bytes() == whole


def test_an_edited_output_is_refused_not_overwritten(run, model):
    Image.fromarray(picture(120, 130)).save(run.dir / "a.png")
    args = ("run", "--model", model("identity"), "--input", "a.png", "--output", "b.png", "--tile", 64)
    run.ok(*args)
    Image.fromarray(picture(120, 130, seed=5)).save(run.dir / "b.png", compress_level=0)
    edited = (run.dir / "b.png").read_bytes()
    r = run(*args)
    assert r.code == 2 and "b.png" in r.err and "existing" in r.err
    assert (run.dir / "b.png").read_bytes() == edited


def test_a_damaged_brick_runs_its_unit_again(run, model):
    # One large picture: its bricks lie there until the last of them is done.
    run.ok("run", make_job(run, model, "good", images=1, size=600), timeout=400)
    job = make_job(run, model, images=1, size=600)
    p = run.start_held("run", job, rule="write:2")
    run.wait_for("work-out", lambda s: s["units"]["done"] == 3)  # the stage unit, and one brick of each worker
    os.killpg(p.pid, signal.SIGKILL)
    p.wait()
    bricks = sorted((run.dir / "work-out/scratch").glob("*.brick"))
    assert bricks
    data = bytearray(bricks[0].read_bytes())
    data[len(data) // 3] ^= 0x55
    bricks[0].write_bytes(data)
    again = run.ok("run", job, "--json", timeout=300).json
    assert again["tiles_repeated"] > 0 and again["tiles_inferred"] + again["tiles_reused"] == 13 * 13
    assert digests(run.dir / "out") == digests(run.dir / "good")


def test_a_finished_run_leaves_no_scratch(run, model):
    Image.fromarray(picture(700, 700)).save(run.dir / "a.png")
    run.ok("run", "--model", model("identity"), "--input", "a.png", "--output", "o/b.png", "--tile", 64, "--overlap", 16,
           "--work", "w")
    assert not list((run.dir / "w/scratch").glob("*")) and not leftovers(run.dir)


def test_two_runs_of_one_job_do_no_harm(run, model, wanted):
    job = make_job(run, model)
    a = run.start_held("run", job, rule=SOME_DONE)
    run.wait_for("work-out", lambda s: s["state"] == "running")
    r = run("run", job)
    assert r.code == 2 and str(a.pid) in r.err
    run.go_on()
    a.communicate(timeout=300)
    assert a.returncode == 0 and digests(run.dir / "out") == wanted


def test_verify_names_what_is_missing_or_changed(run, model):
    (run.dir / "in").mkdir()
    for k in range(4):
        Image.fromarray(picture(80, 80, seed=k)).save(run.dir / "in" / f"p{k}.png")
    run.ok("run", "--model", model("identity"), "--input", "in", "--output", "out/", "--tile", 64, "--work", "w")
    assert run.ok("verify", "w", "--json").json["whole"] == 4
    (run.dir / "out/p1.png").unlink()
    (run.dir / "out/p2.png").write_bytes(b"x" * (run.dir / "out/p2.png").stat().st_size)
    r = run("verify", "w", "--json")
    assert r.code == 3 and {os.path.basename(x["output"]) for x in r.json["wrong"]} == {"p1.png", "p2.png"}


def test_a_damaged_ledger_is_an_error_in_words(run, model):
    Image.fromarray(picture(80, 80)).save(run.dir / "a.png")
    args = ("run", "--model", model("identity"), "--input", "a.png", "--output", "b.png", "--tile", 64, "--work", "w")
    run.ok(*args)
    sqlite3.connect(run.dir / "w/ledger.sqlite").execute("pragma wal_checkpoint(truncate)")
    (run.dir / "w/ledger.sqlite").write_bytes(b"no database at all" * 400)
    r = run(*args)
    assert r.code in (1, 2) and "ledger.sqlite" in r.err


def test_a_raw_file_is_what_the_job_says_today(run, model):
    stored = np.arange(48 * 64, dtype=np.uint16).reshape(48, 64)
    stored.tofile(run.dir / "v.raw")
    for shape in (stored.shape, stored.T.shape):
        s = run.ok("run", "--model", model("identity", channels={"in": 1, "out": 1}), "--input", "v.raw", "--input.dtype", "u16",
                   "--input.shape", *shape, "--output", "out/", "--tile", 32, "--overlap", 8, "--json").json
        assert s["items_done"] == 1 and (run.dir / "out/v.raw").read_bytes() == stored.tobytes()


def test_a_run_whose_workers_are_still_starting_ends(run, model):
    worker = run.dir / "worker"
    worker.write_text(f"""#!/bin/sh
[ "$1" = --probe ] && exec {EXECUTABLE.parent}/tilery-worker --probe
exec sleep 60
""")
    worker.chmod(0o755)
    p = run.start("run", make_job(run, model, "out"), "--json", env={"TILERY_WORKER": str(worker)})
    run.wait_for("work-out", lambda s: s["state"] == "running")
    p.send_signal(signal.SIGTERM)
    out, err = p.communicate(timeout=50)
    assert p.returncode == 75 and json.loads(out)["status"] == "interrupted", err[-1500:]


def test_a_run_that_is_still_being_prepared_ends_at_the_first_signal(run, model):
    worker = run.dir / "worker"
    worker.write_text("#!/bin/sh\necho $$ > asked\nexec sleep 300\n")
    worker.chmod(0o755)
    cache = run.dir / "cache"  # with no answer from before
    p = run.start("run", make_job(run, model, "out"), "--json",
                  env={"TILERY_WORKER": str(worker), "XDG_CACHE_HOME": str(cache)})
    end = time.monotonic() + 60
    while not ((run.dir / "asked").exists() and (run.dir / "asked").read_text().endswith("\n")):
        assert time.monotonic() < end
        time.sleep(0.02)
    p.send_signal(signal.SIGTERM)
    out, err = p.communicate(timeout=20)
    assert p.returncode == 75 and "SIGTERM" in err, err[-1500:]
    assert json.loads(out)["status"] == "interrupted"
    assert all_gone([int((run.dir / "asked").read_text())])
    run.ok("run", "out.yaml")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_a_signal_right_after_the_start_ends_the_run_as_later_ones_do(run, model, name):
    number = getattr(signal, name)
    job = make_job(run, model, "out")
    for _ in range(5):
        p = run.start("run", job, "--json")
        heeded = False
        while not heeded and p.poll() is None:  # as soon as it can be heeded at all
            status = pathlib.Path(f"/proc/{p.pid}/status").read_text()
            caught = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")]
            heeded = bool(caught) and bool(int(caught[0], 16) >> (number - 1) & 1)
        p.send_signal(number)
        out, err = p.communicate(timeout=60)
        assert p.returncode == 75 and json.loads(out)["status"] == "interrupted", err[-1500:]
