"""Nets for black-box tests: known answers by name, and real nets for byte tests (the weights where they are at
hand, else nets of the same construction, seeded)."""
from __future__ import annotations

import json
import pathlib

import torch
import torch.nn as nn

import models


class Conv3(nn.Module):
    """Two 3x3x3 convolutions: radius 2."""

    def __init__(self, channels: int = 2):
        super().__init__()
        torch.manual_seed(5)
        self.n = nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv3d(4, channels, 3, padding=1))

    def forward(self, x):
        return self.n(x)


class MeshNet(nn.Module):
    """Dilated 3^3 convolutions of 5 channels, as brain segmentation uses them; radius 46."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        layers, last = [], 1
        for d in (1, 2, 4, 8, 16, 8, 4, 2, 1):
            layers += [nn.Conv3d(last, 5, 3, padding=d, dilation=d), nn.ELU()]
            last = 5
        self.body = nn.Sequential(*layers, nn.Conv3d(5, 3, 1))

    def forward(self, x):
        return self.body(x)


class DenseUpscaler(nn.Module):
    """Two small dense blocks and a pixel shuffle, the construction of ESRGAN."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.head = nn.Conv2d(3, 16, 3, padding=1)
        self.a, self.b = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(32, 16, 3, padding=1)
        self.tail = nn.Sequential(nn.Conv2d(48, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x):
        h = self.head(x)
        a = nn.functional.leaky_relu(self.a(h), 0.2)
        b = nn.functional.leaky_relu(self.b(torch.cat([h, a], 1)), 0.2)
        return 0.1 * self.tail(torch.cat([h, a, b], 1)) + nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")


BY_NAME = {
    "identity": models.Identity, "nearest4": models.Nearest4, "mean8": models.Mean8, "ramp2d": models.Ramp2d,
    "ramp3d": models.Ramp3d, "conv": models.Conv, "conv3": Conv3, "filter3": lambda: Conv3(1), "unet": lambda: models.UNet(2),
    "throws": models.ThrowsOnBright, "nan": models.NanOnBright, "needs8": models.Needs8, "slow": lambda: models.Slow(120),
    "times": models.Times, "relative": models.Relative, "other_slot": models.OtherSlot,
}


def make(name: str) -> nn.Module:
    return BY_NAME[name]().eval()


def save(name: str, path: pathlib.Path, **contract) -> None:
    """A TorchScript file with its contract inside; dims are left to the item, and keys that are None to a probe."""
    contract = {"scale": 1, "channels": {"in": 3, "out": 3}, "range": [0, 1], **contract}
    contract = {key: value for key, value in contract.items() if value is not None}
    torch.jit.script(make(name)).save(str(path), _extra_files={"tilery.json": json.dumps(contract)})


def real_or_alike(net: str, folder: pathlib.Path | None, scratch: pathlib.Path):
    """(path, contract for the job, tiling)"""
    if net == "meshnet":
        contract = {"dims": 3, "scale": 1, "channels": {"in": 1, "out": 3}, "radius": 46}
        tiling, file, build = {"tile": [32, 32, 32], "overlap": 8, "trim": 0}, "meshnet5_gw.pt", MeshNet
    elif net == "esrgan":
        contract = {"dims": 2, "scale": 2, "channels": {"in": 3, "out": 3}}
        tiling, file, build = {"tile": 64, "overlap": 16}, "esrgan_slim_x2.pt", DenseUpscaler
    else:
        contract = {"dims": 2, "scale": 1, "channels": {"in": 3, "out": 3}, "multiple": 4}
        tiling, file, build = {"tile": 64, "overlap": 16}, "", lambda: make("unet")
    if file and folder and (folder / file).exists():
        return folder / file, contract, tiling
    path = scratch / f"{net}.pt"
    torch.jit.script(build().eval()).save(str(path))
    return path, contract, tiling
