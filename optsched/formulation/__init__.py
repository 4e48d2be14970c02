"""What a formulation is, and what a side constraint is: base classes and their options."""

from typing import TYPE_CHECKING

from optsched.formulation.base import (
    Extend,
    Formulation,
    declined_jobs,
    nothing_to_decide,
)
from optsched.formulation.options import ConstraintOptions, FormulationOptions, options_from
from optsched.formulation.side_constraint import SHOWN, Infeasible, SideConstraint
from optsched.lazy import lazy_names
from optsched.solution.figures import by_class, by_job

if TYPE_CHECKING:
    from optsched.formulation.restarts import Restarts, Stretches

__all__ = [
    "SHOWN",
    "ConstraintOptions",
    "Extend",
    "Formulation",
    "FormulationOptions",
    "Infeasible",
    "Restarts",
    "SideConstraint",
    "Stretches",
    "by_class",
    "by_job",
    "declined_jobs",
    "nothing_to_decide",
    "options_from",
]

__getattr__ = lazy_names(  # most formulations plan no schedules
    __name__,
    {
        "Restarts": "optsched.formulation.restarts",
        "Stretches": "optsched.formulation.restarts",
    },
)
