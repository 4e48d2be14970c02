"""Timelines with known answers: what a back-end that takes activities in time must get right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from optsched.conformance.case import (
    Case,
    Subject,
    case,
    expect,
    expect_same_bytes,
    expect_termination,
)
from optsched.program import TimelineCost, TimelineProgram
from optsched.program.timeline import split_point
from optsched.solution.values import Termination, Values
from optsched.solvers import Capability

Mode = tuple[int, int, Sequence[int]]
"""(activity, duration, use of each resource)."""
SPAN = TimelineCost(makespan=1)


def timeline(
    modes: Sequence[Mode],
    capacity: Sequence[int],
    *,
    cost: TimelineCost = SPAN,
    release: Sequence[int] = (),
    deadline: Sequence[int] = (),
    closed: Sequence[Sequence[int]] = (),
    before: Sequence[tuple[int, int]] = (),
    budget: tuple[Sequence[int], int] | None = None,
) -> TimelineProgram:
    """A timeline program from rows; without deadlines one activity after the other always fits."""
    activity = np.array([mode[0] for mode in modes], np.int64)
    duration = np.array([mode[1] for mode in modes], np.int64)
    count = int(activity.max()) + 1
    # Room for all activities one after the other, with 10 to spare.
    horizon = int(duration.sum() + max(release, default=0) + 10)
    return TimelineProgram(
        release=np.array(release or [0] * count, np.int64),
        deadline=np.array(deadline or [horizon] * count, np.int64),
        activity=activity,
        duration=duration,
        usage=sp.csr_matrix(
            np.array([mode[2] for mode in modes], np.int64).reshape(len(modes), -1).T
        ),
        capacity=np.array(capacity, np.int64),
        cost=cost,
        closed=np.array(closed, np.int64).reshape(-1, 4),
        budget_usage=None if budget is None else sp.csr_matrix(np.array([budget[0]], np.int64)),
        budget=np.array([] if budget is None else [budget[1]], np.int64),
        precedence=np.array(before, np.int64).reshape(-1, 2),
    )


@dataclass(frozen=True)
class KnownSchedule:
    """A timeline program and the least cost of a schedule; None where there is none."""

    name: str
    build: Callable[[], TimelineProgram]
    optimum: int | None

    def case(self) -> Case:
        """The case that checks a solver's schedule in integers and compares its cost and bound."""
        return Case(self.name, self.check, frozenset({Capability.TIMELINE}))

    def check(self, subject: Subject) -> None:
        """Solve, check the schedule, compare."""
        program = self.build()
        values = subject.solve_timeline(program)
        if self.optimum is None:
            expect_termination(values, Termination.INFEASIBLE)
            expect(values.x is None, "a schedule of an infeasible program")
            return
        expect_termination(values, Termination.OPTIMAL)
        cost = checked(program, values)
        expect(cost == self.optimum, f"a schedule that costs {cost}, expected {self.optimum}")
        expect(
            values.objective == cost,
            f"states the objective {values.objective}, its schedule costs {cost}",
        )
        expect(
            # Costs are whole numbers, so a bound that rounds to the cost proves it.
            values.bound is not None and abs(values.bound - cost) < 0.5,
            f"the bound {values.bound} is not {cost}",
        )


def checked(program: TimelineProgram, values: Values) -> int:
    """The cost of a schedule that keeps every requirement."""
    if values.x is None:
        expect(False, "no schedule")
    assert values.x is not None
    expect(
        values.x.shape == (2 * len(program),),
        f"a point of shape {values.x.shape}, expected starts, then modes",
    )
    # In integers, without tolerance: a schedule keeps a requirement, or it does not.
    start, mode = split_point(program, values.x)
    broken = next(program.violations(start, mode), None)
    expect(broken is None, f"the schedule breaks {broken}")
    return program.objective(start, mode)


def unrelated() -> TimelineProgram:
    """4 jobs on 2 unrelated machines: 9, where splitting them would do with 7."""
    durations = [[6, 3], [4, 8], [5, 5], [9, 2]]
    return timeline(
        [(j, d, (i == 0, i == 1)) for j, row in enumerate(durations) for i, d in enumerate(row)],
        [1, 1],
    )


def gangs() -> TimelineProgram:
    """Gangs of 4, 2, 2, 1 for 2, 3, 3, 5 on 4 GPUs:
    25 GPU units would fit into 7, whole gangs need 8.
    """
    return timeline([(0, 2, [4]), (1, 3, [2]), (2, 3, [2]), (3, 5, [1])], [4])


def one_machine() -> TimelineProgram:
    """Sum of ends on one machine, durations 4, 1, 3: shortest first, 1 + 4 + 8."""
    return timeline(
        [(0, 4, [1]), (1, 1, [1]), (2, 3, [1])], [1], cost=TimelineCost(end=np.ones(3, np.int64))
    )


def tardiness() -> TimelineProgram:
    """Weights 1, 5, 1, due 2, 3, 9, durations 3, 3, 3:
    the heavy one first is never late, the next 4 late.
    """
    late = TimelineCost(tardiness=np.array([1, 5, 1]), due=np.array([2, 3, 9]))
    return timeline([(j, 3, [1]) for j in range(3)], [1], cost=late)


def calendar() -> TimelineProgram:
    """Durations 3 and 4 on a machine that is closed from 3 to 5: 3, then from 5 to 9."""
    return timeline([(0, 3, [1]), (1, 4, [1])], [1], closed=[(0, 3, 5, 1)])


def reduced() -> TimelineProgram:
    """Two gangs of 2 for 2 units on 4 GPUs, of which 2 are gone from 0 to 3:
    4, one after the other or late.
    """
    return timeline([(0, 2, [2]), (1, 2, [2])], [4], closed=[(0, 0, 3, 2)])


def precedence() -> TimelineProgram:
    """A chain of 2 and 3 beside 4 on two machines: 5;
    release dates 0, 0, 3 make the last end at 7.
    """
    return timeline(
        [(0, 2, [1]), (1, 3, [1]), (2, 4, [1])],
        [2],
        before=[(0, 1)],
        release=[0, 0, 3],
    )


def budget() -> TimelineProgram:
    """Fast modes (1 unit) cost 3, slow ones (4 units) nothing;
    a budget of 3 buys one: 5 on one machine.
    """
    modes = [(0, 1, [1]), (0, 4, [1]), (1, 1, [1]), (1, 4, [1])]
    return timeline(modes, [1], budget=([3, 0, 3, 0], 3))


def mode_cost() -> TimelineProgram:
    """Makespan and cost of modes together:
    fast (1) at 5 or slow (4) at 1, alone: 5 of slow beats 6.
    """
    return timeline(
        [(0, 1, [1]), (0, 4, [1])], [1], cost=TimelineCost(makespan=1, mode=np.array([5, 1]))
    )


def late_starts() -> TimelineProgram:
    """A negative cost of the start: as late as the deadline 10 lets a duration of 3 begin, -7."""
    return timeline([(0, 3, [1])], [1], deadline=[10], cost=TimelineCost(start=np.array([-1])))


def too_tight() -> TimelineProgram:
    """Two activities of 3 on one machine by 5."""
    return timeline([(0, 3, [1]), (1, 3, [1])], [1], deadline=[5, 5])


def no_window() -> TimelineProgram:
    """Released at 4, due at 5, 2 long."""
    return timeline([(0, 2, [1])], [1], release=[4], deadline=[5])


def too_wide() -> TimelineProgram:
    """A gang of 3 on 2 GPUs."""
    return timeline([(0, 2, [3])], [2])


@case("a timeline's cut-off", Capability.TIMELINE)
def cut_off(subject: Subject) -> None:
    """At most the optimum is feasible, at most one less is not."""
    for most, expected in ((9, Termination.OPTIMAL), (8, Termination.INFEASIBLE)):
        values = subject.solve_timeline(replace(unrelated(), most=most))
        expect(
            values.termination is expected,
            f"cost at most {most}: {values.termination}, expected {expected}",
        )


@case("a timeline's start", Capability.TIMELINE, Capability.START)
def from_a_start(subject: Subject) -> None:
    """A start changes the way, not the answer; an infeasible one does no harm."""
    program = unrelated()
    # Starts of the four jobs, then their modes; the second has all of them run at once on one
    # machine.
    for start in ([0, 3, 7, 5, 1, 2, 5, 7], [0, 0, 0, 0, 0, 2, 4, 6]):
        values = subject.solve_timeline(program, np.array(start, np.float64))
        expect(
            checked(program, values) == 9,
            f"from {start} the optimum is {values.objective}, expected 9",
        )


@case("a timeline gives the same bytes twice", Capability.TIMELINE)
def deterministic(subject: Subject) -> None:
    """Same program, seed and solver."""
    expect_same_bytes(*(subject.solve_timeline(gangs(), seed=3) for _ in range(2)))


KNOWN = (
    KnownSchedule("unrelated machines", unrelated, 9),
    KnownSchedule("gangs on one pool", gangs, 8),
    KnownSchedule("sum of ends", one_machine, 13),
    KnownSchedule("weighted tardiness", tardiness, 4),
    KnownSchedule("a machine closed for a while", calendar, 9),
    KnownSchedule("a capacity reduced for a while", reduced, 4),
    KnownSchedule("precedence and release", precedence, 7),
    KnownSchedule("modes within a budget", budget, 5),
    KnownSchedule("cost of modes", mode_cost, 5),
    KnownSchedule("late starts are paid for", late_starts, -7),
    KnownSchedule("too little time", too_tight, None),
    KnownSchedule("no window", no_window, None),
    KnownSchedule("too wide for the pool", too_wide, None),
)
CASES = (*(known.case() for known in KNOWN), cut_off, from_a_start, deterministic)
