"""Lets Torch's compiler find CUDA where only pip's packages brought it.

AOTInductor compiles a small C++ file per package against cuda.h and links it with libcuda.so. The
headers come with Torch's own dependencies, and the driver's library often lacks its plain name.
"""
from __future__ import annotations

import atexit
import ctypes
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path


def make_cuda_findable() -> None:
    """Before torch is imported: sets CUDA_HOME and LIBRARY_PATH of this process where needed."""
    nvcc = shutil.which("nvcc")
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"),
             str(Path(nvcc).parents[1]) if nvcc else None, "/usr/local/cuda"]
    if not any(home and _has_headers(Path(home)) for home in homes):
        nvidia = importlib.util.find_spec("nvidia")
        for place in (nvidia.submodule_search_locations or []) if nvidia else []:
            for home in filter(_has_headers, sorted(Path(place).glob("cu*"))):
                os.environ["CUDA_HOME"] = str(home)
    library = _driver_library()
    if library is None:
        return  # no driver: the caller finds no GPU either
    links = tempfile.mkdtemp(prefix="tilery-cuda-")
    atexit.register(shutil.rmtree, links, ignore_errors=True)
    os.symlink(library, os.path.join(links, "libcuda.so"))
    # The last place that the linker looks in, so that a proper one comes first.
    places = [p for p in os.environ.get("LIBRARY_PATH", "").split(":") if p]
    os.environ["LIBRARY_PATH"] = ":".join([*places, links])


def _has_headers(home: Path) -> bool:
    return (home / "include" / "cuda.h").exists()


def _driver_library() -> str | None:
    """Where the loader finds libcuda.so.1: as the process sees it once it is loaded."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.split(maxsplit=5)[-1].strip()
            if os.path.basename(path).startswith("libcuda.so"):
                return path
    return None
