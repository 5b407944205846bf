"""Runs over three hosts (netlab.py): under Open MPI and with hosts that join, through deaths, the loss of a host and a
network that is cut and heals. Every outcome is compared byte for byte with a run of one worker on one host."""
import json
import os
import signal
import subprocess
import time

import pytest
from PIL import Image

import netlab
from conftest import digests, EXECUTABLE, finish, leftovers, picture

WHY_NOT = netlab.missing()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
with_mpi = pytest.mark.skipif(not (EXECUTABLE.parent / "tilery-mpi-openmpi.so").exists(),
                              reason="this build has no Open MPI: its headers were not there")
SLOW = {"TILERY_TEST_FAULT": "delay@submit:250ms"}


@pytest.fixture
def hosts(tmp_path):
    three = netlab.Hosts(tmp_path / "net", 3)
    yield three
    three.down()


@pytest.fixture
def wanted(run, model):
    run.ok("run", job(run, model, "good"), "--workers", "1")
    return digests(run.dir / "good")


def job(run, model, name, **execution):
    for k in range(6):
        Image.fromarray(picture(150 + k, 130, seed=k)).save(run.dir / f"p{k}.png")
    Image.fromarray(picture(900, 700, seed=99)).save(run.dir / "pbig.png")
    return run.job(f"{name}.yaml", model={"path": str(model("identity"))}, input={"path": f"{run.dir}/p*.png"},
                   tiling={"tile": 32, "overlap": 8}, output={"path": f"{run.dir}/{name}/{{stem}}.png"},
                   execution={"work": f"{run.dir}/work-{name}", **execution})


def begin(run, words, env=None):
    p = subprocess.Popen([str(word) for word in words], cwd=run.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True, start_new_session=True, env={**os.environ, **(env or {})})
    run.started.append(p)
    return p


def mpirun(run, hosts, ranks, *args, env=None):
    passed = [word for name in (env or {}) for word in ("-x", name)]
    return begin(run, [*hosts.mpirun(ranks), *passed, "--wdir", run.dir, EXECUTABLE, *args], env)


def begin_with_two_that_join(run, model, hosts):
    """A run on host0 whose workers are on host1 and host2, when they have done a first unit."""
    p = begin(run, [*hosts.entry("host0"), EXECUTABLE, "run", job(run, model, "out", launch="join"), "--listen", "auto",
                    "--json"])
    joined = [begin(run, [*hosts.entry(name), EXECUTABLE, "worker", "--join", "work-out"], SLOW)
              for name in ("host1", "host2")]
    run.wait_for("work-out", lambda s: len(s["workers"]) == 2 and s["units"]["done"] >= 1)
    return p, joined


@with_mpi
def test_mpirun_over_three_hosts_loses_a_worker_and_a_supervisor(run, model, wanted, hosts):
    p = mpirun(run, hosts, 3, "run", job(run, model, "out"), "--json", env=SLOW)
    status = run.wait_for("work-out", lambda s: len(s["workers"]) == 3)
    pids = {w["host"]: w["pid"] for w in status["workers"]}
    assert set(pids) == {"host0", "host1", "host2"}
    os.kill(pids["host1"], signal.SIGKILL)
    supervisor = int(open(f"/proc/{pids['host2']}/stat").read().rsplit(")", 1)[1].split()[1])
    assert b"supervise" in open(f"/proc/{supervisor}/cmdline", "rb").read()
    os.kill(supervisor, signal.SIGKILL)
    out, err = finish(p)
    assert json.loads(out)["items_done"] == 7 and "signal 9" in err
    assert digests(run.dir / "out") == wanted and leftovers(run.dir / "out") == []
    assert {w["host"] for w in run.profile("work-out")["workers"] if w["units"]} == {"host0", "host1", "host2"}
    assert all(not hosts.processes(name) for name in hosts.names)


@with_mpi
def test_the_loss_of_a_host_ends_mpirun_and_the_rest_resumes(run, model, wanted, hosts):
    p = mpirun(run, hosts, 3, "run", job(run, model, "out"), "--json", env=SLOW)
    run.wait_for("work-out", lambda s: s["units"]["done"] >= 3 and len(s["workers"]) == 3)
    hosts.kill("host2")
    p.communicate(timeout=60)
    assert p.returncode != 0
    out, _ = finish(mpirun(run, hosts, 2, "run", "out.yaml", "--json"))
    assert json.loads(out)["units_reused"] + json.loads(out)["items_unchanged"] > 0, "what was done is not done again"
    assert digests(run.dir / "out") == wanted and leftovers(run.dir / "out") == []


def test_a_host_that_joined_is_lost_and_others_go_on(run, model, wanted, hosts):
    """Without MPI a lost host costs its leases: 15 s, and no more than 2 s on top."""
    p, joined = begin_with_two_that_join(run, model, hosts)
    hosts.kill("host2")
    out, err = finish(p)
    assert json.loads(out)["items_done"] == 7, err
    assert digests(run.dir / "out") == wanted and leftovers(run.dir / "out") == []
    finish(joined[0])


@pytest.mark.parametrize("seconds", [4, 19])
def test_a_network_that_is_cut_and_heals_changes_no_byte(run, model, wanted, hosts, seconds):
    """For less than a lease, the holder keeps what it has and delivers; for longer, others have run it again by then, and
    what the holder of the old lease says or would publish counts no more."""
    p, joined = begin_with_two_that_join(run, model, hosts)
    hosts.cut("host2")
    time.sleep(seconds)
    hosts.heal("host2")
    out, err = finish(p)
    result = json.loads(out)
    assert result["items_done"] == 7 and result["items_failed"] == 0, err
    assert digests(run.dir / "out") == wanted and leftovers(run.dir / "out") == []
    finish(joined[0])
    joined[1].communicate(timeout=60)
    assert joined[1].returncode in (0, 75)  # 75: it had given up the scheduler before the network came back
    end = time.monotonic() + 5
    while any(hosts.processes(name) for name in hosts.names):
        assert time.monotonic() < end, "processes are left"
        time.sleep(0.1)


def test_a_run_listens_where_it_is_told_to_and_nowhere_else(run, model, hosts):
    p = begin(run, [*hosts.entry("host0"), EXECUTABLE, "run", job(run, model, "out", launch="join"), "--listen",
                    f"{netlab.NETWORK}.1"])
    end = time.monotonic() + 60
    while not (run.dir / "work-out/join.json").exists():
        assert time.monotonic() < end and p.poll() is None
        time.sleep(0.05)
    port = json.loads((run.dir / "work-out/join.json").read_text())["port"]
    listening = subprocess.run([*hosts.entry("host0"), "ss", "-Hltn"], capture_output=True, text=True, check=True).stdout
    assert [line.split()[3] for line in listening.splitlines()] == [f"{netlab.NETWORK}.1:{port}"]
    host = begin(run, [*hosts.entry("host1"), EXECUTABLE, "worker", "--join", "work-out"])
    finish(p)
    finish(host)
