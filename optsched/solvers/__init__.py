"""Solvers: one file per library that solves, loaded when asked for."""

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names
from optsched.solvers.base import Capability, Limits, Progress, Session, Solver

CATALOGUE = {
    "highs": "optsched.solvers.highs:Highs",
    "prices": "optsched.solvers.prices.solver:PriceMethod",
    "highs-ipm": "optsched.solvers.highs:HighsIpm",
    "clarabel": "optsched.solvers.clarabel:Clarabel",
    "glop": "optsched.solvers.ortools:Glop",
    "pdlp": "optsched.solvers.ortools:Pdlp",
    "scip": "optsched.solvers.ortools:Scip",
    "cp-sat": "optsched.solvers.ortools:CpSat",
    "cbc": "optsched.solvers.pulp:Cbc",
    "gurobi": "optsched.solvers.pulp:Gurobi",
    "cplex": "optsched.solvers.pulp:Cplex",
    "mosek": "optsched.solvers.pulp:Mosek",
    "xpress": "optsched.solvers.pulp:Xpress",
    "copt": "optsched.solvers.pulp:Copt",
    "cuopt": "optsched.solvers.gpu:CuOpt",
    "cupdlpx": "optsched.solvers.gpu:CuPdlpX",
    "scs": "optsched.solvers.cvxpy:Scs",
    "ecos": "optsched.solvers.cvxpy:Ecos",
}
"""Solvers by name, loaded on demand."""

FAMILIES = {"pulp": "optsched.solvers.pulp", "cvxpy": "optsched.solvers.cvxpy"}
"""Packages that call further solvers,
which are named ``pulp:NAME`` and ``cvxpy:NAME`` with the package's own names.

Each module has ``engines()``, the names of those that are here, and ``engine_solver(name)``, the
class of one.
"""

if TYPE_CHECKING:
    from optsched.solvers.clarabel import Clarabel
    from optsched.solvers.highs import Highs, HighsSession
    from optsched.solvers.ortools import CpSat

# Loaded when used: each comes with the package of its back-end
__getattr__ = lazy_names(
    __name__,
    {
        "Clarabel": ".clarabel",
        "CpSat": ".ortools",
        "Highs": ".highs",
        "HighsSession": ".highs",
    },
)

__all__ = [
    "CATALOGUE",
    "FAMILIES",
    "Capability",
    "Clarabel",
    "CpSat",
    "Highs",
    "HighsSession",
    "Limits",
    "Progress",
    "Session",
    "Solver",
]
