"""`mpirun -np N tilery run` under Open MPI and MPICH, on one host."""
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest
from PIL import Image

from conftest import digests, EXECUTABLE, finish, leftovers, picture

MPIRUNS = {
    "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"],
    "mpich": ["mpirun.mpich"],
}
KINDS = [kind for kind in MPIRUNS if (EXECUTABLE.parent / f"tilery-mpi-{kind}.so").exists()]


@pytest.fixture(params=MPIRUNS)
def mpirun(request, run):
    if request.param not in KINDS:
        pytest.skip(f"this build has no {request.param}: its headers were not there")
    assert shutil.which(MPIRUNS[request.param][0]), "the build has found its compiler, so its mpirun should be there"

    def start(ranks, *args, env=None):
        p = subprocess.Popen([*MPIRUNS[request.param], "-n", str(ranks), EXECUTABLE, *map(str, args)], cwd=run.dir,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                             env={**os.environ, **(env or {})})
        run.started.append(p)
        return p
    start.kind = request.param
    return start


def job(run, model, name, **execution):
    for k in range(5):
        Image.fromarray(picture(200 + k, 180, seed=k)).save(run.dir / f"p{k}.png")
    return run.job(f"{name}.yaml", model={"path": model("identity")}, input={"path": "p*.png"},
                   tiling={"tile": 32, "overlap": 8}, output={"path": f"{name}/{{stem}}.png"},
                   execution={"work": f"work-{name}", **execution})


@pytest.fixture
def wanted(run, model):
    run.ok("run", job(run, model, "good"))
    return digests(run.dir / "good")


def ours(run):
    """Processes that work in this test's folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/cwd") == str(run.dir):
                found.append(pid)
        except OSError:
            pass
    return found


def test_every_rank_has_a_worker_and_rank_0_speaks(run, model, wanted, mpirun):
    out, _ = finish(mpirun(3, "run", job(run, model, "out"), "--json"))
    result = json.loads(out)  # one document, though there are three ranks
    assert result["status"] == "done" and result["items_done"] == 5
    assert digests(run.dir / "out") == wanted and leftovers(run.dir) == []
    assert sorted(w["id"] for w in run.profile("work-out")["workers"]) == ["w0", "w1", "w2"]
    assert ours(run) == []


def test_workers_of_each_rank_as_the_job_says(run, model, wanted, mpirun):
    finish(mpirun(2, "run", job(run, model, "out"), "--workers", "2"))
    assert digests(run.dir / "out") == wanted
    assert len(run.profile("work-out")["workers"]) == 4


def test_one_rank_and_a_finished_job_again(run, model, wanted, mpirun):
    finish(mpirun(1, "run", job(run, model, "out")))
    out, _ = finish(mpirun(2, "run", "out.yaml", "--json"))
    assert json.loads(out)["items_unchanged"] == 5
    assert digests(run.dir / "out") == wanted


def test_a_mistake_is_told_once_and_ends_all_ranks(run, model, mpirun):
    p = mpirun(3, "run", job(run, model, "out"), "--tile", "0")
    _, err = finish(p, code=2)
    assert len(re.findall("tilery: .*tile", err)) == 1, err
    assert ours(run) == []


def test_a_worker_or_the_process_that_starts_it_may_die(run, model, wanted, mpirun):
    p = mpirun(2, "run", job(run, model, "out"), "--json", env={"TILERY_TEST_FAULT": "delay@submit:100ms"})
    status = run.wait_for("work-out", lambda s: len(s["workers"]) == 2)
    os.kill(status["workers"][0]["pid"], signal.SIGKILL)
    part = subprocess.run(["pgrep", "-f", f"^{EXECUTABLE} join-rank"], capture_output=True, text=True).stdout.split()
    part = [pid for pid in part if pid in ours(run)]
    assert len(part) == 2
    os.kill(int(part[1]), signal.SIGKILL)
    out, err = finish(p)
    assert json.loads(out)["items_done"] == 5 and "another takes its place" in err
    assert digests(run.dir / "out") == wanted and leftovers(run.dir) == []
    assert ours(run) == []


def test_usr1_drains_and_the_same_command_resumes(run, model, wanted, mpirun):
    p = mpirun(2, "run", job(run, model, "out"), "--json", env={"TILERY_TEST_FAULT": "delay@submit:300ms"})
    run.wait_for("work-out", lambda s: s["units"]["leased"] > 0)
    if mpirun.kind == "openmpi":  # whose mpirun passes it on
        p.send_signal(signal.SIGUSR1)
    else:
        held = (run.dir / "work-out/lock").read_text()
        os.kill(int(held.split()[-1]), signal.SIGUSR1)
    out, err = finish(p, code=75, timeout=60)
    assert "SIGUSR1" in err and json.loads(out.splitlines()[0])["status"] == "interrupted"
    assert ours(run) == []
    finish(mpirun(3, "run", "out.yaml"))
    assert digests(run.dir / "out") == wanted and leftovers(run.dir) == []


@pytest.mark.parametrize("kind", KINDS)
def test_singletons_of_the_wrong_mpirun_are_refused_in_words(run, model, kind):
    """What an mpirun says and its library sees are two things if they do not belong together."""
    rank, size = {"openmpi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), "mpich": ("PMI_RANK", "PMI_SIZE")}[kind]
    env = {size: "3", rank: "1"}
    if kind == "mpich":
        env["PMI_FD"] = "-1"  # no manager: its library then sees itself alone
    r = run("run", job(run, model, "out"), env=env, timeout=60)
    assert r.code == 2 and "do not belong together" in r.err, r.err
    assert ours(run) == []


def test_a_pipeline_runs_stage_after_stage_on_all_ranks(run, model, wanted, mpirun):
    def stage(source, folder):
        return {"model": {"path": str(model("identity"))}, "input": {"path": source}, "tiling": {"tile": 32, "overlap": 8},
                "output": {"path": f"{folder}/{{stem}}.png"}, "execution": {"work": f"work-{folder}"}}
    run.job("pipe.yaml", stages=[stage("p*.png", "one"), stage("one/*.png", "two")])
    out, _ = finish(mpirun(2, "run", "pipe.yaml", "--json"))
    assert [s["items_done"] for s in json.loads(out)["stages"]] == [5, 5]
    assert digests(run.dir / "one") == digests(run.dir / "two") == wanted and ours(run) == []
    for work in ("work-one", "work-two"):
        assert len(run.profile(work)["workers"]) == 2
    out, _ = finish(mpirun(2, "run", "pipe.yaml", "--json"))  # no worker is needed
    assert json.loads(out)["items_unchanged"] == 10
