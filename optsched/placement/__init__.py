"""From fractions of time to rounds, and from rounds to GPUs on nodes."""

from optsched.placement.check import check_placement
from optsched.placement.exact import WORK
from optsched.placement.place import place_rows, placement_worth, runs_first

__all__ = ["WORK", "check_placement", "place_rows", "placement_worth", "runs_first"]
