"""The nets of the grid codec's method vq: training, and their integers. See tools/train_codec.py.

The nets are those of pipeline/codec/vq_formulas.h, whose integers they train with: weights, hidden values,
vectors and codes' vectors are rounded as the codec rounds them, gradients pass through.
"""
from __future__ import annotations

import concurrent.futures
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

CELLS, CODES, STAGES, WIDTH = 64, 256, 4, 16
HIDDEN, SECOND, PRIOR_HIDDEN = 32, 48, 32
ONE, MOST = 16, 127 / 16
BOUND = "0.003%"  # of the range: steps so fine that they do not matter
LEAF = np.dtype([("mask", "<u8", 8), ("numbers", "<i4", 512), ("range", "<f8")])
# Neighbouring cells whose codes say what a cell's may be, all earlier in the order of cells.
NEIGHBOURS = [(0, 0, -1), (0, -1, 0), (-1, 0, 0), (0, -1, 1), (-1, 0, 1), (-1, 1, 0)]


def rounded(values: Tensor, unit: float) -> Tensor:
    return values + ((values * unit).round() / unit - values).detach()


class Layer(nn.Module):
    """A convolution whose weights are int8 in 1 / 2^shift."""

    def __init__(self, inputs: int, outputs: int, kernel: int, shift: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv3d(inputs, outputs, kernel, stride, padding=kernel // 2 if stride == 1 else 1)
        self.shift = shift

    def forward(self, values: Tensor) -> Tensor:
        unit = 2.0 ** self.shift
        weights = rounded(torch.clamp(self.conv.weight, -127 / unit, 127 / unit), unit)
        bias = rounded(self.conv.bias, unit * ONE)
        return F.conv3d(values, weights, bias, self.conv.stride, self.conv.padding)

    def integers(self) -> tuple[np.ndarray, np.ndarray]:
        """[output][cell around][input] and biases."""
        unit = 2.0 ** self.shift
        weights = torch.clamp(self.conv.weight.detach().double(), -127 / unit, 127 / unit).mul(unit).round()
        weights = weights.permute(0, 2, 3, 4, 1)
        if self.conv.stride[0] == 2:  # the codec has voxels, then which are active
            weights = weights.permute(0, 4, 1, 2, 3)
        bias = self.conv.bias.detach().double().mul(unit * ONE).round()
        return weights.reshape(len(weights), -1).cpu().numpy().astype(np.int8), bias.cpu().numpy().astype("<i4")


def hidden(values: Tensor) -> Tensor:
    return rounded(torch.clamp(values, 0, MOST), ONE)


class Nets(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleList([Layer(2, HIDDEN, 4, 6, 2), Layer(HIDDEN, SECOND, 3, 8), Layer(SECOND, WIDTH, 1, 6)])
        self.decoder = nn.ModuleList([Layer(WIDTH + 8, HIDDEN, 3, 8), Layer(HIDDEN, SECOND, 3, 8), Layer(SECOND, 8, 1, 6)])
        self.register_buffer("codes", torch.zeros(STAGES, CODES, WIDTH))
        self.register_buffer("counts", torch.ones(STAGES, CODES))
        self.register_buffer("sums", torch.zeros(STAGES, CODES, WIDTH))

    def codebook(self, stage: int) -> Tensor:
        return torch.clamp((self.codes[stage] * ONE).round(), -127, 127) / ONE

    def encode(self, values: Tensor, mask: Tensor) -> Tensor:
        first, second, last = self.encoder
        inputs = rounded(torch.clamp(values * mask, -MOST, MOST), ONE)
        vectors = last(hidden(second(hidden(first(torch.stack([inputs, mask], 1))))))
        return rounded(torch.clamp(vectors, -MOST, MOST), ONE)

    def decode(self, vectors: Tensor, mask: Tensor) -> Tensor:
        first, second, last = self.decoder
        cells = corners(mask)
        vectors = torch.clamp(vectors, -MOST, MOST) * (cells.sum(1, keepdim=True) > 0)
        out = last(hidden(second(hidden(first(torch.cat([vectors, cells], 1))))))
        return voxels(rounded(out, 256))

    def nearest(self, stage: int, rest: Tensor) -> Tensor:
        """`rest`: [n, WIDTH]."""
        book = self.codebook(stage)
        return torch.argmin((book * book).sum(1)[None] - 2 * rest @ book.T, 1)


def corners(mask: Tensor) -> Tensor:
    """[n, 8, 8, 8] to [n, 8, 4, 4, 4], the voxels of each cell x-major."""
    return mask.reshape(-1, 4, 2, 4, 2, 4, 2).permute(0, 2, 4, 6, 1, 3, 5).reshape(-1, 8, 4, 4, 4)


def voxels(cells: Tensor) -> Tensor:
    return cells.reshape(-1, 2, 2, 2, 4, 4, 4).permute(0, 4, 1, 5, 2, 6, 3).reshape(-1, 8, 8, 8)


def normalised(leaves: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What the codec makes of leaves: values (24/16 are the mean distance), masks, spreads and offsets; those
    of one number are left out."""
    mask = np.unpackbits(leaves["mask"].view(np.uint8).reshape(-1, 64), axis=1, bitorder="little").astype(bool)
    numbers = leaves["numbers"].astype(np.int64)
    count = mask.sum(1)
    mean = np.floor((2 * (numbers * mask).sum(1) + count) / (2 * count)).astype(np.int64)
    distances = (np.abs(numbers - mean[:, None]) * mask).sum(1)
    some = distances > 0
    mask, numbers, mean = mask[some], numbers[some], mean[some]
    spread = 16 * distances[some] // count[some] + 1
    width = np.floor(np.log2(spread)).astype(np.int64) + 1
    shift = np.maximum(width - 4, 0)
    spread = spread >> shift << shift
    unit = np.int64(1) << np.maximum(width - 1 - 6, 0)
    offset = np.floor((2 * mean + unit) / (2 * unit)).astype(np.int64) * unit
    values = (numbers - offset[:, None]) * (24.0 / ONE * 16) / spread[:, None]
    scale = spread / 16 / leaves["range"][some]
    return ((values * mask).astype(np.float32).reshape(-1, 8, 8, 8), mask.reshape(-1, 8, 8, 8),
            scale.astype(np.float32), offset)


def leaves_of(tool: Path, file: Path) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder) / "leaves"
        subprocess.run([tool, "leaves", file, to, BOUND], check=True)
        return np.fromfile(to, LEAF)


def turned(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """One of the cube's symmetries, and a sign, for the whole batch."""
    axes = (torch.randperm(3) + 1).tolist()
    flips = [axis for axis in (1, 2, 3) if torch.rand(()) < 0.5]
    sign = 1 if torch.rand(()) < 0.7 else -1
    return sign * values.permute(0, *axes).flip(flips), mask.permute(0, *axes).flip(flips)


def train_nets(nets: Nets, data, args, minutes: float) -> None:
    values, mask, scale = data
    device = values.device
    weights = (scale / scale.mean()).clamp(0.05, 8)
    optimizer = torch.optim.AdamW(nets.parameters(), lr=args.vq_rate, weight_decay=1e-5)
    start, step, share = time.monotonic(), 0, 0.0
    while share < 1:
        share = (time.monotonic() - start) / 60 / minutes
        optimizer.param_groups[0]["lr"] = args.vq_rate * (0.01 + 0.99 * max(0, 1 - share)) * min(1, (step + 1) / 200)
        some = torch.randint(len(values), (args.leaves,), device=device)
        x, m = turned(values[some].float(), mask[some].float())
        w = weights[some]
        z = nets.encode(x, m)
        flat = z.permute(0, 2, 3, 4, 1).reshape(-1, WIDTH)
        full = (corners(m).sum(1) > 0).reshape(-1)
        stages = torch.randint(1, STAGES + 1, (len(x),), device=device)
        deep = stages.repeat_interleave(CELLS)
        total, commit = torch.zeros_like(flat), 0.0
        with torch.no_grad():
            rest = flat.detach().clone()
        for stage in range(STAGES):
            chosen = full & (deep > stage)
            with torch.no_grad():
                mine = rest[chosen]
                if step == 0 or (step % 200 == 0 and share < 0.8):
                    restart(nets, stage, mine, step == 0)
                code = nets.nearest(stage, mine)
                if share < 0.95:
                    follow(nets, stage, mine, code)
                taken = nets.codebook(stage)[code]
                total[chosen] += taken
                rest[chosen] -= taken
            commit = commit + ((flat - total.detach())[chosen] ** 2).mean()
        quantised = flat + (total - flat).detach() if step > 300 else flat
        out = nets.decode(quantised.reshape(-1, 4, 4, 4, WIDTH).permute(0, 4, 1, 2, 3), m)
        error = (((out - x) * m) ** 2).sum((1, 2, 3)) / m.sum((1, 2, 3))
        loss = (error * w).mean() + 0.1 * commit / STAGES
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(nets.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            for layer in (*nets.encoder, *nets.decoder):
                most = 127 / 2 ** layer.shift
                layer.conv.weight.clamp_(-most, most)
        step += 1
        if step % 1000 == 0:
            print(f"{step}: {loss.item():.4f} {time.monotonic() - start:.0f} s", flush=True)


def follow(nets: Nets, stage: int, rest: Tensor, code: Tensor, decay: float = 0.99) -> None:
    """Moving averages of what a code stands for."""
    counts = torch.bincount(code, minlength=CODES).float()
    sums = torch.zeros_like(nets.sums[stage]).index_add_(0, code, rest)
    nets.counts[stage].mul_(decay).add_(counts, alpha=1 - decay)
    nets.sums[stage].mul_(decay).add_(sums, alpha=1 - decay)
    nets.codes[stage] = nets.sums[stage] / nets.counts[stage].clamp(min=1e-3)[:, None]


def restart(nets: Nets, stage: int, rest: Tensor, everything: bool) -> None:
    """Codes that nothing is near to, or that another one equals, begin anew where something is."""
    if len(rest) < CODES:
        return
    book = nets.codebook(stage)
    _, first = np.unique(book.cpu().numpy(), axis=0, return_index=True)
    dead = nets.counts[stage] < 0.03 * nets.counts[stage].mean()
    same = torch.ones(CODES, dtype=torch.bool)
    same[torch.from_numpy(first)] = False
    dead |= same.to(dead.device)
    if everything:
        dead[:] = True
    count = int(dead.sum())
    some = rest[torch.randint(len(rest), (count,), device=rest.device)]
    some = some + 0.05 * torch.randn_like(some)
    nets.codes[stage, dead] = some
    nets.counts[stage, dead] = nets.counts[stage].mean()
    nets.sums[stage, dead] = some * nets.counts[stage, dead][:, None]


@torch.no_grad()
def coded(nets: Nets, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Codes [n, STAGES, CELLS], CODES where a cell has no active voxels, and the squared error of each leaf
    after each stage [n, STAGES]."""
    x, m = values.float(), mask.float()
    flat = nets.encode(x, m).permute(0, 2, 3, 4, 1).reshape(-1, WIDTH)
    full = (corners(m).sum(1) > 0).reshape(-1)
    total, codes, errors = torch.zeros_like(flat), [], []
    for stage in range(STAGES):
        code = nets.nearest(stage, flat - total)
        total = (total + nets.codebook(stage)[code]) * full[:, None]
        codes.append(torch.where(full, code, CODES).reshape(-1, CELLS))
        out = nets.decode(total.reshape(-1, 4, 4, 4, WIDTH).permute(0, 4, 1, 2, 3), m)
        errors.append((((out - x) * m) ** 2).sum((1, 2, 3)))
    return torch.stack(codes, 1), torch.stack(errors, 1)


class Prior(nn.Module):
    """How likely codes are, from what is known before them."""

    def __init__(self) -> None:
        super().__init__()
        contexts = len(NEIGHBOURS) + STAGES - 1 + 1
        self.embeddings = nn.Parameter(0.1 * torch.randn(STAGES, contexts, CODES + 1, PRIOR_HIDDEN))
        self.last = nn.Parameter(0.1 * torch.randn(STAGES, CODES, PRIOR_HIDDEN))
        self.bias = nn.Parameter(torch.zeros(STAGES, CODES))

    def forward(self, stage: int, contexts: Tensor) -> Tensor:
        """Bits of each code, up to a common number. `contexts`: [n, contexts]."""
        values = rounded(torch.clamp(self.embeddings[stage], -MOST, MOST), ONE)
        total = sum(F.embedding(contexts[:, i], values[i]) for i in range(contexts.shape[1]))
        last = rounded(torch.clamp(self.last[stage], -127 / 64, 127 / 64), 64)
        return hidden(total) @ last.T + rounded(self.bias[stage], 1024)


def contexts_of(codes: Tensor, mask: Tensor, stage: int) -> Tensor:
    """[n, CELLS, contexts]. `codes`: [n, STAGES, CELLS]."""
    grid = F.pad(codes[:, stage].reshape(-1, 4, 4, 4), (1, 1, 1, 1, 1, 1), value=CODES)
    parts = [grid[:, 1 + x:5 + x, 1 + y:5 + y, 1 + z:5 + z].reshape(-1, CELLS) for x, y, z in NEIGHBOURS]
    none = torch.full_like(parts[0], CODES)
    parts += [codes[:, before] if before < stage else none for before in range(STAGES - 1)]
    return torch.stack([*parts, corners(mask).sum(1).reshape(-1, CELLS).long()], 2)


def train_prior(prior: Prior, codes: Tensor, mask: Tensor, args, minutes: float) -> None:
    optimizer = torch.optim.Adam(prior.parameters(), lr=4e-3)
    start, step, share = time.monotonic(), 0, 0.0
    while share < 1:
        share = (time.monotonic() - start) / 60 / minutes
        optimizer.param_groups[0]["lr"] = 4e-3 * (0.01 + 0.99 * max(0, 1 - share))
        some = torch.randint(len(codes), (512,), device=codes.device)
        loss = 0.0
        for stage in range(STAGES):
            contexts = contexts_of(codes[some].long(), mask[some].float(), stage).reshape(-1, len(NEIGHBOURS) + STAGES)
            wanted = codes[some, stage].long().reshape(-1)
            full = wanted < CODES
            bits = prior(stage, contexts[full])
            loss = loss + F.cross_entropy(bits * np.log(2), wanted[full]) / np.log(2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 1000 == 0:
            print(f"prior {step}: {loss.item() / STAGES:.3f} bits", flush=True)


def write(nets: Nets, prior: Prior, to: Path) -> None:
    """VqTables of pipeline/codec/vq_formulas.h."""
    layers = [layer.integers() for layer in (*nets.encoder, *nets.decoder)]
    books = np.stack([nets.codebook(s).mul(ONE).cpu().numpy() for s in range(STAGES)])
    embeddings = torch.clamp(prior.embeddings.detach(), -MOST, MOST).mul(ONE).round()
    last = torch.clamp(prior.last.detach(), -127 / 64, 127 / 64).mul(64).round()
    parts = [w for w, _ in layers] + [books, embeddings.cpu().numpy(), last.cpu().numpy()]
    with open(to, "wb") as out:
        for part in parts:
            out.write(np.rint(part).astype(np.int8).tobytes())
        for _, bias in layers:
            out.write(bias.tobytes())
        out.write(prior.bias.detach().mul(1024).round().cpu().numpy().astype("<i4").tobytes())


def report(nets: Nets, prior: Prior, name: str, leaves: np.ndarray, device: torch.device) -> None:
    """Rate and distortion for each number of stages, codes alone."""
    values, mask, scale, _ = normalised(leaves)
    steps = leaves["range"].mean()
    squares, bits, cells, active = np.zeros(STAGES), np.zeros(STAGES), 0, mask.sum()
    for part in np.array_split(np.arange(len(values)), max(1, len(values) // 2048)):
        m = torch.from_numpy(mask[part]).to(device)
        codes, errors = coded(nets, torch.from_numpy(values[part]).to(device), m)
        share = torch.from_numpy(scale[part]).to(device) / 24 * ONE
        squares += (errors * (share * share)[:, None]).sum(0).cpu().numpy()
        for stage in range(STAGES):
            contexts = contexts_of(codes, m.float(), stage).reshape(-1, len(NEIGHBOURS) + STAGES)
            wanted = codes[:, stage].reshape(-1)
            full = wanted < CODES
            with torch.no_grad():
                out = prior(stage, contexts[full]) * np.log(2)
            bits[stage] += F.cross_entropy(out, wanted[full], reduction="sum").item() / np.log(2)
        cells += int((codes[:, 0] < CODES).sum())
    for stage in range(STAGES):
        psnr = -10 * np.log10(squares[stage] / active)
        print(f"{name}: {stage + 1} stages: {psnr:.2f} dB, {bits[stage] / cells:.2f} bits a code, ratio "
              f"{32 * active / bits[:stage + 1].sum():.1f} ({len(values)} leaves, {steps:.0f} steps)", flush=True)


def train(args, files) -> None:
    device = torch.device(args.device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    chance = np.random.default_rng(args.seed)
    with concurrent.futures.ThreadPoolExecutor(args.readers) as pool:
        parts = [normalised(some[chance.permutation(len(some))[:args.most_leaves]])
                 for some in pool.map(lambda f: leaves_of(args.tool, f), files("train_*.vdb"))]
        tests = list(zip(files("test_*.vdb"), pool.map(lambda f: leaves_of(args.tool, f), files("test_*.vdb"))))
    values, mask, scale = (torch.from_numpy(np.concatenate([part[i] for part in parts])).to(device) for i in range(3))
    print(f"{len(values)} leaves to learn from", flush=True)
    nets, prior = Nets().to(device), Prior().to(device)
    train_nets(nets, (values.half(), mask, scale), args, args.minutes * 0.8)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    coded_parts = [coded(nets, v, m)[0].short() for v, m in zip(values.split(2048), mask.split(2048))]
    train_prior(prior, torch.cat(coded_parts), mask, args, args.minutes * 0.2)
    if args.write:
        write(nets, prior, args.write / "vq_model.bin")
    for file, leaves in tests:
        report(nets, prior, file.stem, leaves, device)
