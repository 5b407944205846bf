"""What the built programs are linked with."""
import os
import subprocess


def libraries(program):
    path = os.path.join(os.environ["TILERY_BIN_DIR"], program)
    listed = subprocess.run(["readelf", "--dynamic", path], capture_output=True, text=True, check=True).stdout
    return [line.split("[")[1].rstrip("]") for line in listed.splitlines() if "(NEEDED)" in line]


def test_tilery_links_neither_torch_nor_cuda():
    assert not [name for name in libraries("tilery") if "torch" in name or "c10" in name or "cuda" in name]


def test_the_worker_links_torch():
    assert "libtorch_cpu.so" in libraries("tilery-worker")
