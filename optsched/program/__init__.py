"""Programs: linear, allocation and conic models that know no solver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names
from optsched.program.allocation import AllocationProgram
from optsched.program.arrays import Block, LinearArrays
from optsched.program.linear import Expression, LinearProgram, Relation, Variables
from optsched.program.minimum import DelayedMinimum, LexicographicMinimum, Minimum
from optsched.program.units import Exponential, Inverse, Multiple, Units
from optsched.program.utility import Method, Utility

if TYPE_CHECKING:
    from optsched.program.conic import Cone, ConicProgram, linear_to_conic
    from optsched.program.ratio import Ratio
    from optsched.program.side_rows import (
        Assumption,
        ClassFloors,
        LimitRows,
        SameWords,
        SideRows,
    )
    from optsched.program.space import GangSeats, Space
    from optsched.program.timeline import TimelineCost, TimelineProgram
    from optsched.program.total import Total

__all__ = [
    "AllocationProgram",
    "Assumption",
    "Block",
    "ClassFloors",
    "Cone",
    "ConicProgram",
    "DelayedMinimum",
    "Exponential",
    "Expression",
    "GangSeats",
    "Inverse",
    "LexicographicMinimum",
    "LimitRows",
    "LinearArrays",
    "LinearProgram",
    "Method",
    "Minimum",
    "Multiple",
    "Ratio",
    "Relation",
    "SameWords",
    "SideRows",
    "Space",
    "TimelineCost",
    "TimelineProgram",
    "Total",
    "Units",
    "Utility",
    "Variables",
    "linear_to_conic",
]

# A program of one kind does not load the others, and most programs have no side rows.
_HOME = {
    "GangSeats": "optsched.program.space",
    "Space": "optsched.program.space",
    "Assumption": "optsched.program.side_rows",
    "ClassFloors": "optsched.program.side_rows",
    "Cone": "optsched.program.conic",
    "ConicProgram": "optsched.program.conic",
    "LimitRows": "optsched.program.side_rows",
    "Ratio": "optsched.program.ratio",
    "SameWords": "optsched.program.side_rows",
    "SideRows": "optsched.program.side_rows",
    "TimelineCost": "optsched.program.timeline",
    "TimelineProgram": "optsched.program.timeline",
    "Total": "optsched.program.total",
    "linear_to_conic": "optsched.program.conic",
}

__getattr__ = lazy_names(__name__, _HOME)
