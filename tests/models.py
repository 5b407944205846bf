"""Tiny TorchScript models whose answers are known, made when tests run: python3 models.py FOLDER.

Each file carries its contract as tilery.json. Weights come from seeds, so the files differ between versions of
Torch and not between machines.
"""
import json
import sys
import zipfile
from pathlib import Path

import torch
from torch import nn


class Identity(nn.Module):
    """Returns the very tensor it was given: what keeps the answer must copy it."""

    def forward(self, x):
        return x


class Nearest4(nn.Module):
    def forward(self, x):
        return nn.functional.interpolate(x, scale_factor=4.0, mode="nearest")


class Mean8(nn.Module):
    """Shrinks by 8 along both axes."""

    def forward(self, x):
        return nn.functional.avg_pool2d(x, 8)


class Ramp2d(nn.Module):
    """Depends on the position inside the tile, so that tile positions and weights show in the result."""

    def forward(self, x):
        y = torch.arange(x.shape[-2], dtype=x.dtype, device=x.device) * 0.03125 + 0.25
        return x * y[:, None] * (torch.arange(x.shape[-1], dtype=x.dtype, device=x.device) * 0.015625 + 0.5)


class Ramp3d(nn.Module):
    def forward(self, x):
        z = torch.arange(x.shape[-3], dtype=x.dtype, device=x.device) * 0.0625 + 0.25
        y = torch.arange(x.shape[-2], dtype=x.dtype, device=x.device) * 0.03125 + 0.25
        x = x * z[:, None, None] * y[:, None]
        return x * (torch.arange(x.shape[-1], dtype=x.dtype, device=x.device) * 0.015625 + 0.5)


class Gray(nn.Module):
    """Three channels in, one out: the last times the position along x."""

    def forward(self, x):
        return x[:, 2:3] * (torch.arange(x.shape[-1], dtype=x.dtype, device=x.device) * 0.015625 + 0.5)


class Conv(nn.Module):
    """Three 3x3 convolutions: receptive radius 3."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.n = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
                               nn.Conv2d(8, 3, 3, padding=1))

    def forward(self, x):
        return 0.5 * x + self.n(x)


class UNet(nn.Module):
    """Down, up, skip, instance norm: a real kind of net, whose bytes depend on batch size and thread count."""

    def __init__(self, dims):
        super().__init__()
        torch.manual_seed(9)
        conv, norm, pool, up = ((nn.Conv2d, nn.InstanceNorm2d, nn.MaxPool2d, nn.ConvTranspose2d) if dims == 2 else
                                (nn.Conv3d, nn.InstanceNorm3d, nn.MaxPool3d, nn.ConvTranspose3d))
        channels = 3 if dims == 2 else 1

        def block(i, o):
            return nn.Sequential(conv(i, o, 3, padding=1), norm(o), nn.LeakyReLU(0.01))

        self.top, self.low, self.pool = block(channels, 8), block(8, 16), pool(2)
        self.up, self.join, self.out = up(16, 8, 2, 2), block(16, 8), conv(8, channels, 1)

    def forward(self, x):
        a = self.top(x)
        return self.out(self.join(torch.cat([a, self.up(self.low(self.pool(a)))], 1)))


class Dilated3d(nn.Module):
    """Dilated convolutions: for a batch of one, Torch itself would choose other kernels than for more."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.n = nn.Sequential(nn.Conv3d(1, 5, 3, padding=2, dilation=2), nn.ReLU(),
                               nn.Conv3d(5, 5, 3, padding=4, dilation=4), nn.ReLU(), nn.Conv3d(5, 1, 1))

    def forward(self, x):
        return self.n(x)


class Labels3(nn.Module):
    """Three logits of one channel: argmax is 0 below 1/3, 1 up to 2/3, else 2; ties at the ends."""

    def forward(self, x):
        return torch.cat([0.3333 - x, torch.zeros_like(x), x - 0.6667], 1)


class Levels100(nn.Module):
    """100 logits of one channel, as many as atlases of the brain have labels: argmax is the nearest of 0 to 99 to 99 x."""

    def forward(self, x):
        levels = torch.arange(100, dtype=x.dtype, device=x.device).view(1, 100, 1, 1)
        return -(x * 99 - levels) ** 2


class ThrowsOnBright(nn.Module):
    def forward(self, x):
        assert float(x.max()) < 0.999, "planted failure: a white pixel"
        return x * 1.0


class NanOnBright(nn.Module):
    def forward(self, x):
        return torch.where(x > 0.999, torch.full_like(x, float("nan")), x)


class Needs8(nn.Module):
    def forward(self, x):
        assert x.shape[-1] % 8 == 0 and x.shape[-2] % 8 == 0, "the shape is no multiple of 8"
        return x * 1.0


class Slow(nn.Module):
    """Takes its time."""

    def __init__(self, rounds):
        super().__init__()
        self.rounds = rounds

    def forward(self, x):
        y = x
        for _ in range(self.rounds):
            y = nn.functional.avg_pool2d(nn.functional.pad(y, [2, 2, 2, 2], "replicate"), 5, 1)
        return x + y * 0.0


class Valid(nn.Module):
    """Loses a border of one voxel: no proportion between output and input."""

    def forward(self, x):
        return x[:, :, 1:-1, 1:-1] * 1.0


class Pair(nn.Module):
    def forward(self, x):
        return x, x


class Train(nn.Module):
    """Has dropout and half weights: only right in evaluation mode and as f32."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.scale = nn.Parameter(torch.full((1,), 0.5, dtype=torch.float16))

    def forward(self, x):
        return self.drop(x) * self.scale


class Wide(nn.Module):
    """Convolutions with long sums: tf32 is 100 times as far from fp32 as another order of additions is. Traced, it
    carries switches of the process that traced it; its norm can be folded into the convolution before."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(11)
        self.n = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
                               nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 3, 3, padding=1))
        self.n[1].running_mean.uniform_(-0.2, 0.2)
        self.n[1].running_var.uniform_(0.5, 2)

    def forward(self, x):
        return self.n(x) * torch.tensor([1.0, 0.5, 2.0], device=x.device)[:, None, None]


class AsksWeight(nn.Module):
    """Asks its weight for type and device: frozen, the answers are constants."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.c = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x):
        return self.c(x.to(device=self.c.weight.device, dtype=self.c.weight.dtype))


class Counts(nn.Module):
    """Changes an attribute with each run, so it can't be frozen; takes the weights from a list and a function."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.c = nn.Conv2d(3, 3, 3, padding=1)
        self.runs = 0

    def forward(self, x):
        self.runs += 1
        return self.c(x) * min(self.runs, 1)


class Doubles(nn.Module):
    """Answers in float64, in a tuple of one."""

    def forward(self, x):
        return (x.double() * 2,)


class Turned(nn.Module):
    """Its answer lies in memory channels last, whatever the input's layout."""

    def forward(self, x):
        return (x * 2).permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


class InPlace(nn.Module):
    """Overwrites its input and returns it."""

    def forward(self, x):
        return x.mul_(2.0)


class Constant(nn.Module):
    """Returns a tensor of its own, not a copy; the input is looked at so that no tool drops it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("answer", torch.full((1, 3, 8, 8), 0.25))

    def forward(self, x):
        return self.answer if x.shape[0] == 1 else x


class OtherSlot(nn.Module):
    """One slot of a batch, in the middle, gives other values than all others."""

    def forward(self, x):
        n = x.shape[0]
        other = torch.arange(n, device=x.device) == (n // 2 if n > 1 else -1)
        return x + other.to(x.dtype)[:, None, None, None] * 0.125


class Relative(nn.Module):
    """Its answer depends on the other tiles of a batch."""

    def forward(self, x):
        return x - x.mean(0, keepdim=True)


class Forks(nn.Module):
    """Parts that Torch may run beside each other, on other streams."""

    def forward(self, x):
        part = torch.jit.fork(double, x)
        return torch.jit.wait(part) + x


def double(x: torch.Tensor):
    return torch.mul(x, 2.0)


class Glutton(nn.Module):
    """Asks for a tebibyte per tile, on a GPU."""

    def forward(self, x):
        if x.device.type == "cpu":
            return x * 1.0
        much = torch.empty([x.shape[0], 1 << 40], dtype=torch.uint8, device=x.device)
        return x + much[0, 0]


def times_operator():
    """Makes tilery_test::times known, as tests/pipeline/times_operator.cc does where the model runs."""
    if not hasattr(torch.ops.tilery_test, "times"):
        torch.library.define("tilery_test::times", "(Tensor x) -> Tensor")
        torch.library.impl("tilery_test::times", "default", lambda x: x * 1.0)


class Times(nn.Module):
    """Uses an operator that only a library has: times_2.so doubles, times_3.so trebles."""

    def __init__(self):
        super().__init__()
        times_operator()

    def forward(self, x):
        return torch.ops.tilery_test.times(x)


def save(module, path, mode="eval", traced=None, **contract):
    contract = {"scale": 1, "dims": 2, "channels": {"in": 3, "out": 3}, "range": [0, 1], **contract}
    module = module.eval() if mode == "eval" else module.train()
    script = torch.jit.script(module) if traced is None else torch.jit.trace(module, traced)
    script.save(str(path), _extra_files={"tilery.json": json.dumps(contract)})


def save_package(path, facts, names):
    """No package that runs, but one that says what it is: what must be refused before it is loaded."""
    with zipfile.ZipFile(path, "w") as archive:
        for name in ["archive_format", *names]:
            archive.writestr(f"package/{name}", "pt2")
        archive.writestr("package/.data/version", "3\n")
        if facts:
            archive.writestr("package/extra/tilery_package.json", json.dumps(facts))


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    gray = {"in": 1, "out": 1}
    save(Identity(), out / "identity.pt")
    save(Nearest4(), out / "nearest4.pt", scale=4)
    save(Mean8(), out / "mean8.pt", scale="1/8")
    save(Ramp2d(), out / "ramp2d.pt", channels=gray)
    save(Ramp3d(), out / "ramp3d.pt", channels=gray, dims=3)
    save(Gray(), out / "gray.pt", channels={"in": 3, "out": 1})
    save(Conv(), out / "conv.pt", radius=3)
    save(UNet(2), out / "unet2d.pt", multiple=2)
    save(UNet(3), out / "unet3d.pt", channels=gray, dims=3, multiple=2)
    save(Dilated3d(), out / "dilated3d.pt", channels=gray, dims=3, radius=6)
    save(Labels3(), out / "labels3.pt", channels={"in": 1, "out": 3})
    save(Levels100(), out / "levels100.pt", channels={"in": 1, "out": 100})
    save(ThrowsOnBright(), out / "throws_on_bright.pt")
    save(NanOnBright(), out / "nan_on_bright.pt")
    save(Needs8(), out / "needs8.pt", multiple=8)
    save(Slow(20), out / "slow.pt")
    save(Valid(), out / "valid.pt")
    save(Pair(), out / "pair.pt")
    save(Train(), out / "train.pt", mode="train")
    save(Wide(), out / "wide.pt", radius=3)
    save(Wide(), out / "wide_traced.pt", traced=torch.rand(1, 3, 24, 24), radius=3)
    save(AsksWeight(), out / "asks_weight.pt", radius=1)
    save(Counts(), out / "counts.pt", radius=1)
    save(Doubles(), out / "doubles.pt")
    save(Turned(), out / "turned.pt")
    save(InPlace(), out / "in_place.pt")
    save(Constant(), out / "constant.pt")
    save(OtherSlot(), out / "other_slot.pt")
    save(Relative(), out / "relative.pt")
    save(Forks(), out / "forks.pt")
    save(Glutton(), out / "glutton.pt")
    save(Times(), out / "times.pt")
    compiled = ["data/aotinductor/model/none.so"]
    save_package(out / "other_gpu.pt2", {
        "gpu": "Imaginary 9000", "capability": "99.0", "torch": torch.__version__.split("+")[0], "tile": [32, 48],
        "batch": 2, "precision": "fp32", "layout": "nchw", "channels_in": 3, "channels_out": 3, "scale": 1,
        "io_dtype": "f32"}, compiled)
    save_package(out / "nameless.pt2", None, compiled)
    save_package(out / "program.pt2", None, ["models/model.json"])


if __name__ == "__main__":
    main()
