"""What Tilery must compute, written down a second time: float64, one axis at a time, no code shared with it.

Arrays are [channel, *space]. A tile position is a tuple of start coordinates; `weights` gives, for one axis, a
dense matrix [tiles, output voxels] whose columns sum to one.
"""
from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Callable, Sequence

import numpy as np


def tile_starts(n: int, tile: int, overlap: int) -> list[int]:
    """Starts along an axis of n >= tile voxels; the last tile ends with the axis."""
    count = 1 + max(0, -(-(n - tile) // (tile - overlap)))
    return [min(k * (tile - overlap), n - tile) for k in range(count)]


def pad_to(a: np.ndarray, axis: int, n: int) -> np.ndarray:
    """Reflection at the end, folding back and forth as often as needed."""
    have = a.shape[axis]
    walk = list(range(have)) + list(range(have - 2, 0, -1)) if have > 1 else [0]
    return np.take(a, [walk[i % len(walk)] for i in range(n)], axis=axis)


def weights(n: int, tile: int, overlap: int, window: str, trim: int, scale: Fraction) -> np.ndarray:
    starts = tile_starts(n, tile, overlap)
    big, over, cut, length = (int(v * scale) for v in (tile, overlap, trim, n))
    w = np.zeros((len(starts), length))
    for k, s in enumerate(starts):
        left, right = k > 0, k + 1 < len(starts)
        for i in range(big):
            x = int(s * scale) + i
            value = 1.0
            if window == "hann":
                value = 0.5 - 0.5 * np.cos(2 * np.pi * (i + 0.5) / big)
            elif window == "gaussian":
                value = np.exp(-0.5 * ((i - (big - 1) / 2) / (big / 8)) ** 2)
            elif window == "crop":
                centres = [int(t * scale) + (big - 1) / 2 for t in starts]
                value = float(np.argmin([abs(x - c) for c in centres]) == k)
            for has, j in ((left, i), (right, big - 1 - i)):
                if not has or window == "crop":
                    continue
                if j < cut:
                    value = 0.0
                elif window in ("linear", "cosine") and j < over - cut:
                    ramp = (j - cut + 0.5) / (over - 2 * cut)
                    value *= ramp if window == "linear" else 0.5 - 0.5 * np.cos(np.pi * ramp)
            w[k, x] = value
    return w / w.sum(axis=0)


def tiled(a: np.ndarray, model: Callable[[np.ndarray], np.ndarray], tile: Sequence[int], overlap: Sequence[int],
          window: str, trim: Sequence[int], scale: Fraction = Fraction(1), multiple: int = 1) -> np.ndarray:
    space = a.shape[1:]
    step = int(np.lcm(multiple, scale.denominator))
    for axis, n in enumerate(space):
        a = pad_to(a, axis + 1, max(tile[axis], -(-n // step) * step))
    ws = [weights(a.shape[k + 1], tile[k], overlap[k], window, trim[k], scale) for k in range(len(space))]
    starts = [tile_starts(a.shape[k + 1], tile[k], overlap[k]) for k in range(len(space))]
    out = None
    for which in itertools.product(*(range(len(s)) for s in starts)):
        at = [starts[k][i] for k, i in enumerate(which)]
        y = np.asarray(model(a[(slice(None), *(slice(s, s + t) for s, t in zip(at, tile)))]), np.float64)
        if out is None:
            out = np.zeros((y.shape[0], *(int(n * scale) for n in a.shape[1:])))
        begin = [int(s * scale) for s in at]
        for k, i in enumerate(which):
            shape = [1] * y.ndim
            shape[k + 1] = -1
            y = y * ws[k][i, begin[k]:begin[k] + y.shape[k + 1]].reshape(shape)
        out[(slice(None), *(slice(b, b + n) for b, n in zip(begin, y.shape[1:])))] += y
    return out[(slice(None), *(slice(0, -(-n * scale.numerator // scale.denominator)) for n in space))]
