"""What a solution names as its solver where no solver was needed."""

from __future__ import annotations

from typing import ClassVar

from optsched.errors import SolverUnavailable
from optsched.program import LinearArrays
from optsched.solvers.base import Capability, Session, Solver


class ClosedForm(Solver):
    """An optimum and its proof that were found without a solver. Users cannot choose it."""

    name = "closed form"
    capabilities: ClassVar[frozenset[Capability]] = frozenset()

    @classmethod
    def version(cls) -> str:
        return "1"

    def open(self, program: LinearArrays) -> Session:
        """Refused: it takes no programs."""
        raise SolverUnavailable(f"solver {self.name} takes no programs")


class Enumeration(ClosedForm):
    """All points that may be better were enumerated (`optsched.solving.knapsack_search`)."""

    name = "enumeration"


class PricedTree(ClosedForm):
    """Branch and bound by prices of jobs (`optsched.solving.assignment_tree`)."""

    name = "priced tree"
