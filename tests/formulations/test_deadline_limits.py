"""Limits of plans that meet deadlines: of time and work, of the size of a program, and bounds without one."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from plan_instances import leases, made, verified

import optsched
from formulations import deadline_elastic, deadline_fluid, elasticflow, lease, level_planner
from formulations.deadline_elastic import DeadlineElastic, ElasticProgram
from formulations.deadline_fluid import FluidProgram
from formulations.elasticflow import ElasticFlow
from formulations.horizon import NO_VALUE
from formulations.lease_room import earliest
from formulations.level_planner import LevelJob, LevelPlan, Profile, plan_levels
from formulations.level_table import LevelTable
from optsched.candidates import Classes
from optsched.decomposition import by_parts
from optsched.errors import UsageError
from optsched.instance import Instance, with_columns
from optsched.instance.durations import Timer
from optsched.placement import realisation
from optsched.program import LinearProgram
from optsched.solution import plan
from optsched.solving import Engine


def elastic_jobs(jobs: int, deadline: float = 100.0, gpus: int = 20, **more: Any) -> Instance:
    """Jobs of 10, 11, ... steps, of which each is done in a second on one GPU, and 1.5 on two."""
    pool = {"name": "v100", "nodes": 1, "gpus_per_node": gpus}
    rates = {"v100": {"1": 1.0, "2": 1.5}}
    levels = {"min": 1, "max": 2, "levels": [1, 2]}
    return made(
        cluster={"pools": [pool]},
        jobs=[
            {"id": f"j{n}", "gpus": levels, "steps": 10.0 + n, "deadline": deadline, "throughput": rates}
            | more
            for n in range(jobs)
        ],
    )  # fmt: skip


def ticking(seconds: float) -> Timer:
    """A time limit whose clock goes on by a second whenever somebody looks at it."""
    ticks = count()
    return Timer.after(seconds, clock=lambda: float(next(ticks)))


def solve(instance: Instance, formulation: str, **options: Any) -> optsched.Solution:
    return verified(optsched.solve(instance, formulation, admission=True, options=options))


def answers_by_limit(
    instance: Instance, limits: range, formulation: str = "deadline-elastic", **how: Any
) -> list[optsched.Solution]:
    """The answers of limits of so many looks at the clock, from the first with which there is one."""
    found = [
        optsched.solve(instance, formulation, time_limit=ticking(seconds), **how)
        for seconds in limits
    ]
    answers = [verified(solution) for solution in found if solution.status != "limit"]
    assert found[-len(answers) :] == answers
    return answers


def objectives(solutions: list[optsched.Solution]) -> list[float]:
    """Those of solutions that all have one."""
    found = [one.objective for one in solutions if one.objective is not None]
    assert len(found) == len(solutions)
    return found


@pytest.mark.property
def test_without_time_for_the_program_the_plan_by_rule_is_the_answer() -> None:
    """None of the limits is so short that there is nothing, from the first with which there is something;
    and more time never gives a worse answer.
    """
    answers = answers_by_limit(elastic_jobs(5, deadline=8.0), range(1, 100), admission=True)
    lost = objectives(answers)
    assert lost == sorted(lost, reverse=True) and set(lost) == {5.0, 4.0, 3.0, 2.0}
    unbuilt = [one for one in answers if "before the program was built" in one.solver.reason]
    assert {(one.status, one.termination, one.objective) for one in unbuilt} == {
        ("feasible", "time_limit", 2.0)
    }
    assert (answers[-1].status, answers[-1].bound) == ("optimal", 2.0)


@pytest.mark.property
@pytest.mark.parametrize("program", [True, False])
def test_a_rule_that_the_clock_stops_keeps_what_it_has_planned(program: bool) -> None:
    """The long job, which comes first, makes way for two short ones; whoever stops before has the long one, and
    the answer is verified though the whole plan does not have it.
    """
    rates = {"throughput": {"v100": 1.0}}
    steps = {"long": 10.0, "short": 4.0, "other": 4.0}
    jobs = [{"id": n, "gpus": 1, "steps": s, "deadline": 10.0, **rates} for n, s in steps.items()]
    instance = made(
        cluster={"pools": [{"name": "v100", "nodes": 1, "gpus_per_node": 1}]}, jobs=jobs
    )
    how: dict[str, Any] = {"admission": True, "options": {"program": program}}
    answers = answers_by_limit(instance, range(5, 60), **how)
    assert answers[-1].objective == 1.0
    assert {job for job, _ in answers[-1].declined} == {"long"}
    kept = [{job for job, _ in one.declined} for one in answers if one.objective == 2.0]
    assert {"short", "other"} in kept
    stopped = next(one for one in answers if one.objective == 2.0)
    assert (stopped.status, stopped.termination) == ("feasible", "time_limit")
    assert "before all plans by rule were made" in stopped.solver.reason


@pytest.mark.parametrize("columns", [2, 20_000])
@pytest.mark.parametrize("admission", [True, False])
def test_without_time_for_the_fluid_program_the_plan_by_rule_is_the_answer(
    admission: bool, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is over once the rule is done. With more columns than these a smaller program checks the plan."""
    now = [0.0]

    def slow_rule(*jobs: Any, **how: Any) -> LevelPlan:
        plan = plan_levels(*jobs, **how)
        now[0] = 100.0
        return plan

    monkeypatch.setattr(deadline_fluid, "plan_levels", slow_rule)
    monkeypatch.setattr(deadline_fluid, "MOST_BOUNDING", columns)
    limit = Timer.after(5.0, clock=lambda: now[0])
    # Of ten GPUs the jobs get too few to be in time, or to be so with the least GPU time.
    gpus, deadline = (3, 8.0) if admission else (4, 20.0)
    instance = elastic_jobs(5, deadline, gpus)
    options = {"admission": admission}
    stopped = optsched.solve(instance, "deadline-fluid", time_limit=limit, options=options)
    assert verified(stopped).objective == (4.0 if admission else pytest.approx(63.333333))
    assert (stopped.status, stopped.termination) == ("feasible", "time_limit")
    assert stopped.bound == (2.0 if admission else 60.0)


def test_a_large_fluid_program_is_given_up_where_building_takes_most_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its rows of work are there after 80 of 100 s; its rows of capacity are not begun then."""
    now, built = [0.0], []
    work, held = (vars(FluidProgram)[name].func for name in ("_work", "_held"))

    def slow_work(self: FluidProgram) -> Any:
        now[0] = 80.0
        return work(self)

    def recorded(self: FluidProgram) -> Any:
        built.append(self.merges_above)
        return held(self)

    monkeypatch.setattr(FluidProgram, "_work", property(slow_work))
    monkeypatch.setattr(FluidProgram, "_held", property(recorded))
    monkeypatch.setattr(deadline_fluid, "MOST_BOUNDING", 2)
    limit = Timer.after(100.0, clock=lambda: now[0])
    solution = optsched.solve(elastic_jobs(5), "deadline-fluid", time_limit=limit, admission=True)
    assert verified(solution).objective == 0.0
    assert built[0] == 2


@pytest.mark.parametrize("admission", [True, False])
def test_no_solver_runs_where_no_fluid_plan_is_better_than_that_of_the_rule(
    admission: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All jobs are kept, at the level with the least GPU time; sums without a solver prove that."""
    monkeypatch.setattr(Engine, "run", None)
    solution = optsched.solve(elastic_jobs(5), "deadline-fluid", options={"admission": admission})
    assert (verified(solution).status, solution.bound_source) == ("optimal", "dual")
    assert solution.objective == (0.0 if admission else 60.0)


def test_a_schedule_of_an_optimum_that_takes_too_long_makes_way_for_the_plan_by_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While its first interval is cut into slices the limit passes; no other interval is."""
    now, cut = [0.0], []

    def slow_slices(*given: Any) -> Any:
        now[0] = 10.0
        cut.append(1)
        return real(*given)

    real = realisation.slices_of
    monkeypatch.setattr(realisation, "slices_of", slow_slices)
    instance = elastic_jobs(5, deadline=18.0, gpus=4)
    instance = with_columns(instance, deadline=instance.jobs_table.deadline + 0.5 * np.arange(5))
    # As if no interval had places of identical machines.
    monkeypatch.setattr(FluidProgram, "_lines", lambda _, rows, t: (np.full_like(t, -1), t + 1))
    best = optsched.solve(instance, "deadline-fluid")
    assert len(cut) > 1
    cut.clear()
    now[0] = 0.0
    limit = Timer.after(5.0, clock=lambda: now[0])
    stopped = verified(optsched.solve(instance, "deadline-fluid", time_limit=limit))
    assert len(cut) == 1
    assert stopped.status == "feasible" and "plan by rule" in stopped.notes[0]
    after, optimum = objectives([stopped, best])
    assert after > optimum == pytest.approx(stopped.bound)


def test_where_the_rule_has_no_time_either_the_fluid_program_is_not_built() -> None:
    stopped = optsched.solve(elastic_jobs(5), "deadline-fluid", time_limit=ticking(3))
    assert (stopped.status, stopped.objective) == ("limit", None)


def test_a_fluid_answer_says_that_the_clock_stopped_the_rule() -> None:
    stopped = answers_by_limit(
        elastic_jobs(5, deadline=8.0), range(4, 40), "deadline-fluid", admission=True
    )[0]
    assert any("before all plans by rule were made" in note for note in stopped.notes)


@pytest.mark.property
def test_more_time_never_gives_fewer_leases() -> None:
    """The rule has as many jobs as it has planned when the clock stops it; then the program is not built."""
    instance = leases([1] * 5, [1] * 5, [5, 6, 7, 8, 9], 1)
    answers = answers_by_limit(instance, range(1, 60), "lease", admission=True)
    kept = objectives(answers)
    assert kept == sorted(kept) and set(kept) == {0.0, 1.0, 2.0, 3.0, 4.0, 5.0}
    stopped = next(one for one in answers if one.objective == 3.0)
    assert (stopped.status, stopped.termination, stopped.bound) == ("feasible", "time_limit", None)
    assert any("more time may keep more deadlines" in note for note in stopped.notes)
    assert answers[-1].status == "optimal"


@pytest.mark.parametrize("first", ["ignore", "maximise"])
@pytest.mark.parametrize("admission", [True, False])
def test_without_time_for_the_program_of_leases_the_plan_by_rule_is_the_answer(
    first: str, admission: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are done in two of the three leases that the program would have."""
    monkeypatch.setattr(lease, "COLUMNS_PER_SECOND", 1)
    instance = leases([2, 1, 1], [1, 1, 1], [3, 3, 3], 2)
    solution = optsched.solve(
        instance, "lease", time_limit=5.0, options={"first_lease": first}, admission=admission
    )
    whole = optsched.solve(instance, "lease", options={"first_lease": first}, admission=admission)
    assert verified(solution).objective == whole.objective
    assert (solution.status, solution.termination) == ("feasible", "time_limit")
    assert "too short for a program of 6 columns" in solution.notes[0]
    assert [stage.bound for stage in solution.stages] == [None, None]


@pytest.mark.parametrize("admission", [True, False])
def test_where_the_program_of_leases_is_too_large_the_plan_by_rule_is_the_answer(
    admission: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By rule three of four jobs are kept. The bound is not that of the leases of the plan alone."""
    monkeypatch.setattr(lease, "MOST_COLUMNS", 5)
    instance = leases([2, 1, 1, 2], [2, 2, 2, 1], [4, 3, 3, 3], 3)
    solution = optsched.solve(instance, "lease", admission=admission)
    assert solution.solver is not None and "have 10 columns, at most 5" in solution.solver.reason
    if admission:
        verified(solution)
        assert (solution.objective, solution.bound) == (3.0, 4.0)
        assert (solution.status, solution.termination) == ("feasible", "by_rule")
    else:
        assert (solution.status, solution.schedule) == ("limit", None)


def test_leases_that_no_rule_can_look_at_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "MOST_COLUMNS", 5)
    monkeypatch.setattr(lease, "MOST_BY_RULE", 9)
    with pytest.raises(UsageError, match="lease: 10 variables of options"):
        optsched.solve(leases([2, 1, 1, 2], [2, 2, 2, 1], [4, 3, 3, 3], 3), "lease")


def test_a_fluid_answer_by_rule_makes_the_levels_of_jobs_once_and_within_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time is over once the levels are made, so that a smaller program checks the plan."""
    now, timers = [0.0], []

    def slow_levels(table: LevelTable, timer: Timer) -> list[LevelJob]:
        timers.append(timer)
        now[0] = 100.0
        return make_jobs(table, timer)

    make_jobs = LevelTable.jobs
    monkeypatch.setattr(LevelTable, "jobs", slow_levels)
    monkeypatch.setattr(deadline_fluid, "MOST_BOUNDING", 2)
    limit = Timer.after(5.0, clock=lambda: now[0])
    stopped = optsched.solve(elastic_jobs(5), "deadline-fluid", time_limit=limit, admission=True)
    assert verified(stopped).objective == 5.0
    assert [timer.seconds for timer in timers] == [5.0]


def rigid_jobs() -> Instance:
    """Five jobs of two GPUs that jobs run as early as possible keep, by the least slack first. Runs
    when most is free do not, and no schedule of an optimum of the program is found.
    """
    gangs, steps = [1, 2, 2, 1, 1], [10, 15, 15, 10, 15]
    arrivals, deadlines = [0, 10, 20, 0, 10], [50, 60, 50, 20, 30]
    return made(
        cluster={"pools": [{"name": "v100", "nodes": 2, "gpus_per_node": 1}]},
        jobs=[
            {"id": f"j{n}", "gpus": g, "steps": s, "arrival": a, "deadline": d, "throughput": {"v100": 1.0}}
            for n, (g, s, a, d) in enumerate(zip(gangs, steps, arrivals, deadlines, strict=True))
        ],
    )  # fmt: skip


@pytest.mark.parametrize("limit", [None, 1000.0])
def test_where_one_order_is_tried_of_many_jobs_they_run_early_as_well(
    limit: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if five jobs were as many as thousands."""
    monkeypatch.setattr(deadline_fluid, "MOST_REPAIRED", 0)
    monkeypatch.setattr(level_planner, "MOST_PLANNED", 10)
    solution = optsched.solve(rigid_jobs(), "deadline-fluid", time_limit=limit)
    assert verified(solution).schedule is not None
    assert "plan by rule" in solution.notes[0]


@pytest.mark.parametrize("seconds", [60.0, 100.0])
def test_where_only_a_plan_of_all_jobs_counts_the_rule_has_half_of_the_limit(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if five jobs were as many as thousands. The plan takes 40 s: in 30 s it is not made."""
    now, cheapest = [0.0], Profile.cheapest

    def slow(*given: Any) -> Any:
        now[0] += 8.0
        return cheapest(*given)

    monkeypatch.setattr(Profile, "cheapest", slow)
    monkeypatch.setattr(deadline_fluid, "MOST_REPAIRED", 0)
    limit = Timer.after(seconds, clock=lambda: now[0])
    solution = optsched.solve(rigid_jobs(), "deadline-fluid", time_limit=limit)
    is_stopped = any("before all plans by rule were made" in note for note in solution.notes)
    if seconds > 80.0:
        assert verified(solution).schedule is not None
    else:
        assert (solution.status, is_stopped) == ("limit", True)


def test_jobs_that_wait_look_for_no_room_where_nothing_is_free_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One GPU runs one of three jobs, and the others wait for it."""
    starting, looks = [False], []
    room, start_early = Profile.room, LevelPlan.start_early

    def counted(*given: Any) -> Any:
        looks.append(starting[0])
        return room(*given)

    def watched(self: LevelPlan, timer: Timer) -> None:
        starting[0] = True
        start_early(self, timer)
        starting[0] = False

    monkeypatch.setattr(Profile, "room", counted)
    monkeypatch.setattr(LevelPlan, "start_early", watched)
    solution = solve(elastic_jobs(3, gpus=1), "deadline-elastic", program=False)
    assert solution.objective == 0.0
    assert looks and not any(looks)


def test_a_plan_by_rule_has_as_many_numbers_as_jobs() -> None:
    """Half of the jobs run side by side. A row for each step, with a number for each of them, grew
    with the square.
    """
    counts = []
    for jobs in (20, 40):
        formulation = DeadlineElastic(DeadlineElastic.Options(program=False, admission=True))
        instance = elastic_jobs(jobs, gpus=jobs // 2)
        found = formulation.build(formulation.classes(optsched.compile(instance)))
        counts.append(found.program.arrays.A.nnz)
    assert counts[1] == 2 * counts[0]


def test_a_plan_by_rule_beyond_the_capacity_is_refused() -> None:
    solution = solve(elastic_jobs(2, gpus=1), "deadline-elastic", program=False)
    document = solution.to_document()
    for row in document["schedule"]:
        row |= {"start": 0.0, "end": row["end"] - row["start"]}
    report = optsched.verify(solution.instance, document)
    assert "v100 is used beyond its capacity at 0 s" in str(report)


def test_words_about_many_jobs_read_their_arrivals_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = list[int]()
    arrival = vars(Classes)["arrival"].fget

    def counted(C: Classes) -> Any:
        reads.append(1)
        return arrival(C)

    monkeypatch.setattr(Classes, "arrival", property(counted))
    counts = []
    for jobs in (3, 30):
        reads.clear()
        solution = solve(elastic_jobs(jobs, deadline=5.0), "deadline-elastic", program=False)
        assert len(solution.declined) == jobs
        counts.append(len(reads))
    assert counts[0] == counts[1]


@pytest.mark.property
def test_elasticflow_gives_shares_of_what_is_left_where_the_clock_stops_it() -> None:
    """First no newcomer has a share, then some have, at last all."""
    answers = answers_by_limit(elastic_jobs(5), range(1, 150), "elasticflow", admission=True)
    lost = objectives(answers)
    assert set(lost) == {0.0, 1.0, 2.0, 3.0, 4.0, 5.0} and lost[-1] == 0.0, lost
    assert answers[0].termination == "time_limit" and answers[-1].status == "optimal"


def test_a_rule_that_the_clock_stops_claims_nothing_of_jobs_that_must_all_be_kept() -> None:
    """All five can be kept, which takes more looks at the clock."""
    stopped = optsched.solve(elastic_jobs(5), "deadline-elastic", time_limit=ticking(14))
    assert (stopped.status, stopped.termination, stopped.conflicts) == ("limit", "time_limit", ())


def test_once_the_time_is_over_no_room_is_sought_for_jobs_that_the_rule_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes as long as the rule itself: fifty thousand jobs took three times the limit."""
    monkeypatch.setattr(Profile, "cheapest", None)
    made_levels: list[int] = []
    late = Timer.after(1.0, clock=lambda: 100.0 if made_levels else 0.0)

    def slow_levels(table: LevelTable, timer: Timer) -> list[LevelJob]:
        jobs = make_jobs(table, timer)
        made_levels.append(len(jobs))
        return jobs

    make_jobs = LevelTable.jobs
    monkeypatch.setattr(LevelTable, "jobs", slow_levels)
    stopped = optsched.solve(elastic_jobs(5), "deadline-elastic", time_limit=late)
    assert (stopped.status, stopped.termination) == ("limit", "time_limit")


def test_a_rule_that_takes_its_part_of_the_time_leaves_the_rest_to_the_proof_that_there_is_no_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Jobs of 10, 11 and 12 s do not fit into 16 s on one GPU. The rule takes 7.2 of the 10 s."""
    now = [0.0]

    def slow_rule(self: Any, jobs: Any, profile: Any, *_: Any) -> LevelPlan:
        now[0] = 7.2
        return LevelPlan(jobs, profile.copy(), stopped=True)

    monkeypatch.setattr(DeadlineElastic, "plan_by_rule", slow_rule)
    limit = Timer.after(10.0, clock=lambda: now[0])
    instance = elastic_jobs(3, deadline=16.0, gpus=1)
    solution = optsched.solve(instance, "deadline-elastic", time_limit=limit)
    assert (solution.status, solution.certificate.proof) == ("infeasible", "dual")
    assert {one.block for one in solution.conflicts} == {"work", "capacity"}


@pytest.mark.parametrize("seconds", [0.0, 100.0])
def test_what_is_not_proven_is_told_without_a_claim(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule keeps one job of three that can be kept. Only who has the time knows that a relaxation keeps all."""
    now = [0.0]

    def poor_rule(self: Any, jobs: Any, profile: Any, *_: Any) -> LevelPlan:
        plan = LevelPlan(jobs, profile.copy())
        plan.add(0)
        return plan

    def slow_proof(self: FluidProgram) -> Any:
        now[0] = seconds
        return real(self)

    real = FluidProgram.program_first
    monkeypatch.setattr(FluidProgram, "program_first", slow_proof)
    monkeypatch.setattr(ElasticFlow, "plan_by_rule", poor_rule)
    limit = Timer.after(10.0, clock=lambda: now[0])
    solution = optsched.solve(elastic_jobs(3, gpus=4), "elasticflow", time_limit=limit)
    ends = {0.0: "by_rule", 100.0: "time_limit"}
    assert (solution.status, solution.termination) == ("limit", ends[seconds])
    why, rule = solution.notes
    assert ("keeps them" in why) == (seconds == 0.0)
    assert ("a limit ended the search" in why) == (seconds > 0.0)
    assert "keeps 1 of the 3 jobs" in rule and "admission" in rule


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_jobs_are_not_moved_to_earlier_leases_once_the_time_is_over(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = []

    def counted(*given: Any) -> list[int]:
        moved.append(given)
        return earliest(*given)

    monkeypatch.setattr(lease, "FOR_ORDER", seconds)
    monkeypatch.setattr(lease, "earliest", counted)
    instance = leases([2, 1, 1], [1, 1, 1], [3, 3, 3], 2)
    solution = optsched.solve(instance, "lease", time_limit=ticking(10_000))
    assert verified(solution).status == "optimal"
    assert bool(moved) == (seconds > 0.0)


def test_levels_of_jobs_are_not_made_once_the_time_is_over() -> None:
    """Thousands of jobs take seconds."""
    stopped = optsched.solve(elastic_jobs(50), "elasticflow", time_limit=ticking(10))
    assert (stopped.status, stopped.termination, stopped.schedule) == ("limit", "time_limit", None)
    assert "before a solver could begin" in stopped.notes[0]


def test_an_infeasible_program_that_is_sifted_is_planned_by_rule_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under a time limit the rule comes first; the program that proves the infeasibility needs no plan."""
    plans = []

    def counted(*jobs: Any, **how: Any) -> LevelPlan:
        plans.append(plan_levels(*jobs, **how))
        return plans[-1]

    monkeypatch.setattr(deadline_fluid, "plan_levels", counted)
    monkeypatch.setattr(deadline_fluid, "SIFTED_FROM", 1)
    solution = optsched.solve(
        elastic_jobs(5, deadline=16.0, gpus=1), "deadline-fluid", time_limit=1000
    )
    assert (solution.status, len(plans)) == ("infeasible", 1)


def test_within_a_limit_that_leaves_no_optimum_the_plan_by_rule_is_the_answer() -> None:
    """Its program takes more than one pivot."""
    instance = elastic_jobs(5, deadline=20.0, gpus=4)
    assert verified(optsched.solve(instance, "deadline-fluid")).status == "optimal"
    stopped = optsched.solve(instance, "deadline-fluid", work_limit=1)
    assert (verified(stopped).status, stopped.termination) == ("feasible", "work_limit")


def test_a_program_that_is_too_large_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three jobs of two thirds of the time on two GPUs none may stop, so that there is no room for one."""
    monkeypatch.setattr(deadline_elastic, "MOST_HELD", 2)
    instance = elastic_jobs(3, deadline=16.0, gpus=2, preemptible=False)
    solution = solve(instance, "deadline-elastic")
    assert (solution.termination, solution.objective) == ("by_rule", 1.0)
    assert "program would have" in solution.solver.reason


@pytest.mark.parametrize("second", [0.0, 5.0])
def test_no_solver_runs_where_the_plan_by_rule_has_the_most_value_of_every_job(
    second: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job has two deadlines, of which the later one is worth less."""
    monkeypatch.setattr(plan, "LATER_COLUMNS", 0)
    option = {"pool": "v100", "gpus": 1, "duration": 10.0}
    options = [
        option | {"value": value, "attributes": {"deadline": deadline}}
        for value, deadline in ((9.0, 10.0), (second, 30.0))
    ]
    pool = {"name": "v100", "nodes": 1, "gpus_per_node": 1}
    jobs = [{"id": name, "options": options} for name in ("a", "b")]
    whole = made(round=10.0, cluster={"pools": [pool]}, jobs=jobs[:1])
    for formulation in ("lease", "deadline-elastic"):
        solution = solve(whole, formulation)
        assert (solution.status, solution.solver.name) == ("optimal", "closed form")
        assert solution.certificate.proof == "dual"
    both = made(round=10.0, cluster={"pools": [pool]}, jobs=jobs)
    solution = solve(both, "lease")
    assert (solution.status, solution.objective) == ("optimal", 9.0 + second)
    assert solution.solver.name != "closed form"


@pytest.mark.parametrize(("deadline", "lost"), [(8.0, 2.0), (100.0, 0.0)])
def test_no_columns_are_made_where_the_plan_by_rule_loses_nothing(
    deadline: float, lost: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs cannot be in time alone, which the bound knows. The program is too large for a second objective."""
    monkeypatch.setattr(plan, "LATER_COLUMNS", 0)
    solution = solve(elastic_jobs(5, deadline=deadline), "deadline-elastic", columns=0)
    assert (solution.status, solution.objective, solution.bound) == ("optimal", lost, lost)
    assert "no plan is better" in solution.solver.reason
    crowded = solve(elastic_jobs(5, deadline=24.0, gpus=2), "deadline-elastic", columns=0)
    assert "by columns" in crowded.solver.reason


def test_columns_take_the_least_gpu_time_where_the_plan_by_rule_loses_nothing() -> None:
    """By rule all jobs run on both GPUs, one after the other. The first two can also run side by side, as the first
    needs both only at its end.
    """
    jobs = [
        {"id": str(n), "gpus": {"min": 1, "max": 2, "levels": [1, 2]}, "steps": steps, "deadline": deadline}
        | {"throughput": {"v100": {"1": 1.0, "2": 1.5}}}
        for n, (steps, deadline) in enumerate([(14.0, 13.0), (8.0, 17.0), (14.0, 24.0)])
    ]  # fmt: skip
    pool = {"name": "v100", "nodes": 1, "gpus_per_node": 2}
    instance = made(cluster={"pools": [pool]}, jobs=jobs)
    assert solve(instance, "deadline-elastic", program=False).objective == 0.0
    by_columns = solve(instance, "deadline-elastic", columns=0)
    whole = solve(instance, "deadline-elastic")
    for solution in (by_columns, whole):
        assert (solution.status, solution.objective) == ("optimal", 0.0)
        (stage,) = solution.stages
        assert stage.value == pytest.approx(stage.bound)
    assert by_columns.stages[0].value == pytest.approx(whole.stages[0].value)


@pytest.mark.parametrize("formulation", ["deadline-elastic", "deadline-fluid"])
@pytest.mark.parametrize("program", [True, False])
def test_who_cannot_be_in_time_alone_is_in_the_bound(formulation: str, program: bool) -> None:
    """Of 10, 11, ..., 14 steps 12 are done by the deadline, at 1.5 steps/s on two GPUs."""
    options = {"program": program} if formulation == "deadline-elastic" else {}
    solution = solve(elastic_jobs(5, deadline=8.0), formulation, **options)
    assert (solution.status, solution.objective, solution.bound) == ("optimal", 2.0, 2.0)


@pytest.mark.parametrize("seconds", range(1, 12))
def test_column_generation_ends_where_the_clock_does(
    seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock goes on between the look whether there is time and the one how much there is."""
    timer = ticking(seconds)
    monkeypatch.setattr(by_parts, "Timer", SimpleNamespace(after=lambda limit: timer))
    crowded = elastic_jobs(5, deadline=24.0, gpus=2)
    options = {"columns": 0, "admission": True}
    solution = optsched.solve(crowded, "deadline-elastic", time_limit=100.0, options=options)
    assert verified(solution).status in ("feasible", "optimal")


@pytest.mark.parametrize("formulation", ["lease", "deadline-elastic", "deadline-fluid"])
def test_a_job_that_could_only_have_no_value_is_declined_for_that(formulation: str) -> None:
    """Its first deadline, which is worth something, is too early for it."""
    option = {"pool": "v100", "gpus": 1, "duration": 10.0}
    jobs = [
        {
            "id": name,
            "options": [
                option | {"value": value, "attributes": {"deadline": deadline}}
                for value, deadline in values
            ],
        }
        for name, values in (("some", [(1.0, 40.0)]), ("none", [(3.0, 5.0), (0.0, 40.0)]))
    ]
    pool = {"name": "v100", "nodes": 1, "gpus_per_node": 2}
    instance = made(round=10.0, cluster={"pools": [pool]}, jobs=jobs)
    assert dict(solve(instance, formulation).declined) == {"none": NO_VALUE}


def test_shares_without_time_keep_the_jobs_that_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs run and cannot be preempted; the time is over before any job has a share."""
    given = elastic_jobs(4).to_document()
    for row, job in enumerate(given["jobs"][:2]):
        job |= {"preemptible": False, "running": {"pool": "v100", "gpus": [f"v100-0/{row}"]}}
    plan_shares, over = elasticflow.plan_shares, ticking(0.0)
    monkeypatch.setattr(
        elasticflow, "plan_shares", lambda jobs, profile, _: plan_shares(jobs, profile, over)
    )
    solution = verified(optsched.solve(given, "elasticflow", admission=True))
    assert solution.schedule is not None
    assert set(solution.schedule.job.tolist()) == {0, 1}


def test_a_proof_that_there_is_no_plan_has_the_whole_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is built after three quarters of it; no plan by rule would take its place."""
    monkeypatch.setattr(deadline_fluid, "MOST_BOUNDING", 2)
    now, fluid = [0.0], ElasticProgram._fluid

    def late(program: ElasticProgram) -> plan.LinearPlan:
        now[0] = 7500.0
        return fluid(program)

    monkeypatch.setattr(ElasticProgram, "_fluid", late)
    limit = Timer.after(10_000.0, clock=lambda: now[0])
    instance = elastic_jobs(40, deadline=40.0, gpus=5)
    assert optsched.solve(instance, "deadline-elastic", time_limit=limit).status == "infeasible"
    assert now == [7500.0]


def test_a_proof_that_there_is_no_plan_is_not_built_once_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No plan by rule needs its program. Fifty thousand jobs took twice the limit."""
    now, fluid = [0.0], ElasticProgram._fluid

    def late(program: ElasticProgram) -> plan.LinearPlan:
        now[0] = 101.0
        return fluid(program)

    monkeypatch.setattr(ElasticProgram, "_fluid", late)
    monkeypatch.setattr(FluidProgram, "_held", None)
    monkeypatch.setattr(deadline_fluid, "MOST_BOUNDING", 2)
    limit = Timer.after(100.0, clock=lambda: now[0])
    instance = elastic_jobs(40, deadline=40.0, gpus=5)
    stopped = optsched.solve(instance, "deadline-elastic", time_limit=limit)
    assert (stopped.status, stopped.termination) == ("limit", "time_limit")


def test_a_fluid_program_whose_arrays_take_too_long_makes_way_for_a_smaller_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are there after eight tenths of the limit; each look at them takes a second with a million columns."""
    monkeypatch.setattr(deadline_fluid, "MOST_BOUNDING", 2)
    now, columns, assemble = [0.0], list[int](), LinearProgram._assemble

    def slow(program: LinearProgram) -> Any:
        now[0] = 80.0
        arrays = assemble(program)
        columns.append(arrays.shape[1])
        return arrays

    monkeypatch.setattr(LinearProgram, "_assemble", slow)
    limit = Timer.after(100.0, clock=lambda: now[0])
    solution = verified(optsched.solve(rigid_jobs(), "deadline-fluid", time_limit=limit))
    assert solution.schedule is not None
    assert columns[1] < columns[0]
