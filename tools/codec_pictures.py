"""The pictures of docs/codec.md, from what tools/codec_study.py measures."""
from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from codec_others import Grid  # noqa: E402

Point = tuple[float, float, float]  # bits for a number, PSNR, bound in %

COLOURS = ("#c1272d", "#0b6e99", "#e0a100", "#3f8f4f", "#777777", "#b5b5b5")
MARKS = ("o", "s", "^", "P", "D", "v")


def save(figure, path: Path, colours: int) -> None:
    """As PNG with a palette: a third of the bytes, and nothing to be seen of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.canvas.draw()
    picture = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")
    picture.quantize(colours, dither=Image.Dither.NONE).save(path, optimize=True)
    plt.close(figure)


def draw_rate(curves: dict[str, dict[str, list[Point]]], path: Path) -> None:
    """For each group and method its points; the first method's are labelled with their bounds."""
    figure, axes = plt.subplots(1, len(curves), figsize=(4.9 * len(curves), 4.6), dpi=120, sharex=True,
                                sharey=True, squeeze=False, layout="constrained")
    for axis, (group, methods) in zip(axes[0], curves.items()):
        for index, ((method, points), colour, mark) in enumerate(zip(methods.items(), COLOURS, MARKS)):
            bits, psnr, bounds = zip(*points)
            first = index == 0
            axis.plot(bits, psnr, color=colour, marker=mark, label=method, linewidth=2.2 if first else 1.3,
                      markersize=6 if first else 4.5, zorder=3 if first else 2)
            for x, y, bound in points if first else ():
                axis.annotate(f"{bound:g} %", (x, y), (-7, 5), textcoords="offset points", ha="right",
                              color=colour, fontsize=9)
        axis.grid(color="#e4e4e4", linewidth=0.8)
        axis.set_title(group)
        axis.set_xlabel("bits for each active number (fewer are better)")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_xscale("log", base=2)
    every = [bits for methods in curves.values() for points in methods.values() for bits, *_ in points]
    ticks = [2.0**power for power in range(-4, 6)]
    axes[0][0].set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[0][0].set_xlim(min(every) / 1.6, max(every) * 1.2)
    axes[0][0].set_ylabel("PSNR, dB (more is better)")
    axes[0][0].legend(frameon=False, fontsize=9, loc="upper left")
    save(figure, path, 128)


def draw_slices(grid: Grid, decoded: dict[float, Grid], path: Path) -> None:
    """The slice across y with the largest sum of values: before, after, and the difference."""
    low, high = grid.voxels.min(0), grid.voxels.max(0)
    y = int(np.argmax(np.bincount(grid.voxels[:, 1], grid.values[:, 0])))
    on = grid.voxels[:, 1] == y
    x, z = grid.voxels[on, 0] - low[0], grid.voxels[on, 2] - low[2]

    def slice_of(values: np.ndarray) -> np.ndarray:
        picture = np.full((high[2] - low[2] + 1, high[0] - low[0] + 1), np.nan)
        picture[z, x] = values[on, 0]
        return picture

    before = slice_of(grid.values)
    height = int(np.argmax(np.nansum(before, 1)))  # of the line that is drawn as curves
    columns = 1 + len(decoded)
    figure, axes = plt.subplots(2, columns, figsize=(3.5 * columns, 7.4), dpi=100, layout="constrained")
    style = {"origin": "lower", "interpolation": "nearest",
             "extent": (low[0] - 0.5, high[0] + 0.5, low[2] - 0.5, high[2] + 0.5)}
    scale = {**style, "cmap": "inferno", "vmin": np.nanmin(before), "vmax": np.nanmax(before)}
    line = axes[1, 0]

    def show(axis, values: np.ndarray, title: str, how: dict):
        axis.set_facecolor("#d9d9d9")  # where no voxel is active
        axis.set_title(title, fontsize=11)
        axis.set_xticks([])
        axis.set_yticks([])
        return axis.imshow(values, **how)

    def bar(axis, shown, box: list[float], orientation: str, label: str) -> None:
        figure.colorbar(shown, cax=axis.inset_axes(box), orientation=orientation, label=label)

    shown = show(axes[0, 0], before, f"{grid.name} before, slice y = {y}", scale)
    bar(axes[0, -1], shown, [1.04, 0, 0.05, 1], "vertical", grid.name)
    along = np.arange(low[0], high[0] + 1)
    line.plot(along, before[height], color="#aaaaaa", linewidth=3.5, label="before")
    for column, ((bound, after), colour) in enumerate(zip(decoded.items(), COLOURS), 1):
        values = slice_of(after.values)
        show(axes[0, column], values, f"after, bound {bound:g} % of the range", scale)
        off = show(axes[1, column], 100 * (values - before) / grid.range, f"difference at {bound:g} %",
                   {**style, "cmap": "RdBu_r", "vmin": -bound, "vmax": bound})
        bar(axes[1, column], off, [0, -0.09, 1, 0.05], "horizontal", "after - before, % of the range")
        line.plot(along, values[height], color=colour, linewidth=1.1, label=f"bound {bound:g} %")
    for axis in axes[0]:
        axis.axhline(low[2] + height, color="white", linewidth=0.8, linestyle=(0, (4, 4)))
    line.set_title(f"along the dashed line, z = {low[2] + height}", fontsize=11)
    line.set_xlabel("x, voxels")
    line.set_ylabel(grid.name)
    line.legend(frameon=False, fontsize=9)
    line.spines[["top", "right"]].set_visible(False)
    save(figure, path, 256)
