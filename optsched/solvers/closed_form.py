"""What replaces a back-end where an optimum
and its proof are written down without one.
"""

from __future__ import annotations

from typing import ClassVar

from optsched.errors import SolverUnavailable
from optsched.program import LinearArrays
from optsched.solvers.base import Capability, Session, Solver


class ClosedForm(Solver):
    """Not a back-end that can be asked for:
    the solver of answers that need none, in their record.
    """

    name = "closed form"
    capabilities: ClassVar[frozenset[Capability]] = frozenset()

    @classmethod
    def version(cls) -> str:
        return "1"

    def open(self, program: LinearArrays) -> Session:
        """Refused: it takes no programs."""
        raise SolverUnavailable("a closed form takes no programs")
