"""The process that does tasks for another one: ``python -m optsched.benchmarking.worker SOCKET LIFELINE WORK PREPARE``.

It imports what tasks need, once, and forks for each task: so every task has a process of its own, whose memory is
measured and limited and which may crash, and none pays for imports. The process that is forked from runs no task, hence
has no threads of solvers. It dies with the one that started it (`optsched.solvers.isolated.worker.end_with`).
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from optsched.errors import OptschedError
from optsched.solvers.isolated.worker import end_with

Work = Callable[[Mapping[str, Any]], Mapping[str, Any]]
RESERVED = 1 << 30
"""Bytes of address space that libraries may reserve and not use, beyond twice the limit on memory in use."""


def imported(address: str) -> Any:
    """The function at ``module:name``."""
    module, _, name = address.partition(":")
    return getattr(import_module(module), name)


def send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """One line of JSON; whoever started us may be gone, which `end_with` sees to."""
    with suppress(OSError):
        connection.sendall(f"{json.dumps(message, allow_nan=False)}\n".encode())


def serve(
    connection: socket.socket, work: Work, prepare: Callable[[Mapping[str, Any]], None] | None
) -> None:
    """Do one task after the other, until the other side hangs up."""
    send(connection, {"ready": os.getpid()})
    for line in connection.makefile("rb"):
        asked = json.loads(line)
        if prepare is not None:
            with suppress(Exception):  # the task comes upon the same, and tells it
                prepare(asked["spec"])
        pid = os.fork()
        if pid == 0:
            do_task(connection, work, asked)
        _, status, usage = os.wait4(pid, 0)
        size = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        # a task that was killed may have left half a line
        with suppress(OSError):
            connection.sendall(b"\n")
        send(connection, {"ended": os.waitstatus_to_exitcode(status), "memory": size})


def do_task(connection: socket.socket, work: Work, asked: Mapping[str, Any]) -> NoReturn:
    """In the process of a task: do it, tell the row, end."""
    code = 1
    try:
        send(connection, {"started": os.getpid()})
        limit_memory(asked["memory"])
        began = time.perf_counter()
        row = row_of(work, asked["spec"])
        send(connection, {"row": row, "seconds": time.perf_counter() - began})
        code = 0
    finally:
        with suppress(BaseException):
            sys.stderr.flush()
        os._exit(code)


def row_of(work: Work, spec: Mapping[str, Any]) -> dict[str, Any]:
    """What a task comes to: the row of its worker, or of the error that it raised."""
    try:
        row = dict(work(spec))
        json.dumps(row, allow_nan=False)
    except MemoryError:
        return {"status": "memory", "error": "ran out of memory"}
    except OptschedError as error:
        return {"status": "error", "error": str(error), "exit_code": error.exit_code}
    except Exception as error:  # whatever a task raises is its row: the sweep goes on
        traceback.print_exc()
        return {"status": "error", "error": f"{type(error).__name__}: {error}", "exit_code": 1}
    return row


def limit_memory(memory: int | None) -> None:
    """Have the kernel refuse memory far beyond the limit, which is watched from outside, between two looks."""
    if memory is None:
        return
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = taken + 2 * memory + RESERVED
    resource.setrlimit(
        resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
    )


def run(
    descriptor: int, lifeline: int, work: Work, prepare: Callable[[Mapping[str, Any]], None] | None
) -> None:
    """Serve the process at the other end of a socket, and end with it (`end_with`)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(descriptor, False)  # not for processes that tasks start
    os.set_inheritable(lifeline, False)
    end_with(lifeline)
    with suppress(OSError):
        os.dup2(2, 1)
    with socket.socket(fileno=descriptor) as connection:
        serve(connection, work, prepare)


def main() -> None:
    """Do what the command line says."""
    descriptor, lifeline = int(sys.argv[1]), int(sys.argv[2])
    run(descriptor, lifeline, imported(sys.argv[3]), imported(sys.argv[4]) if sys.argv[4] else None)
