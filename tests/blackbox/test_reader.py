"""What the Python reader (tools/tvdb.py, on libtvdb.so) gives of a .tvdb file is what OpenVDB's own library finds in the file that
decompress makes of it: every value bit by bit, and what is active."""
import itertools
import json
import os
import shutil
import struct
import sys

import numpy as np
import pytest

from conftest import EXECUTABLE, ROOT
from vdb_second_opinion import FRAMES, needs_openvdb, opinion

os.environ.setdefault("TVDB_LIBRARY", str(EXECUTABLE.parent.parent / "lib/libtvdb.so.0"))
sys.path.insert(0, os.environ.get("TILERY_TOOLS", str(ROOT / "tools")))
import tvdb  # noqa: E402

pytestmark = needs_openvdb

MADE = ("empty", "inactive", "tile", "tiles", "kept", "sphere", "mixed", "negative", "far", "ends", "halves", "nearly", "three", "shared",
        "many")
NOT_CODED = 5


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Folders small, of .tvdb files, and back, of what decompress makes of them."""
    from conftest import Runner
    run = Runner(tmp_path_factory.mktemp("reader"))
    (run.dir / "made").mkdir()
    (run.dir / "in").mkdir()
    opinion("cases", run.dir / "made")
    for name in MADE:
        shutil.copy(run.dir / f"made/{name}.vdb", run.dir / "in")
    opinion("make", run.dir / "in")
    opinion("sparse", run.dir / "in/sparse.vdb")
    for frame in FRAMES:
        shutil.copy(frame, run.dir / "in")
    run.ok("compress", "in", "small/", "--max-error", "density=lossless,2%")
    run.ok("decompress", "small", "back/")
    return run.dir


def boxes_of(grid):
    """In it, over its edges, and where nothing is."""
    leaves = grid.info["leaves"]
    corners = [(-3, -5, -7), (4090, -4, 120)]
    if leaves:
        begin, end = np.array(leaves)
        middle = (begin + end) // 2
        corners += [tuple(begin - 5), tuple(end - 12), tuple(middle), (begin[0], middle[1], end[2] - 60)]
    bounds = grid.info["active"]
    if bounds:
        corners += [tuple(np.array(bounds[0]) - 4), tuple(np.array(bounds[1]) - 9)]
    limits = np.iinfo(np.int32)
    boxes = [(np.clip(np.array(c, np.int64), limits.min, limits.max - 20), (17, 13, 20)) for c in corners]
    return [(tuple(map(int, corner)), tuple(int(a) + b for a, b in zip(corner, extents))) for corner, extents in boxes]


def same_bits(a, b):
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return a.dtype == b.dtype and a.size == b.size and a.tobytes() == b.tobytes()


def check_file(files, path, scratch):
    """The number of values that were compared."""
    compared = 0
    with tvdb.open(path) as file:
        boxes = [boxes_of(grid) if grid.info["dtype"] else None for grid in file.grids]
        (scratch / "boxes.json").write_text(json.dumps([(grid.info["name"], of_grid) for grid, of_grid in zip(file.grids, boxes)]))
        opinion("voxels", files / "back" / f"{path.stem}.vdb", scratch / "boxes.json", scratch / "voxels.npz")
        wanted = np.load(scratch / "voxels.npz")
        for index, (grid, of_grid) in enumerate(zip(file.grids, boxes)):
            if of_grid is None:
                with pytest.raises(tvdb.Error, match="decompress the file") as e:
                    grid.read(((0, 0, 0), (1, 1, 1)))
                assert e.value.code == NOT_CODED and str(path) in str(e.value)
                with pytest.raises(tvdb.Error):
                    next(grid.leaves())
                continue
            where = (path.stem, grid.label)
            for k, box in enumerate(of_grid):
                values, active = grid.read(box)
                assert values.shape[:3] == active.shape == tuple(b - a for a, b in zip(*box)), where
                assert same_bits(active, wanted[f"{index} {k} active"]), (*where, box)
                assert same_bits(values, wanted[f"{index} {k} values"]), (*where, box)
                compared += values.size
            places, numbers = [np.zeros((0, 3), int)], [np.zeros((0, grid.info["components"]), np.float32)]
            for origin, active, values in grid.leaves():
                assert active.shape == values.shape[:3] == (8, 8, 8)
                places.append(np.argwhere(active) + origin)
                numbers.append(values[active].reshape(-1, grid.info["components"]))
            assert same_bits(np.concatenate(places).astype(np.int32), wanted[f"{index} places"]), where
            assert same_bits(np.concatenate(numbers), wanted[f"{index} leaves"]), where
            compared += wanted[f"{index} leaves"].size
    return compared


@pytest.mark.parametrize("name", [*MADE, "everything", "one", "none", "sparse"])
def test_boxes_and_leaves_hold_what_openvdb_reads_after_decompression(files, name, tmp_path):
    assert check_file(files, files / f"small/{name}.tvdb", tmp_path) > 0 or name == "none"


@pytest.mark.parametrize("frame", FRAMES, ids=lambda path: path.stem)
def test_so_it_is_with_frames_of_simulations(files, frame, tmp_path):
    assert check_file(files, files / f"small/{frame.stem}.tvdb", tmp_path) > 200_000


def test_what_is_said_of_a_grid_is_what_openvdb_says(files):
    for name in ("everything", "mixed", "kept", "halves", "shared"):
        told = json.loads(opinion("describe", files / f"back/{name}.vdb"))
        with tvdb.open(files / f"small/{name}.tvdb") as file:
            assert {key: str(value) for key, value in file.metadata.items()} == {k: str(v) for k, v in told["metadata"].items()}
            by_name = {grid["name"]: grid for grid in told["grids"]}
            assert len(told["grids"]) == len(file.grids)
            for grid in file.grids:
                info, said = grid.info, by_name[grid.info["name"]]
                assert (info["name"], info["type"], info["class"]) == (said["name"], said["type"], said["class"])
                assert info["active_voxels"] == said["active_voxels"]
                own = {key: value for key, value in grid.metadata.items() if key in said["metadata"]}
                assert {k: str(v) for k, v in own.items()} == {k: str(v) for k, v in said["metadata"].items()}
                if info["dtype"]:
                    assert info["half"] == said["half"] and repr(info["background"]) == repr(
                        tuple(said["background"]) if info["components"] == 3 else float(said["background"]))
                    lengths = np.linalg.norm(info["index_to_world"][:3, :3], axis=0)
                    assert np.allclose(lengths, said["voxel"], rtol=1e-12)
                    assert 0 <= info["rms"] <= info["max_error"] <= info["bound"]
    with tvdb.open(files / "small/everything.tvdb") as file:
        scaled = file["scaled"].info["index_to_world"]
        assert scaled.tolist() == [[2, 0, 0, 1], [0, 3, 0, 2], [0, 0.5, 4, 3], [0, 0, 0, 1]]
        assert [grid.label for grid in file.grids if "many" in grid.label] == ["many values[0]", "many values[1]"]


def test_a_grid_that_shares_a_tree_reads_as_the_other(files):
    with tvdb.open(files / "small/shared.tvdb") as file:
        assert (file["again"].info["tree"], file["density"].info["tree"]) == ("density", "density")
        assert file["again"].metadata["artist"] == "x2"
        box = ((0, 0, 0), (25, 8, 8))
        for a, b in zip(file["again"].read(box), file["density"].read(box)):
            assert same_bits(a, b)
        assert file["again"].read(box)[1].sum() == 513


def pieces(content):
    """(kind, grid, origin, begin, end) of each piece, as docs/tvdb-format.md has it."""
    (index_bytes,) = struct.unpack_from("<Q", content, len(content) - 32)
    entries = struct.iter_unpack("<IIiiiqQ", content[len(content) - 32 - index_bytes:len(content) - 32])
    at, found = 16, []
    for kind, grid, x, y, z, size, _ in entries:
        found.append((kind, grid, (x, y, z), at, at + size))
        at += size
    return found


def test_a_box_needs_the_regions_that_it_touches_and_no_others(files, tmp_path):
    content = (files / "small/sparse.tvdb").read_bytes()
    regions = [piece for piece in pieces(content) if piece[0] == 3]
    of_cloud = [piece for piece in regions if piece[1] == 1]
    assert len(of_cloud) >= 3 and len({grid for _, grid, *_ in regions}) == 2
    with tvdb.open(files / "small/sparse.tvdb") as whole:
        for _, _, origin, *_ in of_cloud:
            bad = bytearray(content)
            for kind, _, other, begin, end in regions:
                if other != origin:
                    bad[begin:end] = os.urandom(end - begin)
            (tmp_path / "bad.tvdb").write_bytes(bad)
            with tvdb.open(tmp_path / "bad.tvdb") as file:
                box = (origin, tuple(at + 128 for at in origin))
                for a, b in zip(file["cloud"].read(box), whole["cloud"].read(box)):
                    assert same_bits(a, b), origin
                for _, _, other, *_ in of_cloud:
                    if other == origin:
                        continue
                    with pytest.raises(tvdb.Error) as e:
                        file["cloud"].read((other, tuple(at + 1 for at in other)))
                    assert str(tmp_path / "bad.tvdb") in str(e.value) and "at " + ", ".join(map(str, other)) in str(e.value)


def test_damage_is_an_error_and_never_another_value(files, tmp_path):
    path = tmp_path / "bad.tvdb"
    content = (files / "small/tiles.tvdb").read_bytes()
    with tvdb.open(files / "small/tiles.tvdb") as file:
        wanted = file["density"].read(((50, 0, 0), (110, 9, 9)))
    told = 0
    for at in itertools.chain(range(0, len(content), 7), range(len(content) - 40, len(content))):
        for bad in (content[:at], content[:at] + bytes([content[at] ^ 4]) + content[at + 1:]):
            path.write_bytes(bad)
            try:
                with tvdb.open(path) as file:
                    found = file["density"].read(((50, 0, 0), (110, 9, 9)))
                assert all(same_bits(a, b) for a, b in zip(found, wanted)), at
            except tvdb.Error as error:
                assert str(path) in str(error)
                told += 1
    assert told > 2 * len(content) / 7 * 0.9


def test_mistakes_are_told(files):
    with pytest.raises(tvdb.Error, match="nowhere.tvdb"):
        tvdb.open("nowhere.tvdb")
    with pytest.raises(tvdb.Error, match="no .tvdb file"):
        tvdb.open(files / "in/tiles.vdb")
    file = tvdb.open(files / "small/tiles.tvdb")
    with pytest.raises(KeyError, match="density"):
        file["smoke"]
    values, active = file[0].read(((3, 3, 3), (3, 9, 9)))
    assert values.shape == active.shape == (0, 6, 6)
    assert file[0].read(((0, 0, 0), (2, 2, 2)), np.float64)[0].dtype == np.float64
    leaves = file[0].leaves()
    next(leaves)
    file.close()
    file.close()
    for late in (lambda: file[0].read(((0, 0, 0), (1, 1, 1))), lambda: next(leaves), lambda: file.metadata):
        with pytest.raises(ValueError, match="closed"):
            late()


