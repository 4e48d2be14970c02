"""What an optimum would become:
with other capacities (what-if, ranging), and traded against another objective.
"""

from optsched.sensitivity.epsilon_constraint import pareto
from optsched.sensitivity.front import Axis, Front, FrontPoint
from optsched.sensitivity.other_capacities import Change, WhatIf, whatif
from optsched.sensitivity.ranging import (
    CapacityCurve,
    CapacityRange,
    capacity_curve,
    capacity_ranging,
)

__all__ = [
    "Axis",
    "CapacityCurve",
    "CapacityRange",
    "Change",
    "Front",
    "FrontPoint",
    "WhatIf",
    "capacity_curve",
    "capacity_ranging",
    "pareto",
    "whatif",
]
