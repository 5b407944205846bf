"""Grids of OpenVDB files as arrays, and what tools/codec_study.py compares the grid codec with.

A method takes a grid and a bound on the error of its values, and gives the bytes of the values and what
they decode to. Masks, trees and metadata are not in these bytes.
"""
from __future__ import annotations

import zlib
from pathlib import Path
from typing import Callable, NamedTuple

import blosc2
import numpy as np
import zfpy
import zstandard
from pysz import sz, szAlgorithm, szConfig, szErrorBoundMode

try:
    import pyopenvdb as vdb  # Debian's python3-openvdb
except ImportError:
    import openvdb as vdb

LEAF = 3  # depth of voxels in a tree


class Grid(NamedTuple):
    name: str
    voxels: np.ndarray  # [N, 3]: the active voxels of leaves, in the order of the file
    values: np.ndarray  # [N, components]
    range: float  # of all active values, tiles included, components together

    @property
    def numbers(self) -> int:
        return self.values.size


Coded = tuple[int, np.ndarray]  # bytes, decoded values


def dense(grid, low: np.ndarray, extent) -> np.ndarray:
    """The box of voxels from `low` on: [x, y, z, components]."""
    vector = isinstance(grid.background, tuple)
    array = np.zeros((*map(int, extent), *((3,) if vector else ())), np.float32)
    grid.copyToArray(array, ijk=tuple(map(int, low)))
    return array if vector else array[..., None]


def read_grids(path: Path) -> list[Grid]:
    """All grids of float and of vectors of float, in the order of the file."""
    grids = []
    for grid in vdb.readAll(str(path))[0]:
        if not isinstance(np.ravel(grid.background)[0], float):
            raise SystemExit(f"{path}: '{grid.name}' is not of float")
        active = [(item.min, item.depth, item.value) for item in grid.citerOnValues()]
        voxels = np.array([at for at, depth, _ in active if depth == LEAF], np.int64).reshape(-1, 3)
        every = np.array([value for *_, value in active], np.float32)
        components = np.size(grid.background)
        values = np.zeros((0, components), np.float32)
        if len(voxels):
            low = voxels.min(0)
            values = dense(grid, low, np.ptp(voxels, axis=0) + 1)[tuple((voxels - low).T)]
        if any(other.name == grid.name for other in grids):
            raise SystemExit(f"{path}: two grids are named '{grid.name}'")
        grids.append(Grid(grid.name, voxels, values, float(every.max() - every.min()) if len(every) else 0.0))
    return grids


def quantised(pack: Callable[[np.ndarray], bytes]) -> Callable[[Grid, float], Coded]:
    """Values in steps of twice the bound, a component after the other, in the narrowest type."""

    def method(grid: Grid, bound: float) -> Coded:
        # A little less than twice the bound leaves room for the rounding to float.
        step = 2 * (bound - np.finfo(np.float32).eps * np.abs(grid.values).max())
        numbers = np.rint(np.ascontiguousarray(grid.values.T, np.float64) / step)
        largest = np.abs(numbers).max()
        kind = next(kind for kind in (np.int8, np.int16, np.int32) if largest <= np.iinfo(kind).max)
        size = sum(len(pack(component)) for component in numbers.astype(kind))
        return size, (numbers * step).T.astype(np.float32)

    return method


def with_zstd(numbers: np.ndarray) -> bytes:
    return zstandard.ZstdCompressor(level=19).compress(numbers.tobytes())


def with_blosc(numbers: np.ndarray) -> bytes:
    """The smaller one of two shuffles."""
    return min((blosc2.compress2(numbers, codec=blosc2.Codec.ZSTD, clevel=9, typesize=numbers.itemsize,
                                 filters=[shuffle])
                for shuffle in (blosc2.Filter.SHUFFLE, blosc2.Filter.BITSHUFFLE)), key=len)


def filled(grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """A dense box of cells of 4^3 voxels, and where in it the grid's voxels are.

    Within a cell, inactive voxels take after active ones next to them; cells without any are 0.
    """
    low = grid.voxels.min(0) // 4 * 4
    at = grid.voxels - low
    shape = tuple(at.max(0) // 4 * 4 + 4)
    values, known = np.zeros((*shape, grid.values.shape[1]), np.float32), np.zeros(shape, bool)
    values[tuple(at.T)], known[tuple(at.T)] = grid.values, True

    def cells(array: np.ndarray) -> np.ndarray:
        x, y, z = (n // 4 for n in shape)
        rest = array.shape[3:]
        return array.reshape(x, 4, y, 4, z, 4, *rest)

    value, know = cells(values), cells(known)  # views: what is filled is filled in the box
    for _ in range(9):
        total, count = np.zeros_like(value), np.zeros(know.shape, np.float32)
        for axis in (1, 3, 5):
            for here, there in ((slice(1, None), slice(None, -1)), (slice(None, -1), slice(1, None))):
                to = tuple(here if i == axis else slice(None) for i in range(6))
                of = tuple(there if i == axis else slice(None) for i in range(6))
                total[to] += value[of] * know[of][..., None]
                count[to] += know[of]
        new = ~know & (count > 0)
        value[new] = total[new] / count[new][:, None]
        know |= new
    return values, at


def with_zfp(grid: Grid, tolerance: float) -> Coded:
    box, at = filled(grid)
    size, decoded = 0, []
    for component in np.moveaxis(box, 3, 0):
        packed = zfpy.compress_numpy(np.ascontiguousarray(component), tolerance=tolerance, write_header=True)
        size += len(packed)
        decoded.append(zfpy.decompress_numpy(packed)[tuple(at.T)])
    return size, np.stack(decoded, 1)


def with_zfp_tuned(grid: Grid, bound: float) -> Coded:
    """zfp stays far below its tolerance: the largest one, in powers of 2, that keeps the bound."""
    best = with_zfp(grid, bound)
    for power in range(1, 8):
        tried = with_zfp(grid, bound * 2**power)
        if np.abs(tried[1] - grid.values).max() > bound:
            break
        best = tried
    return best


def with_sz(grid: Grid, bound: float) -> Coded:
    """SZ3, each component by what is smallest: its predictors, on a box with zeros in it or on a list."""
    config = szConfig()
    config.errorBoundMode = szErrorBoundMode.ABS
    config.absErrorBound = bound
    at = tuple((grid.voxels - grid.voxels.min(0)).T)
    size, decoded = 0, []
    for component in np.ascontiguousarray(grid.values.T):
        box = np.zeros(np.ptp(grid.voxels, axis=0) + 1, np.float32)
        box[at] = component
        best = None
        for array, back in ((box, at), (component, slice(None))):
            for config.cmprAlgo in (szAlgorithm.INTERP_LORENZO, szAlgorithm.INTERP, szAlgorithm.LORENZO_REG):
                packed, _ = sz.compress(array, config)
                if best is None or len(packed) < len(best[0]):
                    best = packed, array.shape, back
        packed, shape, back = best
        size += len(packed)
        decoded.append(sz.decompress(packed, np.float32, shape)[0][back])
    return size, np.stack(decoded, 1)


def with_halves(grid: Grid) -> Coded:
    """As OpenVDB stores a leaf's active values: zlib at its default level where that is smaller."""
    halves = grid.values.astype(np.float16)
    leaf = grid.voxels // 8
    starts = np.flatnonzero(np.r_[True, (leaf[1:] != leaf[:-1]).any(1)])
    size = 0
    for part in np.split(halves, starts[1:]):
        raw = part.tobytes()
        size += 8 + min(len(raw), len(zlib.compress(raw)))  # 8: how many bytes follow
    return size, halves.astype(np.float32)


BOUNDED: dict[str, Callable[[Grid, float], Coded]] = {
    "zfp, tolerance = bound": with_zfp,
    "zfp, largest tolerance within the bound": with_zfp_tuned,
    "SZ3": with_sz,
    "steps of 2 x bound, blosc": quantised(with_blosc),
    "steps of 2 x bound, zstd -19": quantised(with_zstd),
}
