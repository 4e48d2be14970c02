"""Solvers: one file per back-end, loaded when asked for."""

from optsched.solvers.base import Capability, Limits, Progress, Session, Solver

CATALOGUE = {
    "highs": "optsched.solvers.highs:Highs",
    "highs-ipm": "optsched.solvers.highs:HighsIpm",
    "clarabel": "optsched.solvers.clarabel:Clarabel",
}
"""Solvers by name, loaded on demand."""

__all__ = ["CATALOGUE", "Capability", "Limits", "Progress", "Session", "Solver"]
