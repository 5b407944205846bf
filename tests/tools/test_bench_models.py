"""The nets of the benchmarks, narrow: they run, and are what their contracts say."""
import json
import pathlib
import subprocess
import sys
from fractions import Fraction

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import bench_models  # noqa: E402
from model_files import read_extra  # noqa: E402

NETS = sorted(bench_models.NETS)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("models")
    done = subprocess.run([sys.executable, ROOT / "tools/bench_models.py", "--out", out, "--small", "--json"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {model["name"]: model for model in json.loads(done.stdout)["models"]}


def values(contract, batch=1):
    extent = {2: 24, 3: 16}[contract["dims"]]
    if contract["tiling"]["tile"] == contract["multiple"]:
        extent = contract["multiple"]
    return torch.rand([batch, contract["channels"]["in"], *[extent] * contract["dims"]],
                      generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", NETS)
def test_a_net_answers_with_the_scale_and_the_channels_of_its_contract(made, name):
    contract = read_extra(made[name]["torchscript"], "tilery.json")
    assert contract == made[name]["contract"] == read_extra(made[name]["exported"], "tilery.json")
    for batch in (1, 3):
        x = values(contract, batch)
        with torch.inference_mode():
            y = torch.jit.load(made[name]["torchscript"])(x)
        extents = [int(n * Fraction(contract["scale"])) for n in x.shape[2:]]
        assert list(y.shape) == [batch, contract["channels"]["out"], *extents]


@pytest.mark.parametrize("name", NETS)
def test_the_exported_program_gives_the_answers_of_the_torchscript_also_when_frozen(made, name):
    x = values(made[name]["contract"], 3)
    with torch.inference_mode():
        script = torch.jit.load(made[name]["torchscript"])
        want = script(x)
        assert (torch.export.load(made[name]["exported"]).module()(x) - want).abs().max() < 1e-5
    with torch.no_grad():
        assert (torch.jit.freeze(script.eval())(x) - want).abs().max() < 1e-5


@pytest.mark.parametrize("name", NETS)
def test_half_precision_gives_finite_values_of_sensible_size(made, name):
    x = values(made[name]["contract"])
    with torch.inference_mode():
        want = torch.jit.load(made[name]["torchscript"])(x)
        got = torch.jit.load(made[name]["torchscript"]).half()(x.half()).float()
    assert got.isfinite().all() and got.abs().max() < 20
    assert (got - want).abs().max() < 0.05
    assert want.std() > 0.01  # no constant


@pytest.mark.parametrize("name", ["srvgg_x4", "rrdbnet_x4"])
def test_no_output_depends_on_anything_beyond_the_radius(made, name):
    radius = made[name]["contract"]["radius"]
    extent, centre = 2 * radius + 11, radius + 5
    net = torch.jit.load(made[name]["torchscript"]).double()
    x = torch.rand([1, 3, extent, extent], dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    changed = x.clone()
    changed[..., centre, centre] += 1
    with torch.inference_mode():
        moved = (net(changed) - net(x)).abs().amax((0, 1)) > 0
    rows = torch.nonzero(moved.any(1)).flatten() // 4
    reach = max(centre - rows.min().item(), rows.max().item() - centre)
    assert radius - 2 <= reach <= radius


def test_the_same_weights_come_from_every_run():
    one, two = (bench_models.make("unet3d", small=True)[0].state_dict() for _ in range(2))
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_a_net_that_is_not_there_is_refused_with_all_names(tmp_path):
    done = subprocess.run([sys.executable, ROOT / "tools/bench_models.py", "--out", tmp_path, "--nets", "vgg"],
                          capture_output=True, text=True)
    assert done.returncode == 2
    assert "'vgg' is no net of this table: srvgg_x4, rrdbnet_x4" in done.stderr
