"""From fractions of time to rounds, and from rounds to GPUs on nodes."""

from optsched.placement.check import check_placement
from optsched.placement.place import place_rows, runs_first

__all__ = ["check_placement", "place_rows", "runs_first"]
