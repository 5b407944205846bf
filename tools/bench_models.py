#!/usr/bin/env python3
"""Makes the models that the benchmarks run: python3 tools/bench_models.py FOLDER

unet3d.pt: a 3-D U-Net of three levels with instance norm, the kind of net that segments medical volumes. Weights are
random and come from a seed: speed does not depend on them.
"""
import argparse
import json
from pathlib import Path

import torch
from torch import nn


def block(i, o):
    return nn.Sequential(
        nn.Conv3d(i, o, 3, padding=1), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(0.01),
        nn.Conv3d(o, o, 3, padding=1), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(0.01))


class UNet3d(nn.Module):
    """One channel in, `classes` logits out; needs multiples of 4."""

    def __init__(self, width=8, classes=3):
        super().__init__()
        self.down1, self.down2, self.down3 = block(1, width), block(width, 2 * width), block(2 * width, 4 * width)
        self.pool = nn.MaxPool3d(2)
        self.up2, self.join2 = nn.ConvTranspose3d(4 * width, 2 * width, 2, 2), block(4 * width, 2 * width)
        self.up1, self.join1 = nn.ConvTranspose3d(2 * width, width, 2, 2), block(2 * width, width)
        self.out = nn.Conv3d(width, classes, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(self.pool(a))
        c = self.down3(self.pool(b))
        b = self.join2(torch.cat([b, self.up2(c)], 1))
        a = self.join1(torch.cat([a, self.up1(b)], 1))
        return self.out(a)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    contract = {"dims": 3, "scale": 1, "channels": {"in": 1, "out": 3}, "range": [0, 1], "multiple": 4}
    torch.jit.script(UNet3d().eval()).save(
        str(folder / "unet3d.pt"), _extra_files={"tilery.json": json.dumps(contract)})
    print(folder / "unet3d.pt")


if __name__ == "__main__":
    main()
