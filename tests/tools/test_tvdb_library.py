"""The library that reads .tvdb files is installed as the documents say, and their examples run."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TILERY_BIN_DIR", ROOT / "build/bin")).resolve().parent


def run(*words, cwd, **environment):
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tvdb")
    cmake = re.search(r"^CMAKE_COMMAND:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M).group(1)
    run(cmake, "--install", BUILD, "--component", "tvdb", "--prefix", folder, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample")
    run(BUILD / "tests/bin/tvdb_fuzz", "corpus", folder, cwd=folder)
    shutil.copy(folder / "0.tvdb", folder / "smoke.tvdb")  # tests/pipeline/codec/tvdb_sample.h
    return folder


def example(language):
    (code,) = re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs/grids.md").read_text(), re.S)
    return code


def test_header_library_and_module_are_installed_and_nothing_else(installed):
    names = sorted(str(path.relative_to(installed)) for path in installed.rglob("*") if not path.is_dir())
    assert [name for name in names if not name.startswith("lib/libtvdb.so")] == ["include/tvdb.h", "share/tilery/tvdb.py"]
    assert {"lib/libtvdb.so", "lib/libtvdb.so.0"} <= set(names)


def test_the_library_shows_its_functions_alone_and_needs_little(installed):
    library = installed / "lib/libtvdb.so"
    shown = {line.split()[-1].split("@")[0] for line in run("nm", "-D", "--defined-only", library, cwd="/").splitlines()}
    declared = set(re.findall(r"(tvdb_\w+)\(", re.sub(r"/\*.*?\*/", "", (installed / "include/tvdb.h").read_text(), flags=re.S)))
    assert shown - {"TVDB_0"} == declared and len(declared) >= 10
    dynamic = run("readelf", "--dynamic", library, cwd="/")
    assert re.search(r"SONAME.*\[libtvdb\.so\.0\]", dynamic)
    needed = {name.split(".so")[0] for name in re.findall(r"NEEDED.*\[(.*)\]", dynamic)}
    assert needed <= {"libc", "libm", "libgcc_s", "libstdc++", "libxxhash", "ld-linux-x86-64", "ld-linux-aarch64"}


def test_the_example_in_c_runs(installed, sample, tmp_path):
    (tmp_path / "mean.c").write_text(example("c"))
    run("cc", "-std=c99", "-pedantic-errors", "-Wall", "-Wextra", "-Werror", "mean.c", "-I", installed / "include", "-L",
        installed / "lib", "-ltvdb", "-o", "mean", cwd=tmp_path)
    said = run(tmp_path / "mean", cwd=sample, LD_LIBRARY_PATH=str(installed / "lib"))
    # Of the leaf at -8 every second voxel; the tile at 8 lies beyond.
    assert said == "256 active, mean -499.5\n"


def test_the_example_in_python_runs(installed, sample):
    said = run(sys.executable, "-c", example("python"), cwd=sample, PYTHONPATH=str(installed / "share/tilery")).splitlines()
    assert said[:2] == ["256 active, mean -499.5", "off by at most 0.0 in ((-128, -128, -128), (384, 128, 128))"]
    assert said[2:] == [f"leaf at {origin} with 256 of 512 voxels active" for origin in ((-8, -8, -8), (256, 0, 0))]
