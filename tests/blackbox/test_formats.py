"""Type, channels, alpha, colour profile, orientation and affine of the input survive; checked with other libraries."""
import gzip
import io
import struct
import zlib

import nibabel
import numpy as np
import pytest
import tifffile
from PIL import Image, ImageCms

from conftest import picture, volume


def gray_contract(n=1):
    return {"channels": {"in": n, "out": n}}


def once(run, model, source, target, *extra, name="identity", **contract):
    run.ok("run", "--model", model(name, **contract), "--input", source, "--output", target, "--tile", 48, "--overlap", 8,
           *extra)
    return run.dir / target


def png_chunks(data: bytes):
    at = 8
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        yield kind, data[at + 8:at + 8 + length]
        at += 12 + length


def raw_png(width, height, bits, colour, rows, palette=b""):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)) +
            (chunk(b"PLTE", palette) if palette else b"") + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + r for r in rows))) +
            chunk(b"IEND", b""))


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "I;16"])
def test_png_modes_survive_a_colour_model(run, model, mode):
    n = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "I;16": 1}[mode]
    a = picture(70, 90, channels=n, dtype=np.uint16 if mode == "I;16" else np.uint8)
    image = Image.fromarray(a)
    assert image.mode == mode
    image.save(run.dir / "a.png")
    b = Image.open(once(run, model, "a.png", "b.png"))
    assert b.mode == mode and np.array_equal(np.asarray(b), a)


def test_sixteen_bit_colour_png_survives(run, model):
    a = picture(40, 50, dtype=np.uint16)
    (run.dir / "a.png").write_bytes(raw_png(50, 40, 16, 2, [r.astype(">u2").tobytes() for r in a]))
    once(run, model, "a.png", "b.tif")
    assert np.array_equal(tifffile.imread(run.dir / "b.tif"), a)
    once(run, model, "b.tif", "c.png")
    data = (run.dir / "c.png").read_bytes()
    assert data[24] == 16 and data[25] == 2
    once(run, model, "c.png", "d.tif")
    assert np.array_equal(tifffile.imread(run.dir / "d.tif"), a)


def test_small_bit_depths_and_palettes_are_what_a_viewer_shows(run, model):
    y, x = np.mgrid[0:48, 0:64]
    bits1 = ((x // 3 + y) % 2).astype(np.uint8)
    (run.dir / "one.png").write_bytes(raw_png(64, 48, 1, 0, [np.packbits(r).tobytes() for r in bits1]))
    four = ((x + y) % 16).astype(np.uint8)
    (run.dir / "four.png").write_bytes(raw_png(64, 48, 4, 0, [(r[::2] << 4 | r[1::2]).tobytes() for r in four]))
    index = ((x + 2 * y) % 5).astype(np.uint8)
    colours = np.array([[1, 2, 3], [250, 0, 0], [0, 240, 9], [7, 7, 200], [90, 91, 92]], np.uint8)
    (run.dir / "pal.png").write_bytes(raw_png(64, 48, 8, 3, [r.tobytes() for r in index], colours.tobytes()))
    assert np.array_equal(np.asarray(Image.open(once(run, model, "one.png", "o1.png"))), bits1 * 255)
    assert np.array_equal(np.asarray(Image.open(once(run, model, "four.png", "o4.png"))), four * 17)
    assert np.array_equal(np.asarray(Image.open(once(run, model, "pal.png", "op.png"))), colours[index])


def test_hidden_colours_and_low_alpha_survive(run, model):
    a = np.zeros((60, 60, 4), np.uint8)
    a[...] = (200, 100, 50, 255)
    a[:, :30, 3] = 0
    a[0, 0] = (240, 108, 119, 1)
    Image.fromarray(a, "RGBA").save(run.dir / "a.png")
    assert np.array_equal(np.asarray(Image.open(once(run, model, "a.png", "b.png"))), a)
    up = np.asarray(Image.open(once(run, model, "a.png", "c.png", name="nearest4", scale=4)))
    assert np.array_equal(up, a.repeat(4, 0).repeat(4, 1))


@pytest.mark.parametrize("how", ["resize", "copy", "drop"])
def test_alpha_takes_the_way_the_job_names(run, model, how):
    a = picture(50, 60, channels=4)
    Image.fromarray(a, "RGBA").save(run.dir / "a.png")
    name, scale = ("identity", 1) if how == "copy" else ("nearest4", 4)
    b = np.asarray(Image.open(once(run, model, "a.png", "b.png", "--input.alpha", how, name=name, scale=scale)))
    assert b.shape[-1] == (3 if how == "drop" else 4)
    assert np.array_equal(b[..., :3], a[..., :3].repeat(scale, 0).repeat(scale, 1))
    if how == "copy":
        assert np.array_equal(b[..., 3], a[..., 3])
    if how == "resize":
        assert abs(b[..., 3].astype(float).mean() - a[..., 3].mean()) < 1


def test_profile_and_gamma_survive(run, model):
    icc = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for ext in ("png", "jpg", "tif"):
        Image.fromarray(picture(50, 50)).save(run.dir / f"a.{ext}", icc_profile=icc)
        assert Image.open(once(run, model, f"a.{ext}", f"b.{ext}")).info.get("icc_profile") == icc, ext
    whole = raw_png(50, 50, 8, 2, [r.tobytes() for r in picture(50, 50)])
    gama = b"gAMA" + struct.pack(">I", 45455)
    (run.dir / "g.png").write_bytes(whole[:33] + struct.pack(">I", 4) + gama + struct.pack(">I", zlib.crc32(gama)) + whole[33:])
    assert dict(png_chunks(once(run, model, "g.png", "h.png").read_bytes()))[b"gAMA"] == struct.pack(">I", 45455)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_kept_once(run, model, orientation):
    a = np.zeros((16, 32, 3), np.uint8)
    a[:, :16, 0] = 250
    a[:, 16:, 2] = 250
    exif = Image.Exif()
    exif[0x112] = orientation
    Image.fromarray(a).save(run.dir / "a.jpg", exif=exif, quality=95)
    b = Image.open(once(run, model, "a.jpg", "b.jpg"))
    assert b.getexif().get(0x112, 1) == orientation and b.size == (32, 16)
    assert np.asarray(b)[8, 4, 0] > 200 and np.asarray(b)[8, 28, 2] > 200


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("layout", ["strips", "tiles", "separate", "big-endian", "bigtiff", "compressed"])
def test_tiff_layouts_hold_the_same_samples(run, model, dtype, layout):
    a = picture(70, 90, dtype=np.uint16)
    a = a.astype(np.float32) / 65535 if dtype is np.float32 else (a >> 8).astype(dtype) if dtype is np.uint8 else a
    options = {"strips": {"rowsperstrip": 7}, "tiles": {"tile": (32, 16)}, "big-endian": {"byteorder": ">"},
               "bigtiff": {"bigtiff": True}, "compressed": {"compression": "zlib", "predictor": dtype is not np.float32},
               "separate": {"planarconfig": "separate"}}[layout]
    data = a.transpose(2, 0, 1) if layout == "separate" else a
    tifffile.imwrite(run.dir / "a.tif", data, photometric="rgb", **options)
    b = tifffile.imread(once(run, model, "a.tif", "b.tif"))
    # Blended floats are sums of weighted halves: equal to the last bit or two, integers exactly.
    assert b.dtype == dtype and np.abs(b.astype(np.float64) - a).max() <= (2e-7 if dtype is np.float32 else 0)


def test_white_is_zero_is_shown_as_a_viewer_shows_it(run, model):
    a = picture(40, 40, channels=1)
    tifffile.imwrite(run.dir / "a.tif", 255 - a, photometric="miniswhite")
    once(run, model, "a.tif", "b.png", **gray_contract())
    assert np.array_equal(np.asarray(Image.open(run.dir / "b.png")), a)


OBLIQUE = np.array([[.12084686, -.992671192, 0, 112.3619], [.992671192, .12084686, 0, -142.911224], [0, 0, 3, -129], [0, 0, 0, 1]])


@pytest.mark.parametrize("affine", [OBLIQUE, np.diag([-2.0, 2, 3, 1])])
def test_nifti_affines_survive_and_follow_the_scale(run, model, affine):
    v = (np.arange(7 * 9 * 5).reshape(7, 9, 5) - 100).astype(np.int16)
    image = nibabel.Nifti1Image(v, affine)
    image.header.set_xyzt_units("mm", "sec")
    image.header["descrip"] = b"a description"
    nibabel.save(image, run.dir / "v.nii")
    run.ok("run", "--model", model("identity", **gray_contract()), "--input", "v.nii", "--output", "o.nii.gz", "--tile", 4,
           "--overlap", 1)
    o = nibabel.load(run.dir / "o.nii.gz")
    assert np.array_equal(np.asarray(o.dataobj), v) and o.get_data_dtype() == np.int16
    assert np.allclose(o.affine, image.affine, atol=1e-5) and o.header["sform_code"] == image.header["sform_code"]
    assert o.header["descrip"].item().startswith(b"a description") and o.header.get_xyzt_units() == ("mm", "sec")
    run.ok("run", "--model", model("nearest4", scale=4, **gray_contract()), "--input", "v.nii", "--output", "u.nii", "--tile", 4,
           "--overlap", 1)
    u = nibabel.load(run.dir / "u.nii")
    shift = np.diag([.25, .25, .25, 1])
    shift[:3, 3] = -.375
    assert u.shape == (28, 36, 20) and np.allclose(u.affine, image.affine @ shift, atol=1e-4)
    assert np.array_equal(np.asarray(u.dataobj), v.repeat(4, 0).repeat(4, 1).repeat(4, 2))


@pytest.mark.parametrize("slope,inter,first", [(0.5, -1024, -1074), (0, 0, -100), (float("nan"), 0, -100)])
def test_nifti_scaling_is_applied_once(run, model, slope, inter, first):
    v = (np.arange(7 * 9 * 5).reshape(7, 9, 5) - 100).astype(np.int16)
    nibabel.save(nibabel.Nifti1Image(v, np.eye(4)), run.dir / "v.nii")
    data = bytearray((run.dir / "v.nii").read_bytes())
    struct.pack_into("<ff", data, 112, slope, inter)
    (run.dir / "v.nii").write_bytes(data)
    run.ok("run", "--model", model("identity", **gray_contract()), "--input", "v.nii", "--output", "o.nii", "--tile", 4)
    o = nibabel.load(run.dir / "o.nii").get_fdata()
    assert o[0, 0, 0] == pytest.approx(first, abs=.25) and np.abs(o - np.asarray(nibabel.load(run.dir / "v.nii").dataobj)).max() < .25


def test_byte_order_and_axis_order_do_not_matter(run, model):
    v = (np.random.default_rng(3).integers(-3000, 3000, (6, 7, 9))).astype(np.int16)
    np.save(run.dir / "le.npy", v)
    np.save(run.dir / "be.npy", v.astype(">i2"))
    np.save(run.dir / "fortran.npy", np.asfortranarray(v))
    with open(run.dir / "v2.npy", "wb") as f:
        np.lib.format.write_array(f, v, version=(2, 0))
    for name in ("le", "be", "fortran", "v2"):
        once_volume = ("run", "--model", model("identity", **gray_contract()), "--input", f"{name}.npy", "--output",
                       f"o-{name}.npy", "--tile", 4, "--overlap", 1)
        run.ok(*once_volume)
        assert np.array_equal(np.load(run.dir / f"o-{name}.npy"), v), name


@pytest.mark.parametrize("array,word", [(np.array([None] * 8).reshape(2, 2, 2), "O"), (np.zeros((2, 2, 2), complex), "c16")])
def test_sample_types_without_meaning_are_refused_by_name(run, model, array, word):
    np.save(run.dir / "v.npy", array, allow_pickle=True)
    r = run("run", "--model", model("identity", **gray_contract()), "--input", "v.npy", "--output", "o.npy", "--tile", 4)
    assert r.code == 3 and "v.npy" in r.err and word in r.err


def test_raw_volumes_need_type_and_shape(run, model):
    v = np.random.default_rng(5).integers(0, 60000, (5, 20, 30)).astype(">u2")
    v.tofile(run.dir / "v.raw")
    args = ("run", "--model", model("identity", **gray_contract()), "--input", "v.raw", "--output", "o.npy", "--tile", 4)
    assert run(*args).code in (2, 3)
    job = run.job(model={"path": model("identity", **gray_contract())}, output={"path": "o.npy"}, tiling={"tile": 4},
                  input={"path": "v.raw", "dtype": "u16", "byte_order": "big", "shape": [5, 20, 30]})
    run.ok("run", job)
    assert np.array_equal(np.load(run.dir / "o.npy"), v)


def test_floats_become_integers_by_clamping_and_rounding(run, model):
    values = np.array([[1.02, -0.01, 127.6 / 255, 0.0, 1.0]] * 8, np.float32)
    tifffile.imwrite(run.dir / "a.tif", values)
    for dtype, want in (("u8", [255, 0, 128, 0, 255]), ("u16", [65535, 0, 32793, 0, 65535])):
        once(run, model, "a.tif", f"{dtype}.tif", "--output.dtype", dtype, **gray_contract())
        assert tifffile.imread(run.dir / f"{dtype}.tif")[0].tolist() == want


def test_labels_and_probabilities(run, model):
    v = volume((20, 30, 25))
    nibabel.save(nibabel.Nifti1Image(v, np.diag([1.0, 2, 3, 1])), run.dir / "v.nii.gz")
    base = ("run", "--model", model("conv3", channels={"in": 1, "out": 2}, radius=2), "--input", "v.nii.gz", "--tile", 16,
            "--overlap", 8)
    run.ok(*base, "--output", "labels.nii.gz", "--output.post", "argmax")
    run.ok(*base, "--output", "p.npy", "--output.post", "softmax", "--output.losses", "allow")
    labels, p = nibabel.load(run.dir / "labels.nii.gz"), np.load(run.dir / "p.npy")
    assert labels.get_data_dtype() == np.uint8 and np.allclose(labels.affine, np.diag([1.0, 2, 3, 1]))
    assert p.dtype == np.float32 and p.shape[0] == 2 and np.abs(p.sum(0) - 1).max() < 1e-5
    assert np.array_equal(np.asarray(labels.dataobj), p.argmax(0).transpose(2, 1, 0))


def test_what_a_format_cannot_hold_is_refused_before_any_work(run, model):
    Image.fromarray(picture(40, 40, channels=4), "RGBA").save(run.dir / "a.png")
    r = run("run", "--model", model("identity"), "--input", "a.png", "--output", "b.jpg", "--tile", 32)
    assert r.code in (2, 3) and "alpha" in r.err.lower() and not (run.dir / "b.jpg").exists()
    run.ok("run", "--model", model("identity"), "--input", "a.png", "--output", "b.jpg", "--tile", 32, "--input.alpha", "drop")
    Image.fromarray(picture(40, 40, dtype=np.uint16, channels=1)).save(run.dir / "d.png")
    r = run("run", "--model", model("identity"), "--input", "d.png", "--output", "d.jpg", "--tile", 32)
    assert r.code in (2, 3) and "u16" in r.err
