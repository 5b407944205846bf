"""The short version of chaos.py: random processes are killed, the same command goes on, the bytes are the same."""
import pathlib
import subprocess
import sys

CHAOS = pathlib.Path(__file__).with_name("chaos.py")


def test_outputs_are_identical_after_kills_at_random_moments():
    p = subprocess.run([sys.executable, CHAOS, "--kills", "10", "--seed", "11"], capture_output=True, text=True, timeout=600)
    assert p.returncode == 0, p.stdout[-2000:] + p.stderr[-4000:]
    assert "all outputs byte-identical" in p.stdout
