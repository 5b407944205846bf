"""The net of configs/models/upscaler_x2.pt and the file that it is kept in.

The net is a plain residual stack of 3x3 convolutions at input resolution with a pixel shuffle at
the end: no normalisation, no pooling, no attention. Each 3x3 convolution reaches one pixel
further, so the receptive radius is their number along the path, and tiles that overlap by twice
that radius give exactly the untiled picture.
"""
from __future__ import annotations

import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model_files import save_script

SCALE = 2


class Block(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        # A block starts near the identity, which lets a deep stack train without normalisation.
        nn.init.kaiming_normal_(self.first.weight, nonlinearity="relu")
        nn.init.normal_(self.second.weight, std=0.1 * math.sqrt(2 / (9 * channels)))
        for conv in (self.first, self.second):
            nn.init.zeros_(conv.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.relu(self.first(x)))


class Upscaler(nn.Module):
    """[N,3,H,W] RGB in 0..1 -> [N,3,2H,2W], about 0..1 (not clamped), any H and W from 1."""

    def __init__(self, channels: int = 48, blocks: int = 7):
        super().__init__()
        self.head = nn.Conv2d(3, channels, 3, padding=1)
        self.body = nn.Sequential(*(Block(channels) for _ in range(blocks)))
        self.tail = nn.Conv2d(channels, 3 * SCALE * SCALE, 3, padding=1)
        nn.init.normal_(self.tail.weight, std=1e-3)
        nn.init.zeros_(self.tail.bias)

    def forward(self, x: Tensor) -> Tensor:
        h = self.head(x)
        # The net adds detail to the nearest-neighbour picture: each colour repeated four times
        # is that picture once shuffled, and reaches no further than the pixel itself.
        detail = self.tail(h + self.body(h)) + x.repeat_interleave(4, dim=1)
        return F.pixel_shuffle(detail, 2)

    @property
    def radius(self) -> int:
        return 2 + 2 * len(self.body)


def contract(radius: int) -> dict:
    overlap = -(-2 * radius // 8) * 8
    return {"scale": SCALE, "dims": 2, "channels": {"in": 3, "out": 3, "order": "rgb"},
            "range": [0, 1], "radius": radius, "multiple": 1,
            "tiling": {"tile": 256, "overlap": overlap}}


def save(net: Upscaler, path: Path) -> None:
    script = torch.jit.script(net.to(memory_format=torch.contiguous_format).eval())
    save_script(script, contract(net.radius), path)


def open_model(path: Path) -> tuple[torch.jit.ScriptModule, dict]:
    extra = {"tilery.json": ""}
    model = torch.jit.load(str(path), map_location="cpu", _extra_files=extra).eval()
    return model, json.loads(extra["tilery.json"])
