"""The bound of the program of all columns, on an outcome of the columns in use."""

from __future__ import annotations

from dataclasses import replace

from optsched.solution.certificate import OPTIMALITY, gap_of
from optsched.solution.solution import Status
from optsched.solving.outcome import Outcome


def with_bound(outcome: Outcome, bound: float, what: str) -> Outcome:
    """The outcome with the bound of all columns, which must close the gap as that of the columns in use did."""
    gap = gap_of(outcome.value, bound)
    if outcome.status is Status.OPTIMAL and gap is not None and gap > OPTIMALITY:
        certificate = outcome.certificate
        told = f"with all {what} that could be columns the duals leave a gap of {gap:.2g}"
        certificate = replace(certificate, ok=False, problems=(*certificate.problems, told))
        outcome = replace(outcome, certificate=certificate, status=Status.FEASIBLE)
    return replace(outcome, bound=bound)
