"""What is said of one job: reduced costs by complementary slackness, by solving again, and by the sums they make."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refuses

import optsched
from optsched.api import make_formulation
from optsched.candidates import Candidates, Classes
from optsched.errors import UsageError
from optsched.formulation import SideConstraint
from optsched.program import AllocationProgram, SideRows
from optsched.registry import load_solver
from optsched.solution import Solution

# Private names: what an answer is made of, before it is put together
from optsched.solution.job_explanation import Way
from optsched.solving import Engine
from optsched.study import JobExplanation, explain_job

pytestmark = pytest.mark.property

CASES = (
    ("@quickstart", "max-min-fairness", ()),
    ("@quickstart", "makespan", ()),
    ("@quickstart", "max-throughput", ()),
    ("@quickstart", "max-throughput", ("deadlines",)),
    ("@quickstart", "max-min-fairness", ("deadlines",)),
    ("@quickstart", "proportional-fairness", ()),
    ("@quickstart", "alpha-fairness", ()),
    ("@quickstart", "proportional-fairness", ("deadlines",)),
    ("@packing", "max-min-fairness", ()),
    ("@packing", "makespan", ()),
    ("@packing", "max-throughput", ()),
)
GENERIC = ("@generic", "max-throughput", ())
LINEAR = (
    *(case for case in CASES if "alpha" not in case[1] and "proportional" not in case[1]),
    GENERIC,
)
SEVERAL_PRICES = {("@quickstart", "max-throughput"), ("@packing", "max-throughput")}
"""Degenerate optima: whole GPUs for whole jobs, at which more than one set of prices is optimal."""


@cache
def solved(name: str, formulation: str, constraints: tuple[str, ...] = ()) -> Solution:
    problem = generic() if name == "@generic" else optsched.compile(optsched.load(name))
    solution = optsched.solve(problem, formulation, constraints=constraints)
    assert solution.status == "optimal"
    return solution


def generic() -> Candidates:
    """The quickstart with capacities that no whole jobs fill: its optimum is not degenerate."""
    candidates = optsched.compile(optsched.load("@quickstart"))
    capacity = candidates.resources.capacity * np.array([0.913, 0.871, 0.937])
    return replace(candidates, resources=replace(candidates.resources, capacity=capacity))


@cache
def explained(
    name: str, formulation: str, constraints: tuple[str, ...] = ()
) -> tuple[JobExplanation, ...]:
    """One job of each class."""
    solution = solved(name, formulation, constraints)
    assert solution.allocation is not None
    names = solution.instance.jobs_table.names
    return tuple(
        explain_job(solution, names[int(job)]) for job in solution.allocation.classes.first
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_columns_in_use_cost_nothing_and_no_other_would_gain(case: Any) -> None:
    largest = max(abs(way.gain or 0.0) for told in explained(*case) for way in told.ways)
    used = unused = 0
    for told in explained(*case):
        assert told.no_prices is None
        for way in told.ways:
            assert way.gain is not None
            if way.fraction > 1e-4:
                used += 1
                assert abs(way.gain) <= 1e-6 * largest
            else:
                unused += 1
                assert way.gain <= 1e-9 * largest
    assert used and unused


def unused(case: Any) -> Iterator[tuple[JobExplanation, Way]]:
    """Columns with a margin that is no rounding, in which more steps/s would be worth something."""
    for told in explained(*case):
        for way in told.ways:
            if way.rate_needed is not None and way.rate_needed > way.rate * (1 + 1e-4):
                yield told, way


@pytest.mark.parametrize("case", LINEAR, ids=str)
def test_a_column_is_used_from_the_rate_told_on_and_not_before(case: Any) -> None:
    """The program is solved again with the one rate changed, in the levels and in the deadlines; normalisers stay."""
    solution = solved(*case)
    assert solution.allocation is not None and solution.objective is not None
    C = solution.allocation.classes
    formulation = make_formulation(case[1], solution.options, solution.constraints)
    program = formulation.program(C)
    assert isinstance(program, AllocationProgram)
    ways = list(unused(case))
    assert len(ways) >= 3
    for told, way in ways[:: 1 + len(ways) // 12]:
        k = int(C.of_job[solution.instance.jobs_table.names.index(told.job)])
        assert way.rate_needed is not None
        outcomes = []
        for factor in (1 - 1e-3, 1 + 1e-3):
            faster = scaled(program, k, way.column, way.rate_needed * factor / way.rate)
            outcome = Engine(load_solver, "highs").solve_directly(faster)
            assert outcome.x is not None and outcome.value is not None
            outcomes.append((program.units.objective(outcome.value), outcome.x[way.column]))
        (before, _), (after, x) = outcomes
        assert before == pytest.approx(solution.objective, rel=1e-8)
        if case[:2] not in SEVERAL_PRICES:
            assert x > 1e-9, (told.job, way)
            assert after < before if solution.sense == "min" else after > before


def scaled(program: AllocationProgram, k: int, column: int, factor: float) -> AllocationProgram:
    """The program with what a class gets out of a column made larger."""
    C = program.classes

    def faster(matrix: sp.csr_matrix, rows: list[int]) -> sp.csr_matrix:
        changed = matrix.tolil(copy=True)
        for row in rows:
            changed[row, column] *= factor
        return sp.csr_matrix(changed)

    side = []
    for rows in program.side:
        mine = [
            row
            for row in range(rows.matrix.shape[0])
            if set(rows.matrix[[row]].indices) <= set(C.member[[k]].indices)
        ]
        side.append(replace(rows, matrix=faster(rows.matrix, mine)))
    return replace(program, levels=faster(program.levels, [k]), side=tuple(side))


@pytest.mark.parametrize("case", [("@quickstart", "makespan", ()), GENERIC], ids=str)
def test_candidates_with_that_rate_use_the_column(case: Any) -> None:
    """From the candidates on: nothing but the rate of a kind is changed."""
    solution = solved(*case)
    assert solution.allocation is not None
    C, candidates = solution.allocation.classes, solution.candidates
    for told, way in list(unused(case))[:4]:
        rates = candidates.columns.rate.copy()
        rates[C.kind_column[way.column]] = (way.rate_needed or 0.0) * 1.001
        faster = replace(candidates, columns=replace(candidates.columns, rate=rates))
        again = optsched.solve(faster, case[1])
        assert again.allocation is not None
        assert again.allocation.x[way.column] > 1e-9, told.job


@pytest.mark.parametrize("case", LINEAR, ids=str)
def test_the_price_told_is_where_the_column_breaks_even(case: Any) -> None:
    """Paying back the difference to that price, for this column alone, is what closes the reduced cost."""
    solution = solved(*case)
    assert solution.allocation is not None
    C = solution.allocation.classes
    usage, told_any = C.usage.toarray(), 0
    for told in explained(*case):
        for way in told.ways:
            for resource, price in (way.prices or {}).items():
                amount = usage[C.resources.names.index(resource), way.column]
                back = (solution.prices[resource] - price) * amount
                assert way.gain is not None and way.gain + back == pytest.approx(
                    0.0, abs=1e-9 * back
                )
                told_any += 1
    assert told_any


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_all_jobs_pay_is_what_the_resources_are_worth(case: Any) -> None:
    solution = solved(*case)
    assert solution.allocation is not None
    C = solution.allocation.classes
    paid = dict.fromkeys(C.resources.names, 0.0)
    for job in solution.instance.jobs:
        for payment in explain_job(solution, job.id).pays:
            paid[payment.resource] += payment.paid or 0.0
    for name, price, used in zip(
        C.resources.names, solution.prices.values(), solution.allocation.usage, strict=True
    ):
        assert paid[name] == pytest.approx(price * used, rel=1e-9, abs=1e-12)


def test_a_job_earns_what_it_pays_for_gpus_and_time() -> None:
    """Strong duality job by job: steps/s = sum of payments + what all its time is worth."""
    for told in explained("@quickstart", "max-throughput"):
        time = sum(row.price or 0.0 for row in told.binding if row.row == "time")
        assert told.throughput == pytest.approx(
            sum(payment.paid or 0.0 for payment in told.pays) + time, abs=1e-9
        )


def test_the_parts_of_the_objective_that_hang_on_jobs_make_a_whole() -> None:
    told = explained("@quickstart", "max-min-fairness")
    parts = [
        float(row.words.partition(" %")[0]) * (one.like + 1)
        for one in told
        for row in one.binding
        if row.row == "levels"
    ]
    assert sum(parts) == pytest.approx(100.0, abs=0.5)


def test_side_rows_that_hold_a_job_are_told_with_their_price() -> None:
    solution = solved("@quickstart", "max-min-fairness", ("deadlines",))
    assert solution.duals is not None
    tight = [
        row
        for told in explained("@quickstart", "max-min-fairness", ("deadlines",))
        for row in told.binding
        if row.row == "deadlines"
    ]
    assert len(tight) == np.count_nonzero(solution.duals["deadlines"]) > 0
    assert sorted(row.price or 0.0 for row in tight) == pytest.approx(
        sorted(np.abs(solution.duals["deadlines"][solution.duals["deadlines"] != 0]))
    )
    assert all(" by " in row.words and "GPU h" in row.words for row in tight)


# --- what has no prices ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formulation", "options", "words"),
    [
        ("max-throughput", {"integral": True}, "An integer program or a rule has no prices."),
        ("isolated", {}, "An integer program or a rule has no prices."),
        ("makespan-unrelated", {}, "A plan of whole jobs has no prices."),
    ],
)
def test_without_prices_the_columns_are_told_alone(
    formulation: str, options: dict[str, Any], words: str
) -> None:
    solution = optsched.solve("@quickstart", formulation, options=options)
    told = explain_job(solution, "resnet-50-1")
    assert told.no_prices == words
    assert len(told.ways) == 3
    assert all(way.gain is way.prices is way.rate_needed is None for way in told.ways)
    assert told.best_alternative is None
    assert all(payment.price is None for payment in told.pays)
    assert told.to_document()["paid"] is None


def test_a_plan_tells_the_stretches() -> None:
    solution = optsched.solve("@quickstart", "makespan-unrelated")
    assert solution.schedule is not None
    told = explain_job(solution, "resnet-50-1")
    assert (
        list(told.gets)
        == [row for row in solution.schedule.to_records() if row["job"] == "resnet-50-1"]
        != []
    )
    assert told.binding == told.pays == ()
    (chosen,) = (way for way in told.ways if way.in_use)
    (stretch,) = told.gets
    assert chosen.configuration["pool"] == stretch["pool"]
    assert chosen.seconds == pytest.approx(
        stretch["end"] - stretch["start"], rel=0.01
    )  # in whole units
    assert told.why_nothing is None and all(way.seconds for way in told.ways)


def test_whole_jobs_tell_what_there_is_too_little_of() -> None:
    """Two jobs of 3 GPUs on 4: the one that is worth less has 1 left."""
    ways = [{"pool": "v100", "gpus": 3, "duration": 60, "value": 5}]
    jobs = [{"id": "dear", "options": [ways[0] | {"value": 9}]}, {"id": "cheap", "options": ways}]
    instance = of_jobs(jobs)
    told = explain_job(optsched.solve(instance, "multiple-choice"), "cheap")
    assert told.gets == () and told.ways[0].value == 5.0
    assert (dict(told.ways[0].uses), dict(told.ways[0].lacks)) == ({"v100": 3.0}, {"v100": 1.0})
    assert (
        told.why_nothing
        == "there is no room for it beside the other jobs, and no other choice of jobs is worth more"
    )
    (way,) = explain_job(optsched.solve(instance, "multiple-choice"), "dear").ways
    assert way.in_use and not way.lacks


def test_a_job_that_a_plan_leaves_out() -> None:
    """One lease before the deadline of both, GPUs for one of them."""
    job = {"deadline": 360.0, "options": [{"pool": "v100", "gpus": 3, "duration": 60}]}
    instance = of_jobs(
        [job | {"id": "a", "weight": 2}, job | {"id": "b", "weight": 1, "deadline_kind": "soft"}]
    )
    solution = optsched.solve(instance, "lease")
    left_out = "a" if {row["job"] for row in solution.schedule.to_records()} == {"b"} else "b"
    told = explain_job(solution, left_out)
    assert told.why_nothing == f"no plan with it is worth more; {dict(solution.declined)[left_out]}"
    assert not told.ways[0].in_use
    assert told.to_document()["why_nothing"] == told.why_nothing


def of_jobs(jobs: list[dict[str, Any]]) -> optsched.Instance:
    """On one pool of 4 GPUs."""
    cluster = {"pools": [{"name": "v100", "nodes": 1, "gpus_per_node": 4}]}
    return optsched.Instance.from_document(
        {"format": "optsched-instance/1", "round": 360, "cluster": cluster, "jobs": jobs}
    )


def test_a_point_that_is_not_optimal_has_no_prices() -> None:
    told = explain_job(
        optsched.solve("@quickstart", solver="highs-ipm", work_limit=1), "resnet-50-1"
    )
    assert told.no_prices == "Only an optimal solution has prices."
    assert told.ways[0].gain is None


def test_rows_of_one_s_own_hide_the_prices() -> None:
    def extend(program: Any, variables: Any, C: Any) -> None:
        program.constrain(np.ones((1, C.columns)) @ variables["x"] <= 3.0, name="few")

    told = explain_job(
        optsched.solve("@quickstart", "max-throughput", extend=extend), "resnet-50-1"
    )
    assert told.no_prices is not None and told.no_prices.startswith("Extra rows (extend)")


def test_duals_of_another_program_are_not_believed() -> None:
    solution = solved("@quickstart", "max-throughput")
    assert solution.duals is not None
    others = {name: 1.5 * block for name, block in solution.duals.items()}
    words = "The duals of this solution are not those of one program: there are no prices."
    assert explain_job(replace(solution, duals=others), "resnet-50-1").no_prices == words
    fewer = {name: block for name, block in solution.duals.items() if name != "time"}
    assert explain_job(replace(solution, duals=fewer), "resnet-50-1").no_prices == words


def test_an_infeasible_instance_tells_its_conflicts() -> None:
    solution = optsched.solve("@infeasible")
    told = explain_job(solution, "gpt-2-xl-3")
    assert told.gets == () and told.ways != () and told.to_document()["conflicts"] != []
    assert told.why_nothing == "at a constant rate from now on, not all requirements can be met"
    assert told.no_prices == "Nothing was found: there are no prices."


# --- jobs ------------------------------------------------------------------------------------------------------------


def test_jobs_without_a_place_and_columns_that_were_dropped() -> None:
    document = {
        "format": "optsched-instance/1", "name": "odd",
        "cluster": {"pools": [{"name": "fast", "nodes": 1, "gpus_per_node": 2},
                              {"name": "slow", "nodes": 2, "gpus_per_node": 2}]},
        "jobs": [
            {"id": "a", "gpus": 4, "steps": 9, "throughput": {"slow": 1.0, "fast": 2.0}},
            {"id": "wide", "gpus": 9, "steps": 9, "throughput": {"fast": 1.0}},
            {"id": "later", "arrival": 5, "steps": 9, "throughput": {"fast": 1.0}},
        ],
    }  # fmt: skip
    solution = optsched.solve(optsched.Instance.from_document(document))
    told = explain_job(solution, "a")
    assert told.dropped == (
        {"pool": "fast", "gpus": 4, "nodes": 2, "reason": "needs 4 GPUs, but only 2 are usable"},
    )
    assert told.unplaced is None and len(told.ways) == 1
    wide = explain_job(solution, "wide")
    assert wide.unplaced is not None and wide.unplaced.startswith(
        "can run nowhere: fast: needs 9 GPUs"
    )
    assert wide.ways == () and len(wide.dropped) == 2
    later = explain_job(solution, "later")
    assert later.unplaced == "arrives at 5 s, after now (0 s)" and later.dropped == ()


def test_jobs_that_are_alike_pay_alike() -> None:
    solution = solved("@large", "max-min-fairness")
    assert solution.allocation is not None
    C = solution.allocation.classes
    k = int(np.argmax(C.count))
    names = solution.instance.jobs_table.names
    first, second = (explain_job(solution, names[int(job)]) for job in C.jobs_of(k)[:2])
    assert first.like == int(C.count[k]) - 1 > 0
    assert first.pays == second.pays and first.ways == second.ways
    assert sum(way.fraction for way in first.ways) <= 1 + 1e-9


def test_a_pair_is_told_with_its_partner_and_never_with_itself() -> None:
    for told in explained("@packing", "max-min-fairness"):
        partners = [way.configuration.get("with") for way in told.ways]
        assert told.job not in partners and any(partners)


def test_no_such_job() -> None:
    with refuses('job: found "resnet-50-11", expected the id of a job of the instance', UsageError):
        explain_job(solved("@quickstart", "max-throughput"), "resnet-50-11")


def test_the_next_best_way_is_in_words() -> None:
    found = optsched.explain_job(optsched.solve("@quickstart", "makespan"), "gpt-2-small-6")
    assert found.best_alternative is not None
    assert (
        re.search(r"next best +pool \w+, gpus \d", found.summary()) and "{" not in found.summary()
    )


def test_rows_of_a_class_that_is_not_registered_bind() -> None:
    class Few(SideConstraint):
        kind = "few"

        def rows(self, C: Classes) -> SideRows:
            gpus = sp.csr_matrix(C.gpus[np.newaxis, :])
            return SideRows(
                "few", gpus, np.array([-np.inf]), np.array([5.0]), lambda row: "few GPUs"
            )

    solution = optsched.solve("@quickstart", "max-throughput", constraints=[Few(Few.Options())])
    bound = [item for job in solution for item in optsched.explain_job(solution, job).binding]
    assert {item.words for item in bound if item.row == "few"} == {"few GPUs"}
    assert any(item.row == "few" and item.price for item in bound)
    # Others that build the program again know the rows too
    assert (
        optsched.capacity_ranging(solution) and optsched.place(optsched.realise(solution)).placement
    )
