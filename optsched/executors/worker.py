"""The process that does tasks for another one (`optsched.processes`).

It imports what tasks need, once. Where tasks have limits it forks for each: so every task has its
own process, whose memory is measured and limited and which may crash, and none pays for imports.
The parent of these forks runs no task itself, so it has no threads of solvers.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, Any, NoReturn

from optsched.errors import OptschedError
from optsched.executors.protocol import OK, SharedWork, TaskEnd
from optsched.lazy import imported
from optsched.processes import Reply, Wire, limit_memory

RESERVED = 1 << 30
"""Bytes of address space that libraries may reserve and not use,
beyond twice the limit on memory in use.
"""


@dataclass(frozen=True)
class ProcessEnd:
    """How the process of a task ended.

    Attributes
    ----------
    code : int
    memory : int
        Bytes that it had in use at the most; 0 if not measured.
    end : TaskEnd or None
        None if the process left none.
    """

    code: int
    memory: int
    end: TaskEnd | None


def serve(wire: Wire, inherited: SharedWork | None = None) -> None:
    """Do one task after the other, until the other side hangs up.

    A worker that was not forked gets the work as its first message.
    """
    work: SharedWork = wire.receive() if inherited is None else inherited
    do, make_ready = imported(work.worker), imported(work.prepare) if work.prepare else None
    if work.shared is not None:
        do = partial(do, work.shared)
    wire.send(Reply(0, "ready", os.getpid()))
    while True:
        content = wire.receive()
        if make_ready is not None:
            with suppress(Exception):  # the task comes upon the same, and reports it
                make_ready(content)
        if work.forks:
            end = _in_a_fork(wire, do, content, work.limits.memory)
        else:
            wire.send(Reply(0, "progress", os.getpid()))
            end = ProcessEnd(0, 0, end_of(do, content))
        wire.send(Reply(0, "answer", end))


def _in_a_fork(
    wire: Wire, do: Callable[[Any], Any], content: Any, memory: int | None
) -> ProcessEnd:
    """Do a task in a process of its own."""
    # The end goes through a file: a task that is killed may leave half of it, and the wire must
    # stay in step.
    with tempfile.TemporaryFile() as file:
        pid = os.fork()
        if pid == 0:
            # Else nobody would see the end of a worker that is killed before its task ends.
            wire.connection.close()
            _do_and_exit(file, do, content, memory)
        wire.send(Reply(0, "progress", pid))
        _, status, usage = os.wait4(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        file.seek(0)
        end = pickle.load(file) if code == 0 else None
    # In kilobytes, but on macOS in bytes.
    return ProcessEnd(code, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024), end)


def _do_and_exit(
    file: IO[bytes], do: Callable[[Any], Any], content: Any, memory: int | None
) -> NoReturn:
    """In the process of a task: do it, write how it ended, exit."""
    code = 1
    try:
        if memory is not None:
            # The memory in use is watched from outside; the kernel refuses what is far beyond the
            # limit in one go.
            limit_memory(2 * memory + RESERVED)
        pickle.dump(end_of(do, content), file)
        file.flush()
        code = 0
    finally:
        with suppress(BaseException):
            sys.stderr.flush()
        os._exit(code)


def end_of(do: Callable[[Any], Any], content: Any) -> TaskEnd:
    """Do a task: its answer, or the error that it raised."""
    began = time.perf_counter()
    try:
        end = TaskEnd(OK, pickle.dumps(do(content), pickle.HIGHEST_PROTOCOL))
    except MemoryError:
        end = TaskEnd("memory", words="ran out of memory")
    except OptschedError as error:
        end = TaskEnd("error", words=str(error), exit_code=error.exit_code)
    except Exception as error:  # whatever a task raises is how it ended: the others go on
        traceback.print_exc()
        end = TaskEnd("error", words=f"{type(error).__name__}: {error}", exit_code=1)
    return replace(end, seconds=time.perf_counter() - began)
