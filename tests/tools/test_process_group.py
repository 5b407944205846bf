"""What a script starts ends with it, and with whoever holds its standard input."""
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
SCRIPT = """
import subprocess, sys, time
from process_group import end_with_stdin
end_with_stdin()
child = subprocess.Popen(["sleep", "1000"])
print(child.pid, flush=True)
if sys.argv[1] == "end":
    sys.exit(3)
time.sleep(1000)
"""


def gone(pid):
    """Whether a process ends; one that nobody reaps counts as gone."""
    for _ in range(2000):
        try:
            if pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False


def closed(process):
    process.stdin.close()


def killed(process):
    os.kill(process.pid, signal.SIGKILL)


def nothing(process):
    pass


@pytest.mark.parametrize("how,does,code", [("wait", closed, -9), ("wait", killed, -9), ("end", nothing, 3)])
def test_what_was_started_ends_however_the_script_does(how, does, code):
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               env={**os.environ, "PYTHONPATH": str(TOOLS)}, text=True)
    child = int(process.stdout.readline())
    does(process)
    assert process.wait(60) == code
    assert gone(child)
    assert os.getpgrp() != process.pid
