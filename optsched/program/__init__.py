"""Programs: linear, allocation and conic models that know no solver."""

from optsched.program.allocation import AllocationProgram
from optsched.program.arrays import Block, LinearArrays
from optsched.program.conic import Cone, ConicProgram, linear_to_conic
from optsched.program.linear import Expression, LinearProgram, Relation, Variables
from optsched.program.minimum import DelayedMinimum, LexicographicMinimum, Minimum
from optsched.program.ratio import Ratio
from optsched.program.side_rows import Assumption, SideRows
from optsched.program.timeline import TimelineCost, TimelineProgram
from optsched.program.total import Total
from optsched.program.units import Exponential, Inverse, Multiple, Units
from optsched.program.utility import Method, Utility

Program = AllocationProgram | LinearProgram | ConicProgram | TimelineProgram

__all__ = [
    "AllocationProgram",
    "Assumption",
    "Block",
    "Cone",
    "ConicProgram",
    "DelayedMinimum",
    "Exponential",
    "Expression",
    "Inverse",
    "LexicographicMinimum",
    "LinearArrays",
    "LinearProgram",
    "Method",
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
    "Utility",
    "Variables",
    "linear_to_conic",
]
