#!/usr/bin/env python3
"""Writes docs/before-after.png: a held-out photo at half its size, upscaled by bicubic and by us.

Both halves show the same crop of the same picture, each pixel enlarged, so that nothing but the
upscaling differs.
"""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

sys.path.insert(0, str(Path(__file__).resolve().parent))
from upscaler_check import psnr, upscale  # noqa: E402
from upscaler_data import ROOT, SAMPLES, even, halve, load  # noqa: E402
from upscaler_model import open_model  # noqa: E402

GAP = 6
LABEL = 26


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photo", type=Path, default=SAMPLES / "chelsea.png")
    parser.add_argument("--crop", type=int, nargs=4, default=(120, 70, 160, 140),
                        metavar=("X", "Y", "WIDTH", "HEIGHT"), help="in pixels of the photo")
    parser.add_argument("--zoom", type=int, default=3)
    parser.add_argument("--model", type=Path, default=ROOT / "configs/models/upscaler_x2.pt")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "before-after.png")
    args = parser.parse_args()

    photo = even(load(args.photo))
    small = halve(photo)
    results = {"bicubic": small.resize(photo.size, Image.Resampling.BICUBIC),
               "upscaler_x2": upscale(open_model(args.model)[0], small)}
    x, y, width, height = args.crop
    size = (width * args.zoom, height * args.zoom)
    strip = Image.new("RGB", (2 * size[0] + GAP, size[1] + LABEL), "white")
    draw = ImageDraw.Draw(strip)
    font = ImageFont.load_default(16)
    for side, (name, result) in enumerate(results.items()):
        left = side * (size[0] + GAP)
        part = result.crop((x, y, x + width, y + height))
        strip.paste(part.resize(size, Image.Resampling.NEAREST), (left, LABEL))
        decibel = psnr(result, photo)[0]
        draw.text((left + 4, 3), f"{name}, {decibel:.2f} dB on the photo", fill="black", font=font)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    strip.save(args.out, optimize=True)
    print(f"{args.out}: {strip.width}x{strip.height}, {args.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
