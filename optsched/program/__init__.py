"""Programs: linear, allocation and conic models that know no solver."""

from optsched.program.allocation import AllocationProgram
from optsched.program.arrays import Block, LinearArrays
from optsched.program.conic import Cone, ConicProgram, linear_to_conic
from optsched.program.linear import Expression, LinearProgram, Relation, Variables
from optsched.program.ratio import Ratio
from optsched.program.side_rows import Assumption, SideRows
from optsched.program.timeline import TimelineCost, TimelineProgram
from optsched.program.units import Exponential, Inverse, Multiple, Units
from optsched.program.utility import LexicographicMinimum, Minimum, Total

Program = AllocationProgram | LinearProgram | ConicProgram | TimelineProgram

__all__ = [
    "AllocationProgram",
    "Assumption",
    "Block",
    "Cone",
    "ConicProgram",
    "Exponential",
    "Expression",
    "Inverse",
    "LexicographicMinimum",
    "LinearArrays",
    "LinearProgram",
    "Minimum",
    "Multiple",
    "Program",
    "Ratio",
    "Relation",
    "SideRows",
    "TimelineCost",
    "TimelineProgram",
    "Total",
    "Units",
    "Variables",
    "linear_to_conic",
]
