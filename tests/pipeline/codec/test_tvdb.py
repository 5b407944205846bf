"""What comes back from a .tvdb file, by OpenVDB's own word (tests/io/vdb_opinion.py)."""
import pathlib
import random
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from vdb_second_opinion import BIN, FRAMES, made, needs_openvdb, opinion  # noqa: F401

pytestmark = needs_openvdb


def tool(*words):
    return subprocess.run([BIN / "tvdb_tool", *map(str, words)], capture_output=True, text=True)


def ok(*words):
    r = tool(*words)
    assert r.returncode == 0, r.stderr
    return r.stdout


def both_ways(path, folder, bound):
    ok("compress", path, folder / "a.tvdb", bound)
    ok("decompress", folder / "a.tvdb", folder / "b.vdb")
    return opinion("compare", path, folder / "b.vdb", "0" if bound == "lossless" else bound)


@pytest.mark.parametrize("name,bound", [("everything.vdb", "1%"), ("everything.vdb", "lossless"), ("one.vdb", "0.05"), ("none.vdb", "1%")])
def test_all_comes_back_and_values_within_the_bound(made, name, bound, tmp_path):
    assert both_ways(made[name], tmp_path, bound) == ""


@pytest.mark.parametrize("frame", FRAMES, ids=lambda path: path.stem)
def test_real_frames_become_small_within_the_bound(frame, tmp_path):
    assert both_ways(frame, tmp_path, "1%") == ""
    assert (tmp_path / "a.tvdb").stat().st_size < 0.25 * frame.stat().st_size


@pytest.mark.parametrize("bound", ["0.5%", "1%", "5%", "20%"])
def test_level_sets_keep_their_sides_and_their_band(made, bound, tmp_path):
    """Spheres in floats and in halves: values next to the surface are far below the bound."""
    assert both_ways(made["everything.vdb"], tmp_path, bound) == ""
    assert opinion("sides", made["everything.vdb"], tmp_path / "b.vdb", "surface", "half") == "surface half "
    said = ok("compress", made["everything.vdb"], tmp_path / "a.tvdb", bound).splitlines()
    errors = [float(line.split()[2]) for line in said if line.split()[0] in ("surface", "half")]
    assert len(errors) == 2 and min(errors) > 0, "what was not rounded shows nothing"


def test_a_value_on_the_wrong_side_is_seen(made, tmp_path):
    """So that the judgement above means something: the same values without their class may change sides."""
    opinion("unclassed", made["everything.vdb"], tmp_path / "plain.vdb", "surface")
    assert both_ways(tmp_path / "plain.vdb", tmp_path, "5%") == ""
    assert "on the other side" in opinion("sides", tmp_path / "plain.vdb", tmp_path / "b.vdb", "surface")


def test_a_value_beyond_the_bound_is_seen(made, tmp_path):
    """So that silence above means something."""
    both_ways(made["everything.vdb"], tmp_path, "5%")
    said = opinion("compare", made["everything.vdb"], tmp_path / "b.vdb", "1%")
    assert "surface: active values are off" in said and "differs" not in said


def test_the_same_file_gives_the_same_bytes(made, tmp_path):
    for name in ("a", "b"):
        ok("compress", made["everything.vdb"], tmp_path / f"{name}.tvdb", "1%")
        ok("decompress", tmp_path / f"{name}.tvdb", tmp_path / f"{name}.vdb")
    assert (tmp_path / "a.tvdb").read_bytes() == (tmp_path / "b.tvdb").read_bytes()
    assert (tmp_path / "a.vdb").read_bytes() == (tmp_path / "b.vdb").read_bytes()


def test_what_was_exact_stays_the_same_when_it_is_done_again(made, tmp_path):
    ok("compress", made["everything.vdb"], tmp_path / "a.tvdb", "1%")
    ok("decompress", tmp_path / "a.tvdb", tmp_path / "a.vdb")
    assert both_ways(tmp_path / "a.vdb", tmp_path, "lossless") == ""


def test_damage_is_refused_and_leaves_nothing(made, tmp_path):
    ok("compress", made["everything.vdb"], tmp_path / "a.tvdb", "1%")
    whole = (tmp_path / "a.tvdb").read_bytes()
    at = random.Random(1)
    for k in range(60):
        place = at.randrange(len(whole))
        bad = whole[:place] if k % 2 else whole[:place] + bytes([whole[place] ^ 1 << at.randrange(8)]) + whole[place + 1:]
        (tmp_path / "bad.tvdb").write_bytes(bad)
        r = tool("decompress", tmp_path / "bad.tvdb", tmp_path / "out.vdb")
        assert r.returncode == 3 and "bad.tvdb" in r.stderr and len(r.stderr) < 600, (k, place, r.stderr)
        assert not (tmp_path / "out.vdb").exists()


def test_any_byte_that_is_wrong_or_missing_is_refused_and_leaves_nothing(made, tmp_path):
    ok("compress", made["one.vdb"], tmp_path / "a.tvdb", "0.05")
    whole = (tmp_path / "a.tvdb").read_bytes()
    assert len(whole) < 3000  # else each of them takes too long
    bad, out = tmp_path / "bad.tvdb", tmp_path / "out.vdb"
    for place in range(len(whole)):
        for content in (whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1:], whole[:place]):
            bad.write_bytes(content)
            r = subprocess.run([BIN / "tvdb_tool", "decompress", bad, out], capture_output=True, text=True, timeout=10)
            assert r.returncode == 3 and "bad.tvdb" in r.stderr and len(r.stderr) < 600, (place, len(content), r.stderr)
            assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tvdb", "bad.tvdb"], place
