"""Rules that round what is known of a relaxation: where the clock ends it early, the file is right all the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import optsched
from optsched.assembly import make_formulation
from optsched.decomposition import priced_rows
from optsched.decomposition.bundle import LagrangianBound, Relaxed, lagrangian
from optsched.decomposition.master import CoupledRows
from optsched.formulation.procedure import PricedRows
from optsched.instance.durations import Timer
from optsched.registry import load_solver
from optsched.solution import Solution, Termination
from optsched.solvers import Limits
from optsched.solving import Engine, procedures

pytestmark = pytest.mark.unit

Document = dict[str, Any]


def cut_short(monkeypatch: pytest.MonkeyPatch, seconds: float) -> Solution:
    """Two evaluations of the prices of one second, which are many too few; the clock is not a real one."""
    now = [0.0]

    def two_evaluations(step: PricedRows, limits: Limits) -> LagrangianBound:
        now[0] += 1.0
        return lagrangian(
            CoupledRows.of(step.lower, step.upper),
            lambda y: Relaxed(*step.solve(y)),
            work_limit=2,
        )

    timer = Timer.after(seconds, lambda: now[0])
    engine = Engine(load_solver, limits=Limits(time=seconds), timer=timer)
    formulation = make_formulation("smd-rounding", {"relaxation": "lagrangian"})
    with monkeypatch.context() as patch:
        patch.setattr(priced_rows, "relaxed_rows", two_evaluations)
        return formulation.solve(optsched.compile("@smd"), engine)


@pytest.fixture
def document(monkeypatch: pytest.MonkeyPatch) -> Document:
    return dict(cut_short(monkeypatch, 0.9).to_document())


def wrong_fields(document: Document) -> set[str]:
    return {finding.field for finding in optsched.verify("@smd", document).findings}


def test_the_bound_of_a_search_that_was_cut_off_is_consistent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    solution = cut_short(monkeypatch, 0.9)
    whole = optsched.solve("@smd", "smd-rounding", relaxation="lagrangian")
    assert solution.termination is Termination.TIME_LIMIT and not solution.reproducible
    assert whole.termination is Termination.CLOSED_FORM and whole.reproducible
    assert solution.bound is not None and whole.bound is not None
    assert solution.bound > whole.bound * 1.01
    for resolve in (False, True):
        verification = optsched.verify(solution, resolve=resolve)
        assert verification.ok, verification
        assert verification.bound == "consistent"
    assert optsched.verify(whole).bound == "verified"


def test_a_search_that_ended_by_itself_was_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    solution = cut_short(monkeypatch, 100.0)
    assert solution.termination is Termination.CLOSED_FORM and solution.reproducible


def test_ctrl_c_ends_the_search_as_the_clock_does(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(procedures, "interrupted", lambda: True)
        solution = cut_short(monkeypatch, 100.0)
    assert solution.termination is Termination.INTERRUPTED and not solution.reproducible
    assert optsched.verify(solution).ok


def test_a_bound_that_is_tighter_than_with_all_the_time_is_refused(document: Document) -> None:
    document["bound"] = 260.0
    document["gap"] = (260.0 - document["objective"]) / document["objective"]
    assert wrong_fields(document) == {"bound"}


def test_the_allocation_is_still_checked(document: Document) -> None:
    gone = document["allocation"].pop()
    assert {"objective", "metrics"} & wrong_fields(document)
    document["allocation"] += [gone, gone]
    assert any(field.startswith("allocation") for field in wrong_fields(document))


def test_a_rule_whose_bound_is_never_cut_off_is_made_again() -> None:
    document: Document = dict(optsched.solve("@smd", "smd-rounding").to_document())
    document |= {"termination": "time_limit", "reproducible": False}
    assert "termination" in wrong_fields(document)


@pytest.mark.parametrize("options", [{}, {"parts": 2}])
def test_the_clock_may_stop_a_step_before_an_answer_that_ended_by_itself(
    options: dict[str, Any],
) -> None:
    """The file states it, as neither `optimal` nor `in_parts` shows it."""
    instance = optsched.load("@quickstart")
    solution = optsched.solve(instance, "max-min-fairness", **options)
    assert solution.termination in (Termination.OPTIMAL, Termination.IN_PARTS)
    by_clock = replace(solution.solver, by_clock=True)
    stopped = replace(solution, solver=by_clock, reproducible=False).to_document()
    assert stopped["solver"]["by_clock"]
    assert optsched.verify(instance, stopped).ok
    for tampered in (
        stopped | {"reproducible": True},
        stopped | {"solver": solution.solver.to_document()},
    ):
        findings = optsched.verify(instance, tampered).findings
        assert [finding.field for finding in findings] == ["reproducible"]
