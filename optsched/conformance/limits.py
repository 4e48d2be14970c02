"""Limits, progress, Ctrl-C, options, and input that no solver should answer."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

import numpy as np

from optsched.conformance.answers import program, random_matrix
from optsched.conformance.case import (
    PATIENCE,
    Skipped,
    Subject,
    case,
    expect,
    expect_certified,
    expect_termination,
)
from optsched.conformance.integer import hard_knapsacks
from optsched.conformance.sessions import some_program
from optsched.errors import OptschedError, UsageError
from optsched.program import LinearArrays, LinearProgram
from optsched.solution import Status, Termination
from optsched.solvers import Capability, Progress

SLACK = 5.0
"""Seconds that a back-end may be late, on a busy machine too: some look at the clock once in an
iteration, some start a process, and cvxpy compiles the program before SCS sees the limit."""


def slack() -> float:
    """`SLACK`, and more where more processes want to run than there are cores:
    each has a part of one only.
    """
    if not hasattr(os, "getloadavg"):  # Windows
        return SLACK
    return SLACK * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def slow_program(rows: int = 700, columns: int = 900) -> LinearProgram:
    """A dense linear program that takes most back-ends longer than a tenth of a second."""
    return program(
        random_matrix(1, columns, 1)[0].tolist(),
        random_matrix(rows, columns, 2).tolist(),
        upper=(50.0 + 50.0 * random_matrix(1, rows, 3)[0]).tolist(),
        bounds=(0.0, 10.0),
    )


def long_program(subject: Subject) -> LinearArrays:
    """A program that the solver takes and is not done with at once."""
    return hard_knapsacks().arrays if subject.has(Capability.INTEGER) else slow_program().arrays


@case("the time limit is kept")
def time_limit(subject: Subject) -> None:
    """It stops near the limit, says so, and what it leaves is no better than its bound."""
    limit = 0.4 if subject.has(Capability.INTEGER) else 0.1
    arrays = long_program(subject)
    started = time.perf_counter()
    outcome = subject.solve(arrays, time=limit)
    spent = time.perf_counter() - started
    expect(spent <= limit + slack(), f"{spent:.1f} s at a limit of {limit} s")
    expect_certified(outcome, "", Status.FEASIBLE, Status.LIMIT, Status.OPTIMAL)
    if outcome.status is not Status.OPTIMAL:
        stopped = (Termination.TIME_LIMIT, Termination.IMPRECISE)
        end = outcome.values.termination
        expect(end in stopped, f"termination {end}, expected time_limit")


@case("the work limit stops in the same place every time")
def work_limit(subject: Subject) -> None:
    """One iteration or node: not optimal, unless it is; and two runs leave the same bytes."""
    arrays = (
        long_program(subject) if subject.has(Capability.INTEGER) else slow_program(200, 300).arrays
    )
    runs = [subject.solve(arrays, work=1) for _ in range(2)]
    # The clock stops nobody in the same place twice.
    if max(outcome.values.seconds for outcome in runs) > 0.9 * PATIENCE:
        raise Skipped("has no work limit: stopped by the clock")
    for outcome in runs:
        expect_certified(outcome)
    points = [None if outcome.values.x is None else outcome.values.x.tobytes() for outcome in runs]
    expect(points[0] == points[1], "two runs at the same work limit differ")


@case("the gap is kept", Capability.INTEGER)
def gap(subject: Subject) -> None:
    """An integer program may stop at a gap of 20 %, and what is left is not more than that."""
    # The first incumbent is good enough; a proof of the optimum would take hours.
    outcome = subject.solve(hard_knapsacks(60).arrays, gap=0.2)
    expect_certified(outcome)
    expect(outcome.values.seconds < 5.0, f"{outcome.values.seconds:.1f} s for a gap of 20 %")
    if outcome.bound is None or outcome.value is None:
        raise Skipped("states no bound")
    left = abs(outcome.bound - outcome.value)
    expect(
        left <= 0.2 * abs(outcome.value) * (1 + 1e-9),
        f"objective {outcome.value:g}, bound {outcome.bound:g}",
    )
    # A solver that passes its objective for the bound keeps every gap.
    expect(outcome.bound >= 20_937.4, f"the bound {outcome.bound:g} is below a point of 20937.4")


@case("progress is reported", Capability.PROGRESS)
def progress(subject: Subject) -> None:
    """In order of time; of an integer program with an incumbent and a bound
    that it is not better than.
    """
    events: list[Progress] = []
    arrays = long_program(subject)
    subject.run(arrays, time=1.2, on_progress=events.append)
    # Events come every 0.2 s, and linear programs may be done before.
    if not events and not arrays.is_integer:
        raise Skipped("was done before the first event was due")
    expect(events, "no event in 1.2 s")
    times = [event.elapsed for event in events]
    expect(times == sorted(times) and times[0] >= 0, f"events out of order: {times}")
    if arrays.is_integer:
        full = [
            event for event in events if event.incumbent is not None and event.bound is not None
        ]
        expect(full, "no event with incumbent and bound")
        good = all((event.bound or 0.0) >= (event.incumbent or 0.0) - 1e-6 for event in full)
        expect(good, "an incumbent better than the bound of a maximum")


@case("Ctrl-C stops the run", Capability.INTERRUPT)
def interrupt(subject: Subject) -> None:
    """What there is comes back, as interrupted, soon after the signal."""
    if threading.current_thread() is not threading.main_thread():
        raise Skipped("signals arrive in the main thread alone")
    arrays = long_program(subject)
    # Loads the library: a signal that comes before the run begins stops nothing.
    subject.solve(some_program(subject).arrays)
    after = 0.1
    latest = after + slack()
    limit = 2 * latest  # a guard alone: it must not end the run before the signal does
    with _sigint_after(after):
        started = time.perf_counter()
        values = subject.run(arrays, time=limit)
        spent = time.perf_counter() - started
    if values.termination is Termination.OPTIMAL and spent < latest:
        raise Skipped(f"was done after {spent:.2f} s, before it could be stopped")
    expect(spent < latest, f"went on for {spent - after:.1f} s after the signal")
    expect_termination(values, Termination.INTERRUPTED)


@contextmanager
def _sigint_after(seconds: float) -> Iterator[None]:
    """Send SIGINT, and again where it comes before the solver takes it, as on a busy machine."""
    timers: list[threading.Timer] = []

    def send_later(number: int = signal.SIGINT, frame: FrameType | None = None) -> None:
        timers.append(threading.Timer(seconds, os.kill, (os.getpid(), number)))
        timers[-1].start()

    before = signal.signal(signal.SIGINT, send_later)
    send_later()
    try:
        yield
    finally:
        # A signal that is on its way would end the program that runs the suite.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for timer in timers:
            timer.cancel()
            timer.join()
        signal.signal(signal.SIGINT, before)


@case("an unknown option is refused")
def unknown_option(subject: Subject) -> None:
    """An option that is mistyped must not be ignored."""
    try:
        subject.solve(some_program(subject).arrays, options={"no_such_option": 1})
    except UsageError:
        return
    expect(False, "an option that does not exist was ignored, expected a UsageError")


@case("NaN is refused")
def nan(subject: Subject) -> None:
    """In costs, coefficients and bounds: an error, never an answer."""
    arrays = some_program(subject).arrays
    broken = arrays.A.copy()
    broken.data[0] = np.nan
    row_upper = arrays.row_upper.copy()
    row_upper[0] = np.nan
    for name, program_with_nan in (
        ("cost", replace(arrays, cost=np.full_like(arrays.cost, np.nan))),
        ("coefficients", replace(arrays, A=broken)),
        ("row bounds", replace(arrays, row_upper=row_upper)),
    ):
        # Any error will do, of the engine or the solver, but no answer.
        try:
            outcome = subject.solve(program_with_nan)
        except OptschedError:
            continue
        expect(False, f"a NaN among the {name} was answered with {outcome.status}")


@case("a tolerance that is asked for is kept")
def tolerance(subject: Subject) -> None:
    """1e-6 is enough for the certificate, and no reason for another answer."""
    arrays = some_program(subject).arrays
    loose = subject.solve(arrays, tolerance=1e-6)
    tight = subject.solve(arrays, tolerance=1e-9)
    for outcome in (loose, tight):
        expect_certified(outcome)
        expect(outcome.value is not None, "no objective")
    expect(
        abs((loose.value or 0.0) - (tight.value or 0.0)) <= 1e-4,
        f"objectives {loose.value} and {tight.value}",
    )


CASES = (time_limit, work_limit, gap, progress, interrupt, unknown_option, nan, tolerance)
