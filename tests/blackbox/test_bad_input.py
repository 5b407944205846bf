"""Damaged, foreign, empty, vanished or unreadable inputs fail alone and by name; full disks lose nothing that was done."""
import gzip
import io
import json
import os
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from conftest import EXECUTABLE, digests, leftovers, picture


def noise(size, seed=0):
    return np.random.default_rng(seed).integers(0, 255, (size, size, 3), dtype=np.uint8)


def failures(run, work):
    return {os.path.basename(f["item"]): f["reason"] for f in run.profile(work)["failures"]}


def test_damaged_and_foreign_files_in_a_folder_fail_alone(run, model):
    d = run.dir / "in"
    d.mkdir()
    for k in range(20):
        Image.fromarray(picture(70, 80 + k, seed=k)).save(d / f"good{k:02}.png")
    Image.fromarray(noise(256)).save(d / "half.jpg")
    Image.fromarray(noise(256)).save(d / "half.png")
    for name in ("half.jpg", "half.png"):
        whole = (d / name).read_bytes()
        (d / name).write_bytes(whole[:len(whole) // 2])
    (d / "empty.png").touch()
    Image.fromarray(picture(60, 60)).save(d / "fake.jpg", format="PNG")
    (d / "text.png").write_text("this is a letter, not a picture\n" * 20)
    (d / "._a.png").write_bytes(bytes.fromhex("00051607") + bytes(4092))
    (d / "Thumbs.db").write_bytes(b"\xd0\xcf\x11\xe0" + bytes(500))
    (d / ".DS_Store").write_bytes(bytes(100))
    (d / "folder.png").mkdir()
    (d / "dangling.png").symlink_to(d / "nowhere.png")
    os.mkfifo(d / "pipe.png")
    job = run.job(model={"path": model("identity")}, input={"path": "in"}, tiling={"tile": 64, "overlap": 16},
                  output={"path": "out/{stem}{ext}"}, execution={"work": "work", "workers": 2})
    r = run("run", job, "--json", timeout=120)
    assert r.code == 3 and r.json["items_done"] == 21, r.err[-2000:]
    bad = failures(run, "work")
    assert set(bad) - {"folder.png"} == {"half.jpg", "half.png", "empty.png", "text.png", "dangling.png", "pipe.png"}
    for name in bad:
        assert name in r.err
    assert len([p for p in (run.dir / "out").iterdir() if p.is_file()]) == 21 and not leftovers(run.dir)


def test_an_input_that_vanishes_or_changes_during_the_run_fails_by_name(run, model):
    for k in range(6):
        Image.fromarray(picture(330, 330, seed=k)).save(run.dir / f"p{k}.png")
    job = run.job(model={"path": model("identity")}, input={"path": "p*.png"}, tiling={"tile": 64, "overlap": 16},
                  output={"path": "out/{stem}.png"}, execution={"work": "work", "workers": 1})
    p = run.start_held("run", job, "--json", rule="write:1")
    run.wait_for("work", lambda s: s["workers"])
    (run.dir / "p4.png").unlink()
    Image.fromarray(picture(330, 330, seed=77)).save(run.dir / "p5.png")
    run.go_on()
    p.communicate(timeout=300)
    bad = failures(run, "work")
    assert p.returncode == 3 and set(bad) == {"p4.png", "p5.png"} and "changed" in bad["p5.png"]
    assert sorted(x.name for x in (run.dir / "out").iterdir() if x.is_file()) == [f"p{k}.png" for k in range(4)]


def test_a_model_error_fails_only_the_item_that_causes_it(run, model):
    for k in range(5):
        a = picture(90, 110, seed=k)
        if k == 3:
            a[40, 40] = 255
        Image.fromarray(a).save(run.dir / f"m{k}.png")
    r = run("run", "--model", model("throws"), "--input", "m*.png", "--output", "out/", "--tile", 64, "--json", "--work", "w")
    assert r.code == 3 and r.json["items_done"] == 4
    bad = failures(run, "w")
    assert list(bad) == ["m3.png"] and "planted failure" in bad["m3.png"]


def test_non_finite_results_never_become_pictures(run, model):
    for k in range(3):
        a = picture(90, 110, seed=k)
        if k == 1:
            a[40, 40] = 255
        Image.fromarray(a).save(run.dir / f"n{k}.png")
    r = run("run", "--model", model("nan"), "--input", "n*.png", "--output", "out/", "--tile", 64, "--json")
    assert r.code == 3 and r.json["items_done"] == 2 and "n1.png" in r.err and "finite" in r.err
    assert not (run.dir / "out/n1.png").exists()


def in_small_disk(run, kib, args, script=""):
    """Runs the command where ./small is a file system of `kib` KiB; what is left there is copied to ./left."""
    inner = f"""
mkdir -p small && mount -t tmpfs -o size={kib}k none small || exit 99
{script}
"$@"; code=$?
rm -rf left; cp -r small left; exit $code
"""
    return subprocess.run(["unshare", "-m", "bash", "-c", inner, "bash", EXECUTABLE, *map(str, args)], cwd=run.dir,
                          capture_output=True, text=True, timeout=120)


can_mount = pytest.mark.skipif(
    subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0,
    reason="needs the right to mount (root)")


@can_mount
@pytest.mark.parametrize("ext", ["png", "tif", "npy", "jpg"])
def test_a_full_disk_fails_the_item_and_frees_nothing_that_was_finished(run, model, ext):
    Image.fromarray(picture(32, 32)).save(run.dir / "a-small.png")
    Image.fromarray(noise(400)).save(run.dir / "b-large.png")
    p = in_small_disk(run, 96, ("run", "--model", model("identity"), "--input", "*.png", "--output", f"small/{{stem}}.{ext}",
                                "--tile", 64, "--work", "w", "--workers", 1))
    assert p.returncode == 3 and "b-large" in p.stderr and "No space left" in p.stderr, p.stderr
    left = [x.name for x in (run.dir / "left").iterdir() if x.name != ".tilery"]
    assert left == [f"a-small.{ext}"]
    run.ok("run", "--model", model("identity"), "--input", "*.png", "--output", f"small/{{stem}}.{ext}", "--tile", 64,
           "--work", "w2", "--workers", 1)


@can_mount
def test_a_read_only_output_folder_is_an_error_in_words(run, model):
    Image.fromarray(picture(80, 80)).save(run.dir / "a.png")
    p = in_small_disk(run, 200, ("run", "--model", model("identity"), "--input", "a.png", "--output", "small/b.png", "--tile", 64,
                                 "--work", "w"), "mount -o remount,ro small")
    assert p.returncode == 3 and "small" in p.stderr and "ead-only" in p.stderr, p.stderr


@can_mount
def test_a_full_disk_under_the_work_folder_is_an_error_in_words(run, model):
    Image.fromarray(picture(900, 900)).save(run.dir / "a.png")
    p = in_small_disk(run, 400, ("run", "--model", model("identity"), "--input", "a.png", "--output", "b.png", "--tile", 64,
                                 "--overlap", 16, "--work", "small/w", "--execution.scratch_limit", "1GiB"))
    assert p.returncode in (3, 75) and "No space left" in p.stderr, p.stderr  # the item's bricks, or the ledger
    assert not (run.dir / "b.png").exists()


@can_mount
@pytest.mark.parametrize("script,code,word", [
    ("cat /dev/zero > small/full 2> /dev/null", 75, "No space left"),
    ("mkdir small/w && cat /dev/zero > small/full 2> /dev/null", 75, "No space left"),
    ("mount -o remount,ro small", 2, "ead-only"),
    ("mkdir small/w && mount -o remount,ro small", 2, "ead-only"),
])
def test_a_work_folder_that_can_not_be_written_is_an_error_in_words(run, model, script, code, word):
    Image.fromarray(picture(80, 80)).save(run.dir / "a.png")
    p = in_small_disk(run, 64, ("run", "--model", model("identity"), "--input", "a.png", "--output", "b.png", "--tile", 64,
                                "--work", "small/w", "--json"), script)
    assert p.returncode == code and "small/w" in p.stderr and word in p.stderr, p.stderr
    assert (json.loads(p.stdout)["status"] == "interrupted") if code == 75 else (p.stdout == "")
    assert not (run.dir / "b.png").exists()


@can_mount
def test_an_item_beyond_the_free_space_is_refused_though_its_scratch_folder_is_still_to_be_made(run, model):
    Image.fromarray(picture(2000, 2000)).save(run.dir / "a.png")
    Image.fromarray(picture(60, 60)).save(run.dir / "b.png")
    p = in_small_disk(run, 4096, ("run", "--model", model("identity"), "--input", "*.png", "--output", "out/", "--tile", 64,
                                  "--overlap", 16, "--work", "w", "--execution.scratch", "small/deep/er"))
    assert p.returncode == 3 and "a.png" in p.stderr and "execution.scratch_limit" in p.stderr, p.stderr
    assert "No space left" not in p.stderr and (run.dir / "out/b.png").exists()


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.98])
def test_a_cut_volume_is_never_zeros(run, model, cut):
    import nibabel
    v = np.random.default_rng(1).integers(-500, 3000, (64, 64, 32)).astype(np.int16)
    nibabel.save(nibabel.Nifti1Image(v, np.eye(4)), run.dir / "v.nii.gz")
    whole = (run.dir / "v.nii.gz").read_bytes()
    (run.dir / "v.nii.gz").write_bytes(whole[:int(len(whole) * cut)])
    r = run("run", "--model", model("identity", channels={"in": 1, "out": 1}), "--input", "v.nii.gz", "--output", "o.nii.gz",
            "--tile", 32, "--overlap", 8, "--json")
    assert r.code == 3 and "v.nii.gz" in r.err and not (run.dir / "o.nii.gz").exists()


def test_an_npy_of_the_wrong_size_names_both_sizes(run, model):
    np.save(run.dir / "v.npy", np.zeros((8, 9, 10), np.uint8))
    with open(run.dir / "v.npy", "ab") as f:
        f.truncate(f.tell() - 1)
    size = (run.dir / "v.npy").stat().st_size
    r = run("run", "--model", model("identity", channels={"in": 1, "out": 1}), "--input", "v.npy", "--output", "o.npy", "--tile", 8)
    assert r.code == 3 and str(size) in r.err and str(size + 1) in r.err


def test_two_items_for_one_output_are_refused(run, model):
    (run.dir / "d").mkdir()
    for name in ("a.png", "a.tif", "b.png"):
        Image.fromarray(picture(70, 70)).save(run.dir / "d" / name)
    r = run("run", "--model", model("identity"), "--input", "d", "--output", "out/{stem}.png", "--tile", 64)
    assert r.code == 2 and "a.png" in r.err and "a.tif" in r.err and not list((run.dir / "out").glob("*.png"))


def test_an_output_that_is_an_input_is_refused(run, model):
    Image.fromarray(picture(70, 70)).save(run.dir / "a.png")
    os.link(run.dir / "a.png", run.dir / "same.png")
    before = (run.dir / "a.png").read_bytes()
    for out in ("a.png", "./a.png", "same.png"):
        r = run("run", "--model", model("identity"), "--input", "a.png", "--output", out, "--tile", 64)
        assert r.code == 2 and "a.png" in r.err, out
    assert (run.dir / "a.png").read_bytes() == before


def test_outputs_below_the_input_folder_do_not_become_inputs(run, model):
    for k in range(3):
        Image.fromarray(picture(70, 70, seed=k)).save(run.dir / f"p{k}.png")
    args = ("run", "--model", model("identity"), "--input", "**/*.png", "--output", "done/", "--tile", 64, "--json")
    assert run.ok(*args).json["items_done"] == 3
    s = run.ok(*args).json
    assert s["items_unchanged"] == 3 and s["items_done"] == 0
    assert len(list((run.dir / "done").rglob("*.png"))) == 3


def test_standard_error_stays_small_with_many_failures(run, model):
    (run.dir / "in").mkdir()
    for k in range(600):
        (run.dir / "in" / f"broken-{'x' * 100}-{k}.png").write_bytes(b"nonsense")
    r = run("run", "--model", model("identity"), "--input", "in", "--output", "out/", "--tile", 64, "--json", "--work", "w")
    assert r.code == 3 and r.json["items_failed"] == 600 and len(r.err) < 66_000
    assert len(run.profile("w")["failures"]) == 600
