"""A second opinion on the formats: Pillow, tifffile and nibabel write what we read, and read what we write."""
import os
import pathlib
import struct
import subprocess
import zlib

import nibabel as nib
import numpy as np
import pytest
import tifffile
from PIL import Image, ImageCms, IptcImagePlugin, PngImagePlugin

TOOL = pathlib.Path(os.environ.get("TILERY_BIN_DIR", "build/bin")).resolve().parent / "tests/bin/format_tool"
RNG = np.random.default_rng(1)


def tool(*args):
    return subprocess.run([str(TOOL), *map(str, args)], capture_output=True, text=True)


def ok(*args):
    result = tool(*args)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout.split()


def samples(path):
    """What the reader delivers, as [z,y,x,c]."""
    name, dtype, channels, _alpha, _access, _dims, z, y, x = ok("header", path)
    out = path.with_suffix(".samples")
    ok("raw", path, out)
    kind = {"u": "u", "i": "i", "f": "f"}[dtype[0]] + str(int(dtype[1:]) // 8)
    return np.fromfile(out, kind).reshape(int(z), int(y), int(x), int(channels))


def noise(shape, dtype):
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return RNG.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


@pytest.mark.parametrize("mode,shape,dtype", [("L", (37, 53), "u1"), ("LA", (37, 53, 2), "u1"), ("RGB", (37, 53, 3), "u1"),
                                              ("RGBA", (37, 53, 4), "u1"), ("I;16", (37, 53), "u2")])
def test_png_both_ways(tmp_path, mode, shape, dtype):
    a = noise(shape, dtype)
    image = Image.fromarray(a)
    assert image.mode == mode
    image.save(tmp_path / "a.png")
    assert np.array_equal(samples(tmp_path / "a.png").reshape(shape), a)
    ok("convert", tmp_path / "a.png", tmp_path / "b.png")
    assert np.array_equal(np.asarray(Image.open(tmp_path / "b.png")).reshape(shape), a)


@pytest.mark.parametrize("mode", ["1", "P"])
def test_png_of_few_bits_shows_what_pillow_shows(tmp_path, mode):
    image = Image.fromarray(noise((21, 43, 3), "u1")).convert(mode) if mode == "1" else \
        Image.fromarray(noise((21, 43, 3), "u1")).quantize(13)
    image.save(tmp_path / "a.png")
    want = np.asarray(image.convert("L" if mode == "1" else "RGB"))
    assert np.array_equal(samples(tmp_path / "a.png").reshape(want.shape), want)


def test_png_metadata_is_there_for_pillow(tmp_path):
    icc = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    exif = Image.Exif()
    exif[0x112], exif[0x10F] = 6, "maker"
    info = PngImagePlugin.PngInfo()
    info.add_text("Description", "a field")
    Image.fromarray(noise((8, 9, 3), "u1")).save(tmp_path / "a.png", icc_profile=icc, exif=exif, dpi=(300, 300), pnginfo=info)
    for name in ("b.png", "b.jpg", "c.tif"):
        ok("convert", tmp_path / "a.png", tmp_path / name)
        out = Image.open(tmp_path / name)
        assert out.info["icc_profile"] == icc
        assert out.getexif()[0x112] == 6
        assert round(float(out.info["dpi"][0])) == 300
    assert Image.open(tmp_path / "b.png").text["Description"] == "a field"
    assert Image.open(tmp_path / "b.jpg").getexif()[0x10F] == "maker"
    assert Image.open(tmp_path / "c.tif").getexif()[0x10F] == "maker"


XMP = b"<?xpacket begin='' id='W5M0MpCehiHzreSzNTczkc9d'?><x:xmpmeta xmlns:x='adobe:ns:meta/'/><?xpacket end='w'?>"
IPTC = b"\x1c\x02\x05\x00\x05title" + b"\x1c\x02\x19\x00\x06barley"
RESOURCES = b"8BIM\x04\x04\0\0" + struct.pack(">I", len(IPTC)) + IPTC + b"\0" * (len(IPTC) % 2)


def picture_with_packets(path):
    image = Image.fromarray(noise((16, 17, 3), "u1"))
    if path.suffix == ".png":
        info = PngImagePlugin.PngInfo()
        info.add_itxt("XML:com.adobe.xmp", XMP.decode())
        info.add_text("Raw profile type iptc", f"\niptc\n{len(RESOURCES):8}\n{RESOURCES.hex()}\n", zip=True)
        image.save(path, pnginfo=info)
    elif path.suffix == ".jpg":
        image.save(path, xmp=XMP)
        plain = path.read_bytes()
        body = b"Photoshop 3.0\0" + RESOURCES
        path.write_bytes(plain[:2] + b"\xff\xed" + struct.pack(">H", len(body) + 2) + body + plain[2:])
    else:
        tags = [(700, 1, len(XMP), XMP, True), (33723, 7, len(IPTC), IPTC, True)]
        tifffile.imwrite(path, np.asarray(image), photometric="rgb", extratags=tags, metadata=None)


def packets_for_others(path):
    if path.suffix == ".tif":
        with tifffile.TiffFile(path) as tiff:
            tags = tiff.pages[0].tags
            packets = bytes(tags[700].value), bytes(tags[33723].value)
        assert IptcImagePlugin.getiptcinfo(Image.open(path))[(2, 25)] == b"barley"
        return packets
    image = Image.open(path)
    image.load()
    if path.suffix == ".jpg":
        assert IptcImagePlugin.getiptcinfo(image)[(2, 25)] == b"barley"
        return image.info["xmp"], image.info["photoshop"][0x0404]
    start, name, size, digits = image.text["Raw profile type iptc"].split("\n", 3)
    resources = bytes.fromhex(digits)
    assert (start, name, int(size)) == ("", "iptc", len(resources)) and resources == RESOURCES
    return image.info["xmp"], resources[12:12 + len(IPTC)]


@pytest.mark.parametrize("source", ["a.png", "a.jpg", "a.tif"])
@pytest.mark.parametrize("target", ["b.png", "b.jpg", "b.tif"])
def test_xmp_and_iptc_of_others_are_there_for_others(tmp_path, source, target):
    picture_with_packets(tmp_path / source)
    assert packets_for_others(tmp_path / source) == (XMP, IPTC)
    ok("convert", tmp_path / source, tmp_path / target)
    assert packets_for_others(tmp_path / target) == (XMP, IPTC)


def test_metadata_behind_the_image_data_of_a_png_count(tmp_path):
    Image.fromarray(noise((300, 400, 3), "u1")).save(tmp_path / "a.png")
    exif = Image.Exif()
    exif[0x112] = 6
    body = b"eXIf" + exif.tobytes()[6:]
    plain = (tmp_path / "a.png").read_bytes()
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    (tmp_path / "a.png").write_bytes(plain[:-12] + chunk + plain[-12:])
    for name in ("b.png", "b.jpg", "b.tif"):
        ok("convert", tmp_path / "a.png", tmp_path / name)
        assert Image.open(tmp_path / name).getexif()[0x112] == 6


def test_an_animation_of_pillow_is_named(tmp_path):
    frames = [Image.fromarray(noise((8, 9, 3), "u1")) for _ in range(3)]
    frames[0].save(tmp_path / "a.png", save_all=True, append_images=frames[1:])
    assert "animation (3 frames" in " ".join(ok("losses", tmp_path / "a.png", "png"))
    frames[0].save(tmp_path / "a.png", save_all=True, append_images=frames[1:], default_image=True)
    assert "animation (2 frames" in " ".join(ok("losses", tmp_path / "a.png", "png"))
    frames[0].save(tmp_path / "a.png")
    assert ok("losses", tmp_path / "a.png", "png") == []


def test_every_byte_of_ours_passes_a_strict_png_walk(tmp_path):
    Image.fromarray(noise((300, 400, 3), "u1")).save(tmp_path / "a.png")
    ok("convert", tmp_path / "a.png", tmp_path / "b.png")
    data, at, names, idat = (tmp_path / "b.png").read_bytes(), 8, [], b""
    while at < len(data):
        size, name = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size:at + 12 + size])[0] == zlib.crc32(name + body)
        names.append(name)
        idat += body if name == b"IDAT" else b""
        at += 12 + size
    assert names[0] == b"IHDR" and names[-1] == b"IEND" and at == len(data)
    assert len(zlib.decompress(idat)) == 300 * (400 * 3 + 1)


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("subsampling", [0, 2])
def test_jpeg_shows_what_pillow_shows(tmp_path, mode, progressive, subsampling):
    smooth = np.kron(noise((9, 11, 4), "u1"), np.ones((8, 8, 1), "u1"))[:67, :83]
    a = {"L": smooth[..., 0], "RGB": smooth[..., :3], "CMYK": smooth}[mode]
    Image.fromarray(a, mode).save(tmp_path / "a.jpg", quality=90, progressive=progressive, subsampling=subsampling)
    image = Image.open(tmp_path / "a.jpg")
    want = np.asarray(image.convert("RGB") if mode == "CMYK" else image).astype(int)
    got = samples(tmp_path / "a.jpg").reshape(want.shape).astype(int)
    assert np.abs(got - want).max() <= (2 if mode == "CMYK" else 0)


def test_our_jpeg_is_close_and_not_subsampled(tmp_path):
    a = np.kron(noise((9, 11, 3), "u1") // 2 + 60, np.ones((8, 8, 1), "u1"))
    Image.fromarray(a).save(tmp_path / "a.png")
    ok("convert", tmp_path / "a.png", tmp_path / "b.jpg")
    out = Image.open(tmp_path / "b.jpg")
    assert [layer[1:3] for layer in out.layer] == [(1, 1)] * 3
    assert np.abs(np.asarray(out).astype(int) - a).mean() < 1.5


INTEGERS, FLOATS = ["u1", "i1", "u2", "i2", "u4", "i4"], ["f2", "f4", "f8"]
LAYOUTS = ["strips", "tiles", "planar", "planar tiles", "deflate", "predictor", "big", "one strip"]


# tifffile alone writes no floating-point predictor; the C++ tests have one.
@pytest.mark.parametrize("layout,dtype", [(l, d) for l in LAYOUTS for d in INTEGERS + FLOATS if l != "predictor" or d in INTEGERS])
@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_tiff_of_tifffile(tmp_path, dtype, byteorder, layout):
    planar = layout.startswith("planar")
    a = noise((3, 37, 53) if planar else (37, 53, 3), dtype)
    options = dict(photometric="rgb", byteorder=byteorder, metadata=None)
    if planar: options["planarconfig"] = "separate"
    if "tiles" in layout: options["tile"] = (16, 32)
    if layout == "strips": options["rowsperstrip"] = 5
    if layout in ("deflate", "predictor"): options.update(compression="zlib", rowsperstrip=8)
    if layout == "predictor": options["predictor"] = 2
    if layout == "big": options["bigtiff"] = True
    tifffile.imwrite(tmp_path / "a.tif", a, **options)
    want = a.transpose(1, 2, 0) if planar else a
    assert np.array_equal(samples(tmp_path / "a.tif")[0], want)
    ok("convert", tmp_path / "a.tif", tmp_path / "b.tif", 5, 3)
    got = tifffile.imread(tmp_path / "b.tif")
    assert got.dtype == np.dtype(dtype) and np.array_equal(got, want)


@pytest.mark.parametrize("compression", ["tiff_lzw", "packbits", "tiff_adobe_deflate", "jpeg", "group4", "zstd", "lzma"])
def test_tiff_compressions_of_pillow(tmp_path, compression):
    image = Image.fromarray(np.kron(noise((9, 11, 3), "u1"), np.ones((8, 8, 1), "u1")))
    if compression == "group4": image = image.convert("1")
    image.save(tmp_path / "a.tif", compression=compression)
    want = np.asarray(Image.open(tmp_path / "a.tif").convert("L" if compression == "group4" else "RGB"))
    got = samples(tmp_path / "a.tif").reshape(want.shape)
    assert np.array_equal(got, want)


@pytest.mark.parametrize("channels,extra,alpha", [(2, "unassalpha", "straight"), (4, "assocalpha", "associated"), (5, None, "none"), (1, None, "none")])
def test_tiff_channels_and_alpha_survive(tmp_path, channels, extra, alpha):
    a = noise((21, 33, channels), "u2")
    options = dict(photometric="rgb" if channels in (3, 4) else "minisblack", metadata=None, planarconfig="contig")
    if extra: options["extrasamples"] = [extra]
    if channels == 5: options["extrasamples"] = [0] * 4
    tifffile.imwrite(tmp_path / "a.tif", a if channels > 1 else a[..., 0], **options)
    assert ok("header", tmp_path / "a.tif")[2:4] == [str(channels), alpha]
    ok("convert", tmp_path / "a.tif", tmp_path / "b.tif")
    with tifffile.TiffFile(tmp_path / "b.tif") as tiff:
        page = tiff.pages[0]
        assert np.array_equal(page.asarray().reshape(a.shape), a)
        if extra: assert page.extrasamples[-1] == tifffile.EXTRASAMPLE[extra.upper()]


def test_several_pages_are_refused(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", noise((4, 8, 9), "u1"), photometric="minisblack")
    result = tool("header", tmp_path / "a.tif")
    assert result.returncode == 3 and "4 pages" in result.stderr and "a.tif" in result.stderr


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "f2", "f4", "f8", ">i2", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(7, 9), (5, 7, 9), (2, 5, 7, 9)])
def test_npy_both_ways(tmp_path, dtype, order, shape):
    a = np.asarray(noise(shape, np.dtype(dtype).newbyteorder("=")).astype(dtype), order=order)
    np.save(tmp_path / "a.npy", a)
    got = samples(tmp_path / "a.npy")
    want = a[None, ..., None] if len(shape) == 2 else a[..., None] if len(shape) == 3 else np.moveaxis(a, 0, -1)
    assert np.array_equal(got, want)
    ok("convert", tmp_path / "a.npy", tmp_path / "b.npy", 3)
    b = np.load(tmp_path / "b.npy")
    assert b.shape == shape and b.dtype == a.dtype.newbyteorder("=") and np.array_equal(b, a)


AFFINE = np.array([[.12084686, -.992671192, 0, 112.3619], [.992671192, .12084686, 0, -142.911224], [0, 0, 3, -129], [0, 0, 0, 1]])


@pytest.mark.parametrize("kind", [nib.Nifti1Image, nib.Nifti2Image])
@pytest.mark.parametrize("endian", ["<", ">"])
@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "f4", "f8"])
def test_nifti_both_ways(tmp_path, kind, endian, name, dtype):
    a = noise((7, 9, 5), dtype)
    header = kind.header_class(endianness=endian)
    image = kind(a, AFFINE, header)
    image.set_data_dtype(dtype)
    image.set_sform(AFFINE, 2)
    image.set_qform(np.diag([2, 3, 4, 1.0]), 1)
    image.header.set_xyzt_units("mm", "sec")
    image.header["descrip"] = b"phantom"
    image.header.extensions.append(nib.nifti1.Nifti1Extension("comment", b"an extension"))
    nib.save(image, tmp_path / name)
    assert np.array_equal(samples(tmp_path / name)[..., 0], a.transpose(2, 1, 0))
    for out in ("b.nii", "b.nii.gz"):
        ok("convert", tmp_path / name, tmp_path / out, 4, 2)
        b = nib.load(tmp_path / out)
        assert type(b) is kind and b.header.endianness == "<"
        assert np.asarray(b.dataobj).dtype == np.dtype(dtype) and np.array_equal(np.asarray(b.dataobj), a)
        assert np.allclose(b.get_sform(), AFFINE, atol=1e-5) and np.allclose(b.get_qform(), np.diag([2, 3, 4, 1.0]), atol=1e-5)
        assert (int(b.header["sform_code"]), int(b.header["qform_code"])) == (2, 1)
        assert b.header.get_xyzt_units() == ("mm", "sec") and bytes(b.header["descrip"]).startswith(b"phantom")
        assert [e.get_content() for e in b.header.extensions] == [e.get_content() for e in image.header.extensions]


def test_nifti_scaling_is_nibabels(tmp_path):
    image = nib.Nifti1Image(noise((7, 9, 5), "i2"), AFFINE)
    image.header.set_slope_inter(.5, -1024)
    nib.save(image, tmp_path / "a.nii.gz")
    want = nib.load(tmp_path / "a.nii.gz").get_fdata(dtype=np.float32)
    assert np.array_equal(samples(tmp_path / "a.nii.gz")[..., 0], want.transpose(2, 1, 0))
    ok("convert", tmp_path / "a.nii.gz", tmp_path / "b.nii")
    assert np.array_equal(nib.load(tmp_path / "b.nii").get_fdata(dtype=np.float32), want)


def test_a_damaged_file_prints_one_line_and_leaves_nothing(tmp_path):
    Image.fromarray(noise((256, 256, 3), "u1")).save(tmp_path / "a.jpg")
    whole = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "a.jpg").write_bytes(whole[:len(whole) // 2])
    result = tool("convert", tmp_path / "a.jpg", tmp_path / "b.png")
    assert result.returncode == 3 and result.stderr.count("\n") == 1 and "a.jpg" in result.stderr
    assert not (tmp_path / "b.png").exists() and not list(tmp_path.glob(".tilery*"))
