"""The archive of tools/bundle holds what other machines lack, and runs from any folder."""
import ast
import os
import pathlib
import re
import runpy
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNTIME = ("libc.so", "libm.so", "libstdc++", "libgcc_s", "libtorch", "libc10", "libcuda.so", "ld-linux")


def bundle(archive, *options):
    done = subprocess.run([sys.executable, ROOT / "tools/bundle", *options, "-o", archive], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "tilery.tar.xz"
    bundle(path)
    return path


@pytest.fixture(scope="module")
def unpacked(archive, tmp_path_factory):
    folder = tmp_path_factory.mktemp("anywhere")
    subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)
    return folder / "tilery"


def libraries_used(program):
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return [line.split(" => ") for line in listed.splitlines() if " => " in line]


def test_the_projects_files_are_found_with_and_without_its_history(tmp_path):
    for name in ("tools/bundle", "configs/a.yaml", "configs/models/b.json", "configs/__pycache__/c.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text() if name == "tools/bundle" else name)
    sources = runpy.run_path(str(tmp_path / "tools/bundle"))["sources"]
    assert sources("configs") == ["configs/a.yaml", "configs/models/b.json"]  # as in a downloaded archive
    assert sources("configs/a.yaml") == ["configs/a.yaml"]
    subprocess.run(["git", "-C", tmp_path, "init", "-q"], check=True)
    subprocess.run(["git", "-C", tmp_path, "add", "configs/models"], check=True)
    assert sources("configs") == ["configs/models/b.json"]


def test_the_archive_is_smaller_than_60_mb(archive):
    assert archive.stat().st_size < 60e6


def test_the_same_build_gives_the_same_archive(archive, tmp_path):
    bundle(tmp_path / "again.tar.xz")
    assert (tmp_path / "again.tar.xz").read_bytes() == archive.read_bytes()


def test_the_command_runs_from_another_folder_without_any_environment(unpacked):
    done = subprocess.run([unpacked / "bin/tilery", "--help"], env={}, cwd="/", capture_output=True, text=True)
    assert done.returncode == 0 and "run" in done.stdout


@pytest.mark.parametrize("program", ["tilery", "tilery-worker"])
def test_each_library_comes_from_the_archive_or_from_the_runtime_or_from_torch(unpacked, program):
    lib = (unpacked / "lib").resolve()
    torch_folders = ("/torch/lib/", "/nvidia/")
    strangers = [name.strip() for name, place in libraries_used(unpacked / "bin" / program)
                 if (lib / name.strip()).exists() and not place.startswith(str(unpacked))
                 and not any(folder in place for folder in torch_folders)]
    assert strangers == []
    missing = [name.strip() for name, place in libraries_used(unpacked / "bin" / program) if "not found" in place]
    assert missing == []


def test_the_archive_brings_no_runtime_and_a_licence_for_each_library(unpacked):
    names = sorted(path.name for path in (unpacked / "lib").iterdir())
    assert names
    assert not [name for name in names if name.startswith(RUNTIME)]
    listed = (unpacked / "licences/LIST.txt").read_text()
    for name in names:
        assert f"lib/{name}: " in listed
    for line in listed.splitlines():
        package = line.split(": ")[1]
        assert package == "not from a package" or (unpacked / "licences" / package).stat().st_size > 0


def test_the_worker_of_the_archive_starts_with_the_torch_that_tilery_torch_names(unpacked):
    torch = os.environ["TILERY_TORCH_LIB"]
    used = dict((name.strip(), place) for name, place in [
        line.split(" => ") for line in subprocess.run(
            ["ldd", unpacked / "bin/tilery-worker"], env={**os.environ, "LD_LIBRARY_PATH": torch},
            capture_output=True, text=True, check=True).stdout.splitlines() if " => " in line])
    assert used["libtorch_cpu.so"].startswith(torch)


def test_models_are_compiled_by_the_scripts_of_the_archive(unpacked, tmp_path):
    with zipfile.ZipFile(tmp_path / "m.pt2", "w") as model:
        model.writestr("m/models/model.json", "{}")
        model.writestr("m/extra/tilery.json", '{"dims": 2}')
    torch = re.search(r"^torch==(\S+)", (ROOT / "tools/requirements.txt").read_text(), re.M).group(1)
    python = tmp_path / "python"  # names the script that it is asked to run
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] && echo {torch} && exit\necho "error: $1" >&2\nexit 2\n')
    python.chmod(0o755)
    done = subprocess.run([unpacked / "bin/tilery", "compile", tmp_path / "m.pt2", "--device", "cpu"], cwd="/",
                          capture_output=True, text=True,
                          env={"TILERY_PYTHON": str(python), "XDG_CACHE_HOME": str(tmp_path), "PATH": os.environ["PATH"]})
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"tilery: {unpacked}/share/tilery/compile_model.py"


def test_the_scripts_of_the_archive_bring_the_modules_of_ours_that_they_import(unpacked):
    scripts = sorted((unpacked / "share/tilery").glob("*.py"))
    imported = {name for script in scripts for node in ast.walk(ast.parse(script.read_text()))
                for name in ([node.module] if isinstance(node, ast.ImportFrom) else
                             [alias.name for alias in node.names] if isinstance(node, ast.Import) else [])}
    ours = {name for name in imported if (ROOT / "tools" / f"{name}.py").exists()}
    assert {"model_files", "package_build"} <= ours <= {script.stem for script in scripts}


def test_the_reader_of_the_archive_opens_files(unpacked, tmp_path):
    tool = ROOT / "build/tests/bin/tvdb_fuzz"
    subprocess.run([tool, "corpus", tmp_path], check=True)
    done = subprocess.run([sys.executable, "-c", f"import tvdb; print(tvdb.open('{tmp_path}/0.tvdb').grids[0].label)"], cwd="/",
                          env={"PYTHONPATH": str(unpacked / "share/tilery"), "PATH": os.environ["PATH"]}, capture_output=True, text=True)
    assert done.stdout == "density\n", done.stderr
    assert (unpacked / "include/tvdb.h").exists()


def test_an_archive_with_tests_runs_them_without_the_source_tree(tmp_path):
    bundle(tmp_path / "t.tar", "--tests")
    subprocess.run(["tar", "-xf", tmp_path / "t.tar", "-C", tmp_path], check=True)
    bare = {name: value for name, value in os.environ.items() if not name.startswith("TILERY")}
    env = {**bare, "TILERY_TORCH": os.environ["TILERY_TORCH_LIB"], "PYTHON": sys.executable}
    names = ["geometry_test", "cluster_launcher_test", "cluster_gpus_test", "pipeline_engine_test", "worker_bench_test",
             "test_shipped_model"]
    done = subprocess.run([tmp_path / "tilery/run_tests", *names], env=env, cwd="/", capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "6 passed, 0 failed", done.stdout + done.stderr
    del env["PYTHON"]
    done = subprocess.run([tmp_path / "tilery/run_tests", *names[3:]], env=env, capture_output=True, text=True)
    assert "left out, since PYTHON is not set: pipeline_engine_test worker_bench_test test_shipped_model" in done.stdout
