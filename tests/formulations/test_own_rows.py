"""Rows of a caller's own (``extend``) in any linear formulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from documents import instance_document
from refusals import refuses

import optsched
from optsched.errors import UsageError


def of_two_tenants() -> optsched.Instance:
    """Four equal jobs of the tenants B, A, A, B on two GPUs."""
    jobs = [
        {"id": f"j{row}", "tenant": tenant, "throughput": {"v100": 1.0}}
        for row, tenant in enumerate("BAAB")
    ]
    pools = [{"name": "v100", "nodes": 1, "gpus_per_node": 2}]
    tenants = [{"name": "A"}, {"name": "B"}]
    return optsched.Instance.from_document(instance_document(pools, jobs, tenants=tenants))


def half_a_gpu_for_the_first_tenant(lp: Any, variables: Any, classes: Any) -> None:
    gpus = np.where((classes.tenant == 0)[classes.class_a], classes.gpus, 0)
    lp.constrain(gpus @ variables["x"] <= 0.5, name="A")


def test_a_row_about_a_tenant_needs_every_job_to_be_a_class() -> None:
    instance, row = of_two_tenants(), half_a_gpu_for_the_first_tenant
    with pytest.raises(KeyError, match="make every job a class"):
        optsched.solve(instance, "max-throughput", extend=row)
    candidates = optsched.compile(instance).per_job()
    for solution in (
        optsched.solve(candidates, "max-throughput", extend=row),
        optsched.solve(instance, "max-throughput", extend=row, classes=False),
    ):
        assert solution.certificate.ok and solution.allocation is not None
        held = dict.fromkeys("AB", 0.0)
        for job, gpus in zip(
            "BAAB", solution.allocation.classes.time(solution.allocation.x), strict=True
        ):
            held[job] += gpus
        assert held == pytest.approx({"A": 0.5, "B": 1.5})


def test_fields_that_rows_may_read_are_not_said_to_have_no_effect() -> None:
    (note,) = optsched.solve(
        of_two_tenants(),
        "max-throughput",
        extend=half_a_gpu_for_the_first_tenant,
        classes=False,
    ).notes
    assert "no effect on the answer unless rows of extend use them: tenants" in note


def test_a_solution_with_own_rows_can_be_placed() -> None:
    solution = optsched.solve(
        of_two_tenants(),
        "max-throughput",
        extend=lambda lp, variables, classes: None,
        integral=True,
    )
    placed = optsched.place(solution)
    assert placed.placement is not None and placed.notes == solution.notes
    assert optsched.realise(solution).rounds is not None


def test_rows_that_were_not_added_are_refused() -> None:
    def forgotten(lp: Any, variables: Any, classes: Any) -> Any:
        return classes.gpus @ variables["x"] <= 1.0

    with refuses("extend returned a Relation, which has no effect...", UsageError):
        optsched.solve("@quickstart", "max-throughput", extend=forgotten)

    def added(lp: Any, variables: Any, classes: Any) -> Any:
        return lp.constrain(forgotten(lp, variables, classes), name="one GPU")

    assert "one GPU" in optsched.solve("@quickstart", "max-throughput", extend=added).duals


def test_unknown_variables_are_refused_with_the_known_names() -> None:
    with refuses("extend: no variables 'y', expected one of x, t", UsageError):
        optsched.solve("@quickstart", "max-min-fairness", extend=lambda lp, v, classes: v["y"])
