"""Grids in which other programs lost something: what is empty, inactive, far away, not finite, cut short or of another type. Each goes
through compress and decompress and, where a model can run on it, through a model that changes nothing. OpenVDB itself is the judge."""
import ctypes
import ctypes.util
import json
import math
import os
import signal
import struct
import subprocess
import sys
import time

import pytest

from conftest import EXECUTABLE, digests, leftovers
from vdb_second_opinion import needs_openvdb, opinion

pytestmark = needs_openvdb

HALF_LIMIT = 65504


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    opinion("cases", folder)
    return folder


@pytest.fixture
def identity(model):
    return model("identity", channels={"in": 1, "out": 1}, radius=0, range=None)


def describe(path, *places):
    return json.loads(opinion("describe", path, *places))


def both_ways(run, path, *words):
    """Through .tvdb and back."""
    run.ok("compress", path, "a.tvdb", "--overwrite", *words)
    run.ok("decompress", "a.tvdb", "b.vdb", "--overwrite")
    return run.dir / "b.vdb"


def words_of_run(identity, path, out, *words):
    """One tile on each voxel: what the model gives is not averaged, and the same bits come out."""
    return ("run", "--model", identity, "--input", path, "--output", out, "--tile", 32, "--devices", "cpu", "--model.precision", "fp32",
            *words)


def through_model(run, identity, path, *words):
    run.ok(*words_of_run(identity, path, "c.vdb", "--output.existing", "replace", *words))
    return run.dir / "c.vdb"


PEAK = """import resource, subprocess, sys
code = subprocess.run(sys.argv[2:]).returncode
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)"""


def with_peak(run, *words, timeout=240):
    """(result, the most memory in MiB that any of its processes had)"""
    r = subprocess.run([sys.executable, "-c", PEAK, "peak", EXECUTABLE, *map(str, words)], cwd=run.dir, capture_output=True, text=True,
                       timeout=timeout)
    return r, int((run.dir / "peak").read_text()) / 1024


# ---- what is not there, and what is there without being active ----

def test_an_empty_grid_stays_one_with_its_background(run, cases, identity):
    for out in (both_ways(run, cases / "empty.vdb"), through_model(run, identity, cases / "empty.vdb")):
        (grid,) = describe(out)["grids"]
        assert (grid["name"], grid["background"], grid["leaves"], grid["active_voxels"]) == ("density", 0.5, 0, 0)
        assert opinion("compare", cases / "empty.vdb", out) == ""
    # Nothing is computed with bounds that there are not.
    r = run("inspect", cases / "empty.vdb", "--json")
    assert r.json["grids"][0]["bounds"] is None and "nan" not in r.out.lower() and "2147483" not in r.out


def test_a_leaf_of_inactive_voxels_only_keeps_their_values(run, cases, identity):
    for out in (both_ways(run, cases / "inactive.vdb"), through_model(run, identity, cases / "inactive.vdb")):
        (grid,) = describe(out, "9,9,9", "9,9,10")["grids"]
        assert grid["at"] == [[5, False], [0, False]] and (grid["leaves"], grid["active_voxels"]) == (1, 0)
        assert opinion("compare", cases / "inactive.vdb", out) == ""


# ---- active tiles ----

def test_active_tiles_without_leaves_are_no_holes(run, cases, identity):
    for words in ((), ("--lossless",)):
        out = both_ways(run, cases / "tile.vdb", *words)
        (grid,) = describe(out, "64,64,64", "10,10,10", "128,0,0")["grids"]
        assert grid["at"] == [[1, True], [1, True], [0, False]]
        assert (grid["active_voxels"], grid["leaves"]) == (128**3, 0), "tiles stay tiles"
    (grid,) = describe(through_model(run, identity, cases / "tile.vdb"), "64,64,64", "10,10,10", "128,0,0", "-1,0,0")["grids"]
    assert grid["at"] == [[1, True], [1, True], [0, False], [0, False]] and grid["active_voxels"] == 128**3


def test_tiles_beside_a_leaf_keep_their_own_value(run, cases, identity):
    (grid,) = describe(both_ways(run, cases / "tiles.vdb"), "64,64,64", "10,10,10", "100,3,3")["grids"]
    assert [on for _, on in grid["at"]] == [False, True, True] and grid["at"][1][0] == 0.5, "tiles are exact"
    assert abs(grid["at"][2][0] - 0.25) <= 0.0025 and (grid["active_voxels"], grid["leaves"]) == (262145, 1)
    assert opinion("compare", cases / "tiles.vdb", both_ways(run, cases / "tiles.vdb", "--lossless")) == ""
    (grid,) = describe(through_model(run, identity, cases / "tiles.vdb"), "64,64,64", "10,10,10", "100,3,3", "100,3,4")["grids"]
    assert grid["at"] == [[0, False], [0.5, True], [0.25, True], [0, False]] and grid["active_voxels"] == 262145


# ---- all that is not an active value ----

def same_but_for_values(was, now):
    """Of a grid whose one active voxel is at the first place."""
    told = [{key: value for key, value in grid.items() if key not in ("at", "background")} for grid in (was, now)]
    assert told[0] == told[1]
    assert repr(was["background"]) == repr(now["background"]) and repr(was["at"][1:]) == repr(now["at"][1:])
    assert was["at"][0][1] and now["at"][0][1]


@pytest.mark.parametrize("words", [(), ("--max-error", "1.5"), ("--lossless",)], ids=["share", "units", "lossless"])
def test_mask_background_class_and_metadata_are_exact_whatever_the_bound(run, cases, words):
    out = describe(both_ways(run, cases / "kept.vdb", *words), "1,2,3", "1,2,4", "1,2,5")
    assert out["metadata"] == {"shot": "s010"}
    grid = next(g for g in out["grids"] if g["name"] == "density")
    assert grid["active_voxels"] == 1, "not the whole leaf"
    assert grid["at"][0][1] and abs(grid["at"][0][0] - 10) <= (1.5 if "--max-error" in words else 0)
    assert grid["at"][1:] == [[-7, False], [3.5, False]] and grid["background"] == 3.5
    assert grid["class"] == "fog volume" and grid["voxel"] == [0.1, 0.1, 0.1]
    assert grid["metadata"]["artist"] == "x1" and repr(grid["metadata"]["frame"]) == "12", "with its type"
    assert grid["after_pruning"] == {"active_voxels": 1, "leaves": 1}
    was = describe(cases / "kept.vdb", "1,2,3", "1,2,4", "1,2,5")
    same_but_for_values(next(g for g in was["grids"] if g["name"] == "density"), grid)


def test_a_background_that_is_no_number_stays_so_and_touches_nothing_else(run, cases, identity):
    places = ("4,4,4", "4,4,5", "4,4,6", "100,0,0")
    outputs = [both_ways(run, cases / name, *words) and describe(run.dir / "b.vdb", *places)
               for name in ("kept.vdb", "undefined_alone.vdb") for words in ((), ("--max-error", "0.5"), ("--lossless",))]
    outputs.append(describe(through_model(run, identity, cases / "undefined_alone.vdb"), *places))
    was = describe(cases / "undefined_alone.vdb", *places)["grids"][0]
    for out in outputs:
        grid = next(g for g in out["grids"] if g["name"] == "undefined")
        assert math.isnan(grid["background"]) and grid["active_voxels"] == 1 and grid["not_finite"] == 0
        assert abs(grid["at"][0][0] - 2) <= 0.5 and grid["at"][1] == [1, False]
        assert all(math.isnan(value) and not on for value, on in grid["at"][2:])
        same_but_for_values(was, grid)


def test_a_model_run_keeps_all_but_active_values_too(run, cases, identity):
    out = through_model(run, identity, cases / "kept_alone.vdb")
    assert opinion("compare", cases / "kept_alone.vdb", out) == ""
    assert describe(out)["metadata"] == {"shot": "s010"} and describe(out)["grids"][0]["after_pruning"]["active_voxels"] == 1


# ---- level sets ----

@pytest.mark.parametrize("bound", ["1%", "10%"])
def test_a_level_set_keeps_inside_background_and_sides(run, cases, bound):
    out = both_ways(run, cases / "sphere.vdb", "--max-error", bound)
    was, (grid,) = describe(cases / "sphere.vdb", "0,0,0", "500,0,0")["grids"][0], describe(out, "0,0,0", "500,0,0")["grids"]
    assert (was["leaves"], was["active_voxels"]) == (grid["leaves"], grid["active_voxels"]) == (158, 30254)
    assert grid["class"] == "level set" and grid["background"] == was["background"] == pytest.approx(0.3)
    assert grid["at"] == was["at"] and grid["at"][0] == [-grid["background"], False] and grid["at"][1] == [grid["background"], False]
    assert opinion("sides", cases / "sphere.vdb", out, "surface") == "surface "
    assert opinion("compare", cases / "sphere.vdb", out, bound) == ""
    # What was reached is told, in the grid's units and with a bound; a voxel is 0.1 of them.
    (told,) = run.ok("inspect", "a.tvdb", "--json").json["grids"]
    assert 0 < told["max_error"] <= told["bound"] and told["transform"]["scale"][0] == pytest.approx(0.1)


def test_a_level_set_comes_out_of_a_model_as_one(run, cases, identity):
    out = through_model(run, identity, cases / "sphere.vdb")
    (grid,) = describe(out, "0,0,0", "500,0,0")["grids"]
    assert grid["class"] == "level set" and grid["at"] == [[-grid["background"], False], [grid["background"], False]]
    assert (grid["leaves"], grid["active_voxels"]) == (158, 30254)
    assert opinion("sides", cases / "sphere.vdb", out, "surface") == "surface "
    assert opinion("compare", cases / "sphere.vdb", out) == ""


# ---- grids of several types ----

def test_grids_of_all_types_come_back_beside_those_that_are_coded(run, cases):
    out = describe(both_ways(run, cases / "mixed.vdb"), "1,1,1", "2,2,2")
    by_name = {grid["name"]: grid for grid in out["grids"]}
    assert {name: grid["type"] for name, grid in by_name.items()} == {"density": "float", "vel": "vec3s", "mask": "bool"}
    assert by_name["vel"]["at"][0] == [pytest.approx([1, 2, 3], abs=0.02), True] and by_name["vel"]["active_voxels"] == 1
    assert by_name["mask"]["at"] == [[False, False], [True, True]]
    assert opinion("compare", cases / "mixed.vdb", run.dir / "b.vdb", "1%") == ""
    both_ways(run, cases / "mixed.vdb", "--max-error", "vel=lossless,1%")
    assert next(g for g in describe(run.dir / "b.vdb", "1,1,1")["grids"] if g["name"] == "vel")["at"] == [[[1, 2, 3], True]]


def test_a_model_runs_on_the_grid_that_is_named_and_says_what_others_are(run, cases, identity):
    opinion("only", cases / "mixed.vdb", "density", run.dir / "alone.vdb")
    assert opinion("compare", run.dir / "alone.vdb", through_model(run, identity, cases / "mixed.vdb", "--input.grids", "density")) == ""
    r = run(*words_of_run(identity, cases / "mixed.vdb", "d.vdb", "--input.grids", "mask"))
    assert r.code == 3 and "mixed.vdb" in r.err and "'mask' is of type bool" in r.err and "density, vel" in r.err
    r = run(*words_of_run(identity, cases / "mixed.vdb", "d.vdb", "--input.grids", "vel"))
    assert r.code == 3 and "mixed.vdb" in r.err and "'vel'" in r.err and "vec3s" in r.err and "model takes 1" in r.err
    r = run(*words_of_run(identity, cases / "mixed.vdb", "d.vdb", "--input.grids", "temperature"))
    assert r.code == 3 and "mixed.vdb" in r.err and "density, vel" in r.err
    assert not (run.dir / "d.vdb").exists()


def test_a_volume_has_the_size_of_its_grid_and_not_a_voxel_more(run, cases):
    """Libraries of pictures read .vdb as volumes of one voxel too many along each axis."""
    (grid,) = run.ok("inspect", cases / "noise.vdb", "--json").json["grids"]
    assert grid["bounds"] == [[0, 0, 0], [39, 39, 39]] and grid["active_voxels"] == 40**3


# ---- places ----

PLACES = {
    "negative": ["-1,-9,-17", "-20,-9,-17", "-21,-9,-17", "0,-9,-17"],
    "far": ["-2000000000,-9,-17", "2000000000,3,4"],
    "ends": ["-2147483648,-2147483648,-2147483648", "2147483647,2147483647,2147483647"],
}


@pytest.mark.parametrize("name,leaves", [("negative", 3), ("far", 2), ("ends", 2)])
def test_voxels_at_negative_and_far_places_stay_there_in_little_memory(run, cases, identity, name, leaves):
    path = cases / f"{name}.vdb"
    was = describe(path, *PLACES[name])
    assert was["grids"][0]["leaves"] == leaves
    peaks = []
    for words in (("compress", path, "a.tvdb", "--lossless"), ("decompress", "a.tvdb", "b.vdb"), ("inspect", path),
                  words_of_run(identity, path, "c.vdb", "--json"), words_of_run(identity, path, "d.vdb", "--overlap", 12)):
        r, peak = with_peak(run, *words)
        assert r.returncode == 0, r.stderr[-3000:]
        peaks.append(peak)
        if "--json" in words:
            assert 0 < json.loads(r.stdout)["tiles_inferred"] <= 8 * leaves, "only where something is"
    assert max(peaks) < 500, peaks
    for out in ("b.vdb", "c.vdb"):
        assert opinion("compare", path, run.dir / out) == "" and describe(run.dir / out, *PLACES[name]) == was
    # Where tiles overlap, sums round.
    assert opinion("compare", path, run.dir / "d.vdb", "1e-5") == ""


def test_small_tiles_with_much_nothing_in_between_give_what_they_gave(run, model, cases):
    """Voxels are far from each other, or so near that tiles overlap: each gets what it would get alone."""
    blur = model("filter3", channels={"in": 1, "out": 1}, radius=2)
    words = ("--model", blur, "--devices", "cpu", "--model.precision", "fp32", "--overlap", 8)
    run.ok("run", "--input", cases / "far.vdb", "--output", "a.vdb", "--tile", 12, *words)
    run.ok("run", "--input", cases / "far.vdb", "--output", "b.vdb", "--tile", 32, *words)
    assert opinion("compare", run.dir / "a.vdb", run.dir / "b.vdb", "1e-5") == ""
    assert opinion("compare", run.dir / "a.vdb", cases / "far.vdb", "1e-5") != "", "the model does something"


# ---- numbers of 16 bits ----

@pytest.mark.parametrize("bound", ["lossless", "1%", "20%"])
def test_halves_stay_halves_and_none_becomes_infinite(run, cases, identity, bound):
    for name in ("halves", "nearly"):
        out = both_ways(run, cases / f"{name}.vdb", "--max-error", bound)
        (was,), (now,) = describe(cases / f"{name}.vdb", "0,0,0", "1,0,0")["grids"], describe(out, "0,0,0", "1,0,0")["grids"]
        assert was["half"] and now["half"] and now["not_finite"] == was["not_finite"]
        assert opinion("compare", cases / f"{name}.vdb", out, bound if bound != "lossless" else "0") == ""
    # OpenVDB itself made 70000 infinite when it wrote the file.
    assert describe(cases / "halves.vdb")["grids"][0]["not_finite"] == 1
    # Where numbers have 32 bits, values beyond the range of halves are values as all others.
    out = both_ways(run, cases / "halves_in_32_bits.vdb", "--max-error", bound)
    (now,) = describe(out, "0,0,0")["grids"]
    assert not now["half"] and now["not_finite"] == 0 and now["at"][0][0] == pytest.approx(70000, abs=0.2 * 70000)
    assert now["at"][0][0] > HALF_LIMIT or bound == "20%"


def test_a_model_gives_halves_back_as_halves(run, cases, identity):
    out = through_model(run, identity, cases / "nearly.vdb")
    assert describe(out)["grids"][0]["half"] and opinion("compare", cases / "nearly.vdb", out) == ""
    # No model gives a number for what is infinite: as in all volumes, there is none then.
    (now,) = describe(through_model(run, identity, cases / "halves.vdb"), "0,0,0", "1,0,0")["grids"]
    assert now["half"] and math.isnan(now["at"][0][0]) and now["at"][1] == [pytest.approx(0.0999756, abs=1e-7), True]


def test_a_result_that_halves_can_not_hold_is_an_error_and_not_infinite(run, cases, identity):
    twice = ("--output.post", "{scale: [2, 0]}")
    r = run(*words_of_run(identity, cases / "large.vdb", "c.vdb", *twice))
    assert r.code == 3 and "large.vdb" in r.err and "80000" in r.err and "65504" in r.err and "'density'" in r.err, r.err
    assert not (run.dir / "c.vdb").exists() and leftovers(run.dir) == []
    (now,) = describe(through_model(run, identity, cases / "large_in_32_bits.vdb", *twice), "0,0,0")["grids"]
    assert now["at"] == [[80000, True]] and not now["half"]


# ---- files that are cut short ----

@pytest.fixture
def cut(run, cases):
    """A folder of files that end early, or are none, and of two good ones."""
    folder, whole = run.dir / "in", (cases / "noise.vdb").read_bytes()
    folder.mkdir()
    for length in (8, 50, 100, 600, len(whole) // 2, len(whole) - 402):
        (folder / f"cut{length}.vdb").write_bytes(whole[:length])
    (folder / "empty.vdb").write_bytes(b"")
    (folder / "text.vdb").write_text("these are no grids, and it says so for some lines\n" * 50)
    for name in ("a_good.vdb", "z_good.vdb"):
        (folder / name).write_bytes(whole)
    return folder


def check_cut(run, cut, r, peak, made, original):
    bad = sorted(path.name for path in cut.iterdir() if "good" not in path.name)
    told = json.loads(r.stdout)
    assert r.returncode == 3 and len(bad) == 8 and (told["items_done"], told["items_failed"]) == (2, 8), r.stderr[-3000:]
    assert all(name in r.stderr for name in bad) and len(r.stdout) + len(r.stderr) < 10_000
    assert peak < 1024, "whatever a damaged file claims"
    assert sorted(path.name for path in (run.dir / "out").iterdir() if path.name != ".tilery") == made and leftovers(run.dir) == []


def test_files_that_are_cut_fail_alone_by_name_in_few_words(run, cases, cut):
    r, peak = with_peak(run, "compress", "in", "out/", "--json")
    check_cut(run, cut, r, peak, ["a_good.tvdb", "z_good.tvdb"], cases / "noise.vdb")
    run.ok("decompress", "out", "back/")
    assert opinion("compare", cases / "noise.vdb", run.dir / "back/z_good.vdb", "1%") == ""


def test_a_model_run_on_files_that_are_cut_does_the_others(run, cases, cut, identity):
    r, peak = with_peak(run, *words_of_run(identity, "in", "out/", "--json"))
    check_cut(run, cut, r, peak, ["a_good.vdb", "z_good.vdb"], cases / "noise.vdb")
    assert opinion("compare", cases / "noise.vdb", run.dir / "out/z_good.vdb") == ""


def test_each_cut_is_noticed_whoever_reads_the_file(run, cut):
    for path in cut.iterdir():
        r, peak = with_peak(run, "inspect", path)
        good = "good" in path.name
        assert (r.returncode == 0) == good and len(r.stdout) + len(r.stderr) < 3000 and peak < 1024, path.name


# ---- writers that are killed ----

def test_a_writer_that_is_killed_leaves_no_file_that_looks_whole(run, cases):
    words = ("compress", cases / "three.vdb", "out/a.tvdb", "--max-error", "0.01")
    run.ok("compress", cases / "three.vdb", "good/a.tvdb", "--max-error", "0.01")
    p = run.start_held(*words, rule="grids:4")
    end = time.monotonic() + 60
    while not leftovers(run.dir):
        assert time.monotonic() < end, "it never began to write"
        time.sleep(0.05)
    os.killpg(p.pid, signal.SIGKILL)
    p.communicate()
    assert not (run.dir / "out/a.tvdb").exists()
    run.go_on()
    run.ok(*words)
    assert digests(run.dir / "out") == digests(run.dir / "good") and leftovers(run.dir) == []


@pytest.mark.parametrize("at", ["grids:1", "grids:4", "write:1", "rename:1"])
def test_a_worker_that_dies_each_time_gives_no_file_and_an_error(run, cases, at):
    r = run("compress", cases / "three.vdb", "out/a.tvdb", "--max-error", "0.01", env={"TILERY_TEST_FAULT": f"kill@{at}"})
    assert r.code != 0 and "three.vdb" in r.err and not (run.dir / "out/a.tvdb").exists()
    r = run.ok("compress", cases / "three.vdb", "out/a.tvdb", "--max-error", "0.01", "--json")
    assert r.json["items_done"] == 1 and leftovers(run.dir) == []
    run.ok("decompress", "out/a.tvdb", "b.vdb")
    assert opinion("compare", cases / "three.vdb", run.dir / "b.vdb", "0.01") == ""


def test_a_file_of_more_grids_than_a_byte_counts_comes_back(run, cases):
    assert len(describe(cases / "many.vdb")["grids"]) == 256
    assert opinion("compare", cases / "many.vdb", both_ways(run, cases / "many.vdb"), "1%") == ""
    assert len(run.ok("inspect", "a.tvdb", "--json").json["grids"]) == 256


# ---- .tvdb files that were changed with care: all checksums are right ----

XXHASH = ctypes.util.find_library("xxhash")
FOOTER, ENTRY = 32, 36


def checksum(content: bytes) -> int:
    library = ctypes.CDLL(XXHASH)
    library.XXH3_64bits.restype, library.XXH3_64bits.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]
    return library.XXH3_64bits(content, len(content))


class Tvdb:
    """Pieces of a file, as docs/tvdb-format.md says; [kind, grid, x, y, z, content], and for lies a size that is not the content's."""

    def __init__(self, content: bytes):
        self.header = content[:16]
        (index_bytes,) = struct.unpack_from("<Q", content, len(content) - FOOTER)
        self.pieces, at = [], 16
        begin = len(content) - FOOTER - index_bytes
        for k in range(index_bytes // ENTRY):
            *head, size, hash = struct.unpack_from("<IIiiiqQ", content, begin + ENTRY * k)
            self.pieces.append([*head, content[at:at + size]])
            assert checksum(self.pieces[-1][-1]) == hash
            at += size
        assert at == begin and self.packed() == content

    def packed(self, size_of_first=None, index_bytes=None) -> bytes:
        index = b""
        for k, (*head, content) in enumerate(self.pieces):
            size = size_of_first if k == 0 and size_of_first is not None else len(content)
            index += struct.pack("<IIiiiqQ", *head, size, checksum(content))
        body = self.header + b"".join(piece[-1] for piece in self.pieces)
        return (body + index + struct.pack("<QQQ", len(index) if index_bytes is None else index_bytes, checksum(self.header + index),
                                           len(body) + len(index) + FOOTER) + self.header[:8][::-1])

    def of_kind(self, kind):
        return next(piece for piece in self.pieces if piece[0] == kind)

    def patch(self, kind, at, content):
        piece = self.of_kind(kind)
        piece[-1] = piece[-1][:at] + content + piece[-1][at + len(content):]


FILE, GRID, REGION, OPAQUE = 1, 2, 3, 4


def places_in(grid: bytes) -> dict[str, int]:
    """Where things stand in the description of a coded grid of one float component."""
    at, places = 0, {}

    def number(name, size):
        nonlocal at
        places[name] = at
        at += size

    def text(name):
        nonlocal at
        places[name] = at
        at += 4 + struct.unpack_from("<I", grid, at)[0]

    number("how", 1), text("name"), text("type"), number("half", 1), text("twin"), number("packing", 4), number("metadata", 4)
    for k in range(struct.unpack_from("<I", grid, places["metadata"])[0]):
        text(f"name{k}"), text(f"type{k}"), text(f"value{k}")
    text("map"), text("transform"), text("background"), number("bound", 8), number("step", 8), number("level_set", 1), number("coding", 1)
    assert grid[0] == 0 and struct.unpack_from("<I", grid, places["background"])[0] == 4
    if grid[places["coding"]] == 1:
        number("model", 8)
    # What follows has a known size from behind: the stream of upper nodes, which is the last thing.
    places["rest"] = at
    return places


needs_xxhash = pytest.mark.skipif(XXHASH is None, reason="needs libxxhash")


@pytest.fixture
def packed(run, cases):
    """A file of two pieces of each kind: grids that are coded, and one that is passed on."""
    run.ok("compress", cases / "mixed.vdb", "mixed.tvdb", "--max-error", "1%")
    return run.dir / "mixed.tvdb"


def refused(run, content, *said):
    (run.dir / "bad.tvdb").write_bytes(content)
    r, peak = with_peak(run, "decompress", "bad.tvdb", "bad.vdb", timeout=60)
    assert r.returncode == 3 and "bad.tvdb" in r.stderr and len(r.stderr) < 2000, r.stderr[-2000:]
    assert all(what in r.stderr for what in said), r.stderr
    assert not (run.dir / "bad.vdb").exists() and leftovers(run.dir) == []
    inspected = run("inspect", "bad.tvdb")
    assert len(inspected.err) < 2000 and "terminate" not in inspected.err and inspected.code >= 0
    return peak


def test_a_file_that_lacks_its_last_byte_is_refused(run, packed):
    whole = packed.read_bytes()
    refused(run, whole[:-1])
    refused(run, whole + b"\0")


@needs_xxhash
def test_claims_of_billions_are_refused_and_nothing_is_made_for_them(run, packed):
    whole, claim = packed.read_bytes(), struct.pack("<I", 1 << 31)
    honest, usual = with_peak(run, "decompress", "mixed.tvdb", "good.vdb")
    assert honest.returncode == 0
    bad = {}
    for what, kind, at in (("grids", FILE, 4), ("metadata of the file", FILE, 8)):
        file = Tvdb(whole)
        file.patch(kind, at, claim)
        bad[what] = file.packed()
    places = places_in(Tvdb(whole).of_kind(GRID)[-1])
    for what in ("name", "type", "metadata", "map", "background"):
        file = Tvdb(whole)
        file.patch(GRID, places[what], claim)
        bad[f"{what} of a grid"] = file.packed()
    # Tiles of the root, upper nodes and their stream are found from behind: u32 tiles, u32 nodes, text.
    grid = Tvdb(whole).of_kind(GRID)[-1]
    stream = next(at for at in range(places["rest"], len(grid) - 3) if at + 4 + struct.unpack_from("<I", grid, at)[0] == len(grid))
    for what, at in (("tiles", stream - 8), ("upper nodes", stream - 4), ("bytes of nodes", stream)):
        assert what == "bytes of nodes" or struct.unpack_from("<I", grid, at)[0] < 2
        file = Tvdb(whole)
        file.patch(GRID, at, claim)
        bad[what] = file.packed()
    file = Tvdb(whole)
    region = file.of_kind(REGION)
    region[-1] = region[-1][:1] + bytes([0x80, 0x80, 0x80, 0x80, 0x08]) + region[-1][2:]
    bad["bytes of a region"] = file.packed()
    file = Tvdb(whole)
    file.patch(OPAQUE, 1, struct.pack("<Q", 1 << 31))
    bad["bytes of a part"] = file.packed()
    bad["bytes of a piece"] = Tvdb(whole).packed(size_of_first=1 << 31)
    bad["bytes of the index"] = Tvdb(whole).packed(index_bytes=(1 << 31) * ENTRY)
    for what, content in bad.items():
        assert refused(run, content) < usual + 64, what


@needs_xxhash
def test_a_region_that_no_node_names_and_one_that_is_missing_are_refused(run, packed):
    whole = packed.read_bytes()
    file = Tvdb(whole)
    file.pieces.remove(file.of_kind(REGION))
    refused(run, file.packed(), "region")
    file = Tvdb(whole)
    file.of_kind(REGION)[2] += 1 << 20
    refused(run, file.packed(), "region")


@needs_xxhash
def test_a_file_made_with_another_context_model_is_refused_and_both_are_named(run, cases):
    run.ok("compress", cases / "sphere.vdb", "a.tvdb", "--lossless")
    file = Tvdb((run.dir / "a.tvdb").read_bytes())
    places = places_in(file.of_kind(GRID)[-1])
    assert "model" in places, "this grid is coded with the context model"
    own = struct.unpack_from("<Q", file.of_kind(GRID)[-1], places["model"])[0]
    other = 0x0123456789ABCDEF
    file.patch(GRID, places["model"], struct.pack("<Q", other))
    refused(run, file.packed(), f"{own:016x}", f"{other:016x}", "context model")
