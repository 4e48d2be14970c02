"""smd-rounding: the grid of the inner problem, the part of the optimum, and both bounds, against brute force."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from hypothesis import given, settings
from hypothesis import strategies as st
from parameter_server_cases import REFERENCE, Case, Job, gpu_document, options_document, random_case
from refusals import refuses

import optsched
from formulations.smd_rounding import SmdRounding
from optsched import Instance, Solution
from optsched.errors import UsageError
from optsched.performance.parameter_server import grid_of

pytestmark = pytest.mark.property

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=12, deadline=None)
PROGRAMS = ("smd", "smd-tight", "multiple-choice")


def rounded(instance: Instance, **options: Any) -> Solution:
    solution = optsched.solve(instance, "smd-rounding", **options)
    assert solution.certificate.ok, solution.certificate.problems
    assert solution.bound_source == "relaxation"
    return solution


def kept_part(solution: Solution) -> float:
    (note,) = (each for each in solution.notes if each.startswith("at least "))
    return float(note.split()[2])


# --- the inner problem ----------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 1.0, 3.0])
def test_every_number_is_near_one_of_the_grid(epsilon: float) -> None:
    grid, number = grid_of(5000, epsilon), np.arange(1, 5001)
    below = grid[np.searchsorted(grid, number, side="right") - 1]
    assert (below <= number).all() and (number <= (1 + epsilon) * below).all()
    assert len(grid) <= 2 + 1 / epsilon + np.log(5000 * epsilon + 1) / np.log1p(epsilon / 2)


@few
@given(seed=seeds, epsilon=st.sampled_from([0.05, 0.2, 0.5, 2.0]))
def test_the_grid_is_within_its_factor_of_every_pair(seed: int, epsilon: float) -> None:
    case = random_case(seed)
    large = replace(
        case, jobs=[replace(job, limit=[8 * amount for amount in job.limit]) for job in case.jobs]
    )
    instance = replace(large, capacity=[8 * amount for amount in large.capacity]).instance()
    laws = optsched.compile(instance).kinds.laws
    w, p, t = laws.fastest(epsilon)
    law = np.arange(len(large.jobs))
    for job, theirs, workers, servers in zip(large.jobs, t, w, p, strict=True):
        assert (job.use(workers, servers) <= np.array(job.limit) + 1e-9).all()
        assert job.best() * (1 - 1e-9) <= theirs * job.steps <= (1 + epsilon) * job.best() + 1e-9
    assert laws.step_seconds(law, w, p) == pytest.approx(t)


def test_the_grid_of_an_asynchronous_law() -> None:
    laws = optsched.compile(Instance.from_document(gpu_document())).kinds.laws
    (best,), (near,) = laws.fastest()[2], laws.fastest(1.0)[2]
    assert best <= near <= 2 * best


# --- the whole ------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS)
@few
@given(seed=seeds, share=st.sampled_from([0.2, 0.5]))
def test_a_part_of_the_optimum(program: str, seed: int, share: float) -> None:
    """LP >= optimum >= value >= LP / (K + 1), also where some job reserves more than there is."""
    case = random_case(seed, jobs=8, share=share)
    first = replace(case.jobs[0], limit=[3 * amount for amount in case.jobs[0].limit])
    instance = replace(case, jobs=[first, *case.jobs[1:]]).instance()
    best = optsched.solve(instance, program).objective
    solution = rounded(instance, program=program)
    value, bound = solution.objective, solution.bound
    assert best is not None and value is not None and bound is not None
    assert kept_part(solution) >= 1 / (len(case.capacity) + 1) - 1e-9
    assert kept_part(solution) * bound <= value * (1 + 1e-4)  # the note has four digits
    assert value <= best * (1 + 1e-9) and best <= bound * (1 + 1e-9)
    assert optsched.verify(solution).ok


@few
@given(seed=seeds, epsilon=st.sampled_from([0.1, 0.5, 2.0]))
def test_a_part_of_the_optimum_with_inner_problems_that_are_only_near(
    seed: int, epsilon: float
) -> None:
    instance = random_case(seed, jobs=7).instance()
    best = optsched.solve(instance, "smd").objective
    solution = rounded(instance, epsilon=epsilon)
    assert best is not None and solution.objective is not None and solution.bound is not None
    assert solution.objective <= best * (1 + 1e-9) and best <= solution.bound * (1 + 1e-9)
    assert kept_part(solution) * best <= solution.objective * (1 + 1e-4)


STEEP = Job((30, 1e-3, 1e-3, 1e-3, 1e-3), (1, 0, 0), (0, 1, 1), (3, 1, 1), 1, (50, 270, 12))
"""Worth 50 in the shortest duration; twice as long it is worth 0 in numbers of 64 bits."""


@pytest.mark.unit
@pytest.mark.parametrize("relaxation", ["lp", "lagrangian"])
def test_the_bound_counts_what_a_job_is_worth_at_best(relaxation: str) -> None:
    instance = Case((STEEP,), (14, 45, 90)).instance()
    solution = rounded(instance, epsilon=1.0, relaxation=relaxation)
    assert solution.objective == pytest.approx(0.0)
    assert solution.bound == pytest.approx(50.0)
    assert solution.status == "feasible"
    assert not any(note.startswith("at least ") for note in solution.notes)
    assert optsched.verify(solution).ok


@few
@given(seed=seeds, slope=st.floats(1.0, 60.0), epsilon=st.sampled_from([0.2, 1.0, 3.0]))
def test_the_bound_holds_where_values_fall_steeply(seed: int, slope: float, epsilon: float) -> None:
    case = random_case(seed)
    steep = [replace(job, sigmoid=(job.sigmoid[0], slope, job.best() * 1.1)) for job in case.jobs]
    instance = replace(case, jobs=steep).instance()
    best = optsched.solve(instance, "smd").objective
    solution = rounded(instance, epsilon=epsilon)
    assert best is not None and solution.bound is not None
    assert best <= solution.bound * (1 + 1e-9)


@pytest.mark.unit
@pytest.mark.parametrize("relaxation", ["lp", "lagrangian"])
def test_jobs_share_no_gpus(relaxation: str) -> None:
    """Pairs would be worth 1.8 together; a job alone is worth 1."""
    names = ("a", "b", "c")
    document = instance_document(
        {"g": 1},
        [{"id": name, "throughput": {"g": 1.0}} for name in names],
        workloads={},
        colocation=[
            {"jobs": list(pair), "pool": "g", "gpus": 1, "throughput": [0.9, 0.9]}
            for pair in combinations(names, 2)
        ],
    )
    assert optsched.solve(document, "multiple-choice").objective == pytest.approx(1.8)
    solution = rounded(
        Instance.from_document(document), program="multiple-choice", relaxation=relaxation
    )
    assert solution.objective == pytest.approx(1.0)
    assert solution.bound == pytest.approx(1.0, rel=1e-3)


@pytest.mark.unit
def test_an_option_without_rate_that_never_fits_counts_for_nothing() -> None:
    """Seven tenths of it would fit into the relaxation."""
    document = options_document()
    for job in document["jobs"]:
        job["options"] = [{"uses": {"r": 10}, "throughput": 0.0, "value": 9}]
    solution = optsched.solve(document, "smd-rounding", program="multiple-choice")
    assert (solution.objective, solution.bound) == (0, 0)
    assert solution.certificate.ok


def mixed_case(seed: int) -> Case:
    case = random_case(seed, jobs=7)
    return replace(case, jobs=[*case.jobs, *case.jobs[:3]])


@pytest.mark.parametrize("program", PROGRAMS)
@few
@given(seed=seeds)
def test_the_lagrangian_bound_is_that_of_the_relaxation(program: str, seed: int) -> None:
    instance = mixed_case(seed).instance()
    by_lp = rounded(instance, program=program)
    by_prices = rounded(instance, program=program, relaxation="lagrangian")
    best = optsched.solve(instance, program).objective
    assert best is not None and by_lp.bound is not None and by_prices.bound is not None
    assert by_prices.bound >= best * (1 - 1e-9)
    assert by_lp.bound * (1 - 1e-9) <= by_prices.bound <= by_lp.bound * 1.005
    assert by_prices.objective is not None and by_prices.objective <= best * (1 + 1e-9)


def test_equal_jobs_are_counted() -> None:
    document = REFERENCE.document()
    document["jobs"] += [{"id": f"more{i}", "workload": "law3", "steps": 15} for i in range(5)]
    instance = Instance.from_document(document)
    for relaxation in ("lp", "lagrangian"):
        solution = rounded(instance, relaxation=relaxation)
        alone = optsched.solve(instance, "smd-rounding", relaxation=relaxation, classes=False)
        assert solution.bound == pytest.approx(alone.bound, rel=1e-3)
        assert optsched.verify(solution).ok


def test_the_reference() -> None:
    """The value of the paper's three programs is found by rounding and filling up."""
    values = [rounded(REFERENCE.instance(), program=name).objective for name in PROGRAMS]
    assert values[:2] == pytest.approx([87.613932, 87.613932], abs=1e-5)
    assert values[2] is not None and values[2] <= 120.431271


def test_a_job_that_reserves_more_than_there_is_counts_for_nothing() -> None:
    """Half of it would fit into the relaxation."""
    wide = replace(REFERENCE.jobs[0], limit=[2 * amount for amount in REFERENCE.capacity])
    solution = optsched.solve(Case((wide,), REFERENCE.capacity).instance(), "smd-rounding")
    assert (solution.objective, solution.bound) == (0, 0)
    assert solution.unplaced


def test_jobs_with_options() -> None:
    solution = rounded(Instance.from_document(options_document({"r": 4})), epsilon=0.5)
    assert solution.objective == pytest.approx(9)
    assert kept_part(solution) == 0.5


def test_epsilon_of_another_program_is_refused() -> None:
    wanted = (
        "smd-rounding: epsilon goes with the program smd, not with smd-tight: "
        "there other configurations leave other room"
    )
    with refuses(wanted, UsageError):
        optsched.solve("@smd", "smd-rounding", program="smd-tight", epsilon=0.1)


class Boastful(SmdRounding):
    """Promises more than it has."""

    def _promise(self, *of: Any) -> tuple[float, str]:
        return 0.999, "a boast"


def test_a_promise_that_is_broken_is_seen() -> None:
    solution = optsched.solve("@smd", Boastful())
    broken = "the objective 253.588705 is less than 0.999 of the bound 271.955398"
    assert not solution.certificate.ok and solution.certificate.problems == (broken,)
