"""Solutions: values, allocations, certificates, explanations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names

if TYPE_CHECKING:
    from optsched.solution.allocation import Allocation
    from optsched.solution.certificate import Certificate, certify_point, dual_bound, gap_of
    from optsched.solution.explanation import Conflict
    from optsched.solution.placement import Placement
    from optsched.solution.prices import Prices
    from optsched.solution.rounds import Rounds
    from optsched.solution.schedule import Schedule
    from optsched.solution.solution import Attempt, Solution, SolverRecord, Status
    from optsched.solution.values import Basis, PointStatus, Termination, Values

# Loaded when used: solvers need values and certificates, and no candidates.
_HOME = {
    "Allocation": "optsched.solution.allocation",
    "Basis": "optsched.solution.values",
    "Certificate": "optsched.solution.certificate",
    "Conflict": "optsched.solution.explanation",
    "Placement": "optsched.solution.placement",
    "PointStatus": "optsched.solution.values",
    "Prices": "optsched.solution.prices",
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
    "Prices",
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

__getattr__ = lazy_names(__name__, _HOME)
