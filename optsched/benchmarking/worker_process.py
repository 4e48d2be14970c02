"""A worker seen from the process that started it: start, messages, memory, kill, how it ended."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from optsched.benchmarking.forking import THREADS, Forked, can_fork
from optsched.benchmarking.worker import imported, run
from optsched.errors import OptschedError, SolverUnavailable

TAIL = 4096
"""Bytes that are looked at of what a worker wrote on its standard error."""


WORKER = "from optsched.benchmarking.worker import main; main()"
"""What a worker runs; its package has it imported already, which ``-m`` warns of."""


class WorkerProcess:
    """A process that does one task at a time, in a session of its own: Ctrl-C at a terminal does not reach it.

    It is forked from this process where that is safe (`can_fork`), as imports take longer than most tasks; else it is
    a new interpreter.

    Parameters
    ----------
    work, prepare : str
        ``module:function``; prepare may be empty.
    threads : int
        Threads that the libraries of a task may start by themselves.
    """

    def __init__(self, work: str, prepare: str, threads: int) -> None:
        if os.name != "posix":
            raise SolverUnavailable("tasks in processes of their own need POSIX (Linux, macOS)")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `kill`)
        self.socket, theirs = socket.socketpair()
        reader, self._lifeline = os.pipe()
        try:
            if can_fork(threads):
                self._process: Forked | subprocess.Popen[bytes] = self._forked(
                    theirs, reader, work, prepare
                )
            else:
                self._process = self._spawned((theirs.fileno(), reader), work, prepare, threads)
        except OSError as error:
            raise SolverUnavailable(f"no process can be started for tasks: {error}") from None
        finally:
            theirs.close()
            os.close(reader)
        self.socket.setblocking(False)
        self._bytes = b""
        self.closed = False
        """Whether it has hung up."""

    def _forked(self, theirs: socket.socket, reader: int, work: str, prepare: str) -> Forked:
        """A copy of this process, which has imported already what tasks need."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()  # else the copy could write it a second time
        pid = os.fork()
        if pid:
            return Forked(pid)
        code = 1
        try:
            os.setsid()
            signal.signal(
                signal.SIGTERM, signal.SIG_DFL
            )  # the command line's handler is not for tasks
            nothing = os.open(os.devnull, os.O_RDWR)
            for target, source in ((0, nothing), (1, nothing), (2, self._errors.fileno())):
                os.dup2(source, target)
            self.socket.close()
            os.close(self._lifeline)
            run(theirs.detach(), reader, imported(work), imported(prepare) if prepare else None)
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            with suppress(BaseException):
                sys.stderr.flush()
            os._exit(code)

    def _spawned(
        self, descriptors: tuple[int, int], work: str, prepare: str, threads: int
    ) -> subprocess.Popen[bytes]:
        """A new interpreter."""
        paths = os.pathsep.join(
            path or os.getcwd() for path in sys.path
        )  # modules are found where they are here
        command = [sys.executable, "-P", "-c", WORKER, *map(str, descriptors), work, prepare]
        environment = {**os.environ, **dict.fromkeys(THREADS, str(threads)), "PYTHONPATH": paths}
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            pass_fds=descriptors,
            env=environment,
            start_new_session=True,
        )

    def ask(self, spec: Mapping[str, Any], memory: int | None) -> None:
        """Hand it a task; one that has died is seen by `messages`."""
        self._errors.truncate(0)
        self._errors.seek(0)
        self.socket.setblocking(True)
        with suppress(OSError):
            self.socket.sendall(f"{json.dumps({'spec': spec, 'memory': memory})}\n".encode())
        self.socket.setblocking(False)

    def messages(self) -> Iterator[dict[str, Any]]:
        """What it has said since; sets ``closed`` when it has hung up."""
        while not self.closed:
            try:
                data = self.socket.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            self.closed = not data
            self._bytes += data
        *lines, self._bytes = self._bytes.split(b"\n")
        for line in lines:
            with suppress(ValueError):  # a blank line, or half of a row of a task that was killed
                message = json.loads(line)
                if isinstance(message, dict):
                    yield message

    def kill(self) -> None:
        """Kill it with all that it has started, and reap it."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(ProcessLookupError):  # a copy that has no session of its own yet
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.socket.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        self._errors.close()

    def exit_code(self) -> int:
        """How a worker ended that has hung up."""
        return self._process.wait()

    def last_words(self) -> str:
        """The last line that it, or its task, wrote on standard error."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - TAIL))
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")

    def could_not_start(self) -> OptschedError:
        """Why there is no worker at all."""
        words = self.last_words()
        return OptschedError(
            f"a worker {how_it_ended(self.exit_code())} before its first task: {words}"
        )


def how_it_ended(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"was ended by {name}"


def memory_in_use(pid: int) -> int:
    """Bytes of memory in use by a process and all that it has started (Linux); 0 of one that is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        children = " ".join((thread / "children").read_text() for thread in threads)
    except (OSError, IndexError):
        return 0
    return pages * resource.getpagesize() + sum(
        memory_in_use(int(child)) for child in children.split()
    )


def peak_memory(pid: int) -> int | None:
    """The most memory that a process had in use, in bytes (Linux); None where the system does not say."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(found[0]) * 1024 if found else None
