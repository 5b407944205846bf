"""tools/check_includes finds what it is there to find, and nothing else."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def check(root):
    done = subprocess.run([sys.executable, ROOT / "tools/check_includes", "--root", root],
                          capture_output=True, text=True)
    return done.returncode, done.stdout


@pytest.fixture
def tree(tmp_path):
    """A small tree that keeps the rules; plant() adds a file to it."""
    def plant(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    plant("io/box.h", "#pragma once\n#include <vector>\n")
    plant("io/box.cc", '#include "io/box.h"\n')
    plant("io/png.cc", '#include <png.h>\n#include "io/box.h"\n')
    plant("pipeline/geometry.h", '#include "io/box.h"\n')
    plant("pipeline/engine.h", '#include "pipeline/geometry.h"\n')
    plant("scheduler/plan.cc", '#include "pipeline/geometry.h"\n#include "io/box.h"\n')
    plant("tests/io/png_test.cc", '#include <png.h>\n#include "io/box.h"\n')
    plant.root = tmp_path
    return plant


def test_a_tree_that_keeps_the_rules_passes(tree):
    code, out = check(tree.root)
    assert code == 0, out
    assert "7 files checked, 0 faults" in out


@pytest.mark.parametrize("path, line, reason", [
    ("io/low.cc", '#include "pipeline/geometry.h"', "io may not include pipeline/geometry.h"),
    ("scheduler/high.cc", '#include "pipeline/engine.h"', "scheduler may not include pipeline/engine.h"),
    ("pipeline/side.cc", '#include "scheduler/plan.h"', "pipeline may not include scheduler/plan.h"),
    ("io/stray.cc", "#include <png.h>", "libpng may be included only in io/png*"),
    ("io/png_reader.h", "#include <png.h>", "libpng may not be included in a header"),
    ("tests/io/helper.h", "#include <tiffio.h>", "libtiff may not be included in a header"),
    ("scheduler/fast.cc", "# include <torch/script.h>", "LibTorch may be included only in"),
    ("scheduler/fast2.cc", '#include "torch/script.h"', "LibTorch may be included only in"),
    ("io/gpu.cc", "#include <cuda_runtime.h>", "CUDA may be included only in pipeline/cuda/*"),
    ("io/near.cc", '#include "box.h"', '"box.h" is no file below the root'),
    ("io/gone.cc", '#include "io/gone.h"', '"io/gone.h" is no file below the root'),
    ("io/angled.cc", "#include <io/box.h>", "write it in quotes"),
])
def test_a_planted_fault_is_found_with_its_line(tree, path, line, reason):
    tree("scheduler/plan.h", "#pragma once\n")
    tree(path, f"// first line\n{line}\n")
    code, out = check(tree.root)
    assert code == 1
    assert f"{path}:2: " in out and reason in out
    assert "1 faults" in out


def test_a_comment_about_an_include_is_no_include(tree):
    tree("io/notes.cc", '// #include <torch/script.h>\n/* see */ int x;\n')
    assert check(tree.root)[0] == 0


def test_this_repository_keeps_the_rules():
    code, out = check(ROOT)
    assert code == 0, out
