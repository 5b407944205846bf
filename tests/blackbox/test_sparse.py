"""Dense models on grids of OpenVDB files: what active voxels get is what the model makes of the grid as a dense volume."""
import os
import signal

import numpy as np
import pytest

from conftest import leftovers
from vdb_second_opinion import needs_openvdb, opinion

pytestmark = needs_openvdb

# A cube that holds all that is active, with room for all tiles around it.
CUBE = (-120, -120, -120, 280)


@pytest.fixture
def filter3(model):
    return model("filter3", channels={"in": 1, "out": 1}, radius=2)


@pytest.fixture
def grids(run):
    opinion("sparse", run.dir / "a.vdb")
    return run.dir / "a.vdb"


def dense(path, name, out):
    opinion("dense", path, name, *CUBE, out)
    return np.load(out), np.load(f"{out}.active.npy")


def run_grid(model, name, *words):
    return ("run", "--model", model, "--input", "a.vdb", "--input.grids", name, "--output", "b.vdb", "--tile", 24,
            "--overlap", 8, "--devices", "cpu", "--model.precision", "fp32", *words)


@pytest.mark.parametrize("name", ["cloud", "surface"])
def test_active_voxels_get_what_the_dense_volume_gives_them(run, grids, filter3, name):
    r = run.ok(*run_grid(filter3, name, "--json"))
    _, active = dense(grids, name, str(run.dir / "in.npy"))
    got, active_after = dense(run.dir / "b.vdb", name, str(run.dir / "out.npy"))
    assert np.array_equal(active, active_after), "topology"
    run.ok("run", "--model", filter3, "--input", "in.npy", "--output", "whole.npy", "--tile", 24, "--overlap", 8, "--devices", "cpu",
           "--model.precision", "fp32")
    wanted = np.load(run.dir / "whole.npy")
    exact = 2e-3 if name == "surface" else 1e-5  # half floats in the file, else the order of sums
    assert active.sum() > 5000 and np.abs(got - wanted)[active].max() < exact
    inside = dense(grids, name, str(run.dir / "in.npy"))[0]
    assert np.array_equal(got[~active], inside[~active]), "inactive values stay, a level set keeps its inside"
    # 280^3 voxels in dense tiles are 5,832; what is active needs few of them.
    assert 0 < r.json["tiles_inferred"] < 400
    opinion("only", grids, name, run.dir / "before.vdb")
    differences = opinion("compare", run.dir / "before.vdb", run.dir / "b.vdb", "1e9")
    for what in ("names", "type", "class", "metadata", "background", "half", "transform", "inactive"):
        assert what not in differences, differences
    assert name == "cloud" or differences == "", "active tiles have become leaves, and nothing else has changed"


def test_a_run_of_many_units_is_resumed_and_gives_the_same_bytes(run, grids, filter3):
    words = run_grid(filter3, "cloud", "--workers", 2, "--execution.work", "w")
    run.ok(*[{"b.vdb": "c.vdb", "w": "v"}.get(word, word) for word in words])
    process = run.start_held(*words, rule="write:3")
    run.wait_for("w", lambda s: s["tiles_done"] > 0)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    r = run.ok(*words, "--json")
    assert r.json["units_reused"] > 0 and 0 < r.json["tiles_inferred"] < 95
    assert (run.dir / "b.vdb").read_bytes() == (run.dir / "c.vdb").read_bytes()
    assert leftovers(run.dir) == []


def test_what_is_asked_of_grids_in_vain_is_said(run, grids, filter3, model):
    r = run(*run_grid(filter3, "clouds"))
    assert r.code != 0 and "a.vdb" in r.err and "surface, cloud" in r.err
    r = run("run", "--model", filter3, "--input", "a.vdb", "--output", "b.vdb", "--devices", "cpu")
    assert r.code != 0 and "several grids" in r.err and "input.grids" in r.err
    r = run("run", "--model", filter3, "--input", "a.vdb", "--input.grids", "cloud", "--output", "b.npy", "--devices", "cpu")
    assert r.code != 0 and ".vdb" in r.err
    np.save(run.dir / "volume.npy", np.zeros((30, 30, 30), np.float32))
    r = run("run", "--model", filter3, "--input", "volume.npy", "--output", "b.vdb", "--devices", "cpu")
    assert r.code != 0 and "OpenVDB" in r.err
    two = model("conv3", channels={"in": 1, "out": 2})
    r = run(*run_grid(two, "cloud"))
    assert r.code != 0 and "channels" in r.err
    assert not (run.dir / "b.vdb").exists() and not (run.dir / "b.npy").exists()
