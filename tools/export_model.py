#!/usr/bin/env python3
"""Turns a model in Python into the two files that Tilery runs and compiles.

  tools/export_model.py CODE.py:FUNCTION --out NAME.pt [--weights STATE.pt]
                        [--contract tilery.json] [--tile 64] [--script]

FUNCTION takes nothing and returns a torch.nn.Module, or a pair of it and its contract (a dict).
The contract says what the model takes and gives, for example
  {"dims": 2, "scale": 4, "channels": {"in": 3, "out": 3}, "range": [0, 1], "radius": 34}
and is kept in both files: NAME.pt is TorchScript (traced; scripted with --script), and NAME.pt2 an
exported program for any batch and any tile of the contract's `multiple`, which
tools/compile_model.py compiles for a GPU. The model is run once, and must answer as its contract
says. --tile: extent of the tile that it is recorded with.
"""
from __future__ import annotations

import argparse
import importlib.util
import json
import math
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent))
from model_files import Refused, save_both  # noqa: E402


def call(place: str) -> tuple[nn.Module, dict]:
    """What the function named as CODE.py:FUNCTION returns."""
    file, colon, name = place.rpartition(":")
    if not colon or not Path(file).is_file():
        raise Refused(f"{place}: give a file and a function in it, as net.py:make")
    sys.path.insert(0, str(Path(file).resolve().parent))
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    code = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = code
    spec.loader.exec_module(code)
    function = getattr(code, name, None)
    if not callable(function):
        raise Refused(f"{file}: has no function '{name}'")
    answer = function()
    net, contract = answer if isinstance(answer, tuple) else (answer, {})
    if not isinstance(net, nn.Module):
        raise Refused(f"{place}: returns {type(net).__name__}; it must return a torch.nn.Module")
    return net, dict(contract)


def complete(contract: dict) -> None:
    """Refuses a contract that leaves open what recording the model needs."""
    channels = contract.get("channels")
    if contract.get("dims") not in (2, 3) or not isinstance(channels, dict) or \
            not {"in", "out"} <= set(channels):
        raise Refused("the contract must say at least dims (2 or 3) and channels, as in "
                      '{"dims": 2, "scale": 1, "channels": {"in": 3, "out": 3}}; give it with '
                      "--contract, or return it beside the module")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("function", metavar="CODE.py:FUNCTION")
    parser.add_argument("--out", type=Path, required=True, metavar="NAME.pt")
    parser.add_argument("--weights", type=Path, help="a state dict, loaded into the module")
    parser.add_argument("--contract", type=Path, help="JSON; its keys win over the function's")
    parser.add_argument("--tile", type=int, default=64)
    parser.add_argument("--script", action="store_true",
                        help="script instead of trace, for a model with branches on its input")
    args = parser.parse_args()
    try:
        if args.out.suffix != ".pt":
            raise Refused(f"--out {args.out}: must end in .pt; the program beside it ends in .pt2")
        net, contract = call(args.function)
        if args.weights:
            net.load_state_dict(torch.load(args.weights, map_location="cpu", weights_only=True))
        if args.contract:
            contract.update(json.loads(args.contract.read_text()))
        complete(contract)
        multiple = contract.get("multiple", 1)
        grain = math.lcm(*multiple) if isinstance(multiple, list) else multiple
        tile = [-(-args.tile // grain) * grain] * contract["dims"]
        if contract.get("tiling", {}).get("tile") == multiple:
            tile = [grain] * contract["dims"]  # the model takes this tile alone
        for path in save_both(net.cpu(), contract, args.out, tile, trace=not args.script):
            print(path)
    except (Refused, OSError, RuntimeError, ValueError) as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
