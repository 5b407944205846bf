#!/usr/bin/env python3
"""Measures the grid codec beside other ways of making OpenVDB grids small: rate and distortion.

  tools/codec_study.py --grids rough=fire.vdb rough=smoke.vdb calm=plume.vdb \\
      --tool build/tests/bin/tvdb_tool --out docs/codec

GROUP=FILE: the files of a group count together. Tables go to standard output as Markdown, pictures to
OUT-rate.png and OUT-slices.png. Of Tilery the whole file counts, masks and trees included; of the other
methods, what the values of active voxels take (tools/codec_others.py).

Needs Debian's python3-openvdb, which wants numpy<2, and from PyPI:
matplotlib pillow zfpy pysz zstandard blosc2.
"""
from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import codec_pictures as pictures  # noqa: E402
from codec_others import BOUNDED, Coded, Grid, read_grids, vdb, with_halves  # noqa: E402

BOUNDS = (0.25, 0.5, 1, 2, 5)  # % of each grid's range
TILERY, HALVES, EXACT = "Tilery", "halves, zip for each leaf", "Tilery, lossless"


@dataclass
class Sum:
    """Of several grids: errors count in shares of each grid's range."""

    bytes: int = 0
    numbers: int = 0
    squares: float = 0
    largest: float = 0

    def add_errors(self, grid: Grid, decoded: np.ndarray) -> None:
        if grid.numbers == 0 or grid.range == 0:
            return
        error = np.abs(decoded.astype(np.float64) - grid.values) / grid.range
        self.numbers += grid.numbers
        self.squares += float((error**2).sum())
        self.largest = max(self.largest, float(error.max()))

    @property
    def ratio(self) -> float:
        return 4 * self.numbers / self.bytes

    @property
    def psnr(self) -> float:
        return -10 * math.log10(self.squares / self.numbers) if self.squares else math.inf


def tilery(tool: Path, file: Path, bound: str, folder: Path) -> tuple[int, dict[str, int], list[Grid]]:
    """Bytes of the whole file and of each grid by name, and the grids that come back."""
    small, back = folder / "small.tvdb", folder / "back.vdb"
    lines = subprocess.run([tool, "compress", file, small, bound], check=True, capture_output=True, text=True)
    subprocess.run([tool, "decompress", small, back], check=True, stdout=subprocess.DEVNULL)
    grids = [line.rsplit(" ", 3) for line in lines.stdout.splitlines()]
    each = {name: int(count) for name, _, _, count in grids}
    return small.stat().st_size, each, read_grids(back)


Results = dict[tuple[str, str, float], Sum]  # by group, method, bound in %; 0 where there is none


def measure(files: list[tuple[str, Path]], tool: Path) -> tuple[Results, dict[str, tuple[int, dict]]]:
    """What groups came to, and for each grid of the files its numbers and Tilery's bytes by bound."""
    results: Results = defaultdict(Sum)
    by_grid: dict[str, tuple[int, dict]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for group, file in files:
            grids = read_grids(file)

            def add(method: str, bound: float, grid: Grid, coded: Coded) -> None:
                total = results[group, method, bound]
                total.bytes += coded[0]
                total.add_errors(grid, coded[1])

            for bound in (0, *BOUNDS):
                size, each, back = tilery(tool, file, f"{bound}%" if bound else "lossless", Path(temporary))
                total = results[group, TILERY if bound else EXACT, bound]
                total.bytes += size
                for grid, decoded in zip(grids, back):
                    if not np.array_equal(grid.voxels, decoded.voxels):
                        raise SystemExit(f"{file}: '{grid.name}' does not come back with its voxels")
                    total.add_errors(grid, decoded.values)
                    if grid.numbers:
                        label = f"{file.stem}, {grid.name}"
                        by_grid.setdefault(label, (grid.numbers, {}))[1][bound] = each[grid.name]
            for grid in grids:
                if grid.numbers == 0 or grid.range == 0:
                    continue
                add(HALVES, 0, grid, with_halves(grid))
                for name, method in BOUNDED.items():
                    for bound in BOUNDS:
                        add(name, bound, grid, method(grid, bound / 100 * grid.range))
            print(f"{file.name} is done", file=sys.stderr)
    for (group, method, bound), total in results.items():
        if bound and total.largest > bound / 100 * (1 + 1e-6):
            raise SystemExit(f"{method} is off by {total.largest:.3%} on {group}, more than {bound} %")
    return results, by_grid


def row(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |")


def print_tables(results: Results, by_grid: dict, groups: list[str]) -> None:
    def heads(first: str, names: list[str]) -> None:
        print()
        row(first, *names)
        print("|---" * (len(names) + 1) + "|")

    methods = [*BOUNDED, TILERY]
    columns = [f"{group if bound == BOUNDS[0] else ''} {bound:g} %".strip()
               for group in groups for bound in BOUNDS]
    for value, name in (("ratio", "ratio"), ("psnr", "PSNR, dB")):
        heads(name, columns)
        for method in methods:
            row(method, *(f"{getattr(results[group, method, bound], value):.1f}"
                          for group in groups for bound in BOUNDS))
    heads("largest error, % of the range", columns)
    for method in methods:
        row(method, *(f"{100 * results[group, method, bound].largest:.2f}"
                      for group in groups for bound in BOUNDS))
    heads("no bound", [f"{group}: {what}" for group in groups
                       for what in ("ratio", "PSNR, dB", "largest error")])
    for method in (HALVES, EXACT):
        row(method, *(text for total in (results[group, method, 0] for group in groups)
                      for text in (f"{total.ratio:.2f}", f"{total.psnr:.1f}" if total.squares else "-",
                                   f"{100 * total.largest:.3f} %" if total.largest else "none")))
    heads("ratio of Tilery, grid by grid", ["numbers", *(f"{bound:g} %" for bound in BOUNDS), "lossless"])
    for label, (numbers, bytes_at) in by_grid.items():
        row(label, f"{numbers:,}", *(f"{4 * numbers / bytes_at[bound]:.1f}" for bound in (*BOUNDS, 0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grids", nargs="+", required=True, metavar="GROUP=FILE")
    parser.add_argument("--tool", type=Path, default=Path("build/tests/bin/tvdb_tool"))
    parser.add_argument("--slice", default="density", help="grid of the first file of which slices are drawn")
    parser.add_argument("--out", default="docs/codec", help="what the pictures' names begin with")
    args = parser.parse_args()
    files = [(group, Path(file)) if file else ("all", Path(group))
             for group, _, file in (text.partition("=") for text in args.grids)]
    groups = list(dict.fromkeys(group for group, _ in files))
    tool = Path(os.path.abspath(args.tool))

    results, by_grid = measure(files, tool)
    packages = ("zfpy", "pysz", "zstandard", "blosc2", "numpy")
    print(f"{', '.join(f'{name} {version(name)}' for name in packages)}, OpenVDB {'.'.join(map(str, vdb.LIBRARY_VERSION))}")
    for group in groups:
        size = sum(file.stat().st_size for of, file in files if of == group)
        numbers = results[group, TILERY, BOUNDS[0]].numbers
        print(f"{group}: {numbers:,} numbers, {size:,} bytes of OpenVDB files ({4 * numbers / size:.2f})")
    print_tables(results, by_grid, groups)

    def points(group: str, *methods: str, bounds=BOUNDS) -> list[pictures.Point]:
        totals = [(results[group, method, bound], bound) for method in methods for bound in bounds]
        return sorted((32 / total.ratio, total.psnr, bound) for total, bound in totals)

    of_zfp = [method for method in BOUNDED if method.startswith("zfp")]
    curves = {group: {TILERY: points(group, TILERY),
                      **{method: points(group, method) for method in BOUNDED if method not in of_zfp},
                      "zfp, all its tolerances": points(group, *of_zfp),
                      HALVES: points(group, HALVES, bounds=[0])} for group in groups}
    pictures.draw_rate(curves, Path(f"{args.out}-rate.png"))
    with tempfile.TemporaryDirectory() as folder:
        def find(grids: list[Grid]) -> Grid:
            return next(grid for grid in grids if grid.name == args.slice)

        file = files[0][1]
        decoded = {bound: find(tilery(tool, file, f"{bound}%", Path(folder))[2]) for bound in (1, 5)}
        pictures.draw_slices(find(read_grids(file)), decoded, Path(f"{args.out}-slices.png"))


if __name__ == "__main__":
    main()
