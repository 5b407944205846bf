"""Models that only copy: they take and give what the others do."""
import json
import pathlib
import subprocess
import sys
import zlib

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from copy_model import Copy, write_copy  # noqa: E402
from model_files import read_extra  # noqa: E402


def save(path: pathlib.Path, **contract) -> pathlib.Path:
    script = torch.jit.script(torch.nn.Identity())
    torch.jit.save(script, str(path), _extra_files={"tilery.json": json.dumps(contract).encode()})
    return path


@pytest.mark.parametrize("dims,scale,i,o,shape,out", [
    (2, 4, 3, 3, [10, 12], [40, 48]),
    (2, 8, 4, 3, [5, 6], [40, 48]),
    (3, "1/4", 1, 64, [8, 8, 8], [2, 2, 2]),
    (3, ["1/2", 1, "3/2"], 1, 3, [4, 5, 8], [2, 5, 12]),
])
def test_a_copy_has_channels_and_scale_of_its_contract(tmp_path, dims, scale, i, o, shape, out):
    model = save(tmp_path / "m.pt", dims=dims, scale=scale, channels={"in": i, "out": o}, radius=9,
                 tiling={"tile": 8, "overlap": 0})
    write_copy(model, tmp_path / "copy.pt")
    assert read_extra(tmp_path / "copy.pt", "tilery.json") == read_extra(model, "tilery.json")
    net = torch.jit.load(str(tmp_path / "copy.pt"))
    x = torch.rand([2, i, *shape], generator=torch.Generator().manual_seed(1))
    for dtype in (torch.float32, torch.float16):
        answer = net.to(dtype)(x.to(dtype))
        assert list(answer.shape) == [2, o, *out] and answer.dtype == dtype
    net.to(torch.float32)
    assert set(net(x).flatten().tolist()) <= set(x.flatten().tolist())


def test_samples_are_copied_and_come_in_another_order_each_time():
    x = torch.arange(6.0).reshape(1, 1, 2, 3)
    assert Copy(1, 2, [2, 1], [1, 3])(x).tolist() == [[[[0.0], [3.0], [0.0], [3.0]]] * 2]
    x = torch.arange(8.0).reshape(1, 1, 1, 8)
    assert Copy(1, 1, [1, 2], [1, 1])(x).flatten().tolist() == [0, 5, 2, 7, 4, 1, 6, 3, 0, 7, 6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize("extent", [96, 320, 385, 448, 640])
def test_every_sample_comes_once_in_each_order(extent):
    x = torch.arange(float(extent)).reshape(1, 1, 1, extent)
    orders = Copy(1, 1, [1, 4], [1, 1])(x).reshape(4, extent)
    assert [sorted(order.tolist()) for order in orders] == [x.flatten().tolist()] * 4
    assert len({tuple(order.tolist()) for order in orders}) == 4


def test_a_copy_is_as_hard_to_compress_as_its_input():
    x = torch.randint(256, [1, 1, 256, 256], dtype=torch.uint8, generator=torch.Generator().manual_seed(1)) // 16
    def share(samples):
        return len(zlib.compress(samples.numpy().tobytes())) / samples.numel()
    assert share(Copy(1, 1, [4, 4], [1, 1])(x)) > 0.9 * share(x)


def test_a_model_without_a_contract_is_refused(tmp_path):
    model = save(tmp_path / "m.pt", dims=2)
    r = subprocess.run([sys.executable, ROOT / "tools/copy_model.py", model, tmp_path / "c.pt"], capture_output=True,
                       text=True)
    assert r.returncode == 2 and "scale, channels" in r.stderr and not (tmp_path / "c.pt").exists()
