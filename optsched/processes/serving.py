"""The child's side: what every process does before it serves the one that started it."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

from optsched.lazy import imported
from optsched.processes.wire import Closed, Wire


def serve(descriptor: int, lifeline: int, address: str, arguments: Sequence[object]) -> None:
    """Call the function at an address with this end of the wire,
    and return once the other side has hung up.

    Standard output becomes standard error, so that what libraries print is neither lost nor in
    anybody's way. Ctrl-C is ignored: it reaches the process that started this one, which decides.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Processes that this one starts must not inherit them: they would keep the connection open
    # after its end.
    os.set_inheritable(descriptor, False)
    os.set_inheritable(lifeline, False)
    end_with(lifeline)
    with suppress(OSError):  # without a standard error, what libraries print goes nowhere
        os.dup2(2, 1)
    with socket.socket(fileno=descriptor) as connection, suppress(Closed):
        imported(address)(Wire(connection), *arguments)


def end_with(lifeline: int) -> None:
    """Have the kernel end this process, and those that it starts,
    when the other end of a pipe is closed.

    A thread that waits for that would wait for Python's lock as well, which some solvers hold while
    they run; and ``PR_SET_PDEATHSIG`` ends a process with the *thread* that started it.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    # It may have been closed before the signal was asked for.
    if select.select([lifeline], [], [], 0)[0]:
        sys.exit(1)


def main() -> None:
    """``python -c "..." SOCKET LIFELINE MODULE:FUNCTION ARGUMENT ...``."""
    descriptor, lifeline, address, *arguments = sys.argv[1:]
    serve(int(descriptor), int(lifeline), address, arguments)
