"""Solutions: values, allocations, certificates, explanations."""

from optsched.solution.allocation import Allocation
from optsched.solution.certificate import Certificate, certify_point, dual_bound, gap_of
from optsched.solution.explanation import Conflict
from optsched.solution.placement import Placement
from optsched.solution.rounds import Rounds
from optsched.solution.schedule import Schedule
from optsched.solution.solution import Solution, SolverRecord, Status
from optsched.solution.values import Basis, PointStatus, Termination, Values

__all__ = [
    "Allocation",
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
