"""What replaces a back-end where all points that may be better were enumerated."""

from __future__ import annotations

from typing import ClassVar

from optsched.errors import SolverUnavailable
from optsched.program import LinearArrays
from optsched.solvers.base import Capability, Session, Solver


class Enumeration(Solver):
    """Not a back-end that can be asked for:
    the solver of knapsacks that were enumerated (`optsched.solving.knapsack_search`).
    """

    name = "enumeration"
    capabilities: ClassVar[frozenset[Capability]] = frozenset()

    @classmethod
    def version(cls) -> str:
        return "1"

    def open(self, program: LinearArrays) -> Session:
        """Refused: it takes no programs."""
        raise SolverUnavailable("the enumeration takes no programs of rows and columns")
