"""Hosts that join a run of another process (`tilery worker --join`): they work, leave, are lost and are refused, and the
bytes are always those of a run on its own."""
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from conftest import digests, EXECUTABLE, finish, leftovers, small_and_big


def job(run, model, name, net="identity", **execution):
    small_and_big(run.dir, 4)
    return run.job(f"{name}.yaml", model={"path": model(net)}, input={"path": "p*.png"},
                   tiling={"tile": 32, "overlap": 8}, output={"path": f"{name}/{{stem}}.png"},
                   execution={"work": f"work-{name}", **execution})


@pytest.fixture
def wanted(run, model):
    run.ok("run", job(run, model, "good"))
    return digests(run.dir / "good")


def join(run, work, *args, env=None):
    return run.start("worker", "--join", work, *args, env=env)


def test_workers_that_join_do_all_the_work(run, model, wanted):
    """They may be there before the run is."""
    early = join(run, "work-out")
    p = run.start("run", job(run, model, "out", launch="join"), "--json")
    late = join(run, "work-out")
    out, err = finish(p)
    assert json.loads(out)["items_done"] == 5
    assert digests(run.dir / "out") == wanted and leftovers(run.dir) == []
    workers = run.profile("work-out")["workers"]
    assert sorted(w["id"] for w in workers) == ["w0", "w1"] and sum(w["units"] > 0 for w in workers) >= 1
    assert "joins: w" in err
    finish(early)
    finish(late)
    assert not (run.dir / "work-out/join.json").exists()


def test_a_run_with_workers_of_its_own_takes_others_too(run, model, wanted):
    held = run.start_held("run", job(run, model, "out", workers=1), "--json", rule="submit:3")
    status = run.wait_for("work-out", lambda s: s["workers"])
    assert os.stat(run.dir / "work-out/join.json").st_mode & 0o777 == 0o600
    helper = join(run, "work-out")
    run.wait_for("work-out", lambda s: len(s["workers"]) == 2)
    run.go_on()
    finish(held)
    finish(helper)
    assert digests(run.dir / "out") == wanted
    assert {w["id"] for w in run.profile("work-out")["workers"]} == {status["workers"][0]["id"], "w1"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_host_that_leaves_gives_back_what_it_has_not_begun(run, model, wanted, number):
    p = run.start("run", job(run, model, "out", launch="join"), "--json")
    first = join(run, "work-out", env={"TILERY_TEST_FAULT": "delay@submit:200ms"})
    run.wait_for("work-out", lambda s: s["units"]["leased"] > 0)
    first.send_signal(number)
    _, err = finish(first, timeout=60)
    assert "leaving" in err
    assert p.poll() is None, "the run waits for others"
    second = join(run, "work-out")
    finish(p)
    finish(second)
    assert digests(run.dir / "out") == wanted and leftovers(run.dir) == []


def test_a_host_that_is_lost_costs_its_leases_only(run, model, wanted):
    p = run.start("run", job(run, model, "out", launch="join"), "--json")
    lost = join(run, "work-out", env={"TILERY_TEST_FAULT": "delay@submit:500ms"})
    run.wait_for("work-out", lambda s: s["units"]["leased"] > 0)
    os.killpg(lost.pid, signal.SIGKILL)
    begin = time.monotonic()
    other = join(run, "work-out")
    finish(p)
    finish(other)
    assert time.monotonic() - begin < 60
    assert digests(run.dir / "out") == wanted and leftovers(run.dir) == []


def test_a_worker_of_a_host_that_dies_is_started_again_and_blamed_by_name(run, model, wanted):
    p = run.start("run", job(run, model, "out", launch="join"), "--json")
    host = join(run, "work-out", env={"TILERY_TEST_FAULT": "kill@submit:4",
                                      "TILERY_TEST_FAULT_ONCE": str(run.dir / "died")})
    _, err = finish(p)
    finish(host)
    assert (run.dir / "died").exists() and "worker w0: its process ended by signal 9" in err
    assert digests(run.dir / "out") == wanted and leftovers(run.dir) == []


def test_a_job_that_no_worker_can_do_ends_the_run_and_the_host(run, model):
    shutil.copy(model("identity"), run.dir / "model.pt")
    p = run.start("run", job(run, model, "out", launch="join"), "--model", "model.pt", "--json")
    run.wait_for("work-out", lambda s: s["units"]["waiting"] > 0)
    (run.dir / "model.pt").unlink()
    host = join(run, "work-out")
    out, err = finish(p, code=2)
    assert out == "" and "model.pt" in err
    finish(host)


def test_without_a_run_to_join_the_way_out_is_named(run):
    r = run("worker", "--join", "work-none", "--wait", "0.3")
    assert r.code == 2 and "work-none" in r.err and "--listen" in r.err
    r = run("worker", "--join", "127.0.0.1:9", "--wait", "0.3")
    assert r.code == 2 and "TILERY_TOKEN" in r.err
    r = run("worker", "--join", "127.0.0.1:9", "--wait", "0.3", env={"TILERY_TOKEN": "0" * 64})
    assert r.code == 2 and "127.0.0.1:9" in r.err
    assert run("worker").code == 2


def test_an_address_needs_the_right_token_and_a_file_of_its_owner_alone(run, model, wanted):
    p = run.start("run", job(run, model, "out", launch="join"), "--listen", "127.0.0.1", "--json")
    end = time.monotonic() + 60
    while not (run.dir / "work-out/join.json").exists():
        assert time.monotonic() < end and p.poll() is None
        time.sleep(0.05)
    meeting = json.loads((run.dir / "work-out/join.json").read_text())
    assert meeting["addresses"] == ["127.0.0.1"]
    where = f"127.0.0.1:{meeting['port']}"
    r = run("worker", "--join", where, "--wait", "0.5", env={"TILERY_TOKEN": "f" * 64})
    assert r.code == 2 and "token" in r.err
    token = run.dir / "token"
    token.write_text(meeting["token"] + "\n")
    token.chmod(0o644)
    r = run("worker", "--join", where, "--token-file", "token")
    assert r.code == 2 and "others may read it" in r.err
    token.chmod(0o600)
    host = run.start("worker", "--join", where, "--token-file", "token")
    # Nobody may read it off the process list, or find it in a log.
    argv = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    finish(p)
    finish(host)
    assert meeting["token"] not in argv
    logs = [f for f in (run.dir / "work-out").glob("*") if f.suffix in (".log", ".jsonl", ".json")]
    assert logs and not any(meeting["token"] in f.read_text() for f in logs)
    assert digests(run.dir / "out") == wanted


def test_an_interface_that_is_not_there_is_refused(run, model):
    r = run("run", job(run, model, "out"), "--listen", "nosuch0")
    assert r.code == 2 and "nosuch0" in r.err and "127.0.0.1" in r.err


def test_the_scheduler_s_death_ends_the_hosts(run, model):
    p = run.start("run", job(run, model, "out", launch="join"))
    host = join(run, "work-out", env={"TILERY_TEST_FAULT": "delay@submit:500ms"})
    status = run.wait_for("work-out", lambda s: s["workers"])
    p.send_signal(signal.SIGKILL)
    _, err = finish(host, code=75, timeout=90)
    assert "scheduler was lost" in err
    end = time.monotonic() + 5
    while os.path.exists(f"/proc/{status['workers'][0]['pid']}"):
        assert time.monotonic() < end, "its worker is left"
        time.sleep(0.05)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to show a host another folder")
def test_a_host_that_sees_another_scratch_folder_is_refused(run, model, wanted):
    """As if execution.scratch were a disk of each host's own. The run goes on with those who see the right one."""
    (run.dir / "fast").mkdir()
    p = run.start("run", job(run, model, "out", launch="join", scratch="fast"), "--json")
    end = time.monotonic() + 60
    while not (run.dir / "work-out/join.json").exists():
        assert time.monotonic() < end and p.poll() is None
        time.sleep(0.05)
    r = subprocess.run(["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none fast && exec "$@"', "sh", EXECUTABLE, "worker",
                        "--join", "work-out"], cwd=run.dir, capture_output=True, text=True, timeout=60)
    assert r.returncode == 2 and "does not see the folder" in r.stderr and "execution.scratch" in r.stderr, r.stderr
    good = join(run, "work-out")
    out, _ = finish(p)
    finish(good)
    assert json.loads(out)["items_done"] == 5 and digests(run.dir / "out") == wanted
    assert not list((run.dir / "fast").iterdir())
