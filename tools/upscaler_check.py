"""What an upscaler file promises, proved, and what it is worth, measured on held-out photos."""
from __future__ import annotations

import copy
import hashlib
import json
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from upscaler_data import SAMPLE_PHOTOS, SAMPLES, clean, even, halve, load, split
from upscaler_model import SCALE, contract, open_model

MAX_WEIGHTS = 300_000
MAX_BYTES = 1_300_000
BORDER = 4  # high-resolution pixels left out of the PSNR at each side


def to_tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def influence_radius(model: torch.jit.ScriptModule) -> int:
    """How far, in input pixels, an output pixel looks, by its gradient in double precision.

    All weights are made positive first: nothing cancels and no ReLU closes, so the gradient is
    nonzero wherever a path exists, and what is measured is the structure, not the training.
    """
    probe = copy.deepcopy(model).double()
    for weight in probe.parameters():
        weight.data = weight.data.abs() + 1e-3
    side = 101
    middle = side // 2
    x = torch.full((1, 3, side, side), 0.5, dtype=torch.double, requires_grad=True)
    y = probe(x)
    y[:, :, 2 * middle:2 * middle + 2, 2 * middle:2 * middle + 2].sum().backward()
    rows, columns = torch.nonzero(x.grad[0].abs().sum(0), as_tuple=True)
    return int(torch.cat([(rows - middle).abs(), (columns - middle).abs()]).max())


def tiled(model: torch.jit.ScriptModule, x: Tensor, tile: int, overlap: int, trim: int) -> Tensor:
    """The picture put together from tiles, each without `trim` pixels where it has a neighbour."""

    def starts(extent: int) -> list[int]:
        if extent <= tile:
            return [0]
        return [*range(0, extent - tile, tile - overlap), extent - tile]

    height, width = x.shape[2:]
    out = torch.full((*x.shape[:2], SCALE * height, SCALE * width), math.nan)
    for top in starts(height):
        for left in starts(width):
            bottom, right = min(top + tile, height), min(left + tile, width)
            y = model(x[:, :, top:bottom, left:right])
            t = trim if top else 0
            l = trim if left else 0
            b = trim if bottom < height else 0
            r = trim if right < width else 0
            out[:, :, 2 * (top + t):2 * (bottom - b), 2 * (left + l):2 * (right - r)] = \
                y[:, :, 2 * t:y.shape[2] - 2 * b, 2 * l:y.shape[3] - 2 * r]
    return out


@torch.no_grad()
def perturbed_radius(model: torch.jit.ScriptModule, x: Tensor, at: tuple[int, int]) -> int:
    """How far, in input pixels, a change of one pixel of a real photo shows in the output."""
    other = x.clone()
    other[:, :, at[0], at[1]] = 1 - other[:, :, at[0], at[1]]
    change = (model(other) - model(x)).abs().amax((0, 1))
    change = F.max_pool2d(change[None, None], 2)[0, 0]
    rows, columns = torch.nonzero(change > 1e-6, as_tuple=True)
    return int(torch.cat([(rows - at[0]).abs(), (columns - at[1]).abs()]).max())


def check(path: Path) -> bool:
    """Prints one line for each promise; false where one does not hold."""
    model, promise = open_model(path)
    radius, tiling = promise["radius"], promise["tiling"]
    weights = sum(p.numel() for p in model.parameters())
    photo = to_tensor(load(SAMPLES / "astronaut.png")).float()[None] / 255
    results: list[tuple[str, bool]] = []

    def judge(text: str, holds: bool) -> None:
        results.append((text, holds))
        print(("ok    " if holds else "WRONG ") + text, flush=True)

    size = path.stat().st_size
    judge(f"{weights} weights, {MAX_WEIGHTS} allowed", weights <= MAX_WEIGHTS)
    judge(f"{size} bytes, {MAX_BYTES} allowed", size <= MAX_BYTES)
    judge(f"tilery.json is {json.dumps(promise)}", promise == contract(radius))
    found = influence_radius(model)
    judge(f"receptive radius {found}, declared {radius}", found == radius)
    shifts = [perturbed_radius(model, photo[:, :, :160, :160], at) for at in ((80, 80), (3, 150))]
    judge(f"one changed pixel shows up to {max(shifts)} pixels away", max(shifts) <= radius)
    with torch.no_grad():
        shapes = [(1, 1, 1), (3, 1, 9), (1, 7, 2), (2, 37, 53), (4, 64, 64)]
        right = all(model(torch.rand(n, 3, h, w)).shape == (n, 3, 2 * h, 2 * w)
                    for n, h, w in shapes)
        judge("height and width from 1, any batch", right)
        whole = model(photo)
        judge(f"output of a photo lies in {whole.min():.3f}..{whole.max():.3f}",
              bool(whole.isfinite().all()) and -0.3 < whole.min() and whole.max() < 1.3)
        for tile, overlap in ((tiling["tile"], tiling["overlap"]), (2 * radius + 16, 2 * radius)):
            gap = (tiled(model, photo, tile, overlap, radius) - whole).abs().max().item()
            judge(f"tiles of {tile}, overlap {overlap}, trim {radius}: {gap:.1e} from untiled",
                  gap <= 1e-5)
    print(f"sha256 {hashlib.sha256(path.read_bytes()).hexdigest()}")
    return all(holds for _, holds in results)


def psnr(a: Image.Image, b: Image.Image) -> tuple[float, float]:
    """(RGB, luma) PSNR in dB of two 8-bit pictures, BORDER pixels at each side left out.

    Luma is that of ITU-R BT.601 with its range of 16..235, as the literature measures it.
    """
    diff = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    diff = diff[BORDER:-BORDER, BORDER:-BORDER]
    luma = diff @ np.array([65.481, 128.553, 24.966]) / 255
    return tuple(10 * math.log10(255 ** 2 / np.square(d).mean()) for d in (diff, luma))


@torch.no_grad()
def upscale(model: nn.Module, image: Image.Image) -> Image.Image:
    y = model(to_tensor(image).float()[None] / 255)[0]
    return Image.fromarray((y * 255).round().clamp(0, 255).byte().permute(1, 2, 0).numpy())


def measure(model: nn.Module, photos: list[tuple[str, Image.Image]]) -> float:
    """Prints a table in Markdown; returns the mean gain over bicubic in RGB, in dB."""
    print("| photo | size | bicubic RGB | ours RGB | gain | bicubic Y | ours Y | gain |")
    print("|---|---|---|---|---|---|---|---|")
    rows = []
    for name, image in photos:
        small = halve(image)
        bicubic = small.resize(image.size, Image.Resampling.BICUBIC)
        rows.append((*psnr(bicubic, image), *psnr(upscale(model, small), image)))
        show_row(name, f"{image.width}x{image.height}", rows[-1])
    mean = tuple(sum(column) / len(rows) for column in zip(*rows))
    show_row("**mean**", "", mean)
    return mean[2] - mean[0]


def show_row(name: str, size: str, row: tuple[float, ...]) -> None:
    base, base_y, ours, ours_y = row
    print(f"| {name} | {size} | {base:.2f} | {ours:.2f} | {ours - base:+.2f} "
          f"| {base_y:.2f} | {ours_y:.2f} | {ours_y - base_y:+.2f} |", flush=True)


def held_out(folder: Path | None) -> list[tuple[str, Image.Image]]:
    """The sample photos as they are, and the held-out ones of `folder`, where given."""
    paths = [SAMPLES / name for name in sorted(SAMPLE_PHOTOS)]
    photos = [(path.stem, even(load(path))) for path in paths]
    if folder:
        photos += [(path.stem, clean(path)) for path in split(folder)[1]]
    return photos
