"""Files of grids as jobs: sequences, workers, resume, mistakes. What comes back is judged by OpenVDB's own library."""
import os
import re
import shutil
import signal

import pytest

from conftest import digests, finish, leftovers
from vdb_second_opinion import FRAMES, needs_openvdb, opinion

pytestmark = needs_openvdb


@pytest.fixture
def puffs(run):
    """Six frames of a sequence."""
    (run.dir / "in").mkdir()
    opinion("frames", run.dir / "in", 6)
    return run.dir / "in"


def compress(run, *words, **kwargs):
    return run("compress", "in/puff.####.vdb", "out/small.####.tvdb", *words, **kwargs)


def test_a_sequence_there_and_back(run, puffs):
    r = compress(run, "--json")
    assert r.code == 0 and r.json["items_done"] == 6, r.err
    # A table of what became of each grid, over all frames.
    assert re.search(r"^density +6 .* dB ", r.err, re.M) and "within 1 % of the range" in r.err
    assert sorted(p.name for p in (run.dir / "out").glob("*.tvdb")) == [f"small.{k:04}.tvdb" for k in range(1, 7)]
    run.ok("decompress", "out/small.####.tvdb", "back/puff.####.vdb")
    # One percent of the range over the whole sequence, whose values grow: the first frame alone may be off by more
    # than one percent of its own.
    said = [g for k in range(1, 7) for g in run.ok("inspect", f"out/small.{k:04}.tvdb", "--json").json["grids"] if g["name"] == "density"]
    whole = max(g["most"] for g in said) - min(g["least"] for g in said)
    assert all(abs(g["bound"] - 0.01 * whole) < 1e-9 and g["max_error"] <= g["bound"] for g in said)
    assert said[0]["max_error"] > 0.01 * (said[0]["most"] - said[0]["least"])
    for k in range(1, 7):
        differences = opinion("compare", puffs / f"puff.{k:04}.vdb", run.dir / f"back/puff.{k:04}.vdb", str(0.01 * whole))
        assert "density" not in differences and "differs" not in differences
    assert leftovers(run.dir) == []


def test_again_nothing_is_done_and_a_new_frame_only_what_it_changes(run, puffs):
    last = (puffs / "puff.0006.vdb").rename(run.dir / "later.vdb")
    assert compress(run).code == 0
    before = digests(run.dir / "out")
    assert compress(run, "--json").json["items_unchanged"] == 5
    # It has the largest values, so the bound of all grows with it.
    last.rename(puffs / "puff.0006.vdb")
    assert compress(run, "--json").json["items_done"] == 6
    assert all(digest != before.get(name) for name, digest in digests(run.dir / "out").items())
    profile = run.profile("out/.tilery/job/measure")
    assert profile["tiles"] == 1, "only the new frame was measured"


def test_a_bound_in_units_needs_no_measuring(run, puffs):
    r = compress(run, "--max-error", "density=0.02,velocity=lossless,0.5", "--json")
    assert r.code == 0 and not (run.dir / "out/.tilery/job/measure").exists()
    grids = run.ok("inspect", "out/small.0003.tvdb", "--json").json["grids"]
    assert [(g["name"], g["bound"]) for g in grids] == [("density", 0.02), ("velocity", 0)]
    run.ok("decompress", "out/small.0003.tvdb", "b.vdb")
    assert opinion("compare", puffs / "puff.0003.vdb", run.dir / "b.vdb", "0.02") == ""


def test_thirty_frames_on_two_workers_killed_and_resumed_are_the_same(run):
    (run.dir / "in").mkdir()
    opinion("frames", run.dir / "in", 30)
    for k, frame in enumerate(FRAMES):
        shutil.copy(frame, run.dir / f"in/puff.{20 + 3 * k:04}.vdb")  # real ones among them
    bound = ("--max-error", "0.02")  # nothing is measured: both workers hold in what counts
    run.ok("compress", "in/puff.####.vdb", "good/small.####.tvdb", *bound, "--workers", 1)
    wanted = digests(run.dir / "good")
    assert len(wanted) == 30

    words = ("compress", "in/puff.####.vdb", "out/small.####.tvdb", *bound, "--workers", 2, "--execution.threads", 2)
    # Each worker stands still in its fifth frame; one is killed there, then the whole run.
    p = run.start_held(*words, rule="publish:5")
    status = run.wait_for("out/.tilery/job", lambda s: s["tiles_done"] > 3 and len(s["workers"]) == 2)
    os.kill(status["workers"][0]["pid"], signal.SIGKILL)
    run.wait_for("out/.tilery/job", lambda s: len(s["workers"]) == 2 and s["workers"][0]["pid"] != status["workers"][0]["pid"])
    os.killpg(p.pid, signal.SIGKILL)
    p.communicate()
    half = len(list((run.dir / "out").glob("*.tvdb")))
    assert 0 < half < 30
    run.go_on()
    r = run.ok(*words, "--json")
    assert 0 < r.json["items_done"] < 30 and r.json["items_done"] + r.json["items_unchanged"] == 30
    assert digests(run.dir / "out") == wanted and leftovers(run.dir) == []
    run.ok("verify", "out/.tilery/job")


def test_a_worker_killed_within_a_file_costs_nothing_but_time(run, puffs):
    once = {"TILERY_TEST_FAULT": "kill@grids:3", "TILERY_TEST_FAULT_ONCE": str(run.dir / "once")}
    r = compress(run, "--max-error", "0.01", "--json", env=once)
    assert r.code == 0 and r.json["items_done"] == 6 and (run.dir / "once").exists() and leftovers(run.dir) == []
    back = {"TILERY_TEST_FAULT": "kill@grids:3", "TILERY_TEST_FAULT_ONCE": str(run.dir / "once-more")}
    assert run("decompress", "out", "back/", env=back).code == 0 and (run.dir / "once-more").exists()
    run.ok("compress", "in", "plain/{stem}.tvdb", "--max-error", "0.01")
    assert list(digests(run.dir / "plain").values()) == list(digests(run.dir / "out").values())


def test_a_damaged_frame_fails_alone(run, puffs):
    bad = puffs / "puff.0002.vdb"
    bad.write_bytes(bad.read_bytes()[:-40])
    (puffs / "puff.0005.vdb").write_bytes(b"no grids at all")
    r = compress(run, "--json")
    assert r.code == 3 and r.json["items_done"] == 4 and r.json["items_failed"] == 2
    assert "puff.0002.vdb" in r.err and "puff.0005.vdb" in r.err and len(r.err) < 6000
    assert sorted(p.name for p in (run.dir / "out").glob("*.tvdb")) == [f"small.{k:04}.tvdb" for k in (1, 3, 4, 6)]


def test_a_job_file_says_the_same(run, puffs):
    run.ok("run", run.job(task="compress", input={"path": "in/*.vdb"}, output={"path": "a/"}, compress={"max_error": 0.05}))
    assert len(list((run.dir / "a").glob("puff.*.tvdb"))) == 6
    run.ok("run", run.job("back.yaml", task="decompress", input={"path": "a"}, output={"path": "b/"}))
    assert opinion("compare", puffs / "puff.0004.vdb", run.dir / "b/puff.0004.vdb", "0.05") == ""
    plan = run.ok("plan", "job.yaml", "--json").json
    assert plan["tiles"] == plan["units"] == 6


@pytest.mark.parametrize("words,said", [
    (("compress", "in/puff.0001.vdb", "a.vdb"), ".tvdb"),
    (("compress", "in/puff.0001.vdb", "a.tvdb", "--max-error", "densty=1%"), "'density'"),
    (("compress", "in/puff.####.vdb", "out/####.tvdb", "--max-error", "densty=1%"), "'density'"),
    (("compress", "in/puff.0001.vdb", "a.tvdb", "--max-error", "1 percent"), "lossless"),
    (("compress", "in/puff.0001.vdb", "a.tvdb", "--tile", "32"), "tiling.tile"),
    (("compress", "in/puff.0001.vdb", "a.tvdb", "--lossless", "--max-error", "1%"), "one of them"),
    (("decompress", "in/puff.0001.vdb", "b.vdb", "--max-error", "1%"), "max_error"),
    (("compress", "in/nothing.####.vdb", "a.tvdb"), "nothing.####.vdb"),
    (("compress", "in/puff.####.vdb", "a.tvdb"), "two inputs"),
    (("compress", "in/puff.####.vdb", "in/####.tvdb", "--output.existing", "sometimes"), "refuse"),
    (("compress", "in/puff.0001.vdb"), "output"),
])
def test_mistakes_are_named_and_leave_nothing(run, puffs, words, said):
    r = run(*words)
    assert r.code == 2 and said in r.err, r.err
    assert list(run.dir.rglob("*.tvdb")) == [] and list(run.dir.rglob(".tilery")) == []


def test_what_is_there_stays_unless_it_may_be_replaced(run, puffs):
    (run.dir / "a.tvdb").write_bytes(b"mine")
    r = run("compress", "in/puff.0001.vdb", "a.tvdb")
    assert r.code == 2 and "a.tvdb" in r.err and (run.dir / "a.tvdb").read_bytes() == b"mine"
    run.ok("compress", "in/puff.0001.vdb", "a.tvdb", "--overwrite")
    r = run("decompress", "in/puff.0001.vdb", "b.vdb")
    assert r.code == 3 and "puff.0001.vdb" in r.err and not (run.dir / "b.vdb").exists()
