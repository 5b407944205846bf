#!/usr/bin/env python3
"""Trains, checks and measures configs/models/upscaler_x2.pt, the x2 upscaler of this project.

  tools/train_upscaler.py                      fetch the photos, train, measure, check, write --out
  tools/train_upscaler.py --check [FILE]       prove the promises of the file's tilery.json
  tools/train_upscaler.py --measure [FILE]     PSNR on the held-out photos beside bicubic

Needs Python 3.9 with torch, numpy and Pillow; apt-get and dpkg fetch the photos.
"""
from __future__ import annotations

import argparse
import copy
import json
import math
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent))
from upscaler_check import check, held_out, measure, to_tensor  # noqa: E402
from upscaler_data import ROOT, SCALE, clean, fetch, halve, shrink, split  # noqa: E402
from upscaler_model import Upscaler, open_model, save  # noqa: E402

DEFAULT_FILE = ROOT / "configs" / "models" / "upscaler_x2.pt"
PATCH = 96  # low-resolution pixels of a stored training patch
CROP = 48  # low-resolution pixels of what a step sees of it
SIZES = (1.0, 1.4, 2.0, 2.8)  # every photo is also learnt so many times smaller


def cut(image: Image.Image) -> tuple[Tensor, Tensor]:
    """All whole patches of a picture: ([K,3,P,P] low, [K,3,2P,2P] high resolution), uint8."""

    def patches(tensor: Tensor, size: int) -> Tensor:
        grid = tensor.unfold(1, size, size).unfold(2, size, size)
        return grid.permute(1, 2, 0, 3, 4).reshape(-1, 3, size, size)

    return patches(to_tensor(halve(image)), PATCH), patches(to_tensor(image), PATCH * SCALE)


def training_patches(paths: list[Path]) -> tuple[Tensor, Tensor]:
    """Patches of every photo at every size, less the quarter that shows the least detail."""

    def one(path: Path) -> list[tuple[Tensor, Tensor]]:
        image = clean(path)
        sizes = [shrink(image, factor) for factor in SIZES]
        return [cut(size) for size in sizes if min(size.size) >= PATCH * SCALE]

    with ThreadPoolExecutor() as pool:
        pairs = [pair for some in pool.map(one, paths) for pair in some]
    low = torch.cat([pair[0] for pair in pairs])
    high = torch.cat([pair[1] for pair in pairs])
    detail = torch.stack([(patch[:, :, 1:].float() - patch[:, :, :-1].float()).abs().mean()
                          for patch in high])
    keep = detail >= detail.quantile(0.25)
    return low[keep], high[keep]


def train(paths: list[Path], device: torch.device, minutes: float, steps: int | None, batch: int,
          seed: int) -> tuple[Upscaler, dict]:
    """Returns the averaged weights of the run and what is worth knowing about it.

    The learning rate falls along a cosine over `steps`, or over `minutes` where no steps are
    given. The same seed, steps and machine repeat the run but for the order in which a GPU sums.
    """
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    low, high = (tensor.to(device) for tensor in training_patches(paths))
    net = Upscaler().to(device, memory_format=torch.channels_last)
    average = copy.deepcopy(net)
    on_gpu = device.type == "cuda"
    run = torch.compile(net) if on_gpu else net
    peak_rate = 1e-3
    optimizer = torch.optim.Adam(net.parameters(), lr=peak_rate, betas=(0.9, 0.99),
                                 fused=on_gpu)
    print(f"{len(paths)} photos, {len(low)} patches, "
          f"{sum(p.numel() for p in net.parameters())} weights, {device}", flush=True)

    def pick(limit: int, count: int = 1) -> Tensor:
        return torch.randint(limit, (count,), generator=generator)

    start, step, shown, losses = time.monotonic(), 0, 0.0, []
    while True:
        if step == 20 and on_gpu:
            torch.cuda.synchronize()
            start = time.monotonic()  # what compiling took is not training
        elapsed = time.monotonic() - start
        progress = step / steps if steps else elapsed / (60 * minutes)
        if progress >= 1:
            break
        warm = min(1.0, (step + 1) / 500)
        for group in optimizer.param_groups:
            group["lr"] = peak_rate * warm * (0.5 + 0.5 * math.cos(math.pi * progress)) + 1e-7

        # One crop offset, symmetry and order of colours for all of a batch: slices, no gather.
        y, x = (int(pick(PATCH - CROP + 1)) for _ in range(2))
        index = pick(len(low), batch).to(device)
        source = low[:, :, y:y + CROP, x:x + CROP][index]
        target = high[:, :, 2 * y:2 * (y + CROP), 2 * x:2 * (x + CROP)][index]
        turn, flip = int(pick(4)), int(pick(2))
        colours = torch.randperm(3, generator=generator)
        source, target = (
            torch.rot90(t.flip(3) if flip else t, turn, (2, 3))[:, colours].float() / 255
            for t in (source, target))
        source = source.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            result = run(source)
        # Charbonnier: absolute error, smooth around zero.
        loss = ((result.float() - target).square() + 1e-6).sqrt().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        with torch.no_grad():
            share = 1 - min(0.999, (step + 1) / (step + 10))
            torch._foreach_lerp_(list(average.parameters()), list(net.parameters()), share)
        step += 1
        losses.append(loss.detach())
        if elapsed - shown >= 15:
            shown = elapsed
            mean = torch.stack(losses).mean().item()
            losses.clear()
            print(f"{elapsed:6.0f} s  step {step:6d}  loss {mean:.5f}", flush=True)

    facts = {"steps": step, "batch": batch, "crop": CROP, "seed": seed, "patches": len(low),
             "seconds": round(elapsed), "torch": torch.__version__,
             "device": torch.cuda.get_device_name(device) if on_gpu else "CPU"}
    return average.float().cpu().eval().requires_grad_(False), facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT / ".cache" / "upscaler",
                        help="folder of the photos; filled from Debian's packages where empty")
    parser.add_argument("--out", type=Path, default=DEFAULT_FILE)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--steps", type=int, help="train so many steps, whatever time they take")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", nargs="?", type=Path, const=DEFAULT_FILE, metavar="FILE")
    parser.add_argument("--measure", nargs="?", type=Path, const=DEFAULT_FILE, metavar="FILE")
    args = parser.parse_args()
    if args.measure:
        measure(open_model(args.measure)[0], held_out(args.data if args.data.exists() else None))
    if args.check:
        sys.exit(0 if check(args.check) else 1)
    if args.measure:
        return
    fetch(args.data)
    net, facts = train(split(args.data)[0], torch.device(args.device), args.minutes,
                       args.steps, args.batch, args.seed)
    save(net, args.out)
    print(json.dumps(facts))
    right = check(args.out)
    gain = measure(open_model(args.out)[0], held_out(args.data))
    print(f"{gain:.2f} dB above bicubic on photos held out of training")
    sys.exit(0 if right and gain >= 1.0 else 1)


if __name__ == "__main__":
    main()
