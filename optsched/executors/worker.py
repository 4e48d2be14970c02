"""The process that does tasks for another one (`optsched.processes`).

It imports what tasks need, once, and forks for each task: so every task has its own process,
whose memory is measured and limited and which may crash, and none pays for imports. The process
that is forked from runs no task, hence has no threads of solvers.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, NoReturn

from optsched.errors import OptschedError
from optsched.lazy import imported
from optsched.processes import Reply, Wire, limit_memory

Work = Callable[[Mapping[str, Any]], Mapping[str, Any]]
Prepare = Callable[[Mapping[str, Any]], None]
RESERVED = 1 << 30
"""Bytes of address space that libraries may reserve and not use,
beyond twice the limit on memory in use.
"""


@dataclass(frozen=True)
class Request:
    """A task: its content, and the bytes that it may have in use.

    Attributes
    ----------
    spec : mapping
    memory : int or None
    content : bytes
        Of the first request of a process: what its tasks share, see `SweepWork`.
    """

    spec: Mapping[str, Any]
    memory: int | None
    content: bytes = b""


@dataclass(frozen=True)
class TaskEnd:
    """How the process of a task ended.

    Attributes
    ----------
    code : int
    memory : int
        Bytes that it had in use at the most.
    text : str
        JSON of the row and its seconds; empty where the process left none.
    """

    code: int
    memory: int
    text: str


def serve(wire: Wire, work: str, prepare: str) -> None:
    """Do one task after the other, until the other side hangs up;
    functions are given by their addresses.
    """
    do, make_ready = imported(work), imported(prepare) if prepare else None
    wire.send(Reply(0, "ready", os.getpid()))
    while True:
        asked = wire.receive()
        if asked.content:
            do = partial(do, pickle.loads(asked.content))
        if make_ready is not None:
            with suppress(Exception):  # the task comes upon the same, and reports it
                make_ready(asked.spec)
        # The row goes through a file: a task that is killed may leave half of it, and the wire must
        # stay in step.
        with tempfile.TemporaryFile() as file:
            pid = os.fork()
            if pid == 0:
                do_task(file, do, asked)
            wire.send(Reply(0, "progress", pid))
            _, status, usage = os.wait4(pid, 0)
            file.seek(0)
            text = file.read().decode(errors="replace")
        # In kilobytes, but on macOS in bytes.
        memory = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        code = os.waitstatus_to_exitcode(status)
        wire.send(Reply(0, "answer", TaskEnd(code, memory, text if code == 0 else "")))


def do_task(file: IO[bytes], work: Work, asked: Request) -> NoReturn:
    """In the process of a task: do it, write the row, end."""
    code = 1
    try:
        if asked.memory is not None:
            # The memory in use is watched from outside; the kernel refuses what is far beyond the
            # limit in one go.
            limit_memory(2 * asked.memory + RESERVED)
        began = time.perf_counter()
        row = row_of(work, asked.spec)
        seconds = time.perf_counter() - began
        file.write(json.dumps({"row": row, "seconds": seconds}, allow_nan=False).encode())
        file.flush()
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
