#!/usr/bin/env python3
"""Writes a model that takes and gives what another does, but only copies samples and channels.

    tools/copy_model.py MODEL OUT.pt

`tilery bench OUT.pt --steps files` then measures everything that is not the model: reading, decoding, copies to the
device and back, blending, encoding, writing. Whichever is slower, the model alone or this, bounds a run from file to
file. Where an axis grows, its samples come again and again, each time in another order: next to each other they would
make a file that is far easier to compress than what a model gives. OUT is TorchScript for any device with MODEL's own
contract (extra/tilery.json), its suggested tiles included.
Exit code: 0, or 2 if there is something to put right first.
"""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent))
from model_files import CONTRACT, Refused, check_contract, kind_of, read_extra, save_script, scales  # noqa: E402


class Copy(nn.Module):
    """[N, C, ...] -> [N, out, ...], each axis by up/down of its extent; types and layouts stay as they come."""

    def __init__(self, channels: int, out: int, up: list[int], down: list[int]):
        super().__init__()
        self.up, self.down = up, down
        self.channels, self.out = channels, out
        self.primes = [5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43]

    def forward(self, x: Tensor) -> Tensor:
        for axis in range(len(self.up)):
            if self.down[axis] > 1:
                count = x.size(axis + 2) // self.down[axis]
                x = x.narrow(axis + 2, 0, count * self.down[axis]).unflatten(axis + 2, [count, self.down[axis]])
                x = x.select(axis + 3, 0)
            if self.up[axis] > 1:
                count = x.size(axis + 2)
                place = torch.arange(count, device=x.device)
                orders: list[Tensor] = []
                for step in self.primes * self.up[axis]:
                    if len(orders) < self.up[axis] and count % step != 0:  # such a step reaches all samples
                        orders.append(place * step % count)
                x = x.index_select(axis + 2, torch.cat(orders))
        # No buffer: whoever loads the model makes all of its tensors floating point numbers.
        return x.index_select(1, torch.arange(self.out, device=x.device) % self.channels)


def write_copy(model: Path, out: Path) -> None:
    kind_of(model)
    contract = read_extra(model, CONTRACT)
    missing = [key for key in ("dims", "scale", "channels") if key not in contract]
    if missing:
        raise Refused(f"{model}: its extra/{CONTRACT} does not say {', '.join(missing)}")
    factors = scales(contract)
    net = Copy(contract["channels"]["in"], contract["channels"]["out"], [f.numerator for f in factors],
               [f.denominator for f in factors]).eval()
    script = torch.jit.script(net)
    tile = [4 * f.denominator for f in factors]
    check_contract(script, contract, tile)
    save_script(script, contract, out)  # all of it, so that items are cut and trimmed as for the model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    try:
        write_copy(args.model, args.out)
    except Refused as reason:
        print(f"error: {reason}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
