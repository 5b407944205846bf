"""`tilery submit` on a real Slurm of two nodes (slurmlab.py): pipelines, jobs that are drained and queued again, a node that is
lost, arrays of workers. Every outcome is compared byte for byte with a run of one worker on one host."""
import json
import pathlib
import re
import shutil
import time

import pytest
from PIL import Image

import slurmlab
from conftest import digests, EXECUTABLE, picture

WHY_NOT = slurmlab.missing()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
SLOW = "TILERY_TEST_FAULT=delay@submit:250ms"


@pytest.fixture
def slurm(tmp_path):
    cluster = slurmlab.Slurm(tmp_path / "slurm", 2)
    yield cluster
    cluster.down()


def stage(run, model, source, folder, **more):
    return {"model": {"path": str(model("identity"))}, "input": {"path": f"{run.dir}/{source}"},
            "tiling": {"tile": 32, "overlap": 8}, "output": {"path": f"{run.dir}/{folder}/{{stem}}.png"},
            "execution": {"work": f"{run.dir}/work-{folder}"}, **more}


@pytest.fixture
def wanted(run, model):
    for k in range(6):
        Image.fromarray(picture(150 + k, 130, seed=k)).save(run.dir / f"p{k}.png")
    Image.fromarray(picture(900, 700, seed=99)).save(run.dir / "pbig.png")
    run.ok("run", run.job("good.yaml", **stage(run, model, "p*.png", "good")), "--workers", "1")
    return digests(run.dir / "good")


def submit(run, slurm, *args, gpus=0):
    """The jobs' numbers."""
    r = slurm(EXECUTABLE, "submit", *args, "--queue", "slurm", "--gpus-per-node", gpus, "--json", cwd=run.dir)
    return [job["id"] for job in json.loads(r.stdout)["jobs"]]


def log(run, work):
    return "".join(path.read_text() for path in sorted((run.dir / work / "submit").glob("*.log")))


def hosts_at_work(run, work):
    return {w["host"] for w in run.profile(work)["workers"] if w["units"]}


def wait_until_nothing_runs(slurm):
    """No process of a job is left on any node."""
    def names():
        for host in slurm.hosts.names:
            for pid in slurm.hosts.processes(host):
                try:
                    yield pathlib.Path(f"/proc/{pid}/comm").read_text()
                except (FileNotFoundError, ProcessLookupError):
                    pass
    end = time.monotonic() + 20
    while any("tilery" in name for name in names()):
        assert time.monotonic() < end, list(names())
        time.sleep(0.2)


def test_a_pipeline_runs_stage_by_stage_on_two_nodes(run, model, wanted, slurm):
    run.job("pipe.yaml", stages=[stage(run, model, "p*.png", "one", name="first"),
                                 stage(run, model, "one/*.png", "two", name="second")])
    first, second = submit(run, slurm, "pipe.yaml", "--nodes", "2", "--time", "5", "--env", SLOW)
    assert f"Dependency=afterok:{first}" in slurm("scontrol", "-o", "show", "job", second).stdout
    slurm.wait(first, "COMPLETED")
    slurm.wait(second, "COMPLETED")
    assert digests(run.dir / "one") == wanted and digests(run.dir / "two") == wanted
    assert hosts_at_work(run, "work-one") == {"host0", "host1"}
    status = run.ok("status", "pipe.yaml", "--json").json
    assert [(s["name"], s["state"]) for s in status["stages"]] == [("first", "done"), ("second", "done")]
    wait_until_nothing_runs(slurm)


def test_a_job_drained_before_its_limit_is_queued_again_and_goes_on(run, model, wanted, slurm):
    run.job("out.yaml", **stage(run, model, "p*.png", "out"))
    job, = submit(run, slurm, "out.yaml", "--nodes", "2", "--env", SLOW)
    run.wait_for("work-out", lambda s: s["units"]["done"] >= 2)
    slurm("scancel", "--signal=USR1", "--batch", job)  # as Slurm itself does before the time limit
    shown = slurm.wait(job, "COMPLETED")
    assert "Restarts=1" in shown
    assert digests(run.dir / "out") == wanted
    assert "queued again" in log(run, "work-out") and run.ok("status", "work-out", "--json").json["state"] == "done"


def test_the_loss_of_a_node_costs_what_it_was_at(run, model, wanted, slurm):
    run.job("out.yaml", **stage(run, model, "p*.png", "out"))
    job, = submit(run, slurm, "out.yaml", "--nodes", "2", "--env", SLOW)
    run.wait_for("work-out", lambda s: len(s["workers"]) == 2 and s["units"]["done"] >= 2)
    slurm.power_off("node1")
    shown = slurm.wait(job, "COMPLETED")
    assert "Restarts=0" in shown, shown
    assert digests(run.dir / "out") == wanted


def test_an_array_of_workers(run, model, wanted, slurm):
    run.job("out.yaml", **stage(run, model, "p*.png", "out"))
    job, = submit(run, slurm, "out.yaml", "--workers", "3", "--env", SLOW)
    slurm.wait(job, "COMPLETED")
    assert digests(run.dir / "out") == wanted
    workers = run.profile("work-out")["workers"]
    assert len(workers) == 3 and all(w["units"] for w in workers)


def test_a_cancelled_job_stays_cancelled_and_leaves_nothing_running(run, model, wanted, slurm):
    run.job("out.yaml", **stage(run, model, "p*.png", "out"))
    job, = submit(run, slurm, "out.yaml", "--nodes", "2", "--env", SLOW)
    run.wait_for("work-out", lambda s: s["units"]["done"] >= 1)
    slurm("scancel", job)
    slurm.wait(job, "CANCELLED")
    wait_until_nothing_runs(slurm)
    assert slurm.state(job) == "CANCELLED"
    run.ok("run", "out.yaml")  # and resumes by hand
    assert digests(run.dir / "out") == wanted


@pytest.mark.parametrize("on_failed", ["continue", "stop"])
def test_what_failed_items_of_a_stage_mean_for_those_after_it(run, model, wanted, slurm, on_failed):
    (run.dir / "pbad.png").write_bytes((run.dir / "p0.png").read_bytes()[:200])
    run.job("pipe.yaml", stages=[stage(run, model, "p*.png", "one", on_failed=on_failed),
                                 stage(run, model, "one/*.png", "two")])
    first, second = submit(run, slurm, "pipe.yaml", "--nodes", "2")
    if on_failed == "continue":
        slurm.wait(first, "COMPLETED")
        slurm.wait(second, "COMPLETED")
        assert digests(run.dir / "two") == wanted
    else:
        assert "ExitCode=3:0" in slurm.wait(first, "FAILED")
        slurm.wait(second, "CANCELLED")
        assert digests(run.dir / "one") == wanted and not (run.dir / "two").exists()


@pytest.fixture
def pbs(slurm, tmp_path):
    """What PBS has and Slurm's own qsub does not bring: its variables, pbsdsh, and a qrerun (that of Slurm 22.05 calls a
    function of two arguments with one)."""
    folder = tmp_path / "pbs"
    folder.mkdir()
    for name, body in (("qrerun", 'exec scontrol requeue "$1"'),
                       ("pbsdsh", '[ "$1" = -- ] && shift\nexec srun --no-kill --kill-on-bad-exit=0 --wait=0 '
                                  '--ntasks-per-node=1 --nodes="$SLURM_NNODES" "$@"')):
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    return ["--queue", "pbs", "--nodes", "2", "--gpus-per-node", "0", "--env", SLOW,
            "--line", f"export PATH={folder}:$PATH PBS_JOBID=$SLURM_JOB_ID"]


with_qsub = pytest.mark.skipif(not shutil.which("qsub"), reason="needs Debian's slurm-wlm-torque")


@with_qsub
def test_pbs_runs_a_pipeline(run, model, wanted, slurm, pbs):
    run.job("pipe.yaml", stages=[stage(run, model, "p*.png", "one"), stage(run, model, "one/*.png", "two")])
    r = slurm(EXECUTABLE, "submit", "pipe.yaml", *pbs, "--time", "5", cwd=run.dir)
    jobs = re.findall(r"^job (\d+)", r.stdout, re.MULTILINE)
    assert len(jobs) == 2 and f"job {jobs[1]}: stage 2, after job {jobs[0]}" in r.stdout
    for job in jobs:
        slurm.wait(job, "COMPLETED")
    assert digests(run.dir / "one") == wanted and digests(run.dir / "two") == wanted
    assert hosts_at_work(run, "work-one") == {"host0", "host1"}


@with_qsub
def test_pbs_queues_again_what_was_drained(run, model, wanted, slurm, pbs):
    run.job("out.yaml", **stage(run, model, "p*.png", "out"))
    job, = [job["id"] for job in
            json.loads(slurm(EXECUTABLE, "submit", "out.yaml", *pbs, "--json", cwd=run.dir).stdout)["jobs"]]
    run.wait_for("work-out", lambda s: s["units"]["done"] >= 2)
    slurm("scancel", "--signal=USR1", "--batch", job)
    assert "Restarts=1" in slurm.wait(job, "COMPLETED")
    assert digests(run.dir / "out") == wanted


def test_what_slurm_refuses_is_told_in_its_words(run, model, wanted, slurm):
    run.job("out.yaml", **stage(run, model, "p*.png", "out"))
    r = slurm(EXECUTABLE, "submit", "out.yaml", "--partition", "nowhere", check=False, cwd=run.dir)
    assert r.returncode == 2 and "sbatch has refused the job" in r.stderr and "invalid partition" in r.stderr


def test_a_login_node_is_told_of_submit(run, model, wanted, slurm):
    run.job("out.yaml", **stage(run, model, "p*.png", "out"))
    r = slurm(EXECUTABLE, "run", "out.yaml", cwd=run.dir)
    assert "tilery submit" in r.stderr and digests(run.dir / "out") == wanted
