"""The ladder that `tilery bench` measures: its figures fit together. How high they are is no matter of tests."""
import json

import pytest

STEPS = ("forward", "engine", "files")


@pytest.fixture
def bench(run, model):
    """bench(*flags) -> Result of a quick measurement of a small model."""
    def call(*flags, name="conv", contract=None, expect=0, **kwargs):
        usual = ["--device", "cpu", "--tile", 32, "--overlap", 8, "--batch", 2, "--lanes", 1, "--seconds", 0.1,
                 "--repeats", 2]
        if "--size" not in flags:
            usual += ["--size", 80, 100]
        r = run("bench", model(name, **(contract or {})), *usual, *flags, **kwargs)
        assert r.code == expect, r.err[-3000:]
        return r
    return call


def check(document: dict, steps=STEPS):
    assert set(document["ladder"]) == set(steps)
    for step in steps:
        figures = document["ladder"][step]
        assert figures["tiles_per_s"] > 0
        assert figures["tiles_per_s"] == pytest.approx(figures["tiles"] / figures["seconds"], rel=1e-6)
        assert figures["tiles_per_s"] == max(figures["rates"]) and len(figures["rates"]) == document["repeats"]
        times = figures["batch_s"]
        assert 0 < times["p50"] <= times["p95"] <= times["p99"]
        assert figures["batches"] > 0
        assert figures["items_per_s"] == pytest.approx(figures["tiles_per_s"] / document["tiles_per_item"])
        if "forward" in steps:
            assert figures["ratio"] == pytest.approx(
                figures["tiles_per_s"] / document["ladder"]["forward"]["tiles_per_s"])


def test_figures_of_the_ladder_fit_together(bench, run):
    (run.dir / "w" / "in").mkdir(parents=True)
    (run.dir / "w" / "in" / "mine.txt").write_text("not of the bench")
    r = bench("--json", "--work", "w", "--items", 3)
    d = r.json
    check(d)
    assert (d["device"], d["precision"], d["batch"], d["lanes"]) == ("cpu", "fp32", 2, 1)
    assert (d["size"], d["tile"], d["overlap"], d["items"]) == ([80, 100], "32x32", "8x8", 3)
    assert d["tiles_per_item"] == 3 * 4  # strides of 24: 0, 24, 48 and 0, 24, 48, 68
    files = d["ladder"]["files"]
    assert files["tiles"] == 3 * d["tiles_per_item"]
    assert files["batches"] == d["repeats"] * files["tiles"] / 2
    assert files["batch"] == 2 and files["bound_by"]
    profile = run.profile("w/tilery-bench/run")
    assert 0 <= profile["first_lease_s"] < profile["last_publish_s"] <= profile["wall_s"]
    assert files["seconds"] > 0
    # What was named stays: the items and what became of them.
    made = run.dir / "w" / "tilery-bench"
    assert len(list((made / "in").glob("*.png"))) == len(list((made / "out").glob("*.png"))) == 3
    assert (run.dir / "w" / "in" / "mine.txt").read_text() == "not of the bench"


def test_steps_are_chosen_and_nothing_is_left_behind(bench, run, tmp_path_factory):
    scratch = tmp_path_factory.mktemp("tmp")
    env = {"TMPDIR": str(scratch)}
    check(bench("--json", "--steps", "forward,engine", env=env).json, ("forward", "engine"))
    d = bench("--json", "--steps", "files", "--window", "gaussian", "--format", "tiff", env=env).json
    check(d, ("files",))
    assert d["ladder"]["files"]["ratio"] is None and d["window"] == "gaussian" and d["format"] == "tiff"
    assert not list(run.dir.iterdir()) and not list(scratch.iterdir())


def test_people_get_a_table(bench):
    r = bench("--steps", "forward,engine")
    assert "forward only" in r.out and "engine" in r.out and "100.0 %" in r.out and "file to file" not in r.out


@pytest.mark.parametrize("name,contract,flags", [
    ("nearest4", {"scale": 4}, ["--format", "png"]),
    ("ramp3d", {"dims": 3, "channels": {"in": 1, "out": 1}}, ["--size", 70, "--dtype", "u16"]),
    ("conv", {}, ["--dtype", "f32"]),
])
def test_items_look_as_the_contract_says(bench, name, contract, flags):
    d = bench("--json", *flags, name=name, contract=contract).json
    check(d)
    assert d["dims"] == contract.get("dims", 2)
    assert d["format"] == {"nearest4": "png", "ramp3d": "npy"}.get(name, d["format"])


def test_a_file_of_figures_is_compared_with(bench, run):
    steps = ("--steps", "forward,engine")
    bench(*steps, "--save", "now.json")
    figures = json.loads((run.dir / "now.json").read_text())
    check(figures, ("forward", "engine"))

    lower = json.loads(json.dumps(figures))
    for step in lower["ladder"].values():
        step["tiles_per_s"] *= 1e-3
    (run.dir / "lower.json").write_text(json.dumps(lower))
    bench(*steps, "--compare", "lower.json")

    higher = json.loads(json.dumps(figures))
    higher["ladder"]["engine"]["tiles_per_s"] = 8e9
    higher["ladder"]["forward"]["tiles_per_s"] = 1e-3
    (run.dir / "higher.json").write_text(json.dumps(higher))
    r = bench(*steps, "--compare", "higher.json", "--tolerance", "25%", "--json", expect=3)
    assert r.json["ladder"]["engine"]["tiles_per_s"] > 0
    assert "engine" in r.err and "8000000000.0" in r.err and "6000000000.0" in r.err and "higher.json" in r.err
    assert "slower: forward" not in r.err


@pytest.mark.parametrize("key,value,words", [
    ("card", "cuda/9.0/NVIDIA H100 80GB HBM3", ["card", "NVIDIA H100 80GB HBM3", "cpu/"]),
    ("batch", 4, ["batch", "4", "2"]),
    ("precision", "fp16", ["precision", "fp16", "fp32"]),
    ("model_hash", "0" * 32, ["model", "000000000000"]),
    ("ladder", {}, ["--steps"]),
])
def test_figures_of_something_else_are_refused(bench, run, key, value, words):
    bench("--steps", "forward", "--save", "now.json")
    other = json.loads((run.dir / "now.json").read_text())
    other[key] = value
    (run.dir / "other.json").write_text(json.dumps(other))
    r = bench("--steps", "forward", "--compare", "other.json", expect=2)
    for word in ["other.json", *words]:
        assert word in r.err


@pytest.mark.parametrize("flags,words", [
    (["--steps", "forward,sideways"], ["sideways", "engine"]),
    (["--device", "tpu:0"], ["tpu:0", "cpu"]),
    (["--device", "cpu", "--precision", "fp16"], ["fp32", "CPU"]),
    (["--input", "x.png"], ["input", "--size"]),
    (["--tolerance", "many"], ["tolerance", "5%"]),
    (["--compare", "gone.json"], ["gone.json"]),
    (["--dtype", "u9"], ["u9", "u8"]),
    (["--format", "bmp"], ["bmp", "png"]),
    (["--size", 5, 5, 5], ["--size", "y x"]),
    (["--tile", 8, "--overlap", 8], ["overlap", "8"]),
    (["--seconds", 0], ["seconds"]),
])
def test_mistakes_are_named(run, model, flags, words):
    r = run("bench", model("identity"), *flags)
    assert r.code == 2, r.err
    for word in words:
        assert word in r.err
    assert not list(run.dir.iterdir())
