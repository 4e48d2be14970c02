"""Timelines: the integer checker, both lowerings against brute force, list schedules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from timeline_cases import by_brute_force, random_program, unrelated

from optsched.errors import UsageError
from optsched.instance.durations import Timer
from optsched.program import Block, TimelineCost, TimelineProgram

# Private names: lowered forms, which otherwise solvers alone see
from optsched.program.integers import amount_unit, common_unit, round_down, round_up
from optsched.program.list_schedule import FAR, ResourceProfile, list_schedule, shifted_left
from optsched.program.time_indexed import count_columns, count_nonzeros, time_indexed
from optsched.program.timeline import split_point
from optsched.registry import load_solver
from optsched.solution import Termination
from optsched.solvers import Limits
from optsched.solving import Engine

pytestmark = pytest.mark.property

REFERENCE = np.array([[6, 3], [4, 8], [5, 5], [9, 2]])
"""R||Cmax with optimum 9."""


def by_cp_sat(program: TimelineProgram, **limits: object) -> int | None:
    values = load_solver("cp-sat")().solve_timeline(program, Limits(**limits))
    if values.termination is Termination.INFEASIBLE:
        return None
    start, mode = split_point(program, values.x)
    assert not list(program.violations(start, mode))
    assert program.objective(start, mode) == values.objective == values.bound
    return program.objective(start, mode)


def by_time_index(program: TimelineProgram) -> int | None:
    lowered = time_indexed(program)
    outcome = Engine(load_solver, "highs").solve_linear(lowered.program)
    if outcome.x is None:
        return None
    start, mode = lowered.read(outcome.x)
    assert not list(program.violations(start, mode))
    assert program.objective(start, mode) == pytest.approx(outcome.value)
    point = lowered.complete(start, mode)
    assert lowered.program.arrays.objective(point) == pytest.approx(outcome.value)
    return program.objective(start, mode)


@pytest.mark.parametrize("seed", range(12))
def test_both_lowerings_equal_brute_force(seed: int) -> None:
    program = random_program(seed)
    best = by_brute_force(program)
    assert by_cp_sat(program) == best
    assert by_time_index(program) == best


@pytest.mark.parametrize("seed", range(6))
def test_a_cut_off_below_the_optimum_is_infeasible(seed: int) -> None:
    program = random_program(seed)
    best = by_brute_force(program)
    if best is None:
        assert by_cp_sat(replace(program, most=10**6)) is None
        return
    below, at = replace(program, most=best - 1), replace(program, most=best)
    assert by_cp_sat(below) is None and by_time_index(below) is None
    assert by_cp_sat(at) == best == by_time_index(at)


def test_reference_makespan() -> None:
    assert by_cp_sat(unrelated(REFERENCE)) == by_time_index(unrelated(REFERENCE)) == 9


def test_what_cannot_be_is_infeasible_not_malformed() -> None:
    late = replace(unrelated(REFERENCE), deadline=np.full(4, 2))  # the second job needs 4
    assert by_cp_sat(late) is None and by_time_index(late) is None
    assert list_schedule(late) is None


def test_every_violation_is_found_with_its_amount() -> None:
    program = replace(
        unrelated(REFERENCE),
        release=np.array([0, 0, 3, 0]),
        deadline=np.array([20, 20, 20, 5]),
        precedence=np.array([[0, 1]]),
        budget_usage=sp.csr_matrix(np.ones((1, 8))),
        budget=np.array([3]),
        closed=np.array([[0, 0, 2, 1]]),
        most=7,
    )
    start, mode = np.array([0, 2, 1, 6]), np.array([0, 2, 5, 7])
    assert list(program.violations(start, mode)) == [
        ("release", 2, 2), ("deadline", 3, 3), ("precedence", 0, 4), ("capacity", 0, 1), ("budget", 0, 1),
        ("most", 0, 1),
    ]  # fmt: skip
    assert list(program.violations(start, np.array([0, 2, 5, 1]))) == [("mode", 3, 1)]
    assert list(program.violations(start, np.array([0, 2, 5, 99]))) == [("mode", 3, 1)]


def test_what_ends_makes_room_for_what_starts() -> None:
    program = unrelated(np.array([[2], [3]]))
    assert not list(program.violations(np.array([0, 2]), np.array([0, 1])))
    assert list(program.violations(np.array([0, 1]), np.array([0, 1]))) == [("capacity", 0, 1)]


def test_malformed_programs_are_refused() -> None:
    good = unrelated(REFERENCE)
    with pytest.raises(ValueError, match="ascending"):
        replace(good, activity=good.activity[::-1])
    with pytest.raises(ValueError, match="at least one unit"):
        replace(good, duration=np.zeros(8, np.int64))
    with pytest.raises(ValueError, match="shape"):
        replace(good, capacity=np.ones(3, np.int64))
    with pytest.raises(ValueError, match="no mode"):
        replace(good, release=np.zeros(5, np.int64), deadline=np.full(5, 9))


def test_a_program_too_large_to_be_indexed_by_time() -> None:
    long = unrelated(REFERENCE * 1_000_000)
    assert count_columns(long) > 10**8
    told = (
        r"has 182,000,008 starts and 1,568,000,064 coefficients, at most 5,000,000 are taken: "
        r"give a longer unit of time \(-O unit=SECONDS\) or take --solver cp-sat"
    )
    with pytest.raises(UsageError, match=told):
        time_indexed(long)  # at once: nothing is made


def test_a_start_outside_of_its_window_has_no_column() -> None:
    """Not that of another mode, whose column is the next one."""
    lowered = time_indexed(unrelated(REFERENCE))
    last = lowered.timeline.deadline[0] - REFERENCE[0, 0]
    start, mode = np.zeros(4, np.int64), np.array([0, 2, 4, 7])
    assert lowered.program.arrays.objective(lowered.complete(start, mode)) > 0
    start[0] = last + 1
    with pytest.raises(ValueError, match="outside of its window"):
        lowered.complete(start, mode)


def test_long_activities_cost_no_more_coefficients_than_short_ones() -> None:
    program = unrelated(REFERENCE * 500)
    lowered = time_indexed(program)  # 91,000 starts of activities that last up to 4,500
    assert lowered.program.arrays.A.nnz <= count_nonzeros(program) < 10 * count_columns(program)


@pytest.mark.parametrize("seed", range(4))
def test_coefficients_are_counted_before_they_are_made(seed: int) -> None:
    program = replace(random_program(seed, activities=5, horizon=30), most=10**6)
    made = time_indexed(program).program.arrays.A.nnz
    assert made <= count_nonzeros(program) <= 1.5 * made


@pytest.mark.parametrize("seed", range(6))
def test_carrying_use_through_time_relaxes_like_a_row_for_every_moment(seed: int) -> None:
    """The textbook's rows have all starts from which something still runs; the relaxation must be as tight."""
    program = random_program(seed, activities=4, horizon=12)
    lowered = time_indexed(program)
    ours = Engine(load_solver, "highs").solve_linear(lowered.program.arrays.relaxed())
    arrays, (mode, start) = lowered.program.arrays, (lowered.mode, lowered.start)
    stop, owner = start + program.duration[mode], program.activity[mode]
    rows, sides = [], []
    for moment in range(program.horizon):
        runs = (start <= moment) & (moment < stop)
        closed = [(amount if a <= moment < b else 0) for _, a, b, amount in program.closed]
        rows += list(program.usage.toarray()[:, mode] * runs)
        sides += (program.capacity - closed).tolist()
        for a, b in program.precedence:
            rows.append(
                1.0 * ((owner == b) & (start <= moment)) - ((owner == a) & (stop <= moment))
            )
            sides.append(0.0)
    width = arrays.shape[1]
    matrix = sp.csr_matrix(np.pad(np.array(rows), ((0, 0), (0, width - len(mode)))))
    kept = [block for block in arrays.rows if block.name not in ("busy", "before")]
    rest = np.concatenate([np.arange(block.start, block.stop) for block in kept])
    textbook = replace(
        arrays.relaxed(),
        A=sp.csc_matrix(sp.vstack([arrays.by_rows[rest], matrix])),
        row_lower=np.append(arrays.row_lower[rest], np.full(len(sides), -np.inf)),
        row_upper=np.append(arrays.row_upper[rest], sides),
        rows=(Block("all", 0, len(rest) + len(sides)),),
    )
    theirs = Engine(load_solver, "highs").solve_linear(textbook)
    assert (ours.x is None) == (theirs.x is None)
    if ours.x is not None:
        assert ours.value == pytest.approx(theirs.value, rel=1e-7, abs=1e-7)


# --- list schedules ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_list_schedules_are_feasible_and_move_left(seed: int) -> None:
    program = random_program(seed, activities=8, horizon=60)
    program = replace(program, budget=np.array([30]))
    start, mode = list_schedule(program)
    assert not list(program.violations(start, mode))
    later = np.minimum(start + 1, program.deadline - program.duration[mode])
    if not list(program.violations(later, mode)):
        moved = shifted_left(program, later, mode)
        assert not list(program.violations(moved, mode))
        assert (moved <= later).all() and program.objective(moved, mode) <= program.objective(
            later, mode
        )


@pytest.mark.parametrize("seed", range(10))
def test_a_list_of_rigid_gangs_is_at_most_twice_the_optimum(seed: int) -> None:
    random = np.random.default_rng(seed)
    gang, length = random.choice([1, 2, 4], 7), random.integers(1, 9, 7)
    program = TimelineProgram(
        release=np.zeros(7, np.int64), deadline=np.full(7, int(length.sum())), activity=np.arange(7), duration=length,
        usage=sp.csr_matrix(gang[np.newaxis, :]), capacity=np.array([4]),
    )  # fmt: skip
    listed = program.objective(*list_schedule(program))
    best = by_cp_sat(program)
    assert max(int(length.max()), -(-int(gang @ length) // 4)) <= best <= listed <= 2 * best


@pytest.mark.parametrize("looks", [0, 1, 5, 20])
def test_when_the_time_is_over_the_rest_runs_behind_all_others(looks: int) -> None:
    """The clock advances with each look, of which each activity takes one."""
    program = random_program(3, activities=12, horizon=90)
    program = replace(program, budget=np.array([40]))
    complete = program.objective(*list_schedule(program))
    clock = iter(range(10**6))
    timer = Timer.after(looks + 0.5, lambda: float(next(clock)))
    start, mode = list_schedule(program, timer._replace(read=-10.0))
    assert not list(program.violations(start, mode))
    assert program.objective(start, mode) >= complete
    later = 10 + np.argsort(np.argsort(start)) * 5  # one after the other, with gaps
    assert not list(program.violations(later, mode))
    part = shifted_left(program, later, mode, timer._replace(read=-10.0))
    assert not list(program.violations(part, mode)) and (part <= later).all()


@pytest.mark.parametrize("seed", range(12))
def test_no_schedule_is_shorter_than_the_least_makespan(seed: int) -> None:
    program = replace(random_program(seed), cost=TimelineCost(makespan=1))
    best = by_brute_force(program)
    assert best is None or 0 < program.least_makespan <= best


def test_the_least_makespan_is_about_that_of_the_relaxation() -> None:
    program = unrelated(np.random.default_rng(1).integers(1, 9, (40, 5)))
    relaxed = time_indexed(program).program.arrays.relaxed()
    bound = Engine(load_solver, "highs").solve_linear(relaxed).value
    assert bound * 0.99 <= program.least_makespan <= np.ceil(bound - 1e-6)


def test_profiles() -> None:
    profile = ResourceProfile(2)
    profile.add(3, 5, 2)
    profile.add(5, 8, 1)
    assert profile.earliest(0, 3, 1) == 0
    assert profile.earliest(0, 4, 1) == 5
    assert profile.earliest(0, 4, 2) == 8
    assert profile.earliest(4, 1, 1) == 5
    assert profile.earliest(9, 100, 2) == 9
    assert profile.earliest(0, 1, 3) == FAR


def test_seventy_activities_on_a_calendar_in_one_go() -> None:
    program = random_program(3, activities=70, horizon=4000)
    program = replace(program, budget=np.array([200]))
    start, mode = list_schedule(program)
    assert not list(program.violations(start, mode))


# --- limits and starts ---------------------------------------------------------------------------------------------


@pytest.mark.clock
def test_work_limit_stops_reproducibly_and_time_limit_stops() -> None:
    random = np.random.default_rng(1)
    program = unrelated(random.integers(10, 100, (60, 6)))
    solver = load_solver("cp-sat")
    first, second = (solver().solve_timeline(program, Limits(work=1, gap=0.0)) for _ in range(2))
    assert first.termination in (Termination.WORK_LIMIT, Termination.OPTIMAL)
    if first.x is not None:
        assert first.x.tobytes() == second.x.tobytes()
    tight = solver().solve_timeline(
        replace(program, cost=TimelineCost(end=np.ones(60, np.int64))), Limits(time=0.5)
    )
    assert tight.termination is Termination.TIME_LIMIT and tight.seconds < 5


def test_a_start_is_where_the_search_begins() -> None:
    program = unrelated(np.random.default_rng(2).integers(10, 100, (40, 4)))
    point = np.concatenate(list_schedule(program)).astype(float)
    values = load_solver("cp-sat")().solve_timeline(program, Limits(work=1), point)
    assert values.x is not None  # with the start there is an answer at once
    assert program.objective(*split_point(program, values.x)) <= program.objective(
        *split_point(program, point)
    )


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(UsageError, match="cp-sat refused its options"):
        load_solver("cp-sat")().solve_timeline(
            unrelated(REFERENCE), Limits(options={"no_such_option": 1})
        )


def test_progress_tells_bound_and_incumbent() -> None:
    events: list[object] = []
    program = unrelated(np.random.default_rng(3).integers(10, 100, (20, 4)))
    load_solver("cp-sat")().solve_timeline(program, Limits(on_progress=events.append))
    assert any(event.incumbent is not None for event in events)
    assert [event.elapsed for event in events] == sorted(event.elapsed for event in events)


# --- units ---------------------------------------------------------------------------------------------------------


def test_common_units() -> None:
    assert common_unit(np.array([6.0, 9.0, 15.0])) == 3.0
    assert common_unit(np.array([0.25, 1.5])) == 0.25
    assert common_unit(np.array([0.0])) == 1.0
    assert common_unit(np.array([1.0, np.pi])) is None
    assert common_unit(np.array([1e-6, 1e3])) is None  # a thousand million units
    assert amount_unit(np.array([0.5, 3.0])) == 0.5
    assert amount_unit(np.array([np.pi, 10.0])) == pytest.approx(1e-5)


def test_rounding_forgives_one_over_one_over_p() -> None:
    p = np.arange(1.0, 2001.0)
    assert (round_up(1 / (1 / p), 1.0) == p).all() and (round_down(1 / (1 / p), 1.0) == p).all()
    assert round_up(np.array([3.001]), 1.0)[0] == 4 and round_down(np.array([2.999]), 1.0)[0] == 2
