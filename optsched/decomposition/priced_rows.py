"""Lagrangian relaxation for formulations: the rows of a step of their procedure get prices."""

from __future__ import annotations

from optsched.decomposition.bundle import LagrangianBound, Relaxed, lagrangian
from optsched.decomposition.master import CoupledRows
from optsched.formulation.procedure import PricedRows
from optsched.solvers import Limits


def relaxed_rows(step: PricedRows, limits: Limits) -> LagrangianBound:
    """The Lagrangian relaxation that a formulation asks for.

    Parameters
    ----------
    step : PricedRows
    limits : Limits
        Work is not limited: it would be evaluations.
    """
    return lagrangian(
        CoupledRows.of(step.lower, step.upper),
        lambda y: Relaxed(*step.solve(y)),
        time_limit=limits.time,
        on_progress=limits.on_progress,
    )
