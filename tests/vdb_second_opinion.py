"""OpenVDB's own library as a judge (tests/io/vdb_opinion.py), for the tests of .vdb and .tvdb files."""
import os
import pathlib
import subprocess

import pytest

BIN = pathlib.Path(os.environ.get("TILERY_BIN_DIR", "build/bin")).resolve().parent / "tests/bin"
OPINION = pathlib.Path(__file__).parent / "io/vdb_opinion.py"
# Debian's bindings belong to the system's Python.
PYTHON = "/usr/bin/python3"
KNOWN = subprocess.run([PYTHON, "-c", "import pyopenvdb"], capture_output=True).returncode == 0
needs_openvdb = pytest.mark.skipif(not KNOWN, reason="needs python3-openvdb")

# Frames of real simulations, where there are some.
FRAMES = sorted(pathlib.Path(os.environ.get("TILERY_REAL_GRIDS", "nowhere")).glob("*.vdb"))


def opinion(*words):
    return subprocess.run([PYTHON, OPINION, *map(str, words)], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Files that OpenVDB wrote, by name."""
    folder = tmp_path_factory.mktemp("vdb")
    return {name: folder / name for name in opinion("make", folder).split()}
