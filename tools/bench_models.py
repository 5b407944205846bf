#!/usr/bin/env python3
"""Makes the models that the benchmarks run, each as TorchScript (NAME.pt) and as exported program
(NAME.pt2, what tools/compile_model.py compiles). Weights are random and come from a seed.

  tools/bench_models.py --out FOLDER [--nets srvgg_x4,unet3d] [--small] [--trace] [--json]

  srvgg_x4      compact x4 upscaler: 64 features, 32 convolutions, PReLU           tile 512^2
  rrdbnet_x4    x4 upscaler of dense blocks: 23 blocks, 64 features, growth 32     tile 256^2
  unet3d        3-D U-Net of five levels with instance norm                        tile 128^3
  vae_decoder   image decoder, 4 latent channels to 8 times the size, attention    tile 64^2
  leaf_encoder  encoder of 8^3 leaves of a voxel tree to 2^3 latents               tile 8^3

--small makes narrow nets of the same structure that a CPU runs in milliseconds.
"""
from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Callable, NamedTuple

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent))
import bench_nets as nets  # noqa: E402
from model_files import Refused, save_both  # noqa: E402


class Entry(NamedTuple):
    full: Callable[[], nn.Module]
    small: Callable[[], nn.Module]
    contract: dict
    example: int  # extent of the tile that the model is recorded with; small, so that it is quick


def contract(dims: int, scale, i: int, o: int, tile: int, overlap: int, multiple: int = 1,
             span=(0, 1)) -> dict:
    return {"dims": dims, "scale": scale, "channels": {"in": i, "out": o}, "range": list(span),
            "multiple": multiple, "tiling": {"tile": tile, "overlap": overlap}}


# Norms over a whole tile and attention have no receptive radius: those nets declare none.
NETS = {
    "srvgg_x4": Entry(nets.Srvgg, lambda: nets.Srvgg(8, 3), contract(2, 4, 3, 3, 512, 72), 32),
    "rrdbnet_x4": Entry(nets.RrdbNet, lambda: nets.RrdbNet(1, 8, 4),
                        contract(2, 4, 3, 3, 256, 32), 24),
    "unet3d": Entry(nets.UNet3d, lambda: nets.UNet3d((8, 16, 32)),
                    contract(3, 1, 1, 3, 128, 32, multiple=16), 32),
    "vae_decoder": Entry(nets.VaeDecoder, lambda: nets.VaeDecoder((32, 32, 16, 8), 1, 8),
                         contract(2, 8, 4, 3, 64, 16, span=(-1, 1)), 8),
    "leaf_encoder": Entry(nets.LeafEncoder, lambda: nets.LeafEncoder((8, 16, 16)),
                          contract(3, "1/4", 1, 64, 8, 0, multiple=8), 8),
}


def make(name: str, small: bool, seed: int = 1) -> tuple[nn.Module, dict]:
    """A net in evaluation mode and its contract."""
    entry = NETS[name]
    torch.manual_seed(seed)
    net = (entry.small if small else entry.full)().eval()
    agreed = json.loads(json.dumps(entry.contract))
    for key in ("radius", "multiple"):
        if isinstance(getattr(net, key, None), int):
            agreed[key] = getattr(net, key)
    if name == "srvgg_x4":
        agreed["tiling"]["overlap"] = -(-2 * agreed["radius"] // 8) * 8
    return net, agreed


def build(name: str, folder: Path, small: bool, trace: bool = False) -> dict:
    net, agreed = make(name, small)
    tile = [NETS[name].example] * agreed["dims"]
    files = save_both(net, agreed, folder / f"{name}.pt", tile, trace=trace)
    return {"name": name, "torchscript": str(files[0]), "exported": str(files[1]),
            "weights": sum(p.numel() for p in net.parameters()), "contract": agreed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the files")
    parser.add_argument("--nets", default=",".join(NETS), help=f"of {', '.join(NETS)}")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--trace", action="store_true",
                        help="trace the TorchScript, as most models in use are; default: script")
    parser.add_argument("--json", action="store_true", help="one JSON document on one line")
    args = parser.parse_args()
    names = args.nets.split(",")
    for name in names:
        if name not in NETS:
            parser.error(f"--nets: '{name}' is no net of this table: {', '.join(NETS)}")
    try:
        made = []
        for name in names:
            made.append(build(name, args.out, args.small, args.trace))
            if not args.json:
                print(made[-1]["torchscript"], made[-1]["exported"], flush=True)
    except Refused as reason:
        sys.exit(f"error: {reason}")
    if args.json:
        print(json.dumps({"models": made}))


if __name__ == "__main__":
    main()
