"""Solutions: values, allocations, certificates, explanations."""

from optsched.solution.allocation import Allocation
from optsched.solution.certificate import Certificate, certify_point, dual_bound, gap_of
from optsched.solution.explanation import Conflict
from optsched.solution.solution import Solution, SolverRecord, Status
from optsched.solution.values import Basis, PointStatus, Termination, Values

__all__ = [
    "Allocation",
    "Basis",
    "Certificate",
    "Conflict",
    "PointStatus",
    "Solution",
    "SolverRecord",
    "Status",
    "Termination",
    "Values",
    "certify_point",
    "dual_bound",
    "gap_of",
]
