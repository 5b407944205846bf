"""`tilery submit` where there is no queue: scripts as --dry-run prints them, what is refused before anything is queued, and
queues of which a few lines of shell take the place (test_slurm.py has a real one)."""
import os
import shlex
import subprocess

import pytest
from PIL import Image

from conftest import picture


@pytest.fixture
def job(run, model):
    Image.fromarray(picture(60, 80)).save(run.dir / "p0.png")

    def make(name="job.yaml", **sections):
        return run.job(name, **{"model": {"path": str(model("identity"))}, "input": {"path": "p*.png"},
                                "tiling": {"tile": 32, "overlap": 8}, "output": {"path": "out/"}, **sections})
    return make


@pytest.fixture
def queue(run):
    """queue(name, script): a command of that name, before all others on the PATH."""
    folder = run.dir / "bin"
    folder.mkdir()

    def make(name, script):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
        return {"PATH": f"{folder}:{os.environ['PATH']}"}
    return make


def command(script):
    """The words of the line that starts the run."""
    line, = [line for line in script.splitlines() if "--execution.launch" in line]
    return shlex.split(line)


def test_a_dry_run_prints_a_script_and_writes_nothing(run, job):
    before = sorted(run.dir.rglob("*"))
    r = run.ok("submit", job("my job.yaml"), "--queue", "slurm", "--nodes", 4, "--gpus-per-node", 8, "--time", 60,
               "--account", "lab", "--partition", "gpu", "--env", "A=b c", "--line", "module load cuda", "--dry-run")
    lines = r.out.splitlines()
    for line in ("#SBATCH --nodes=4", "#SBATCH --gpus-per-node=8", "#SBATCH --time=60", "#SBATCH --account=lab",
                 "#SBATCH --partition=gpu", "export A='b c'", "module load cuda", "#SBATCH --job-name=my_job"):
        assert line in lines, r.out
    words = command(r.out)
    assert words[1:3] == ["run", str(run.dir / "my job.yaml")] and "--listen" in words and words[-1] == "&"
    assert sorted(run.dir.rglob("*")) == sorted([*before, run.dir / "my job.yaml"])
    assert subprocess.run(["bash", "-n"], input=r.out, text=True).returncode == 0


def test_flags_of_the_job_come_along(run, model, job):
    job()
    r = run.ok("submit", "--model", model("identity"), "--input", "p0.png", "--output", "a b/", "--tiling.tile", 32, 48,
               "--work", "w", "--queue", "slurm", "--dry-run", "--json").json["jobs"][0]
    words = command(r["text"])
    for flag, *values in (["--output.path", "a b/"], ["--tiling.tile", "32", "48"], ["--input.path", "p0.png"]):
        at = words.index(flag)
        assert words[at + 1:at + 1 + len(values)] == values
    assert f"#SBATCH --chdir={run.dir}" in r["text"] and r["work"] == str(run.dir / "w")


@pytest.mark.parametrize("args, words", [
    (["--queue", "sge"], ["sge", "slurm, pbs, lsf"]),
    (["--nodes", "0"], ["--nodes", "1 to 100000"]),
    (["--time", "1", "--grace", "90"], ["--grace 90", "60 s"]),
    (["--workers", "4", "--nodes", "2"], ["--workers", "--nodes"]),
    (["--workers", "4", "--gpus-per-node", "2"], ["--gpus-per-node 2"]),
    (["--queue", "pbs", "--workers", "4"], ["--workers", "slurm", "pbs"]),
    (["--memory", "much"], ["much", "64G"]),
    (["--env", "module load"], ["module load", "NAME=VALUE", "--line"]),
    (["--execution.launch", "local"], ["--execution.launch"]),
    (["--stage", "2"], ["--stage 2", "no stages"]),
    (["--tile", "7", "--overlap", "9"], ["overlap"]),
    (["--input", "gone.png"], ["gone.png"]),
])
def test_what_cannot_be_is_refused_before_it_is_queued(run, job, args, words):
    r = run("submit", job(), "--dry-run", *([] if "--queue" in args else ["--queue", "slurm"]), *args)
    assert r.code == 2 and r.out == "", r.err
    for word in words:
        assert word in r.err


def test_outputs_in_the_way_are_found_now_and_not_after_hours_in_the_queue(run, job):
    (run.dir / "out").mkdir()
    (run.dir / "out/p0.png").write_text("somebody's")
    r = run("submit", job(), "--queue", "slurm", "--dry-run")
    assert r.code == 2 and "out/p0.png" in r.err
    run.ok("submit", "job.yaml", "--queue", "slurm", "--dry-run", "--output.existing", "replace")


def test_all_items_refused_is_no_job(run, job):
    (run.dir / "p0.png").write_bytes(b"no picture")
    r = run("submit", job(), "--queue", "slurm", "--dry-run")
    assert r.code == 2 and "all 1 items are refused" in r.err and "p0.png" in r.err


def test_a_template_of_ones_own(run, job):
    job()
    (run.dir / "mine.sh").write_text("#!/bin/sh\n# {{NAME}} on {{NODES}}\n# {{ACCOUNT}}\n{{RUN}}\n")
    out = run.ok("submit", "job.yaml", "--queue", "slurm", "--template", "mine.sh", "--dry-run").out.splitlines()
    assert out[1] == "# job on 1" and " run " in out[2] and len(out) == 3
    (run.dir / "mine.sh").write_text("{{RUN}}\n{{HOME}}\n")
    r = run("submit", "job.yaml", "--queue", "slurm", "--template", "mine.sh", "--dry-run")
    assert r.code == 2 and "mine.sh:2" in r.err and "{{HOME}}" in r.err and "PARTITION" in r.err


def pipeline(run, job, model):
    job()
    stage = {"model": {"path": str(model("identity"))}, "tiling": {"tile": 32, "overlap": 8}}
    return run.job("pipe.yaml", stages=[{**stage, "input": {"path": "p*.png"}, "output": {"path": "one/"}},
                                        {**stage, "input": {"path": "one/*.png"}, "output": {"path": "two/"}},
                                        {**stage, "input": {"path": "two/*.png"}, "output": {"path": "three/"}}])


def test_lsf_gets_each_stage_on_its_standard_input(run, model, job, queue):
    env = queue("bsub", 'echo "bsub $*" >>asked; cat >>asked; n=$(grep -c ^bsub asked); echo "Job <7$n> is submitted."')
    r = run.ok("submit", pipeline(run, job, model), "--queue", "lsf", "--nodes", 2, "--json", env=env).json
    assert [(j["id"], j["after"]) for j in r["jobs"]] == [("71", None), ("72", "71"), ("73", "72")]
    asked = (run.dir / "asked").read_text()
    assert "bsub -w done(71)\n" in asked and asked.count("#BSUB -n 2") == 3
    assert (run.dir / "one/.tilery/pipe-1/submit/pipe-1.sh").read_text() in asked


def test_if_one_stage_is_refused_those_queued_before_it_are_cancelled(run, model, job, queue):
    env = queue("sbatch", 'echo x >>calls; n=$(grep -c x calls); [ "$n" -lt 3 ] || { echo "no more" >&2; exit 1; }; echo "4$n;c"')
    queue("scancel", 'echo "$*" >>cancelled')
    r = run("submit", pipeline(run, job, model), "--queue", "slurm", env=env)
    assert r.code == 2 and "sbatch has refused the job (exit code 1): no more" in r.err
    assert (run.dir / "cancelled").read_text().split() == ["41", "42"]
    assert "job 42 is cancelled again" in r.err


def test_without_a_queue_it_says_which_there_are(run, job):
    r = run("submit", job(), env={"PATH": str(run.dir)})
    assert r.code == 2 and all(word in r.err for word in ("sbatch", "qsub", "bsub", "--dry-run"))
    r = run("submit", job(), "--queue", "lsf", env={"PATH": str(run.dir)})
    assert r.code == 2 and "bsub is not on the PATH" in r.err
