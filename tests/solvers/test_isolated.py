"""Solvers in a process of their own: a hang, a crash, garbage or too much memory costs one run, and is told."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import troubled_solvers
from isolated_cases import PROCESSES, gone, run, soon, works
from programs import dense
from refusals import refuses

from optsched.errors import Interrupted, OptschedError, SolverCrashed, SolverUnavailable, UsageError
from optsched.program import ConicProgram, linear_to_conic
from optsched.solvers import Limits
from optsched.solvers.isolated import SolverProcess
from optsched.solvers.isolated import process as process_module
from optsched.solvers.isolated.messages import Failure

pytestmark = [pytest.mark.process, PROCESSES]

# --- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.clock
@pytest.mark.parametrize("trouble", [{"sleep": 60}, {"hold_the_lock": True}])
def test_a_solver_that_hangs_is_killed(shared: SolverProcess, trouble: dict[str, Any]) -> None:
    assert works(shared)
    pid, started = shared.pid, time.monotonic()
    with pytest.raises(
        SolverCrashed, match=r"^solver troubled did not answer within 0\.3 s and was killed$"
    ):
        run(shared, 0.1, **trouble)
    assert 0.3 <= time.monotonic() - started < 2.0
    assert pid is not None and gone(pid) and not Path(f"/proc/{pid}").exists()
    assert shared.pid not in (None, pid)  # the next one is there already
    assert works(shared)


def test_a_solver_that_is_late_within_the_grace_is_not_killed(
    shared: SolverProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert works(shared)
    pid = shared.pid
    monkeypatch.setattr(shared, "grace", 5.0)
    assert run(shared, 0.05, sleep=0.3).objective == pytest.approx(11.0)
    assert shared.pid == pid


def test_without_a_limit_nobody_is_killed(shared: SolverProcess) -> None:
    assert run(shared, None, sleep=0.3).objective == pytest.approx(11.0)


@pytest.mark.clock
def test_other_calls_have_a_limit_as_well(shared: SolverProcess) -> None:
    assert works(shared)
    session = shared.load("troubled")().open(dense().arrays)
    session.run(Limits(time=0.1))
    with pytest.raises(SolverCrashed, match=r"did not answer within 0\.3 s and was killed"):
        session.conflict()
    assert works(shared)
    cones: ConicProgram = linear_to_conic(dense().arrays)
    with pytest.raises(SolverCrashed, match=r"did not answer within 0\.3 s and was killed"):
        shared.load("troubled")().solve_conic(cones, Limits(time=0.1))
    assert works(shared)


def test_what_a_solver_has_started_is_killed_with_it(shared: SolverProcess) -> None:
    pieces: list[str] = []
    with pytest.raises(SolverCrashed, match="was killed"):
        run(shared, 0.3, start_a_process=True, on_log=pieces.append)
    (pid,) = map(int, pieces)
    assert soon(lambda: gone(pid))


@pytest.mark.clock
def test_a_run_while_the_process_still_starts_is_late_and_leaves_it_to_start() -> None:
    with SolverProcess(troubled_solvers.load, grace=0.1) as process:
        solver = process.load("slow")
        with pytest.raises(
            SolverCrashed,
            match=r"^solver slow could not begin: its process was still starting after",
        ):
            solver().open(dense().arrays).run(Limits(time=0.1))
        pid = process.pid
        assert solver().open(dense().arrays).run(Limits(time=20)).objective == pytest.approx(11.0)
        assert process.pid == pid


def test_a_process_that_never_starts_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "STARTING", 0.2)
    with SolverProcess(troubled_solvers.load) as process:
        solver = process.load("slow")
        with pytest.raises(
            SolverCrashed, match=r"^solver slow did not start within 0\.2 s and was killed$"
        ):
            solver().open(dense().arrays).run(Limits(time=20))


# --- the process ends ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ({"exit": 3}, "its process ended with exit code 3"),
        ({"signal": "SIGSEGV"}, "its process was ended by SIGSEGV"),
        ({"signal": "SIGKILL"}, "its process was ended by SIGKILL; it was not killed from here"),
        ({"hang_up": True}, "its process closed its connection and was killed"),
    ],
)
def test_a_process_that_ends_is_told(
    shared: SolverProcess, trouble: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optsched.processes.child.DYING", 0.3)
    with pytest.raises(SolverCrashed) as caught:
        run(shared, **trouble)
    assert str(caught.value) == f"solver troubled: {words}"
    assert works(shared)


def test_a_process_that_ends_between_runs_costs_nothing(shared: SolverProcess) -> None:
    assert works(shared)
    pid = shared.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert soon(lambda: shared.pid is None)
    assert works(shared)


def test_a_process_that_ends_while_it_starts() -> None:
    with SolverProcess(troubled_solvers.load) as process:
        solver = process.load("unstartable")
        for _ in range(2):
            with pytest.raises(
                SolverCrashed, match="its process ended with exit code 9 while it started"
            ):
                solver().open(dense().arrays).run(Limits(time=20))
        assert process.pid is None


def test_no_zombie_and_no_descriptor_is_left() -> None:
    """200 processes killed: half of them while they start, the others idle (a process takes 0.3 s to get ready)."""
    before = set(os.listdir("/proc/self/fd"))
    with SolverProcess(troubled_solvers.load) as process:
        for _ in range(200):
            process._replace()
        alive = process.pid
        children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
        assert alive is not None and str(alive) in children
        assert [pid for pid in children if gone(int(pid))] == []
    assert set(os.listdir("/proc/self/fd")) == before
    assert gone(alive)


# --- garbage and errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (
            {"write": b"Academic license - for non-commercial use only\n"},
            "bytes that are no frame, and was killed",
        ),
        ({"return": "dict"}, "an answer of type dict, expected Values, and was killed"),
        (
            {"return": "unreadable"},
            "a frame that cannot be read (RuntimeError: nobody can read this), and was killed",
        ),
    ],
)
def test_garbage(shared: SolverProcess, trouble: dict[str, Any], words: str) -> None:
    assert works(shared)
    pid = shared.pid
    with pytest.raises(SolverCrashed) as caught:
        run(shared, **trouble)
    assert str(caught.value).startswith(f"solver troubled: its process sent {words}"), caught.value
    assert pid is not None and gone(pid)
    assert works(shared)


@pytest.mark.parametrize(
    ("raised", "kind", "words"),
    [
        ("usage", UsageError, "no such option"),
        ("argument", UsageError, "threads: found 0, expected 1 or more"),
        ("unavailable", SolverUnavailable, "no licence"),
        ("crashed", SolverCrashed, "it stopped with 'Error'"),
        ("interrupted", Interrupted, "stopped before anything was found"),
        (
            "input",
            SolverCrashed,
            f"solver troubled raised InvalidInput: {troubled_solvers.ERRORS['input']}",
        ),
        ("other", SolverCrashed, "solver troubled raised ZeroDivisionError: division by zero"),
        ("wordless", SolverCrashed, "solver troubled raised KeyError"),
        ("exit", SolverCrashed, "solver troubled raised SystemExit: 3"),
    ],
)
def test_errors_come_back(
    shared: SolverProcess, raised: str, kind: type[OptschedError], words: str
) -> None:
    assert works(shared)
    pid = shared.pid
    with pytest.raises(OptschedError) as caught:
        run(shared, **{"raise": raised})
    assert type(caught.value) is kind and str(caught.value) == words
    notes = "".join(getattr(caught.value, "__notes__", []))
    assert ("in _cause" in notes) == words.startswith("solver troubled raised")
    assert works(shared) and shared.pid == pid


def test_an_answer_that_cannot_be_sent(shared: SolverProcess) -> None:
    with pytest.raises(SolverCrashed, match=r"solver troubled raised Unsendable: .*lambda"):
        run(shared, **{"return": "unsendable"})
    assert works(shared)


def test_input_that_cannot_be_sent(shared: SolverProcess) -> None:
    assert works(shared)
    pid = shared.pid
    with pytest.raises(
        UsageError,
        match=r"^solver troubled: its input cannot be sent to another process \(.*lambda",
    ):
        run(shared, sleep=lambda: None)
    assert works(shared) and shared.pid == pid


# --- memory ----------------------------------------------------------------------------------------------------------


def test_memory() -> None:
    with SolverProcess(troubled_solvers.load, memory=4e8) as process:
        assert works(process)
        assert run(process, allocate=1e8).objective == pytest.approx(11.0)
        pid = process.pid
        with pytest.raises(
            SolverCrashed, match=r"^solver troubled ran out of memory \(limit 0\.4 GB\): .*allocate"
        ):
            run(process, allocate=2e9)
        assert process.pid not in (None, pid)
        words = r"was ended by SIGABRT; it may have run out of memory \(limit 0\.4 GB\)$"
        with pytest.raises(SolverCrashed, match=words):
            run(process, signal="SIGABRT")


def test_memory_that_a_library_has_run_out_of() -> None:
    failure = Failure.of(SolverCrashed("HiGHS raised MemoryError: std::bad_alloc"))
    for limit, words in (("2.0 GB", " (limit 2.0 GB)"), ("", "")):
        told = f"solver highs ran out of memory{words}: SolverCrashed: HiGHS raised MemoryError: std::bad_alloc"
        assert str(failure.error("highs", limit)) == told


@pytest.mark.parametrize("memory", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_of_memory_that_is_none(memory: float) -> None:
    with refuses(f"memory: found {memory!r}, expected a number of bytes above 0", UsageError):
        SolverProcess(troubled_solvers.load, memory=memory)


def test_a_grace_that_is_none() -> None:
    with refuses("grace: found -1, expected a number of seconds, 0 or more", UsageError):
        SolverProcess(troubled_solvers.load, grace=-1)
