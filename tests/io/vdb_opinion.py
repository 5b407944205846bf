#!/usr/bin/python3
"""OpenVDB's own word on files: makes some that hold what it can write, and compares two grid by grid.

    vdb_opinion.py make FOLDER       writes FOLDER/*.vdb, prints their names
    vdb_opinion.py frames FOLDER N   writes a sequence FOLDER/puff.0001.vdb, ...: a cloud that grows and drifts
    vdb_opinion.py sparse FILE       writes grids with much nothing in between: "cloud", "surface"
    vdb_opinion.py only A NAME B     writes one grid of A as B
    vdb_opinion.py dense FILE NAME X Y Z EDGE OUT
                                     writes a cube of a grid as .npy [z,y,x], and as OUT.active.npy where it is active
    vdb_opinion.py cases FOLDER      writes FOLDER/*.vdb, each with something in it that is easily lost
    vdb_opinion.py tell FILE         prints a JSON list of what it says of each grid
    vdb_opinion.py describe FILE X,Y,Z...
                                     prints, as JSON, the file's metadata and of each grid more, with [value, active] of places
    vdb_opinion.py voxels FILE BOXES OUT
                                     writes, as .npz, of each grid in BOXES (JSON: [name, list of boxes or null]), half-open, what is in
                                     each: [x,y,z] values and what is active; and all that is active in leaves: places and values
    vdb_opinion.py sides A B NAME...  prints the names of grids whose active values keep their sign and the background
    vdb_opinion.py unclassed A B NAME  writes a grid of A, without its class, as B
    vdb_opinion.py compare A B [BOUND]
                                     prints one line for each difference, none if there is none; active values
                                     may be off by BOUND, or by a share of the grid's range ("1%")

Runs under the system's Python, since Debian's python3-openvdb is made for it.
"""
import json
import math
import pathlib
import sys

import numpy as np
import pyopenvdb as vdb

# Written by OpenVDB itself about the file, not about the grid.
OF_THE_FILE = {"file_bbox_min", "file_bbox_max", "file_compression", "file_mem_bytes", "file_voxel_count", "file_delayed_load"}


def make(folder):
    sphere = vdb.createLevelSetSphere(radius=11.0, voxelSize=0.5, halfWidth=3.0, center=(-4.0, 7.0, 1.0))
    sphere.name = "surface"
    half = sphere.deepCopy()
    half.name, half.saveFloatAsHalf = "half", True
    fog = vdb.FloatGrid(background=0.25)
    fog.name, fog.gridClass = "fog", vdb.GridClass.FOG_VOLUME
    fog.fill((-60, -60, -60), (-30, -22, -30), 3.0)
    fog.fill((0, 0, 0), (127, 127, 127), 1.5)
    fog["artist"], fog["frame"] = "somebody", 12
    speed = vdb.Vec3SGrid()
    speed.name = "speed"
    speed.fill((1, 2, 3), (30, 20, 12), (1.0, -2.0, 0.5))
    mask = vdb.BoolGrid()
    mask.name = "mask"
    mask.fill((0, 0, 0), (9, 9, 9), True)
    many = vdb.FloatGrid()
    many.name = "many values"
    at = many.getAccessor()
    for k in range(500):
        at.setValueOn((k % 17 * 5, k % 31 * 3, k % 101), 0.1 * k)
        at.setValueOff((k % 13 * 7 + 2, k % 29, -k % 97), -float(k % 5))
    far = vdb.FloatGrid()
    far.name = "far"
    at = far.getAccessor()
    for k, place in enumerate(((-2_000_000_000, -9, -17), (2_000_000_000, 3, 4), (-1, -1, -1))):
        at.setValueOn(place, 1.0 + k)
    inactive = vdb.FloatGrid()
    inactive.name = "inactive"
    inactive.getAccessor().setValueOff((9, 9, 9), 5.0)
    nothing = vdb.FloatGrid(background=float("nan"))
    nothing.name = "nothing"
    scaled = many.deepCopy()
    scaled.name = "scaled"
    scaled.transform = vdb.createLinearTransform([[2, 0, 0, 0], [0, 3, 0.5, 0], [0, 0, 4, 0], [1, 2, 3, 1]])
    twin = many.deepCopy()
    everything = [sphere, half, fog, speed, mask, many, far, inactive, nothing, scaled, twin]
    vdb.write(str(folder / "everything.vdb"), grids=everything, metadata={"shot": "s010", "number": 3})
    vdb.write(str(folder / "one.vdb"), grids=[fog])
    vdb.write(str(folder / "none.vdb"), grids=[])
    print("everything.vdb", "one.vdb", "none.vdb")


def frames(folder, count):
    """Their values, too, grow from frame to frame; velocities are halves."""
    for frame in range(1, count + 1):
        edge = 24 + frame % 5 * 4
        z, y, x = np.mgrid[0:edge, 0:edge, 0:edge].astype(np.float32)
        middle, t = (edge - 1) / 2, 0.3 * frame
        r = np.sqrt((x - middle) ** 2 + (y - middle) ** 2 + (z - middle) ** 2)
        cloud = np.clip(1 - r / middle, 0, None) * (1 + 0.4 * np.sin(x / 2 + t) * np.cos(y / 3 - t) * np.sin(z / 2.5)) * (1 + 0.1 * frame)
        density = vdb.FloatGrid()
        density.name, density.gridClass = "density", vdb.GridClass.FOG_VOLUME
        density.copyFromArray(np.where(r < middle, cloud, 0).astype(np.float32), ijk=(2 * frame - 40, 3, -frame), tolerance=1e-6)
        velocity = vdb.Vec3SGrid()
        velocity.name, velocity.saveFloatAsHalf = "velocity", True
        swirl = np.stack([np.sin(y / 4 + t), np.cos(x / 4 - t), 0.2 * z / edge], -1) * (r < middle)[..., None]
        velocity.copyFromArray(swirl.astype(np.float32), ijk=(2 * frame - 40, 3, -frame), tolerance=(1e-6,) * 3)
        for grid in (density, velocity):
            grid.transform = vdb.createLinearTransform(voxelSize=0.05)
            grid["frame"] = frame
        vdb.write(str(folder / f"puff.{frame:04}.vdb"), grids=[density, velocity], metadata={"shot": "s020"})


def sparse(path):
    """A fog in three places far from each other, with active tiles, and a level set."""
    rng = np.random.default_rng(3)
    cloud = vdb.FloatGrid()
    cloud.name, cloud.gridClass = "cloud", vdb.GridClass.FOG_VOLUME
    for corner, edge in (((-70, -45, -90), 31), ((40, 60, 20), 25), ((100, -80, 110), 9)):
        values = rng.uniform(0, 2, (edge,) * 3).astype(np.float32)
        cloud.copyFromArray(np.where(rng.uniform(size=values.shape) < 0.7, values, 0), ijk=corner, tolerance=0)
    cloud.fill((0, 0, 0), (31, 15, 7), 1.25)  # whole leaves of one value: tiles
    cloud.transform, cloud["artist"] = vdb.createLinearTransform(voxelSize=0.25), "somebody"
    surface = vdb.createLevelSetSphere(radius=20.0, voxelSize=1.0, halfWidth=3.0, center=(-4.0, 7.0, 1.0))
    surface.name, surface.saveFloatAsHalf = "surface", True
    vdb.write(path, grids=[surface, cloud], metadata={"shot": "s030"})


def cases(folder):
    def grid(make=vdb.FloatGrid, name="density", **more):
        made = make(**more)
        made.name = name
        return made

    def write(name, *grids, **metadata):
        vdb.write(str(folder / f"{name}.vdb"), grids=list(grids), metadata=metadata)

    write("empty", grid(background=0.5))
    inactive = grid()
    inactive.getAccessor().setValueOff((9, 9, 9), 5.0)
    write("inactive", inactive)
    tile = grid()
    tile.fill((0, 0, 0), (127, 127, 127), 1.0, True)
    write("tile", tile)
    tiles = grid()
    tiles.fill((0, 0, 0), (63, 63, 63), 0.5, True)
    tiles.getAccessor().setValueOn((100, 3, 3), 0.25)
    write("tiles", tiles)
    kept = grid(background=3.5)
    kept.getAccessor().setValueOn((1, 2, 3), 10.0)
    kept.getAccessor().setValueOff((1, 2, 4), -7.0)
    kept.transform, kept.gridClass = vdb.createLinearTransform(voxelSize=0.1), vdb.GridClass.FOG_VOLUME
    kept["artist"], kept["frame"] = "x1", 12
    undefined = grid(name="undefined", background=math.nan)
    undefined.getAccessor().setValueOn((4, 4, 4), 2.0)
    undefined.getAccessor().setValueOff((4, 4, 5), 1.0)
    write("kept", kept, undefined, shot="s010")
    write("kept_alone", kept, shot="s010")
    write("undefined_alone", undefined)
    sphere = vdb.createLevelSetSphere(radius=2.0, voxelSize=0.1)
    sphere.name = "surface"
    write("sphere", sphere)
    density, velocity, mask = grid(), grid(vdb.Vec3SGrid, "vel"), grid(vdb.BoolGrid, "mask")
    density.fill((0, 0, 0), (9, 9, 9), 0.75)
    density.getAccessor().setValueOn((3, 3, 3), 0.125)
    velocity.getAccessor().setValueOn((1, 1, 1), (1.0, 2.0, 3.0))
    mask.getAccessor().setValueOn((2, 2, 2), True)
    write("mixed", density, velocity, mask)
    negative = grid()
    for i in range(20):
        negative.getAccessor().setValueOn((-1 - i, -9, -17), float(i))
    write("negative", negative)
    far = grid()
    far.getAccessor().setValueOn((-2_000_000_000, -9, -17), 1.0)
    far.getAccessor().setValueOn((2_000_000_000, 3, 4), 2.0)
    write("far", far)
    ends = grid()
    ends.getAccessor().setValueOn((-2**31, -2**31, -2**31), 1.0)
    ends.getAccessor().setValueOn((2**31 - 1, 2**31 - 1, 2**31 - 1), 2.0)
    write("ends", ends)
    for name, values in (("halves", (70000.0, 0.1)), ("nearly", (65504.0, 65472.0, 0.1, -65504.0, 30000.0)), ("large", (40000.0, 0.1))):
        half = grid()
        for x, value in enumerate(values):
            half.getAccessor().setValueOn((x, 0, 0), value)
        write(name + "_in_32_bits", half)
        half.saveFloatAsHalf = True
        write(name, half)
    rng = np.random.default_rng(8)
    for name, count in (("noise", 1), ("three", 3)):
        grids = [grid(name=f"noise{k}") for k in range(count)]
        for made in grids:
            made.copyFromArray(rng.uniform(size=(40,) * 3).astype(np.float32))
        write(name, *grids)
    shared = grid()
    shared.getAccessor().setValueOn((5, 6, 7), 1.5)
    shared.fill((16, 0, 0), (23, 7, 7), 0.5)
    again = shared.copy()  # its tree is that of the other
    again.name, again["artist"] = "again", "x2"
    write("shared", shared, again)
    many = [grid(name=f"grid{k}") for k in range(256)]
    for k, made in enumerate(many):
        made.getAccessor().setValueOn((k, -k, 3), 0.5 * k)
        made.getAccessor().setValueOn((k, -k, 4), 0.25)
    write("many", *many)


def only(path, name, to):
    grids, metadata = vdb.readAll(path)
    vdb.write(to, grids=[grid for grid in grids if grid.name == name], metadata=metadata)


def dense(path, name, x, y, z, edge, out):
    grid = vdb.read(path, name)
    corner, shape = (int(x), int(y), int(z)), (int(edge),) * 3
    values = np.zeros(shape, np.float32)
    grid.copyToArray(values, ijk=corner)
    mask = vdb.FloatGrid()
    for c in grid.citerOnValues():
        mask.fill(c.min, c.max, 1.0)
    ones = np.zeros(shape, np.float32)
    mask.copyToArray(ones, ijk=corner)
    active = ones > 0
    assert active.sum() == grid.activeVoxelCount(), "the cube has all that is active"
    np.save(out, values.transpose(2, 1, 0))
    np.save(out + ".active", active.transpose(2, 1, 0))


def voxels(path, boxes, out):
    found, wanted = {}, json.loads(pathlib.Path(boxes).read_text())
    for grid in vdb.readAll(path)[0]:  # by name, twins in their order
        index = next(i for i, (name, *_) in enumerate(wanted) if name == grid.name)
        of_grid, wanted[index] = wanted[index][1], [None]
        if of_grid is None:
            continue
        at, components = grid.getConstAccessor(), len(numbers(grid.background))
        for k, (begin, end) in enumerate(of_grid):
            extents = [b - a for a, b in zip(begin, end)]
            values = [at.probeValue((begin[0] + x, begin[1] + y, begin[2] + z)) for x, y, z in np.ndindex(*extents)]
            found[f"{index} {k} values"] = np.array([value for value, _ in values], np.float32).reshape(*extents, components)
            found[f"{index} {k} active"] = np.array([on for _, on in values], np.bool_).reshape(extents)
        leaves = [(c.min, c.value) for c in grid.citerOnValues() if c.depth == 3]
        found[f"{index} places"] = np.array([place for place, _ in leaves], np.int32).reshape(len(leaves), 3)
        found[f"{index} leaves"] = np.array([value for _, value in leaves], np.float32).reshape(len(leaves), components)
    np.savez(out, **found)


def text(value):
    return value.hex() if isinstance(value, float) else repr(value)


def active(grid):
    return {(c.min, c.max, c.depth): c.value for c in grid.citerOnValues()}


def inactive(grid):
    """Those that are not the background."""
    return sorted((c.min, c.max, c.depth, text(c.value)) for c in grid.citerOffValues() if text(c.value) != text(grid.background))


def numbers(value):
    return [float(part) for part in (value if isinstance(value, tuple) else [value])]


def furthest(grid, other, bound):
    """By how much active values differ more than they may; 0 if none does."""
    values, others = active(grid), active(other)
    if values.keys() != others.keys():
        return math.inf
    if bound.endswith("%"):
        finite = [n for value in values.values() for n in numbers(value) if math.isfinite(n)]
        limit = float(bound[:-1]) / 100 * (max(finite) - min(finite)) if finite else 0
    else:
        limit = float(bound)
    beyond = 0
    for place, value in values.items():
        for a, b in zip(numbers(value), numbers(others[place])):
            if text(a) != text(b):
                off = abs(a - b) if math.isfinite(a) else math.inf
                beyond = max(beyond, off - limit)
    return beyond


def compare(a, b, bound="0"):
    grids, metadata = vdb.readAll(a)
    others, other_metadata = vdb.readAll(b)
    if metadata != other_metadata:
        print("metadata of the file:", metadata, other_metadata)
    if [grid.name for grid in grids] != [grid.name for grid in others]:
        print("names:", [grid.name for grid in grids], [grid.name for grid in others])
        return
    for grid, other in zip(grids, others):
        said = lambda g: {name: str(value) for name, value in g.metadata.items() if name not in OF_THE_FILE}
        for what, get in {"type": lambda g: g.valueTypeName, "class": lambda g: g.gridClass, "metadata": said,
                          "background": lambda g: repr(g.background), "half": lambda g: g.saveFloatAsHalf,
                          "transform": lambda g: (g.transform.typeName, str(g.transform)), "leaves": lambda g: g.leafCount(),
                          "inactive": inactive}.items():
            if get(grid) != get(other):
                print(f"{grid.name}: {what} differs")
        beyond = furthest(grid, other, "0" if grid.valueTypeName == "bool" else bound)
        if beyond > 0:
            print(f"{grid.name}: active values are off by {beyond} more than they may")


def sides(a, b, *names):
    """Of level sets: whether any value changed sides or lies beyond the background."""
    for name in names:
        grid, other = vdb.read(a, name), vdb.read(b, name)
        limit = abs(grid.background)
        values, others = active(grid), active(other)
        if any((value < 0) != (others[place] < 0) for place, value in values.items()):
            print("on the other side:", end=" ")
        if any(abs(value) > limit for value in others.values()):
            print("beyond the band:", end=" ")
        print(name, end=" ")


def unclassed(a, b, name):
    grid = vdb.read(a, name)
    grid.gridClass = vdb.GridClass.UNKNOWN
    vdb.write(b, grids=[grid])


def tell(path):
    said = []
    for grid in vdb.readAll(path)[0]:
        active = grid.activeVoxelCount()
        background = grid.background
        said.append({"name": grid.name, "type": grid.valueTypeName, "class": grid.gridClass, "half": grid.saveFloatAsHalf,
                     "background": list(background) if isinstance(background, tuple) else background, "active_voxels": active,
                     "leaves": grid.leafCount(), "bounds": list(map(list, grid.evalActiveVoxelBoundingBox())) if active else None})
    print(json.dumps(said))


def describe(path, *places):
    """After pruning: what is left when leaves that hold nothing active are gone."""
    grids, metadata = vdb.readAll(path)
    said = []
    for grid in grids:
        at = grid.getConstAccessor()
        more = {name: value for name, value in grid.metadata.items() if name not in OF_THE_FILE}
        told = {"name": grid.name, "type": grid.valueTypeName, "class": grid.gridClass, "half": grid.saveFloatAsHalf, "metadata": more,
                "background": grid.background, "voxel": grid.transform.voxelSize(), "active_voxels": grid.activeVoxelCount(),
                "leaves": grid.leafCount(), "at": [at.probeValue(tuple(map(int, place.split(",")))) for place in places],
                "not_finite": sum(not math.isfinite(n) for c in grid.citerOnValues() for n in numbers(c.value))}
        grid.pruneInactive()
        told["after_pruning"] = {"active_voxels": grid.activeVoxelCount(), "leaves": grid.leafCount()}
        said.append(told)
    print(json.dumps({"metadata": metadata, "grids": said}, default=str))


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(pathlib.Path(sys.argv[2]))
    elif sys.argv[1] == "frames":
        frames(pathlib.Path(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1] == "sparse":
        sparse(sys.argv[2])
    elif sys.argv[1] == "only":
        only(*sys.argv[2:])
    elif sys.argv[1] == "dense":
        dense(*sys.argv[2:])
    elif sys.argv[1] == "voxels":
        voxels(*sys.argv[2:])
    elif sys.argv[1] == "sides":
        sides(*sys.argv[2:])
    elif sys.argv[1] == "unclassed":
        unclassed(*sys.argv[2:])
    elif sys.argv[1] == "cases":
        cases(pathlib.Path(sys.argv[2]))
    elif sys.argv[1] == "describe":
        describe(*sys.argv[2:])
    elif sys.argv[1] == "tell":
        tell(sys.argv[2])
    else:
        compare(*sys.argv[2:])
