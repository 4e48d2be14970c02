"""Solving: a program goes in, a certified outcome comes out.

`Engine` runs programs on solvers within one budget of time. What is more than one run has a file of
its own: `delayed_minimum` (Newton's method), `stages` (requirements that give way, water filling),
`program_search` (whole jobs, with `core`), `column_generation`, `schedules`, `proof`.
"""

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names

if TYPE_CHECKING:
    from optsched.solving.engine import Engine
    from optsched.solving.limits import LimitOptions, make_limits, takes_limits
    from optsched.solving.outcome import Outcome
    from optsched.solving.warm_start import WarmStart

# Loaded when used: limits are read by commands that solve nothing
__getattr__ = lazy_names(
    __name__,
    {
        "Engine": ".engine",
        "LimitOptions": ".limits",
        "Outcome": ".outcome",
        "WarmStart": ".warm_start",
        "make_limits": ".limits",
        "takes_limits": ".limits",
    },
)

__all__ = [
    "Engine",
    "LimitOptions",
    "Outcome",
    "WarmStart",
    "make_limits",
    "takes_limits",
]
