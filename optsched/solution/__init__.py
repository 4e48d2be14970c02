"""Solutions: values, allocations, certificates, explanations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optsched.solution.allocation import Allocation
    from optsched.solution.certificate import Certificate, certify_point, dual_bound, gap_of
    from optsched.solution.explanation import Conflict
    from optsched.solution.placement import Placement
    from optsched.solution.rounds import Rounds
    from optsched.solution.schedule import Schedule
    from optsched.solution.solution import Attempt, Solution, SolverRecord, Status
    from optsched.solution.values import Basis, PointStatus, Termination, Values

_HOME = {
    "Allocation": "optsched.solution.allocation",
    "Basis": "optsched.solution.values",
    "Certificate": "optsched.solution.certificate",
    "Conflict": "optsched.solution.explanation",
    "Placement": "optsched.solution.placement",
    "PointStatus": "optsched.solution.values",
    "Rounds": "optsched.solution.rounds",
    "Schedule": "optsched.solution.schedule",
    "Solution": "optsched.solution.solution",
    "SolverRecord": "optsched.solution.solution",
    "Attempt": "optsched.solution.solution",
    "Status": "optsched.solution.solution",
    "Termination": "optsched.solution.values",
    "Values": "optsched.solution.values",
    "certify_point": "optsched.solution.certificate",
    "dual_bound": "optsched.solution.certificate",
    "gap_of": "optsched.solution.certificate",
}

__all__ = [
    "Allocation",
    "Attempt",
    "Basis",
    "Certificate",
    "Conflict",
    "Placement",
    "PointStatus",
    "Rounds",
    "Schedule",
    "Solution",
    "SolverRecord",
    "Status",
    "Termination",
    "Values",
    "certify_point",
    "dual_bound",
    "gap_of",
]


def __getattr__(name: str) -> Any:
    """Load what is asked for when it is asked for: solvers need values and certificates, and no candidates."""
    if name not in _HOME:
        raise AttributeError(f"module 'optsched.solution' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
