#!/usr/bin/env python3
"""Trains the networks of the grid codec and measures them on simulations held out.

  tools/train_codec.py --bakes FOLDER... --tool build/tests/bin/tvdb_tool [--device cuda] [--minutes 15]
                       [--network context|vq]

The folders hold OpenVDB files train_*.vdb and test_*.vdb, whole simulations on one side. tvdb_tool turns
them into samples, one for each number of an active voxel: what the network sees, as the codec itself
computes it, and where the value lies (docs/codec-model.md has the formulas); for the method vq into leaves
(docs/codec-vq.md, tools/codec_vq.py).

What it prints are ideal code lengths of the integer network: bits for each number, and the ratio of 32
bits to it. With --write, the weights go where the codec is built from. Needs numpy and torch.
"""
from __future__ import annotations

import argparse
import concurrent.futures
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import codec_vq

INPUTS, HIDDEN, SECOND, MIXTURE = 80, 32, 16, 3  # as in pipeline/codec/context_formulas.h
SYMBOLS = 64
BOUNDS = ("0.25%", "0.5%", "1%", "2%", "5%")  # of the grid's range
EXACT = "0.000001%"  # steps so fine that all is noise but the upper bits
SAMPLE = np.dtype([("inputs", "i1", INPUTS), ("shift", "<i4"), ("error", "<i4")])


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, SECOND),
                                     nn.Linear(SECOND, 3 * MIXTURE)])

    def forward(self, inputs: Tensor) -> Tensor:
        first, second, last = self.layers
        hidden = torch.clamp(torch.relu(first(inputs.float() / 16)), max=31.99)
        return last(torch.clamp(torch.relu(second(hidden)), max=31.99))


def bits_of(out: Tensor, shift: Tensor, error: Tensor) -> Tensor:
    """Code length of a number: of its symbol under a mixture of logistics, and of the bits below it."""
    unit = torch.exp2(shift.float())
    share, move, scale = out.chunk(3, 1)
    scale = torch.exp(torch.clamp(scale, -4, 3))
    # The symbol's borders in units from the prediction: `error` is in sixteenths of a step.
    base = torch.div(8 - error, 16, rounding_mode="floor")  # prediction - value, rounded as the codec does
    rest = error.float() / 16 + base.float()  # whole number nearest to the prediction less the prediction
    number = torch.div(-base.float(), unit, rounding_mode="floor")
    lower = number - (0.5 - rest) / unit
    off = lower[:, None] - torch.clamp(move, -32, 32)
    low, high = torch.sigmoid(off / scale), torch.sigmoid((off + 1) / scale)
    chance = (torch.softmax(share, 1) * (high - low)).sum(1)
    symbol = -torch.log2(chance * (1 - SYMBOLS / 65536) + 1 / 65536)
    beyond = torch.relu(torch.maximum(-number - SYMBOLS // 2 + 1, number - SYMBOLS // 2 + 2))
    return symbol + shift + torch.where(beyond > 0, 2 * torch.log2(beyond + 1) + 1, beyond)


def integers(net: Network) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights in 1/1024 and biases in the unit of the sums of their layer."""
    return [(layer.weight.detach().double().cpu().mul(1024).round().clamp(-4096, 4096).numpy().astype(np.int64),
             layer.bias.detach().double().cpu().mul(1024 * unit).round().numpy().astype(np.int64))
            for layer, unit in zip(net.layers, (16, 256, 256))]


def integer_outputs(layers: list, inputs: np.ndarray) -> np.ndarray:
    """What the codec computes, in 1/256."""
    values = inputs.astype(np.int64)
    for index, (weights, bias) in enumerate(layers):
        sums = values @ weights.T + bias
        values = (sums + 32) >> 6 if index == 0 else (sums + 512) >> 10
        if index + 1 < len(layers):
            values = np.clip(values, 0, 8191)
    return np.clip(values, -32768, 32767)


def write_inc(layers: list, folder: Path) -> None:
    def table(rows, what: str, file: Path) -> None:
        lines = [f"// Written by tools/train_codec.py: {what}"]
        for row in rows:
            text = ", ".join(map(str, row)) + ","
            while text:
                cut = len(text) if len(text) <= 100 else text.rindex(" ", 0, 100)
                lines.append(text[:cut].strip())
                text = text[cut:].strip()
        file.write_text("\n".join(lines) + "\n")

    table([row for weights, _ in layers for row in weights], "weights in 1/1024, a row for each output.",
          folder / "context_weights.inc")
    table([bias for _, bias in layers], "biases, in the unit of the sums of each layer.",
          folder / "context_biases.inc")


def samples_of(tool: Path, file: Path, bound: str) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder) / "samples"
        subprocess.run([tool, "samples", file, to, bound], check=True)
        return np.fromfile(to, SAMPLE)


def on(device: torch.device, samples: np.ndarray) -> list[Tensor]:
    return [torch.from_numpy(np.ascontiguousarray(samples[part])).to(device)
            for part in ("inputs", "shift", "error")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bakes", type=Path, nargs="+", required=True)
    parser.add_argument("--tool", type=Path, default=Path("build/tests/bin/tvdb_tool"))
    parser.add_argument("--network", choices=("context", "vq"), default="context")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--most", type=int, default=60_000, help="numbers of a file and bound that are learnt from")
    parser.add_argument("--leaves", type=int, default=2048, help="vq: leaves in a step")
    parser.add_argument("--most-leaves", type=int, default=12_000, help="vq: leaves of a file that are learnt from")
    parser.add_argument("--vq-rate", type=float, default=2e-3)
    parser.add_argument("--readers", type=int, default=2, help="files that are made to samples at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="the weights, as torch saves them")
    parser.add_argument("--start", type=Path, help="weights to begin with")
    parser.add_argument("--write", type=Path, help="folder for the integer weights: pipeline/codec")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    chance = np.random.default_rng(args.seed)
    device = torch.device(args.device)

    def files(pattern: str) -> list[Path]:
        return sorted((file for folder in args.bakes for file in folder.glob(pattern)), key=lambda f: f.name)

    if args.network == "vq":
        codec_vq.train(args, files)
        return
    net = Network().to(device)
    if args.start:
        net.load_state_dict(torch.load(args.start, map_location=device))

    def gather(pattern: str):
        """File, bound and samples, a few read ahead."""
        wanted = [(file, bound) for file in files(pattern) for bound in (*BOUNDS, EXACT)]
        with concurrent.futures.ThreadPoolExecutor(args.readers) as pool:
            yield from ((*which, some) for which, some in
                        zip(wanted, pool.map(lambda w: samples_of(args.tool, *w), wanted)))

    parts = []
    for _, bound, some in gather("train_*.vdb") if args.minutes > 0 else []:
        most = args.most if bound != EXACT else args.most // 6
        parts.append(some[chance.permutation(len(some))[:most]])
    if parts:
        inputs, shift, error = on(device, np.concatenate(parts))
        print(f"{len(inputs)} samples of {len(parts)} files and bounds", flush=True)
        optimizer = torch.optim.AdamW(net.parameters(), lr=args.rate, weight_decay=1e-4)
        start, step, share = time.monotonic(), 0, 0.0
        while share < 1:
            share = (time.monotonic() - start) / 60 / args.minutes
            optimizer.param_groups[0]["lr"] = args.rate * (0.005 + 0.995 * max(0, 1 - share)) * min(1, step / 200)
            some = torch.randint(len(inputs), (args.batch,), device=device)
            bits = bits_of(net(inputs[some]), shift[some], error[some]).mean()
            optimizer.zero_grad()
            bits.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            with torch.no_grad():
                for layer in net.layers:
                    layer.weight.clamp_(-4, 4)
            step += 1
            if step % 5000 == 0:
                print(f"{step}: {bits.item():.4f}", flush=True)
        with torch.no_grad():
            total = sum(bits_of(net(a), b, c).double().sum().item()
                        for a, b, c in zip(*(t.split(1 << 16) for t in (inputs, shift, error))))
        print(f"{step} steps in {time.monotonic() - start:.0f} s; all samples: {total / len(inputs):.4f} bits", flush=True)
    if args.out:
        torch.save(net.state_dict(), args.out)
    layers = integers(net)
    if args.write:
        write_inc(layers, args.write)
    for file, bound, samples in gather("test_*.vdb"):
        total = 0.0
        for some in np.array_split(samples, max(1, len(samples) // 65536)):
            outputs = torch.from_numpy(integer_outputs(layers, some["inputs"])).float() / 256
            _, shift, error = on(torch.device("cpu"), some)
            total += bits_of(outputs, shift, error).double().sum().item()
        print(f"{file.stem} {bound}: {total / len(samples):.4f} bits, ratio {32 * len(samples) / total:.2f}",
              flush=True)


if __name__ == "__main__":
    main()
