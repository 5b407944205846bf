"""What the command says, and what it refuses before any work."""
import json
import os
import re
import resource

import numpy as np
import pytest
import torch
from PIL import Image

import nets
from conftest import EXECUTABLE, picture


@pytest.fixture
def sections(run, model):
    Image.fromarray(picture(100, 100)).save(run.dir / "a.png")
    return {"model": {"path": model("identity")}, "input": {"path": "a.png"}, "tiling": {"tile": 64, "overlap": 16},
            "output": {"path": "b.png"}}


@pytest.mark.parametrize("key,value,words", [
    ("model.path", "gone.pt", ["gone.pt"]),
    ("model.path", "a.png", ["a.png"]),
    ("model.pathh", "x", ["pathh", "path"]),
    ("model.precision", "fp12", ["fp12", "fp32", "bf16"]),
    ("input.path", "none-*.png", ["none-*.png"]),
    ("input.alpha", "maybe", ["maybe", "resize", "drop"]),
    ("tiling.tile", 0, ["tile", "0"]),
    ("tiling.tile", "big", ["tile", "big"]),
    ("tiling.tile", 2**40, ["tiling.tile", "1099511627776", "1048576"]),
    ("tiling.tile", 2**20, ["tiling.tile", "13194139533312", "unit_memory", "1073741824"]),
    ("tiling.overlap", 64, ["overlap", "64"]),
    ("tiling.overlap", 80, ["overlap", "80", "64"]),
    ("tiling.trim", 9, ["trim", "9", "16"]),
    ("tiling.window", "hamming", ["hamming", "hann", "gaussian"]),
    ("tiling.pad", "wrap", ["wrap", "reflect"]),
    ("tilling", {"tile": 3}, ["tilling", "tiling"]),
    ("output.path", "b.xyz", ["xyz", "png"]),
    ("output.path", "{stemm}.png", ["stemm", "stem"]),
    ("output.existing", "overwrite", ["overwrite", "replace"]),
    ("output.post", ["argmin"], ["argmin", "argmax"]),
    ("execution.workers", 0, ["workers", "0"]),
    ("execution.workers", "many", ["workers", "many"]),
    ("execution.unit_memory", "3 apples", ["unit_memory", "apples"]),
    ("input.roi", [0, 0, 10, 10], ["roi", "not supported yet"]),
])
def test_mistakes_are_named_before_any_work(run, sections, key, value, words):
    section, _, name = key.partition(".")
    if name:
        sections.setdefault(section, {})[name] = value
    else:
        sections[section] = value
    for command in ("plan", "run"):
        r = run(command, run.job(**sections), timeout=60)
        assert r.code == 2, r.err[-1500:]
        for word in words:
            assert word in r.err, r.err[-1500:]
    assert not (run.dir / "b.png").exists()


def test_a_refused_job_leaves_nothing_behind(run, sections):
    sections["model"]["path"] = "gone.pt"
    sections["output"]["path"] = "out/deep/{stem}.png"
    job = run.job(**sections)
    before = sorted(run.dir.rglob("*"))
    assert run("run", job).code == 2 and sorted(run.dir.rglob("*")) == before
    # A work folder that was there stays, with all that it knows.
    sections["model"]["path"] = sections["input"]["path"]
    (run.dir / "w").mkdir()
    assert run("run", job, "--work", "w").code == 2 and (run.dir / "w/log.jsonl").exists()


@pytest.mark.parametrize("said,words", [
    ({"channels": {"in": 3, "out": 1}}, ["[8,3,64,64]", "[8,1,64,64]", "model.channels"]),
    ({"scale": 2}, ["[8,3,64,64]", "[8,3,128,128]", "model.scale"]),
])
def test_a_model_that_contradicts_its_contract_is_refused_with_both_values(run, sections, said, words):
    sections["model"].update(said)
    sections["output"]["path"] = "out/{stem}.tif"
    job = run.job(**sections)
    before = sorted(run.dir.rglob("*"))
    r = run("run", job, "--json", "--workers", 2, timeout=100)
    assert r.code == 2 and r.out == "", r.err[-1500:]
    last = r.err.strip().splitlines()[-1]
    assert last.startswith("tilery: model ") and "resumes" not in r.err, r.err[-1500:]
    for word in words:
        assert word in last
    assert sorted(run.dir.rglob("*")) == before


def with_worker(run, lines: str) -> dict:
    """The environment of a run whose workers are these lines of shell; questions are answered as ever."""
    real = EXECUTABLE.parent / "tilery-worker"
    script = run.dir / "worker"
    script.write_text(f'#!/bin/sh\n[ "$1" = --probe ] && exec {real} --probe\n{lines}\nexec {real} "$@"\n')
    script.chmod(0o755)
    return {"TILERY_WORKER": str(script)}


@pytest.mark.parametrize("lines,word", [
    ("rm -f m.pt", "No such file"),
    ("echo x >> m.pt", "changed"),
    ("echo 'libc10.so: cannot open shared object file' >&2; exit 127", "libc10.so"),
    ("rm worker; kill -9 $$", "No such file"),
])
def test_a_job_that_no_worker_can_begin_is_refused_with_the_reason(run, sections, lines, word):
    (run.dir / "m.pt").write_bytes(sections["model"]["path"].read_bytes())
    sections["model"]["path"] = "m.pt"
    r = run("run", run.job(**sections), "--json", env=with_worker(run, lines), timeout=100)
    assert r.code == 2 and r.out == "" and word in r.err.strip().splitlines()[-1], r.err[-1500:]
    assert not (run.dir / "b.png").exists() and not (run.dir / ".tilery").exists()


def test_a_model_that_vanishes_during_a_run_ends_it_with_what_is_done(run, sections):
    for k in range(6):
        Image.fromarray(picture(60, 60, seed=k)).save(run.dir / f"p{k}.png")
    model = sections["model"]["path"].read_bytes()
    (run.dir / "m.pt").write_bytes(model)
    sections["model"]["path"] = "m.pt"
    sections["input"]["path"] = "p*.png"
    sections["output"]["path"] = "out/"
    job = run.job(**sections)
    env = {**with_worker(run, '[ -e once ] && rm -f m.pt; touch once'), "TILERY_TEST_FAULT": "kill@publish:4"}
    r = run("run", job, "--workers", 1, env=env, timeout=100)
    assert r.code == 2 and "m.pt" in r.err.strip().splitlines()[-1], r.err[-1500:]
    (run.dir / "m.pt").write_bytes(model)
    s = run.ok("run", job, "--json").json
    assert s["items_unchanged"] >= 1 and s["items_done"] + s["items_unchanged"] == 6


@pytest.mark.parametrize("name", ["[abc]", "{}", "[a, b].png", "{x}/a.png"])
def test_a_name_in_a_flag_is_a_name_whatever_it_looks_like(run, sections, name):
    (run.dir / name).parent.mkdir(exist_ok=True)
    (run.dir / "a.png").rename(run.dir / name)
    p = run.ok("plan", run.job(**sections), "--input", name, "--json").json
    assert [i["input"] for i in p["items"]] == [str(run.dir / name)] and p["items"][0]["refused"] is None


def test_a_folder_with_braces_is_a_folder(run, sections):
    sections["input"]["path"] = "../a.png"
    (run.dir / "{a}").mkdir()
    run.ok("run", run.job("{a}/job.yaml", **sections))
    assert (run.dir / "{a}/b.png").exists() and (run.dir / "{a}/.tilery/job/ledger.sqlite").exists()


@pytest.mark.parametrize("most,done", [(2, 0), (3, 3)])
def test_a_count_of_failures_is_a_limit_too(run, sections, most, done):
    for k in range(3):
        (run.dir / f"bad{k}.png").write_bytes(b"nonsense")
        Image.fromarray(picture(40, 40, seed=k)).save(run.dir / f"good{k}.png")
    sections["input"]["path"] = ["bad*.png", "good*.png"]
    sections["output"]["path"] = "out/"
    sections["execution"] = {"failures": {"max": most}}
    r = run("run", run.job(**sections), "--json")
    assert r.code == 3 and r.json["items_failed"] == 3 and r.json["items_done"] == done
    assert ("execution.failures.max" in r.err) == (done == 0), r.err[-1500:]


def test_flags_beat_the_file(run, sections):
    p = run.ok("plan", run.job(**sections), "--tiling.tile", 48, "--overlap", 8, "--json").json
    assert p["tile"] == [48, 48] and p["overlap"] == [8, 8]


def test_the_nearest_flag_is_named(run, sections):
    r = run("run", run.job(**sections), "--tilee", 48)
    assert r.code == 2 and "tilee" in r.err and "--tile" in r.err


def test_paths_of_a_job_file_count_from_its_folder(run, sections):
    (run.dir / "sub").mkdir()
    sections["input"]["path"] = "../a.png"
    sections["output"]["path"] = "../o/b.png"
    run.ok("run", run.job("sub/job.yaml", **sections))
    assert (run.dir / "o/b.png").exists() and (run.dir / "o/.tilery/job/ledger.sqlite").exists()


def test_help_is_complete(run):
    r = run.ok("run", "--help")
    for key in ("--model.path", "--tiling.window", "--execution.workers", "--output.existing"):
        assert key.split(".")[-1] in r.out and key.strip("-") in r.out
    assert run("nonsense").code == 2 and run().code == 2 and run.ok("--version").out.startswith("tilery ")
    for name in ("compress", "decompress"):
        assert "FILE" in run.ok(name, "--help").out
        r = run(name)
        assert r.code == 2 and "input" in r.err


def test_what_job_and_model_do_not_say_is_probed_key_by_key(run, tmp_path):
    torch.jit.script(nets.make("nearest4")).save(str(tmp_path / "bare.pt"))
    Image.fromarray(picture(50, 60)).save(run.dir / "a.png")
    for flags, probed in ([], {"channels.in", "channels.out", "scale"}), (["--model.channels.in", 3, "--model.channels.out", 3], {"scale"}):
        p = run.ok("plan", "--model", "bare.pt", "--input", "a.png", "--output", "b.png", *flags, "--json").json
        assert p["items"][0]["output_shape"] == [200, 240]
        assert {key for key, source in p["contract"].items() if source == "probed"} == probed


def test_plan_costs_nothing_and_leaves_nothing(run, sections):
    before = sorted(os.listdir(run.dir))
    run.ok("plan", run.job(**sections), "--json")
    assert sorted(os.listdir(run.dir)) == sorted(before + ["job.yaml"])


def test_plan_of_a_huge_volume_reads_its_header_only(run, model):
    shape = (2400, 12000, 8000)  # a hole of 230 GB: reading it would take minutes
    np.lib.format.open_memmap(run.dir / "v.npy", mode="w+", dtype=np.uint8, shape=shape).flush()
    p = run.ok("plan", "--model", model("identity", channels={"in": 1, "out": 1}), "--input", "v.npy", "--output", "o.npy",
               "--tile", 128, "--overlap", 32, "--json", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (5, 5))).json
    tiles = 25 * 125 * 83
    assert p["tiles"] == tiles and p["items"][0]["shape"] == list(shape)
    assert p["redundancy"] == pytest.approx(tiles * 128 ** 3 / np.prod(shape, dtype=float), rel=1e-3)


def test_plan_tells_where_each_word_of_the_contract_comes_from(run, sections):
    sections["model"]["range"] = [0, 1]
    words = [line.split() for line in run.ok("plan", run.job(**sections)).out.splitlines()]
    assert ["channels.in", "file"] in words and ["range", "job"] in words and ["channels.order", "assumed"] in words


def test_plan_of_refused_items_still_exits_zero(run, model):
    Image.fromarray(picture(64, 64)).save(run.dir / "good.png")
    (run.dir / "bad.png").write_bytes(b"nothing")
    args = ("--model", model("identity"), "--input", "*.png", "--output", "out/", "--tile", 64, "--json")
    items = {os.path.basename(i["input"]): i for i in run.ok("plan", *args).json["items"]}
    assert items["good.png"]["refused"] is None and "bad.png" in items["bad.png"]["refused"]
    assert run("run", *args).code == 3


def test_results_go_to_standard_output_and_words_to_standard_error(run, sections):
    r = run.ok("run", run.job(**sections), "--json")
    document = json.loads(r.out)
    assert set(document) >= {"status", "items_done", "items_failed", "items_unchanged", "tiles_inferred", "tiles_skipped",
                             "tiles_repeated", "tiles_reused", "units_run", "units_reused", "reproducible", "deviations",
                             "wall_s", "work"}
    assert document["status"] == "done" and "\x1b" not in r.err and "4/4 tiles" in r.err


def test_status_and_reports_after_a_run(run, sections):
    sections["execution"] = {"work": "w"}
    job = run.job(**sections)
    assert run("status", "w", "--json").code == 2
    run.ok("run", job)
    for where in ("w", job):
        s = run.ok("status", where, "--json").json
        assert s["state"] == "done" and s["tiles_done"] == s["tiles"] == 4 and s["workers"] == []
        assert s["units"] == {"waiting": 0, "leased": 0, "done": 1, "failed": 0}
    page = (run.dir / "w/report.html").read_text()
    assert "compute" in page and "a.png" not in re.sub(r"<style>.*?</style>", "", page, flags=re.S)
    assert run.ok("report", "w").out.strip().endswith("report.html")
    trace = json.loads((run.dir / "w/trace.json").read_text())
    assert {e["name"] for e in trace["traceEvents"]} >= {"read", "compute", "write"}
    p = run.profile("w")
    assert {"wall_s", "tiles", "bound_by", "workers", "failures"} <= set(p)
    w = p["workers"][0]
    assert set(w["stages"]) == {"read", "decode", "h2d", "compute", "blend", "d2h", "encode", "write"}
    assert w["stages"]["write"]["bytes"] > 0 and w["peak_host_bytes"] > 1 << 20 and w["tiles"] == 4


def test_names_are_bytes(run, model):
    (run.dir / "in").mkdir()
    names = ["テスト.png".encode(), b"a b (1) [x].png", b"-o.png", b"q'\"$HOME.png", b"line\nbreak.png", b"\xff\xfe.png",
             b"{stem}.png", b"x" * 251 + b".png"]
    for k, name in enumerate(names):
        Image.fromarray(picture(40, 40, seed=k)).save(open(os.fsencode(run.dir / "in") + b"/" + name, "wb"), format="PNG")
    s = run.ok("run", "--model", model("identity"), "--input", "in", "--output", "out/", "--tile", 64, "--json").json
    assert s["items_done"] == len(names)
    written = [n for n in os.listdir(os.fsencode(run.dir / "out")) if n != b".tilery"]
    assert sorted(written) == sorted(names)


def test_strangers_files_are_kept_unless_asked(run, sections):
    job = run.job(**sections)
    (run.dir / "b.png").write_bytes(b"by hand")
    r = run("run", job)
    assert r.code == 2 and "b.png" in r.err and "existing" in r.err
    (run.dir / "w").mkdir()
    assert run("run", job, "--work", "w").code == 2 and not (run.dir / "w/numerics.json").exists()
    assert run.ok("run", job, "--output.existing", "skip", "--json").json["tiles_inferred"] == 0
    assert (run.dir / "b.png").read_bytes() == b"by hand"
    assert run.ok("run", job, "--output.existing", "replace", "--json").json["items_done"] == 1
    assert Image.open(run.dir / "b.png").size == (100, 100)


def test_inspect_tells_what_files_say(run, sections, model):
    i = run.ok("inspect", "a.png", "--json").json
    assert i["shape"] == [100, 100] and i["channels"] == 3 and i["dtype"] == "u8" and i["kind"] == "image"
    m = run.ok("inspect", model("nearest4", scale=4, radius=2), "--json").json
    assert m["kind"] == "model" and m["contract"]["scale"] == ["4"] and m["contract"]["radius"] == [2]
    assert run("inspect", "nothing.png").code == 2


def test_doctor_finds_the_worker(run):
    d = run.ok("doctor", "--json").json
    assert d["ok"] and any(c["check"] == "worker" and "Torch" in c["text"] for c in d["checks"])
