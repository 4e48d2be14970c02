"""Wrong beliefs about deadlines, each with an instance that shows that it is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plan_instances import leases, made
from scipy.optimize import linprog

import optsched
from optsched.assembly import compile_for, make_formulation
from optsched.simulation import simulate


def pool(gpus: int) -> dict[str, Any]:
    return {"pools": [{"name": "v100", "nodes": 1, "gpus_per_node": gpus}]}


def job(name: str, steps: float, deadline: float, **more: Any) -> dict[str, Any]:
    rates = {"throughput": {"v100": 1.0}}
    return {"id": name, "gpus": 1, "steps": steps, "deadline": deadline, **rates, **more}


@pytest.mark.parametrize("gpus", [2, 3, 5])
def test_earliest_deadline_first_is_not_optimal_on_several_gpus(gpus: int) -> None:
    """Short jobs that are due a little earlier hold all GPUs while the long one waits (Dhall, Liu)."""
    short = 50.0 / gpus
    jobs = [job(f"s{number}", 2 * short, 100.0) for number in range(gpus)]
    instance = made(cluster=pool(gpus), jobs=[*jobs, job("long", 100.0, 100.0 + short)])
    for formulation in ("deadline-fluid", "deadline-elastic"):
        assert optsched.solve(instance, formulation).status == "optimal"
    result = simulate(instance, {"ranking": "edf"}, replan="events", round=1.0)
    assert result.metrics()["deadlines_met"] == pytest.approx(gpus / (gpus + 1))


def test_the_relaxation_of_leases_is_not_whole_for_gangs() -> None:
    """Three gangs of two in two leases of three GPUs: two at a time, if one of them were half."""
    instance = leases([2, 2, 2], [1, 1, 1], [2, 2, 2], 3)
    formulation = make_formulation("lease")
    plan: Any = formulation.program(formulation.classes(compile_for(formulation, instance)))
    arrays = plan.program.arrays
    matrix, least, most = arrays.by_rows.toarray(), arrays.row_lower, arrays.row_upper
    sides = [(matrix, most, np.isfinite(most)), (-matrix, -least, np.isfinite(least))]
    rows = np.vstack([side[finite] for side, _, finite in sides])
    limits = np.concatenate([limit[finite] for _, limit, finite in sides])
    bounds = list(zip(arrays.lower, arrays.upper, strict=True))
    assert linprog(arrays.cost, rows, limits, bounds=bounds).status == 0
    assert arrays.is_integer and optsched.solve(instance, "lease").status == "infeasible"


@pytest.mark.parametrize(
    ("rates", "deadline", "gpus"),
    [
        ({1: 1.0, 2: 1.9, 4: 1.2}, 60.0, 2),  # more GPUs are slower
        ({1: 1.0, 2: 1.1, 4: 4.8}, 100.0, 4),  # four take less GPU time than one
    ],
)
@pytest.mark.parametrize("program", [True, False])
def test_curves_of_scaling_need_not_be_monotone_or_concave(
    rates: dict[int, float], deadline: float, gpus: int, program: bool
) -> None:
    levels = {"min": 1, "max": 4, "levels": list(rates)}
    table = {"v100": {str(number): rate for number, rate in rates.items()}}
    elastic = job("a", 100.0, deadline, gpus=levels, throughput=table)
    solution = optsched.solve(
        made(cluster=pool(4), jobs=[elastic]), "deadline-elastic", options={"program": program}
    )
    assert solution.schedule is not None
    assert max(row["gpus"] for row in solution.schedule.to_records()) == gpus


@pytest.mark.parametrize(("steps", "met"), [(150.0, 1.0), (250.0, 0.0)])
def test_a_job_has_its_deadline_as_the_time_from_its_arrival(steps: float, met: float) -> None:
    """A deadline is a moment: a job that arrives at 1,000 s and is due at 1,200 s has 200 s, not 1,200 s."""
    instance = made(cluster=pool(1), jobs=[job("a", steps, 1200.0, arrival=1000.0)])
    result = simulate(instance, {"ranking": "edf"}, replan="events", round=1.0)
    assert result.metrics()["deadlines_met"] == met


def test_a_deadline_that_cannot_be_met_loses_no_other() -> None:
    jobs = [job("a", 60.0, 100.0), job("b", 60.0, 100.0), job("never", 500.0, 100.0)]
    for formulation in ("deadline-fluid", "deadline-elastic"):
        solution = optsched.solve(made(cluster=pool(2), jobs=jobs), formulation, admission=True)
        assert (solution.objective, solution.bound) == (1.0, 1.0)
        assert [name for name, _ in solution.declined] == ["never"]
