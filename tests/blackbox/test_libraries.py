"""Models with operators of their own: with the library that defines them, without it, and after it changed."""
import json
import os
import pathlib
import shutil

import numpy as np
import pytest
from PIL import Image

from conftest import ROOT, digests, picture

OPERATORS = pathlib.Path(os.environ.get("TILERY_TEST_OPERATORS", ROOT / "build/tests/operators"))


@pytest.fixture
def samples(run):
    """Below a third of the type's maximum, so that three times as much still fits."""
    a = picture(150, 200) // 4
    Image.fromarray(a).save(run.dir / "a.png")
    return a


def job(run, model, libraries=("ops/times.so",)):
    own = {"libraries": list(libraries)} if libraries else {}
    return run.job(model={"path": model, **own}, input={"path": "a.png"},
                   tiling={"tile": 64, "overlap": 16}, output={"path": "out/{stem}.png"},
                   execution={"work": "work", "workers": 2, "devices": "cpu"})


def give(run, factor):
    (run.dir / "ops").mkdir(exist_ok=True)
    shutil.copy(OPERATORS / f"times_{factor}.so", run.dir / "ops/times.so")


def result(run):
    return np.asarray(Image.open(run.dir / "out/a.png"))


def test_a_model_runs_with_its_library_whose_path_counts_from_the_job_file(run, model, samples):
    give(run, 2)
    (run.dir / "jobs").mkdir()
    (run.dir / "jobs/job.yaml").write_text(json.dumps({
        "model": {"path": str(model("times")), "libraries": "../ops/times.so"}, "input": {"path": "../a.png"},
        "tiling": {"tile": 64, "overlap": 16}, "output": {"path": "../out/{stem}.png"}, "execution": {"devices": "cpu"}}))
    assert run.ok("run", "jobs/job.yaml", "--json").json["items_done"] == 1
    assert (result(run) == 2 * samples).all()


def test_a_library_that_changed_is_another_model(run, model, samples):
    give(run, 2)
    name = job(run, model("times"))
    p = run.start_held("run", name, rule="write:3")
    run.wait_for("work", lambda s: s["tiles_done"] > 0)
    p.kill()
    p.wait()
    (run.dir / "held").unlink(missing_ok=True)
    give(run, 3)
    again = run.ok("run", name, "--json").json
    assert again["units_reused"] == 0 and (result(run) == 3 * samples).all()
    same = run.ok("run", name, "--json").json
    assert same["items_unchanged"] == 1
    # The same bytes elsewhere are the same library.
    shutil.copy(run.dir / "ops/times.so", run.dir / "other.so")
    assert run.ok("run", job(run, model("times"), ["other.so"]), "--json").json["items_unchanged"] == 1
    wanted = digests(run.dir / "out")
    give(run, 2)
    assert run.ok("run", job(run, model("times")), "--json").json["items_done"] == 1
    assert digests(run.dir / "out") != wanted and (result(run) == 2 * samples).all()


@pytest.mark.parametrize("contract", [{}, {"scale": None}], ids=["whole", "probed"])
def test_without_the_library_the_operator_is_named(run, model, samples, contract):
    r = run("run", job(run, model("times", **contract), []))
    assert r.code == 2, r.err
    for words in ("tilery_test::times", "model.libraries"):
        assert words in r.err, r.err
    assert not (run.dir / "out/a.png").exists()


@pytest.mark.parametrize("contract", [{}, {"scale": None}], ids=["whole", "probed"])
def test_a_library_that_cannot_be_used_is_named_with_the_reason(run, model, samples, contract):
    path = model("times", **contract)
    r = run("run", job(run, path, ["none.so"]))
    assert r.code == 2 and all(w in r.err for w in ("model.libraries", "none.so", "No such file")), r.err
    (run.dir / "text.so").write_text("no library" * 500)
    r = run("run", job(run, path, ["text.so"]))
    last = r.err.strip().splitlines()[-1]
    assert r.code == 2 and all(w in last for w in ("model.libraries", "text.so", "ELF", "Torch")), r.err


def test_what_a_library_says_is_probed_and_measured_too(run, model, samples):
    give(run, 2)
    path = model("times", scale=None)
    plan = run.ok("plan", job(run, path), "--json").json
    assert plan["contract"]["scale"] == "probed"
    bench = run.ok("bench", path, "--model.libraries", "ops/times.so", "--device", "cpu", "--tile", 32, "--overlap", 8,
                   "--size", 64, "--steps", "forward,engine", "--seconds", 0.1, "--repeats", 1, "--json").json
    assert bench["ladder"]["engine"]["tiles"] > 0


def test_two_libraries_of_one_operator_are_refused_by_torchs_own_words(run, model, samples):
    give(run, 2)
    shutil.copy(OPERATORS / "times_3.so", run.dir / "ops/again.so")
    for contract in ({}, {"scale": None}):
        r = run("run", job(run, model("times", **contract), ["ops/times.so", "ops/again.so"]))
        assert r.code == 2 and "again.so" in r.err and "Only a single TORCH_LIBRARY" in r.err, r.err
