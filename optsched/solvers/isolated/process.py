"""`SolverProcess`: a child process that runs solvers, and the values of runs that it does not
survive.

Callers use `IsolatedSolver` and `IsolatedSession` in the place of a solver and its sessions.
Linear, conic and timeline programs run in the process. Allocation programs and fillings run in the
caller's: their solvers are optsched's own, and keep the time limit without being killed.

    with SolverProcess(load_solver, memory=4e9) as process:
        engine = Engine(process.load, "highs", Limits(time=2.0))

A process takes 0.3 s to import numpy and scipy, so that the next one is started as soon as one is
killed.
"""

from __future__ import annotations

import itertools
import logging
import math
import signal
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Self

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.arrays.values import replace
from optsched.errors import (
    Interrupted,
    InvalidArgument,
    SolverCrashed,
    SolverUnavailable,
    UsageError,
)
from optsched.processes import (
    STARTING,
    Child,
    Closed,
    Garbled,
    TimedOut,
    Timeout,
    Unsendable,
    exit_text,
    size_text,
)
from optsched.program import AllocationProgram, ConicProgram, LinearArrays, TimelineProgram
from optsched.solution.values import Basis, Termination, Values
from optsched.solvers.base import (
    Capability,
    FillingSession,
    Limits,
    Progress,
    Session,
    Solver,
)
from optsched.solvers.interrupt import interrupt_flag
from optsched.solvers.isolated.messages import Address, Call, Change, Failure, Prepare

MAYBE_MEMORY = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGKILL)
"""Signals with which a process may end that got no memory."""
ANSWERS: dict[str, tuple[type, ...]] = {
    "run": (Values,),
    "solve_conic": (Values,),
    "solve_timeline": (Values,),
    "basis": (Basis, type(None)),
    "conflict": (np.ndarray,),
}
"""Types that the methods of solvers and sessions return."""

log = logging.getLogger("optsched")

LOST = "loaded anew in another process, as the last run failed or its process is gone"


class SolverChild(Child):
    """A process that solves, with its versions of solvers and its sessions.

    Parameters
    ----------
    solvers : list of Address
        To be imported before it is ready.
    memory : int or None
        Bytes that it may take in addition to its imports.
    """

    def __init__(self, solvers: list[Address], memory: int | None) -> None:
        super().__init__("solvers", "optsched.solvers.isolated.worker:serve")
        self.memory = memory
        self.versions: dict[Address, str | Failure] = {}
        self.sessions: set[int] = set()
        """Keys of the sessions that it holds."""
        with suppress(Closed):  # it died already, which the code that waits for it will see
            self.send(Prepare(0, solvers, memory), Timeout(STARTING))

    def await_prepared(self, number: int, timeout: Timeout) -> None:
        """Wait until it has imported its modules."""
        reply = self.receive(timeout, number)
        if reply.kind != "ready" or not isinstance(reply.content, dict):
            raise Garbled(f"{reply.kind!r}, expected 'ready'")
        self.versions |= reply.content

    def how_it_ended(self) -> str:
        """How a process that closed its connection ended, as text."""
        code = self.wait_or_kill()
        words = exit_text(code)
        if code is None or code >= 0:
            return words
        if -code in MAYBE_MEMORY and self.memory is not None:
            return f"{words}; it may have run out of memory (limit {size_text(self.memory)})"
        return f"{words}; it was not killed from here" if -code == signal.SIGKILL else words


class SolverProcess:
    """A child process in which any solver can run, and that is killed when it does not answer.

    Parameters
    ----------
    load : callable
        Solver class by name (`optsched.registry.load_solver`).
    memory : float, optional
        Bytes that the process may take above what it needs for its imports (address space; Linux).
        Memory that libraries reserve but do not use counts too, so allow hundreds of MB.
    grace : float
        Seconds after ``Limits.time`` at which a process that has not answered is killed; also those
        that it has after Ctrl-C. A run without a time limit is waited for without end.
    lasting : bool
        Whether more calls follow after a run that is not answered in time, as in a scheduler: that
        run ends in `SolverCrashed`, and the next process starts at once. Otherwise the time limit
        was that of the whole call: the run ends without a point, with the termination
        ``time_limit``.

    Notes
    -----
    A process serves one run at a time. Each run ends within ``Limits.time + grace`` seconds, in an
    answer or as ``lasting`` says; so does one that comes while the process still starts (about 0.4
    s), which is left to start.
    """

    def __init__(
        self,
        load: Callable[[str], type[Solver]],
        *,
        memory: float | None = None,
        grace: float = 0.5,
        lasting: bool = True,
    ) -> None:
        if not (math.isfinite(grace) and grace >= 0):
            raise InvalidArgument("grace", repr(grace), "a number of seconds, 0 or more")
        self.memory = _bytes(memory)
        self.grace = grace
        self.lasting = lasting
        self._load = load
        self._classes: dict[type[Solver], type[IsolatedSolver]] = {}
        self._versions: dict[Address, str] = {}
        self._child: SolverChild | None = None
        self._closed = threading.Event()
        self._turn = threading.Lock()
        self._holder: int | None = None
        self.numbers = itertools.count(1)
        """Numbers of calls and keys of sessions, each used once."""
        self._forgotten: deque[int] = deque()

    # --- for users ---------------------------------------------------------------------------

    def load(self, name: str) -> type[Solver]:
        """A solver by name, with the name,
        capabilities and versions of the one that `load` knows, run in the process.

        Raises
        ------
        SolverUnavailable
            If the name is unknown. A known solver that is not installed raises it in ``version()``.
        UsageError
            If its class cannot be imported by another process.
        """
        return self.isolated(self._load(name))

    def isolated(self, original: type[Solver]) -> type[Solver]:
        """The counterpart of a solver that runs in the process;
        raises `UsageError` as `load` does.
        """
        if original not in self._classes:
            self._classes[original] = IsolatedSolver.of(original, self)
        return self._classes[original]

    def start(self) -> None:
        """Start the process, if none runs, without waiting for it;
        it imports the solvers that were loaded so far.

        Without this the first run starts it. Processes after that import the solvers that were
        used.
        """
        with self._held("?"):
            if self._child is None or not self._child.usable:
                self._start(*(owner.address for owner in self._classes.values()))

    def limit_memory(self, memory: float | None) -> None:
        """Change the memory that the process may take;
        one that runs is ended, and the next run starts another.
        """
        with self._held("?"):
            self.memory = _bytes(memory)
            self._drop()

    def close(self) -> None:
        """Kill the process; a run that is under way in another thread ends in `SolverCrashed`."""
        self._closed.set()
        child = self._child
        # Killed first: a run in another thread has the turn until its child is gone.
        if child is not None:
            child.stop()
        if self._holder == threading.get_ident():
            return  # called by a callback of a run, which ends now and drops the process
        with self._turn:
            self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """Number of the process, None if none runs."""
        child = self._child
        return child.pid if child is not None and child.usable else None

    # --- for solvers and sessions -------------------------------------------------------

    def version(self, name: str, address: Address) -> str:
        """Version of a solver, looked up in the process and remembered;
        raises `SolverUnavailable`.
        """
        if address in self._versions:
            return self._versions[address]
        timeout = Timeout(STARTING)
        with (
            self._held(name),
            self._guarded(name, timeout, f"was not imported within {STARTING:g} s and was killed"),
        ):
            child = self._ready(timeout, address)
            # A missing solver is looked up again: it may be installed by now.
            if not isinstance(child.versions.get(address), str):
                number = next(self.numbers)
                child.send(Prepare(number, [address], self.memory), timeout)
                child.await_prepared(number, timeout)
            found = child.versions[address]
        if isinstance(found, Failure):
            raise found.error(name, "")
        self._versions[address] = found
        return found

    def ask(
        self,
        solver: type[IsolatedSolver],
        method: str,
        arguments: tuple[Any, ...],
        limits: Limits,
        session: IsolatedSession | None = None,
    ) -> Any:
        """Call a method of a solver, or of a session of it, in the process,
        and wait for the answer.

        Raises
        ------
        SolverCrashed
            If the process was killed, died, or answered with garbage, or the solver raised anything
            unusual.
        UsageError
            If another thread waits for an answer, or the solver refuses an option.
        """
        seconds = None if limits.time is None else limits.time + self.grace
        if seconds is None:
            no_answer = ""
        else:
            no_answer = f"did not answer within {seconds:.3g} s and was killed"
        with self._held(solver.name), interrupt_flag() as interrupted:
            timeout = Timeout(seconds, interrupted, self.grace)
            try:
                with self._guarded(solver.name, timeout, no_answer):
                    return self._asked(solver, method, arguments, limits, session, timeout)
            except _KilledAfterInterrupt:
                end = Termination.INTERRUPTED
                words = (
                    f"interrupted; solver {solver.name} did not answer "
                    f"within {self.grace:g} s and was killed"
                )
                if Values not in ANSWERS[method]:
                    raise Interrupted(words) from None
            except _Late as error:
                end, words = Termination.TIME_LIMIT, str(error)
                if self.lasting or Values not in ANSWERS[method]:
                    raise SolverCrashed(words) from None
        return Values(end, seconds=time.monotonic() - timeout.started, words=words)

    def holds(self, key: int) -> bool:
        """Whether the process holds a session."""
        child = self._child
        return child is not None and child.usable and key in child.sessions

    def forget(self, key: int) -> None:
        """Drop a session at the next call; may be called from anywhere."""
        self._forgotten.append(key)

    # --- implementation
    # ----------------------------------------------------------------------------

    def _asked(
        self,
        solver: type[IsolatedSolver],
        method: str,
        arguments: tuple[Any, ...],
        limits: Limits,
        session: IsolatedSession | None,
        timeout: Timeout,
    ) -> Any:
        child = self._ready(timeout, solver.address)
        timeout.left()
        timeout.on_interrupt = child.interrupt
        # Finalizers forget sessions in any thread at any time; the next call tells the child.
        forgotten = tuple(self._forgotten.popleft() for _ in range(len(self._forgotten)))
        child.sessions.difference_update(forgotten)
        # Callbacks stay in this process: the child sends their arguments.
        bare = replace(
            limits.after(time.monotonic() - timeout.started),
            options=dict(limits.options),
            on_progress=None,
            on_point=None,
            on_log=None,
        )
        call = Call(
            next(self.numbers),
            solver.address,
            method,
            tuple(bare if item is limits else item for item in arguments),
            forgotten=forgotten,
            progress=limits.on_progress is not None,
            log=limits.on_log is not None,
        )
        if session is None:
            child.send(call, timeout)
            return self._answer(child, call, limits, solver.name, timeout)
        program, changes = session.shipment(session.key in child.sessions)
        # The state of the session is not known until the child has answered.
        child.sessions.discard(session.key)
        child.send(replace(call, session=session.key, program=program, changes=changes), timeout)
        session.shipped()
        answer = self._answer(child, call, limits, solver.name, timeout)
        child.sessions.add(session.key)
        return answer

    def _answer(
        self, child: SolverChild, call: Call, limits: Limits, name: str, timeout: Timeout
    ) -> Any:
        """Pass on log and progress until the process answers."""
        while True:
            reply = child.receive(timeout, call.number)
            content = reply.content
            if reply.kind == "answer" and isinstance(content, ANSWERS[call.method]):
                return content
            elif reply.kind == "failed" and isinstance(content, Failure):
                if content.memory:
                    self._replace()
                raise content.error(name, "" if self.memory is None else size_text(self.memory))
            elif (
                reply.kind == "progress"
                and isinstance(content, Progress)
                and limits.on_progress is not None
            ):
                limits.on_progress(content)
            elif reply.kind == "log" and isinstance(content, str) and limits.on_log is not None:
                limits.on_log(content)
            else:
                expected = ANSWERS[call.method][0].__name__
                raise Garbled(
                    f"an {reply.kind} of type {type(content).__name__}, expected {expected}"
                )

    def _ready(self, timeout: Timeout, address: Address) -> SolverChild:
        """A process that has reported that it is ready; starts one where none runs."""
        child = self._child
        if child is None or not child.usable:
            child = self._start(address)
        if not child.ready:
            timeout.until_ready = child.started + STARTING
            child.await_prepared(0, timeout)
            timeout.until_ready = math.inf
            self._versions |= {
                key: found for key, found in child.versions.items() if isinstance(found, str)
            }
        return child

    def _start(self, *addresses: Address) -> SolverChild:
        """A new process, which imports these solvers and those
        that were imported without harm before.
        """
        self._drop()
        child = self._child = SolverChild(
            list(dict.fromkeys((*self._versions, *addresses))), self.memory
        )
        if self._closed.is_set():  # meanwhile, by another thread
            self._drop()
            raise SolverCrashed("the process of solvers was closed while it was started")
        return child

    def _drop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def _replace(self) -> None:
        """Kill the process. If it is ``lasting``, start the next one without waiting for it."""
        self._drop()
        if self.lasting and not self._closed.is_set():
            try:
                self._start()
            except SolverUnavailable as error:  # the next run tries again, and raises it then
                log.warning("%s", error)

    @contextmanager
    def _held(self, name: str) -> Iterator[None]:
        """One run at a time."""
        if self._closed.is_set():
            raise UsageError(f"solver {name}: its process is closed")
        if not self._turn.acquire(blocking=False):
            raise UsageError(
                f"solver {name}: its process is at work on another run; "
                "give every thread its own SolverProcess"
            )
        self._holder = threading.get_ident()
        try:
            yield
        finally:
            self._holder = None
            if self._closed.is_set():
                self._drop()
            self._turn.release()

    @contextmanager
    def _guarded(self, name: str, timeout: Timeout, no_answer: str) -> Iterator[None]:
        """Turn each failure of the process into the error that callers expect, and replace a
        process that cannot go on. ``no_answer`` says what happened if it does not answer in time.
        """
        try:
            yield
        except TimedOut:
            child = self._child
            assert child is not None
            waited = time.monotonic() - child.started
            if child.ready or child.mid_message or waited >= STARTING:
                self._replace()
                words = f"did not start within {STARTING:g} s and was killed"
                if child.ready:
                    words = no_answer
            else:
                # The next run finds it ready.
                words = f"could not begin: its process was still starting after {waited:.2g} s"
            if timeout.interrupt_seen:
                raise _KilledAfterInterrupt from None
            if self.lasting:
                log.warning("solver %s %s", name, words)
            raise _Late(f"solver {name} {words}") from None
        except Closed:
            child, words = self._child, "was closed"
            if child is not None and not self._closed.is_set():
                words = child.how_it_ended()
                if child.ready:
                    self._replace()
                else:
                    # Another process would end in the same way: it imports the same modules.
                    words = f"{words} while it started"
                    self._drop()
            log.warning("solver %s: its process %s", name, words)
            raise SolverCrashed(f"solver {name}: its process {words}") from None
        except Garbled as error:
            self._replace()
            log.warning("solver %s: its process sent %s", name, error)
            raise SolverCrashed(
                f"solver {name}: its process sent {error}, and was killed"
            ) from None
        except Unsendable as error:
            raise UsageError(
                f"solver {name}: its input cannot be sent to another process ({error})"
            ) from None
        except BaseException:
            # An error of a callback, or a second Ctrl-C: the answer is not awaited any more.
            child = self._child
            if child is not None and (child.mid_message or (child.ready and child.busy)):
                self._drop()
            raise


def _bytes(memory: float | None) -> int | None:
    """A limit of the memory, checked."""
    if memory is None:
        return None
    if not (math.isfinite(memory) and memory > 0):
        raise InvalidArgument("memory", repr(memory), "a number of bytes above 0")
    if not sys.platform.startswith("linux"):
        raise UsageError("memory: the memory of a process can be limited on Linux only")
    return int(memory)


class _Late(SolverCrashed):
    """The process did not answer within the time limit."""


class _KilledAfterInterrupt(Exception):
    """The process did not answer in time after Ctrl-C, and was killed."""


class IsolatedSession(Session):
    """A program that the first run loads in another process, and that later runs change there.

    This object keeps the arrays too. Changes are recorded, sent with the next run, and applied one
    by one in the child, so that its session is the same as one in this process. If the process is
    gone, the current arrays are loaded in the next one, and `Values.rebuilt` says so.
    """

    def __init__(self, arrays: LinearArrays, solver: type[IsolatedSolver]) -> None:
        super().__init__(arrays)
        self.key = next(solver.process.numbers)
        self._solver = solver
        self._origin: LinearArrays | None = arrays
        """The program before all changes, until it was sent."""
        self._changes: list[Change] = []
        self._limits = Limits()
        """Time limit of the last run; a question about its outcome may take as long."""
        weakref.finalize(self, solver.process.forget, self.key).atexit = False

    def shipment(self, held: bool) -> tuple[LinearArrays | None, tuple[Change, ...]]:
        """(program to load, changes to make then) that update the session in the child.

        ``held`` says whether the process holds it as it was after the last run.
        """
        if held:
            return None, tuple(self._changes)
        if self._origin is not None:
            return _plain(self._origin), tuple(self._changes)
        self._rebuild.append(LOST)
        # The current arrays include all changes, but no start.
        return _plain(self.arrays), tuple(
            change for change in self._changes if change[0] == "set_start"
        )

    def shipped(self) -> None:
        """All recorded changes have been sent."""
        self._origin = None
        self._changes.clear()

    def _changed(self, reason: str, setter: str, *arguments: Any) -> None:
        """Record the change; the session in the child reports why it is loaded again."""
        self._changes.append((setter, arguments))

    def become(self, arrays: LinearArrays) -> None:
        """Change the program into another one; what differs is found there."""
        # The setters that the base class calls note their changes; one `become` takes their place.
        before = len(self._changes)
        super().become(arrays)
        self._changes[before:] = [("become", (_plain(arrays),))]

    def set_start(self, start: Basis | FloatArray) -> None:
        """Start the next run from a basis or a point; it is checked there."""
        self._changes.append(("set_start", (start,)))

    def run(self, limits: Limits) -> Values:
        """Solve in the process; raises `SolverCrashed` also where it had to be killed."""
        self._limits = Limits(time=limits.time)
        values: Values = self._ask("run", (limits,), limits)
        reasons = self._take_reasons()
        return replace(values, rebuilt=(*reasons, *values.rebuilt)) if reasons else values

    def basis(self) -> Basis | None:
        """The simplex basis of the last run; None also where the process that had it is gone."""
        held = self._solver.process.holds(self.key)
        return self._ask("basis", (), self._limits) if held else None

    def conflict(self) -> IntArray:
        """Rows of an irreducible infeasible subsystem,
        found within the time that the last run was given.
        """
        rows: IntArray = self._ask("conflict", (), self._limits)
        return rows

    def _ask(self, method: str, arguments: tuple[Any, ...], limits: Limits) -> Any:
        return self._solver.process.ask(self._solver, method, arguments, limits, self)


RUN_THERE = (Capability.CONTINUOUS, Capability.INTEGER, Capability.CONIC, Capability.TIMELINE)
"""Programs that are solved in the process; allocation programs as they are, are not."""


class IsolatedSolver(Solver):
    """A solver whose programs are solved in another process; `of` makes one of any solver."""

    keeps_time = True
    process: ClassVar[SolverProcess]
    address: ClassVar[Address]
    original: ClassVar[type[Solver]]

    @staticmethod
    def of(original: type[Solver], process: SolverProcess) -> type[IsolatedSolver]:
        """The class that runs a solver in a process;
        raises `UsageError` if the solver cannot be imported there.
        """
        attributes = {
            "__doc__": original.__doc__,
            "__module__": __name__,
            "name": original.name,
            "capabilities": original.capabilities,
            "optional": original.optional,
            "process": process,
            "address": Address.of(original),
            "original": original,
        }
        return type(f"Isolated{original.__name__}", (IsolatedSolver,), attributes)

    @classmethod
    def version(cls) -> str:
        """Version as the process sees it;
        of a solver that never runs there, no process is started to ask.
        """
        if cls.capabilities.isdisjoint(RUN_THERE):
            return cls.original.version()
        return cls.process.version(cls.name, cls.address)

    def open(self, program: LinearArrays) -> Session:
        """A session; what the solver refuses about the program, it refuses at the first run."""
        return IsolatedSession(program, type(self))

    @classmethod
    def refuses(cls, program: AllocationProgram) -> str | None:
        """Why the solver does not take an allocation program as it is; None if it does."""
        return cls.original.refuses(program)

    def solve_allocation(
        self, program: AllocationProgram, limits: Limits, start: FloatArray | None = None
    ) -> Values:
        """Solve it in this process: these solvers are optsched's own, and keep the time limit."""
        return self.original().solve_allocation(program, limits, start)

    def open_filling(self, program: AllocationProgram, limits: Limits) -> FillingSession:
        """In this process too."""
        return self.original().open_filling(program, limits)

    def solve_conic(self, program: ConicProgram, limits: Limits) -> Values:
        """Solve a conic program in the process."""
        return self.process.ask(type(self), "solve_conic", (program, limits), limits)  # type: ignore[no-any-return]

    def solve_timeline(
        self, program: TimelineProgram, limits: Limits, start: FloatArray | None = None
    ) -> Values:
        """Solve a timeline program in the process."""
        arguments = (replace(program), limits, start)  # a copy without what was computed of it
        return self.process.ask(type(self), "solve_timeline", arguments, limits)  # type: ignore[no-any-return]


def _plain(arrays: LinearArrays) -> LinearArrays:
    """The arrays without what was computed of them, such as the matrix by rows."""
    return replace(arrays)
