"""OpenVDB's own library reads what we write as what it had written itself (tests/io/vdb_opinion.py)."""
import json
import math
import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from vdb_second_opinion import BIN, FRAMES, PYTHON, made, needs_openvdb, opinion  # noqa: F401

pytestmark = needs_openvdb


def tool(*words):
    return subprocess.run([BIN / "vdb_tool", *map(str, words)], capture_output=True, text=True)


def copy_is_the_same(path, folder):
    r = tool("copy", path, folder / "copy.vdb")
    assert r.returncode == 0, r.stderr
    assert opinion("compare", path, folder / "copy.vdb") == ""
    again = tool("copy", folder / "copy.vdb", folder / "again.vdb")
    assert again.returncode == 0 and (folder / "again.vdb").read_bytes() == (folder / "copy.vdb").read_bytes()


@pytest.mark.parametrize("name", ["everything.vdb", "one.vdb", "none.vdb"])
def test_a_copy_holds_what_the_original_holds(made, name, tmp_path):
    copy_is_the_same(made[name], tmp_path)


@pytest.mark.parametrize("frame", FRAMES, ids=lambda path: path.stem)
def test_a_copy_of_a_real_frame_is_the_same(frame, tmp_path):
    copy_is_the_same(frame, tmp_path)


def test_a_difference_is_seen(made, tmp_path):
    """So that silence above means something."""
    shutil.copy(made["one.vdb"], tmp_path / "a.vdb")
    whole = (tmp_path / "a.vdb").read_bytes()
    assert whole.count(b"somebody") == 1
    (tmp_path / "b.vdb").write_bytes(whole.replace(b"somebody", b"another!"))
    assert "metadata differs" in opinion("compare", tmp_path / "a.vdb", tmp_path / "b.vdb")


def test_inspect_says_what_openvdb_says(made):
    tilery = BIN.parents[1] / "bin/tilery"
    told = subprocess.run([tilery, "inspect", made["everything.vdb"], "--json"], capture_output=True, text=True, check=True)
    told = json.loads(told.stdout)
    assert told["kind"] == "grids" and sorted(told["metadata"]) == ["number", "shot"]
    name = lambda grid: grid["name"].split("[")[0]
    is_so = sorted(json.loads(opinion("tell", made["everything.vdb"])), key=name)
    told["grids"].sort(key=name)
    assert list(map(name, told["grids"])) == list(map(name, is_so))
    for ours, theirs in zip(told["grids"], is_so):
        for key, value in theirs.items():
            if key == "name" or (theirs["type"] == "bool" and key not in ("type", "class", "half")):
                continue
            if key == "background" and isinstance(value, float) and math.isnan(value):
                value = None  # JSON has no such number
            assert ours[key] == value, (ours["name"], key)
    shown = subprocess.run([tilery, "inspect", made["one.vdb"]], capture_output=True, text=True, check=True).stdout
    assert "fog volume" in shown and "active_voxels" in shown


def test_grids_and_nodes_are_counted_as_openvdb_does(made):
    r = tool("walk", made["everything.vdb"])
    assert r.returncode == 0, r.stderr
    lines = dict(line.rsplit(" Tree_", 1) for line in r.stdout.splitlines())
    counts = subprocess.run([PYTHON, "-c", "import pyopenvdb, sys\nfor g in pyopenvdb.readAllGridMetadata(sys.argv[1]): pass\n"
                             "for g in pyopenvdb.readAll(sys.argv[1])[0]: print(g.name, g.leafCount(), sep='\\t')",
                             str(made["everything.vdb"])], capture_output=True, text=True, check=True).stdout
    leaves = {}
    for name, count in (line.split("\t") for line in counts.splitlines()):
        leaves.setdefault(name, []).append(int(count))
    assert set(lines) == {"surface", "half", "fog", "speed", "mask", "many values[0]", "many values[1]", "far", "inactive",
                          "nothing", "scaled"}
    for label, rest in lines.items():
        if not rest.startswith("bool"):
            assert int(rest.split()[3]) == leaves[label.split("[")[0]][0], label


@pytest.mark.parametrize("length", [0, 8, 50, 100, 600, 20000])
def test_a_cut_file_is_refused(made, length, tmp_path):
    (tmp_path / "cut.vdb").write_bytes(made["everything.vdb"].read_bytes()[:length])
    r = tool("walk", tmp_path / "cut.vdb")
    assert r.returncode == 3 and "cut.vdb" in r.stderr and len(r.stderr) < 600
