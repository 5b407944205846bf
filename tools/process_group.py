"""Ends a program together with all that it has started, however it ends."""
from __future__ import annotations

import os
import select
import signal


def end_with_stdin() -> None:
    """From now on this process leads a group, and all processes of the group are killed as soon as
    standard input closes or this process ends, be it by SIGKILL. Compilers start compilers, and the
    program that has asked for all of it may be killed, too: it holds the other end of the input.

    Call it before there are other threads, and before large libraries are loaded.
    """
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    ended, alive = os.pipe()  # `alive` is closed in every program that is started
    if os.fork() == 0:
        os.close(alive)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):  # whoever reads them waits for their end
            os.dup2(nothing, stream)
        select.select([0, ended], [], [])
        os.killpg(0, signal.SIGKILL)
    os.close(ended)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
