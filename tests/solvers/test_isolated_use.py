"""Solvers in a process of their own: callbacks, threads, closing, names, Ctrl-C, and the end of who started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import troubled_solvers
from isolated_cases import PROCESSES, gone, run, soon, works
from programs import dense
from refusals import refuses

from optsched.errors import SolverCrashed, SolverUnavailable, UsageError
from optsched.processes import Child
from optsched.solution import Termination, Values
from optsched.solvers import Limits, Progress
from optsched.solvers.isolated import SolverProcess
from optsched.solving import Engine

pytestmark = [pytest.mark.process, PROCESSES]

# --- callbacks, output, threads --------------------------------------------------------------------------------------


def test_progress_and_log_come_through(shared: SolverProcess) -> None:
    events: list[Progress] = []
    pieces: list[str] = []
    run(shared, report=3, on_progress=events.append, on_log=pieces.append)
    assert events[:3] == [Progress(float(number), 1.0, 2.0, "on the way") for number in range(3)]
    assert "".join(pieces).startswith("line 0\nline 1\nline 2\n")
    assert "HiGHS" in "".join(pieces)  # the log of HiGHS follows


@pytest.mark.clock
def test_a_late_word_is_not_taken_for_one_of_the_next_run(shared: SolverProcess) -> None:
    pieces: list[str] = []
    run(shared, report_later=True, on_log=pieces.append)
    time.sleep(0.2)
    assert works(shared)
    assert "too late" not in "".join(pieces)


def test_a_callback_that_raises(shared: SolverProcess) -> None:
    def refuse(event: Progress) -> None:
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        run(shared, report=1, sleep=60, on_progress=refuse, on_log=lambda text: None)
    assert run(shared, 10.0).objective == pytest.approx(11.0)  # not after what nobody waits for


def test_a_callback_that_runs_again(shared: SolverProcess) -> None:
    def again(event: Progress) -> None:
        run(shared)

    with pytest.raises(UsageError, match="its process is at work on another run"):
        run(shared, report=1, on_progress=again, on_log=lambda text: None)


def test_a_second_run_at_the_same_time_is_refused(shared: SolverProcess) -> None:
    answers: list[Values] = []
    thread = threading.Thread(target=lambda: answers.append(run(shared, sleep=0.5)))
    thread.start()
    assert soon(shared._turn.locked)
    with pytest.raises(UsageError, match="give every thread its own SolverProcess"):
        run(shared)
    thread.join()
    assert answers[0].objective == pytest.approx(11.0)


def test_what_a_solver_prints(capfd: pytest.CaptureFixture[str]) -> None:
    """It is on standard error, and no part of the conversation."""
    with SolverProcess(troubled_solvers.load) as process:
        assert run(process, print=True).objective == pytest.approx(11.0)
    out, err = capfd.readouterr()
    assert out == "" and err == "by Python\nby C\n"


def test_closing() -> None:
    process = SolverProcess(troubled_solvers.load)
    assert process.pid is None
    process.start()
    pid = process.pid
    process.close()
    process.close()
    assert pid is not None and gone(pid) and process.pid is None
    for use in (process.start, lambda: run(process), lambda: process.load("highs").version()):
        with pytest.raises(UsageError, match="its process is closed"):
            use()


def test_closing_by_another_thread_ends_a_run() -> None:
    process = SolverProcess(troubled_solvers.load)
    assert works(process)
    threading.Timer(0.2, process.close).start()
    with pytest.raises(SolverCrashed, match=r"^solver troubled: its process was closed$"):
        run(process, None, sleep=60)
    assert process.pid is None


def test_closing_by_a_callback_ends_the_run() -> None:
    process = SolverProcess(troubled_solvers.load)
    with pytest.raises(SolverCrashed, match=r"^solver troubled: its process was closed$"):
        run(
            process,
            report=1000,
            on_progress=lambda event: process.close(),
            on_log=lambda text: None,
        )
    assert process.pid is None


# --- names, versions, classes ----------------------------------------------------------------------------------------


def test_names_and_versions(shared: SolverProcess) -> None:
    for name, original in troubled_solvers.SOLVERS.items():
        solver = shared.load(name)
        assert (solver.name, solver.capabilities, solver.optional) == (
            name,
            original.capabilities,
            original.optional,
        )
        assert shared.load(name) is solver
    assert shared.load("highs").version() == troubled_solvers.Highs.version()
    for _ in range(2):
        with pytest.raises(
            SolverUnavailable, match=r"^solver missing cannot be loaded; install missing$"
        ):
            shared.load("missing").version()
    with refuses("unknown solver 'highz'...", SolverUnavailable):
        shared.load("highz")


@pytest.mark.parametrize("module", [__name__, "__main__", "no_such_module"])
def test_a_class_that_no_other_process_can_import(module: str) -> None:
    class Hidden(troubled_solvers.Highs):
        name = "hidden"

    Hidden.__module__ = module
    words = f"^solver hidden cannot run in its own process: its class .*Hidden cannot be imported from {module};"
    with SolverProcess(lambda name: Hidden) as process, pytest.raises(UsageError, match=words):
        process.load("hidden")


def test_no_process_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise OSError("no more processes")

    before = set(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(
        SolverUnavailable, match=r"^no process can be started for solvers: no more processes$"
    ):
        Child("solvers", "optsched.solvers.isolated.worker:serve")
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.clock
def test_through_the_engine(shared: SolverProcess) -> None:
    outcome = Engine(shared.load, "troubled", Limits(time=20)).solve_linear(dense())
    assert outcome.certificate.ok and outcome.value == pytest.approx(11.0)
    with pytest.raises(SolverCrashed, match="was killed"):
        Engine(shared.load, "troubled", Limits(time=0.1, options={"sleep": 60})).solve_linear(
            dense()
        )


def test_a_fork_does_not_take_part() -> None:
    """A copy of this process starts its own, and leaves that of the original alone."""
    process = SolverProcess(troubled_solvers.load)
    assert works(process)
    pid = process.pid
    forked = os.fork()
    if forked == 0:
        fine = process.pid is None and works(process) and process.pid != pid
        process.close()
        os._exit(0 if fine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0
    assert process.pid == pid and works(process) and process.pid == pid
    process.close()


# --- Ctrl-C and the end of the parent --------------------------------------------------------------------------------


def interrupt_when(told: str) -> Any:
    """A log callback that presses Ctrl-C when something is told."""
    return lambda text: os.kill(os.getpid(), signal.SIGINT) if text == told else None


def test_ctrl_c_reaches_a_solver_that_listens(
    shared: SolverProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "grace", 5.0)
    values = run(shared, 20.0, listen=True, on_log=interrupt_when("listening"))
    assert (
        values.termination is Termination.INTERRUPTED
        and values.words == "heard"
        and values.x is not None
    )
    assert works(shared)


@pytest.mark.clock
def test_ctrl_c_kills_a_solver_that_does_not_listen(shared: SolverProcess) -> None:
    assert works(shared)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    started = time.monotonic()
    values = run(shared, 30.0, sleep=60)
    assert 0.2 < time.monotonic() - started < 3.0 and values.seconds < 3.0
    assert values.termination is Termination.INTERRUPTED and values.x is None
    assert values.words == "interrupted; solver troubled did not answer within 0.2 s and was killed"
    assert works(shared)


def test_ctrl_c_while_the_process_starts() -> None:
    with SolverProcess(troubled_solvers.load) as process:
        process.load("slow")
        process.start()
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        values = process.load("slow")().open(dense().arrays).run(Limits(time=30))
        assert values.termination is Termination.INTERRUPTED and process.pid is not None


PARENT = """
import os, signal, sys, threading, time
import troubled_solvers
from optsched.conformance.linear import dense
from optsched.solvers import Limits
from optsched.solvers.isolated import SolverProcess

process = SolverProcess(troubled_solvers.load)
def begin():
    process.load("troubled").version()
    print(process.pid, flush=True)
thread = threading.Thread(target=begin)  # the thread ends, the process that it started goes on
thread.start(); thread.join()
session = process.load("troubled")().open(dense().arrays)
assert session.run(Limits(time=20)).objective == 11.0
assert "highspy" not in sys.modules  # what crashes when it is imported crashes the child
print("running", flush=True)
session.run(Limits(time=300, options={"hold the lock": True}))
"""


@pytest.mark.clock
def test_the_process_ends_with_who_started_it() -> None:
    """While a solver runs that holds Python's lock, and though the thread that started the process has ended."""
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert parent.stdout.readline() == "running\n"
    time.sleep(0.2)
    assert not gone(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert soon(lambda: gone(pid), 2.0)
