"""Drives the installed command as a user would; nothing here looks inside the program."""
from __future__ import annotations

import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import nets  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXECUTABLE = pathlib.Path(os.environ.get("TILERY", ROOT / "build/bin/tilery")).resolve()
# A folder of real weights, which are not part of this repository; without it, nets of the same construction with
# seeded weights take their place.
REAL_MODELS = pathlib.Path(os.environ["TILERY_REAL_MODELS"]) if os.environ.get("TILERY_REAL_MODELS") else None


class Result:
    def __init__(self, process: subprocess.CompletedProcess):
        self.code, self.out, self.err = process.returncode, process.stdout, process.stderr

    @property
    def json(self) -> dict:
        lines = self.out.strip().splitlines()
        assert len(lines) == 1, f"standard output must be one line: {self.out[:500]}"
        return json.loads(lines[0])


class Runner:
    def __init__(self, folder: pathlib.Path):
        self.dir = folder
        self.started: list[subprocess.Popen] = []

    def job(self, name: str = "job.yaml", **sections) -> str:
        (self.dir / name).write_text(json.dumps(sections, default=str))  # JSON is YAML
        return name

    def __call__(self, *args, timeout: float = 240, env: dict | None = None, **kwargs) -> Result:
        return Result(subprocess.run([EXECUTABLE, *map(str, args)], cwd=self.dir, capture_output=True, text=True,
                                     timeout=timeout, env={**os.environ, **(env or {})}, **kwargs))

    def ok(self, *args, **kwargs) -> Result:
        r = self(*args, **kwargs)
        assert r.code == 0, f"exit {r.code}\n{r.err[-4000:]}"
        return r

    def start(self, *args, env: dict | None = None) -> subprocess.Popen:
        p = subprocess.Popen([EXECUTABLE, *map(str, args)], cwd=self.dir, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, start_new_session=True,
                             env={**os.environ, **(env or {})})
        self.started.append(p)
        return p

    def start_held(self, *args, rule: str) -> subprocess.Popen:
        """Starts a run that stands still at a place (worker/fault_points.h) until go_on(): neither a slow nor a quick
        machine changes how far it is when the test does something to it."""
        hold = self.dir / "held"
        hold.touch()
        return self.start(*args, env={"TILERY_TEST_FAULT": f"hold@{rule}", "TILERY_TEST_FAULT_HOLD": str(hold)})

    def go_on(self):
        (self.dir / "held").unlink()

    def status(self, work: str) -> dict | None:
        r = self("status", work, "--json", timeout=30)
        return r.json if r.code == 0 else None

    def wait_for(self, work: str, condition, seconds: float = 90) -> dict:
        end, status = time.monotonic() + seconds, None
        while time.monotonic() < end:
            status = self.status(work)
            if status and condition(status):
                return status
            time.sleep(0.05)
        raise AssertionError(f"not reached in {seconds} s: {status}")

    def profile(self, work: str) -> dict:
        return json.loads((self.dir / work / "profile.json").read_text())

    def stop_all(self):
        for p in self.started:
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGKILL)
            p.communicate()


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """What runs remember about models and devices stays out of the user's own cache."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # all of them run on the CPU, whatever this machine has


@pytest.fixture
def run(tmp_path):
    runner = Runner(tmp_path)
    yield runner
    runner.stop_all()


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """model(name, **contract) -> path of a TorchScript file with that contract inside."""
    folder, made = tmp_path_factory.mktemp("models"), {}

    def get(name: str, **contract) -> pathlib.Path:
        key = name + json.dumps(contract, sort_keys=True)
        if key not in made:
            made[key] = folder / f"{name}-{len(made)}.pt"
            nets.save(name, made[key], **contract)
        return made[key]
    return get


def finish(process: subprocess.Popen, code: int = 0, timeout: float = 150) -> tuple[str, str]:
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == code, f"exit {process.returncode}\n{err[-3000:]}"
    return out, err


def picture(height: int, width: int, seed: int = 0, channels: int = 3, dtype=np.uint8) -> np.ndarray:
    """Smooth colours and noise; no two tiles alike, no sample at the type's maximum."""
    rng = np.random.default_rng(1000 + seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [0.45 + 0.25 * np.sin(x / (7 + 3 * c)) * np.cos(y / (11 + c)) for c in range(channels)]
    a = np.stack(planes, -1) + 0.08 * rng.standard_normal((height, width, channels))
    a = np.round(np.clip(a, 0.01, 0.97) * np.iinfo(dtype).max).astype(dtype)
    return a[..., 0] if channels == 1 else a


def small_and_big(folder: pathlib.Path, small: int = 5):
    """p0.png, p1.png, ... of one unit each, and pbig.png, which is staged, cut into units and assembled."""
    for k in range(small):
        Image.fromarray(picture(60 + k, 80, seed=k)).save(folder / f"p{k}.png")
    Image.fromarray(picture(400, 420, seed=99)).save(folder / "pbig.png")


def volume(shape, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(2000 + seed)
    z, y, x = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij")
    return (0.5 + 0.3 * np.sin(x / 6 + z / 9) * np.cos(y / 8) + 0.05 * rng.standard_normal(shape)).astype(np.float32)


def digests(folder: pathlib.Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(folder.rglob("*")) if p.is_file() and ".tilery" not in p.relative_to(folder).parts}


def leftovers(folder: pathlib.Path) -> list[str]:
    return [str(p) for p in folder.rglob("*") if p.name.startswith(".tilery-")]
