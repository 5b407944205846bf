"""Exported programs and compiled packages as the model of a job, on the CPU. A compilation takes some 20 seconds of a
core, so most tests share one through the cache."""
import json
import os
import pathlib
import shutil
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from conftest import ROOT, digests, picture

sys.path.insert(0, str(ROOT / "tools"))
import model_files  # noqa: E402
import nets  # noqa: E402

CONTRACT = {"dims": 2, "scale": 1, "channels": {"in": 3, "out": 3}, "range": [0, 1], "radius": 3}
OPERATORS = pathlib.Path(os.environ.get("TILERY_TEST_OPERATORS", ROOT / "build/tests/operators"))
NO_PYTHON = {"TILERY_PYTHON": "/none/python"}


@pytest.fixture(scope="module")
def program(tmp_path_factory, cache):
    """The exported program alone; no TorchScript beside it."""
    path = tmp_path_factory.mktemp("exported") / "conv.pt2"
    net = nets.make("conv").requires_grad_(False)
    model_files.save_program(model_files.export(net, CONTRACT, [32, 32]), CONTRACT, path)
    return path


@pytest.fixture(scope="module")
def unsaid(tmp_path_factory):
    path = tmp_path_factory.mktemp("unsaid") / "conv.pt2"
    net = nets.make("conv").requires_grad_(False)
    torch.export.save(model_files.export(net, CONTRACT, [32, 32]), str(path))
    return path


@pytest.fixture
def job(run, monkeypatch):
    """What is compiled here is not about the code's speed, nor about whether the compiler knows this processor."""
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")
    monkeypatch.setenv("AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL", "O0")
    Image.fromarray(picture(90, 120)).save(run.dir / "a.png")

    def make(path, out="out", tile=32, **more):
        execution = {"work": f"work-{out}", "devices": "cpu", "batch": 2, **more.pop("execution", {})}
        return run.job(f"{out}.yaml", model={"path": path, **more}, input={"path": "a.png"},
                       tiling={"tile": tile, "overlap": 8}, output={"path": f"{out}/{{stem}}.png"}, execution=execution)
    return make


@pytest.fixture
def compiled(run, job, program):
    """Bytes of a run of the program, and the hash of the package that it ran."""
    run.ok("run", job(program, "first"), timeout=600)
    return digests(run.dir / "first"), record(run, "first")["package"]


def record(run, out):
    return json.loads((run.dir / f"work-{out}/numerics.json").read_text())


def package_in(run, out):
    path, = (run.dir / f"work-{out}").glob("model-*.pt2")
    return path


def test_a_program_runs_compiled_as_the_torchscript_does(run, job, program, compiled, model):
    assert package_in(run, "first").name == f"model-{compiled[1]}.pt2"
    assert (record(run, "first")["batch"], record(run, "first")["precision"]) == (2, "fp32")
    run.ok("run", job(model("conv", radius=3), "script"))
    a, b = (np.asarray(Image.open(run.dir / out / "a.png")).astype(int) for out in ("first", "script"))
    # Both are fp32; another order of additions moves what lies at a half by one step at most.
    assert a.shape == b.shape and abs(a - b).max() <= 1 and (a != b).mean() < 0.01


def test_what_is_compiled_is_found_without_python_and_its_bytes_do_not_depend_on_workers(run, job, program, compiled):
    for out, execution in (("one", {"workers": 1, "threads": 1}), ("more", {"workers": 2, "threads": 4})):
        run.ok("run", job(program, out, execution=execution), env=NO_PYTHON)
        assert digests(run.dir / out) == compiled[0] and record(run, out)["package"] == compiled[1]


def test_a_work_folder_goes_on_without_cache_and_python(run, job, program, compiled, tmp_path_factory):
    (run.dir / "first/a.png").unlink()
    env = {**NO_PYTHON, "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("empty"))}
    assert run.ok("run", "first.yaml", "--json", env=env).json["items_done"] == 1
    assert digests(run.dir / "first") == compiled[0]
    r = run("run", job(program, "other"), env=env)
    assert r.code == 2 and all(w in r.err for w in ("conv.pt2", "TILERY_PYTHON", "TorchScript")), r.err
    assert not (run.dir / "other").exists()


def test_a_package_is_a_model_of_its_own(run, job, compiled):
    path = package_in(run, "first").rename(run.dir / "given.pt2")
    run.ok("run", job(path, "given", tile="auto", execution={"batch": "auto"}), env=NO_PYTHON)
    assert digests(run.dir / "given") == compiled[0]
    for more, words in (({"tile": 48}, ["32x32", "48x48"]), ({"execution": {"batch": 4}}, ["batches of 2", "4"])):
        r = run("run", job(path, "wrong", **more), env=NO_PYTHON)
        assert r.code == 2 and all(w in r.err for w in ["given.pt2", *words]), r.err
    told = run.ok("inspect", path, "--json").json
    assert told["format"] == "package" and told["contract"]["tile"] == [32, 32]


def test_a_program_with_operators_of_its_own_is_compiled_and_run_with_their_library(run, job):
    contract = {**CONTRACT, "radius": 0}
    path = run.dir / "times.pt2"
    model_files.save_program(model_files.export(nets.make("times"), contract, [32, 32]), contract, path)
    dark = picture(40, 50) // 4
    Image.fromarray(dark).save(run.dir / "a.png")
    shutil.copy(OPERATORS / "times_2.so", run.dir / "ops.so")
    r = run("run", job(path, "without"))
    assert r.code == 2 and all(w in r.err for w in ("times.pt2", "tilery_test::times", "model.libraries")), r.err
    run.ok("run", job(path, "with", libraries="ops.so"), timeout=600)
    assert (np.asarray(Image.open(run.dir / "with/a.png")) == 2 * dark).all()
    shutil.copy(OPERATORS / "times_3.so", run.dir / "ops.so")
    run.ok("run", job(path, "with", libraries="ops.so"), timeout=600)
    assert (np.asarray(Image.open(run.dir / "with/a.png")) == 3 * dark).all()


def test_bench_measures_a_program(run, program, compiled):
    document = run.ok("bench", program, "--device", "cpu", "--tile", 32, "--overlap", 8, "--batch", 2, "--lanes", 2,
                      "--seconds", 0.1, "--repeats", 1, "--size", 80, 100, "--json", env=NO_PYTHON).json
    assert document["how"].startswith("AOTInductor") and document["package_hash"] == compiled[1]
    assert set(document["ladder"]) == {"forward", "engine", "files"}


def test_a_program_without_a_contract_and_one_that_must_not_be_compiled_are_refused(run, job, program, unsaid):
    r = run("run", job(unsaid))
    assert r.code == 2 and all(w in r.err for w in ("conv.pt2", "model.scale", "tilery.json")), r.err
    r = run("run", job(program, compile="off"))
    assert r.code == 2 and all(w in r.err for w in ("conv.pt2", "model.compile", "TorchScript")), r.err
