#!/usr/bin/env python3
"""Tiled against untiled with real weights: how far the halos of a folder of models hold. Prints a table.

    halo_bench.py --models FOLDER     # esrgan_slim_x2.pt, meshnet5_gw.pt, t1_crop.nii.gz
"""
from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

import nibabel
import numpy as np
import tifffile
import torch
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/blackbox"))
sys.path.insert(0, str(ROOT / "tests"))
from conftest import EXECUTABLE, REAL_MODELS  # noqa: E402


def tilery(*args) -> float:
    began = time.monotonic()
    p = subprocess.run([EXECUTABLE, "run", *map(str, args)], capture_output=True, text=True)
    assert p.returncode == 0, p.stderr
    return time.monotonic() - began


def picture(folder: pathlib.Path, models: pathlib.Path) -> None:
    photo = np.asarray(Image.open(ROOT / "configs/samples/astronaut.png").convert("RGB"))
    net = torch.jit.load(str(models / "esrgan_slim_x2.pt")).eval()
    with torch.inference_mode():
        want = net(torch.from_numpy(photo.transpose(2, 0, 1).astype(np.float32) / 255)[None])[0].numpy().transpose(1, 2, 0)
    for overlap in (8, 16, 32):
        out = folder / f"p{overlap}.tif"
        s = tilery("--model", models / "esrgan_slim_x2.pt", "--input", ROOT / "configs/samples/astronaut.png", "--output", out,
                   "--tile", 128, "--overlap", overlap, "--tiling.trim", overlap // 2, "--output.dtype", "f32", "--work",
                   folder / f"wp{overlap}", "--model.range", "[0,1]")
        off = 255 * np.abs(tifffile.imread(out) - want).max()
        print(f"| esrgan_slim_x2 | astronaut 512x512, tile 128, overlap {overlap}, trim {overlap // 2} | {off:.2g} of 255 | {s:.1f} s |",
              flush=True)


def brain(folder: pathlib.Path, models: pathlib.Path) -> None:
    volume = models / "t1_crop.nii.gz"
    v = np.asarray(nibabel.load(volume).dataobj).transpose(2, 1, 0)
    net = torch.jit.load(str(models / "meshnet5_gw.pt")).eval()
    began = time.monotonic()
    with torch.inference_mode():
        want = net(torch.from_numpy(v.astype(np.float32) / 255)[None, None])[0].argmax(0).numpy().astype(np.uint8)
    print(f"| meshnet5_gw | t1 {v.shape}, untiled | - | {time.monotonic() - began:.1f} s |", flush=True)
    for tile, overlap, trim in ((176, 92, 46), (160, 64, 32)):
        out = folder / f"b{overlap}.nii.gz"
        s = tilery("--model", models / "meshnet5_gw.pt", "--input", volume, "--output", out, "--tile", tile, "--overlap", overlap,
                   "--tiling.trim", trim, "--output.post", "argmax", "--work", folder / f"wb{overlap}")
        got = np.asarray(nibabel.load(out).dataobj).transpose(2, 1, 0)
        wrong = int((got != want).sum())
        print(f"| meshnet5_gw | tile {tile}, overlap {overlap}, trim {trim} | {wrong} wrong labels ({100 * wrong / want.size:.2g} %) | "
              f"{s:.1f} s |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, default=REAL_MODELS, required=REAL_MODELS is None)
    args = parser.parse_args()
    print("| model | how | against untiled | wall |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="halo-bench-") as name:
        picture(pathlib.Path(name), args.models)
        brain(pathlib.Path(name), args.models)


if __name__ == "__main__":
    main()
