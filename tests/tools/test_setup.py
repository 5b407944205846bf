"""tools/setup installs what is missing and nothing else, and says so where it may not install."""
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def packages():
    listed = subprocess.run(["bash", "-c", f'source "{ROOT}/tools/setup"; echo "${{tilery_packages[*]}}"'],
                            capture_output=True, text=True, check=True)
    return listed.stdout.split()


class Machine:
    """A PATH with a few real commands and stand-ins for those that install."""
    def __init__(self, folder):
        self.bin, self.log = folder / "bin", folder / "installed.txt"
        self.bin.mkdir()
        for tool in ("bash", "dirname", "sed", "tr", "env", "cat", "sort", "head", "cmp", "cp", "xargs"):
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.stand_in("id", "echo 0")
        self.stand_in("apt-get", f'echo "$@" >> "{self.log}"')

    def stand_in(self, name, body):
        path = self.bin / name
        path.write_text(f"#!{shutil.which('bash')}\n{body}\n")
        path.chmod(0o755)

    def has(self, names):
        lines = "\\n".join(f"installed {name}" for name in names) + "\\nnot-installed libpng-dev\\n"
        self.stand_in("dpkg-query", f"printf '{lines}'")

    def run(self, command, **variables):
        return subprocess.run([shutil.which("bash"), "-c", f'set -euo pipefail; source "{ROOT}/tools/setup"; {command}'],
                              env={"PATH": str(self.bin), **variables}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)

    def installed(self):
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_root_installs_only_what_is_missing_and_says_what(machine):
    machine.has(name for name in packages() if name not in ("libpng-dev", "patchelf"))
    done = machine.run("tilery_install_packages")
    assert done.returncode == 0, done.stderr
    assert "installing packages: patchelf libpng-dev" in done.stderr
    update, install = machine.installed()
    assert update.endswith("update")
    assert install.endswith("install --no-install-recommends patchelf libpng-dev")


def test_nothing_is_called_where_nothing_is_missing(machine):
    machine.has(packages())
    done = machine.run("tilery_install_packages")
    assert (done.returncode, done.stderr, machine.installed()) == (0, "", [])


def test_without_the_right_to_install_the_missing_packages_are_named_in_one_line(machine):
    machine.stand_in("id", "echo 1000")
    machine.has(name for name in packages() if name not in ("libzip-dev", "ninja-build"))
    done = machine.run("tilery_install_packages")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "apt-get install -y ninja-build libzip-dev" in done.stderr
    assert machine.installed() == []


def test_a_sudo_that_would_ask_for_a_password_is_not_tried_without_a_terminal(machine):
    machine.stand_in("id", "echo 1000")
    machine.stand_in("sudo", 'if [[ "$1" == -n ]]; then exit 1; fi; echo asked >&2; exit 9')
    machine.has(name for name in packages() if name != "patchelf")
    done = machine.run("tilery_install_packages")
    assert done.returncode == 2 and "asked" not in done.stderr


def test_sudo_installs_where_it_may(machine):
    machine.stand_in("id", "echo 1000")
    machine.stand_in("sudo", 'if [[ "$1" == -n ]]; then shift; fi; exec "$@"')
    machine.stand_in("true", "exit 0")
    machine.has(name for name in packages() if name != "patchelf")
    done = machine.run("tilery_install_packages")
    assert done.returncode == 0, done.stderr
    assert machine.installed()[-1].endswith("install --no-install-recommends patchelf")


def test_a_failed_installation_ends_with_the_line_to_type(machine):
    machine.stand_in("apt-get", "echo 'no network' >&2; exit 100")
    machine.has(name for name in packages() if name != "patchelf")
    done = machine.run("tilery_install_packages")
    assert done.returncode == 2
    assert "no network" in done.stderr and "apt-get install -y patchelf" in done.stderr


@pytest.mark.parametrize("version, enough", [
    ("3.22.1", False), ("3.24.4", False), ("3.25.0", True), ("3.31.10", True), ("4.0.2", True)])
def test_a_cmake_is_new_enough_from_3_25_on(machine, version, enough):
    machine.stand_in("cmake", f"echo cmake version {version}")
    assert (machine.run("tilery_cmake_is_new_enough cmake").returncode == 0) == enough


@pytest.mark.parametrize("nvcc, asked_for", [(None, True), ("12.0", True), ("13.0", False), ("13.1", False)])
def test_the_cuda_compiler_comes_from_pypi_where_there_is_none_of_cuda_13(machine, tmp_path, nvcc, asked_for):
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").symlink_to(machine.bin / "pip")
    machine.stand_in("pip", f'echo "$@" >> "{machine.log}"')
    machine.stand_in("cmake", "echo cmake version 3.25.1")
    machine.stand_in("nvcc", f"echo 'Cuda compilation tools, release {nvcc}, V{nvcc}.88'" if nvcc else "exit 1")
    variables = {"TILERY_VENV": str(venv), "CUDACXX": str(machine.bin / "nvcc")}
    done = machine.run("tilery_install_python", **variables)
    assert done.returncode == 0, done.stderr
    assert any("requirements-cuda.txt" in line for line in machine.installed()) == asked_for
    # The second time there is nothing left to do.
    before = machine.installed()
    assert machine.run("tilery_install_python", **variables).returncode == 0
    assert machine.installed() == before


def test_a_cmake_that_is_too_old_is_replaced_by_the_one_of_the_environment(machine, tmp_path):
    (tmp_path / "venv/bin").mkdir(parents=True)
    machine.stand_in("pip", f'echo "$@" >> "{machine.log}"')
    machine.stand_in("nvcc", "echo 'Cuda compilation tools, release 13.0, V13.0.88'")
    machine.stand_in("cmake", 'if [[ "$1" == --version ]]; then echo cmake version 3.22.1; else echo old >&2; exit 1; fi')
    machine.stand_in("new", f'echo "cmake $@" >> "{machine.log}"')
    (tmp_path / "venv/bin/python").symlink_to(machine.bin / "pip")
    (tmp_path / "venv/bin/cmake").symlink_to(machine.bin / "new")
    done = machine.run("tilery_install_python; tilery_build release tilery",
                       TILERY_VENV=str(tmp_path / "venv"), CUDACXX=str(machine.bin / "nvcc"))
    assert done.returncode == 0, done.stderr
    assert any("requirements-cmake.txt" in line for line in machine.installed())
    assert machine.installed()[-2:] == ["cmake --preset release", "cmake --build --preset release --target tilery"]


def test_the_environment_counts_from_the_folder_of_the_call(machine):
    done = machine.run(f'cd "{machine.bin}"; source "{ROOT}/tools/setup"; echo "$tilery_venv"', TILERY_VENV="mine")
    assert done.stdout.strip() == f"{machine.bin}/mine"
