"""Files of several jobs: `stages` in order, `jobs` without; run, planned, looked at and resumed as one."""
import json
import signal

import pytest
from PIL import Image

from conftest import digests, finish, leftovers, picture


@pytest.fixture
def photos(run):
    for k in range(3):
        Image.fromarray(picture(60 + k, 80, seed=k)).save(run.dir / f"p{k}.png")


def stage(model, source, folder, net="identity", **more):
    return {"model": {"path": str(model(net))}, "input": {"path": source}, "tiling": {"tile": 32, "overlap": 8},
            "output": {"path": f"{folder}/{{stem}}.png"}, **more}


def two(run, model, **first):
    return run.job("pipe.yaml", stages=[stage(model, "p*.png", "one", name="first", **first),
                                        stage(model, "one/*.png", "two")])


def test_stages_run_in_order_and_are_found_done_by_the_same_command(run, model, photos):
    r = run.ok("run", two(run, model), "--json")
    assert [s["name"] for s in r.json["stages"]] == ["first", "2"]
    assert r.json["status"] == "done" and r.json["items_done"] == 6 and r.json["reproducible"] is True
    assert r.json["tiles_inferred"] == sum(s["tiles_inferred"] for s in r.json["stages"]) > 0
    assert len(digests(run.dir / "two")) == 3 and digests(run.dir / "one") == digests(run.dir / "two")
    again = run.ok("run", "pipe.yaml", "--json").json
    assert again["items_unchanged"] == 6 and again["items_done"] == 0 and again["tiles_inferred"] == 0


def test_one_stage_alone(run, model, photos):
    two(run, model)
    r = run("run", "pipe.yaml", "--stage", "2")
    assert r.code == 2 and "one/*.png" in r.err
    document = run.ok("run", "pipe.yaml", "--stage", "first", "--json").json
    assert document["stages"][0]["name"] == "first" and not (run.dir / "two").exists()
    run.ok("run", "pipe.yaml", "--stage", "2")
    assert len(digests(run.dir / "two")) == 3


def test_failed_items_stop_the_stages_after_them_only_if_they_are_to(run, model, photos):
    (run.dir / "pbad.png").write_bytes((run.dir / "p0.png").read_bytes()[:300])
    r = run("run", two(run, model, on_failed="stop"), "--json")
    assert r.code == 3 and r.json["status"] == "failed" and len(r.json["stages"]) == 1
    assert "on_failed: stop" in r.err and not (run.dir / "two").exists()
    r = run("run", two(run, model), "--json")
    assert r.code == 3 and [s["items_failed"] for s in r.json["stages"]] == [1, 0] and r.json["items_failed"] == 1
    assert len(digests(run.dir / "two")) == 3


def test_a_stage_without_a_single_input_left_is_told_of(run, model):
    (run.dir / "pbad.png").write_bytes(b"no picture")
    r = run("run", two(run, model), "--json")
    assert r.code == 3 and len(r.json["stages"]) == 1 and "nothing to work on" in r.err


def test_jobs_without_order_all_run(run, model, photos):
    (run.dir / "pbad.png").write_bytes((run.dir / "p0.png").read_bytes()[:300])
    run.job("jobs.yaml", jobs=[stage(model, "p*.png", "one", on_failed="stop"), stage(model, "p1.png", "two")])
    r = run("run", "jobs.yaml", "--json")
    assert r.code == 3 and len(r.json["stages"]) == 2 and list(digests(run.dir / "two")) == ["p1.png"]


def test_an_interrupted_pipeline_ends_with_75_and_resumes(run, model, photos):
    two(run, model)
    run.job("pipe.yaml", stages=[stage(model, "p*.png", "one", name="first", execution={"work": "work-one"}),
                                 stage(model, "one/*.png", "two")])
    held = run.start_held("run", "pipe.yaml", "--json", rule="submit:2")
    run.wait_for("work-one", lambda s: s["workers"])
    held.send_signal(signal.SIGTERM)
    run.go_on()
    out, _ = finish(held, 75)
    document = json.loads(out)
    assert document["status"] == "interrupted" and len(document["stages"]) == 1 and not (run.dir / "two").exists()
    assert run.ok("run", "pipe.yaml", "--json").json["status"] == "done"
    assert len(digests(run.dir / "two")) == 3 and leftovers(run.dir) == []


def test_plan_and_status_show_each_stage(run, model, photos):
    two(run, model)
    plans = run.ok("plan", "pipe.yaml", "--json").json["stages"]
    assert [p["name"] for p in plans] == ["first", "2"]
    assert plans[0]["plan"]["tiles"] > 0 and plans[1]["plan"] is None
    assert "no inputs yet" in run.ok("plan", "pipe.yaml").out
    assert run("status", "pipe.yaml").code == 2
    run.ok("run", "pipe.yaml", "--stage", "first")
    states = run.ok("status", "pipe.yaml", "--json").json["stages"]
    assert [s["state"] for s in states] == ["done", "waiting"]
    assert run.ok("plan", "pipe.yaml", "--json").json["stages"][1]["plan"]["tiles"] > 0
    assert "stage 2: waiting" in run.ok("status", "pipe.yaml").out
    r = run("report", "pipe.yaml")
    assert r.code == 2 and "--stage: first, 2" in r.err
    assert run.ok("report", "pipe.yaml", "--stage", "first").out.strip().endswith("report.html")
    assert run.ok("verify", "pipe.yaml", "--stage", "1").code == 0


def test_a_mistake_in_a_later_stage_is_found_before_anything_runs(run, model, photos):
    run.job("pipe.yaml", stages=[stage(model, "p*.png", "one"), stage(model, "one/*.png", "two", tiling={"tyle": 3})])
    r = run("run", "pipe.yaml", "--json")
    assert r.code == 2 and "tyle" in r.err and r.out == "" and not (run.dir / "one").exists()
