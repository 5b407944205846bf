"""The output is what one endless device would have computed, byte for byte, however the work was dealt out."""
from fractions import Fraction

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

import nets
import reference
from conftest import REAL_MODELS, digests, picture, volume

WINDOWS = ["linear", "cosine", "hann", "gaussian", "crop"]


def as_function(name):
    net = nets.make(name).eval()

    def call(a):
        with torch.inference_mode():
            return net(torch.from_numpy(np.ascontiguousarray(a))[None])[0].numpy()
    return call


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("tile,overlap,trim", [(40, 12, 0), (40, 12, 5), (32, 16, 8), (56, 0, 0)])
def test_blending_equals_an_independent_computation(run, model, window, tile, overlap, trim):
    a = picture(101, 143).astype(np.float32) / 255
    tifffile.imwrite(run.dir / "a.tif", a, photometric="rgb")
    run.ok("run", "--model", model("ramp2d"), "--input", "a.tif", "--output", "b.tif", "--tile", tile, "--overlap",
           overlap, "--tiling.window", window, "--tiling.trim", trim)
    want = reference.tiled(a.transpose(2, 0, 1), as_function("ramp2d"), (tile, tile), (overlap, overlap), window,
                           (trim, trim))
    got = tifffile.imread(run.dir / "b.tif")
    assert got.dtype == np.float32 and np.abs(got.transpose(2, 0, 1) - want).max() < 2e-6


@pytest.mark.parametrize("shape,tile,overlap", [((21, 50, 47), (16, 24, 32), (4, 8, 10)), ((2, 33, 70), (8, 16, 16), (2, 4, 6)),
                                                ((9, 9, 9), (4, 4, 1), (1, 2, 0))])
def test_volumes_equal_an_independent_computation(run, model, shape, tile, overlap):
    v = volume(shape)
    np.save(run.dir / "v.npy", v)
    job = run.job(model={"path": model("ramp3d", channels={"in": 1, "out": 1})}, input={"path": "v.npy"},
                  tiling={"tile": tile, "overlap": overlap, "trim": 0}, output={"path": "o.npy"})
    run.ok("run", job)
    want = reference.tiled(v[None], as_function("ramp3d"), tile, overlap, "cosine", (0, 0, 0))[0]
    assert np.abs(np.load(run.dir / "o.npy") - want).max() < 2e-6


@pytest.mark.parametrize("name", ["relative", "other_slot"])
def test_models_that_look_at_their_batch_are_run_one_tile_at_a_time(run, model, name):
    """The answer of the one depends on the other tiles of a batch, that of the other on the slot that a tile has."""
    a = picture(150, 170).astype(np.float32) / 255
    tifffile.imwrite(run.dir / "a.tif", a, photometric="rgb")
    want = np.zeros_like(a) if name == "relative" else a
    for k, options in enumerate([[], ["--execution.batch", 4], ["--workers", 2, "--execution.batch", 4]]):
        r = run.ok("run", "--model", model(name), "--input", "a.tif", "--output", f"{k}/b.tif", "--tile", 32, "--overlap", 8,
                   *options)
        assert "each tile runs without others" in r.err
        assert np.abs(tifffile.imread(run.dir / f"{k}/b.tif") - want).max() < 1e-6
    assert digests(run.dir / "1") == digests(run.dir / "2")


def test_shrinking_models_give_ceil_of_the_size(run, model):
    a = picture(77, 130).astype(np.float32) / 255
    tifffile.imwrite(run.dir / "a.tif", a, photometric="rgb")
    run.ok("run", "--model", model("mean8", scale="1/8"), "--input", "a.tif", "--output", "b.tif", "--tile", 32, "--overlap",
           8, "--tiling.trim", 0)
    want = reference.tiled(a.transpose(2, 0, 1), as_function("mean8"), (32, 32), (8, 8), "cosine", (0, 0), Fraction(1, 8))
    got = tifffile.imread(run.dir / "b.tif")
    assert got.shape == (10, 17, 3) and np.abs(got.transpose(2, 0, 1) - want).max() < 2e-6


@pytest.mark.parametrize("window", ["linear", "cosine", "crop"])
def test_tiled_equals_untiled_where_the_overlap_covers_the_radius(run, model, window):
    a = picture(150, 170).astype(np.float32) / 255
    tifffile.imwrite(run.dir / "a.tif", a, photometric="rgb")
    plan = run.ok("plan", "--model", model("conv", radius=3), "--input", "a.tif", "--output", "b.tif", "--tile", 48,
                  "--overlap", 8, "--window", window, "--json").json
    assert plan["exact"] and plan["trim"] == [3, 3]
    run.ok("run", "--model", model("conv", radius=3), "--input", "a.tif", "--output", "b.tif", "--tile", 48, "--overlap", 8,
           "--window", window)
    assert np.abs(tifffile.imread(run.dir / "b.tif").transpose(2, 0, 1) - as_function("conv")(a.transpose(2, 0, 1))).max() < 1e-5


@pytest.mark.parametrize("size", [96, 100, 129])
@pytest.mark.parametrize("window", WINDOWS)
def test_a_constant_picture_stays_constant(run, model, window, size):
    Image.fromarray(np.full((size, size, 3), 100, np.uint8)).save(run.dir / "c.png")
    run.ok("run", "--model", model("identity"), "--input", "c.png", "--output", "d.png", "--tile", 64, "--overlap", 16,
           "--window", window)
    assert (np.asarray(Image.open(run.dir / "d.png")) == 100).all()


NETS = ["meshnet", "unet", "esrgan"]


@pytest.mark.parametrize("net", NETS)
def test_bytes_do_not_depend_on_workers_with_real_nets(run, net, tmp_path):
    """The last bits of real nets change with batch size and thread count; toys do not show it."""
    path, contract, tiling = nets.real_or_alike(net, REAL_MODELS, tmp_path)
    if contract["dims"] == 3:
        np.save(run.dir / "in.npy", volume((90, 110, 130)))
        source, out = "in.npy", "o.npy"
    else:
        for k in range(3):
            Image.fromarray(picture(230 + 40 * k, 300 - 30 * k, seed=k)).save(run.dir / f"p{k}.png")
        source, out = "p*.png", "{stem}.tif"
    seen = []
    for workers in (1, 3):
        job = run.job(f"{workers}.yaml", model={"path": path, **contract}, input={"path": source}, tiling=tiling,
                      output={"path": f"out{workers}/{out}", "dtype": "f32"},
                      execution={"workers": workers, "work": f"work{workers}"})
        plan = run.ok("plan", job, "--json").json
        summary = run.ok("run", job, "--json", timeout=500).json
        tiles = [w["tiles"] for w in run.profile(f"work{workers}")["workers"]]
        assert summary["tiles_inferred"] == plan["tiles"] == sum(tiles) and summary["reproducible"]
        assert plan["units"] >= 8
        seen.append(digests(run.dir / f"out{workers}"))
    assert seen[0] and seen[0] == seen[1]


def test_pictures_that_share_batches_are_never_mixed(run, model):
    """Many sizes, several workers, batches across items: every output is its own input."""
    want = {}
    (run.dir / "in").mkdir()
    for k in range(24):
        a = picture(33 + 9 * k, 250 - 8 * k, seed=k)
        Image.fromarray(a).save(run.dir / "in" / f"p{k:02}.png")
        want[f"p{k:02}.png"] = a.repeat(4, 0).repeat(4, 1)
    run.ok("run", "--model", model("nearest4", scale=4), "--input", "in", "--output", "out/", "--tile", 48, "--overlap", 8,
           "--workers", 3)
    assert sorted(p.name for p in (run.dir / "out").iterdir() if p.is_file()) == sorted(want)
    for name, a in want.items():
        assert np.array_equal(np.asarray(Image.open(run.dir / "out" / name)), a), name


@pytest.mark.parametrize("pad", ["reflect", "edge", "zero"])
def test_pictures_smaller_than_the_padding_come_out_whole(run, model, pad):
    sizes = [(1, 1), (5, 7), (1, 200), (65, 65)]
    (run.dir / "in").mkdir()
    for h, w in sizes:
        Image.fromarray(picture(h, w, seed=h * w)).save(run.dir / "in" / f"{h}x{w}.png")
    for name, scale in (("identity", 1), ("nearest4", 4)):
        run.ok("run", "--model", model(name, scale=scale), "--input", "in", "--output", f"out{scale}/", "--tile", 64, "--overlap", 16,
               "--tiling.pad", pad)
        for h, w in sizes:
            got = np.asarray(Image.open(run.dir / f"out{scale}" / f"{h}x{w}.png"))
            assert np.array_equal(got, picture(h, w, seed=h * w).repeat(scale, 0).repeat(scale, 1)), (name, h, w)
