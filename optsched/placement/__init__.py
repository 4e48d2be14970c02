"""From fractions of time to rounds, and from rounds to GPUs on nodes."""

from optsched.placement.check_placement import check_placement
from optsched.placement.check_rounds import Problem, check_rounds
from optsched.placement.exact import WORK
from optsched.placement.instant import Instant
from optsched.placement.place import place_rows, placement_worth, runs_first
from optsched.placement.priority import next_round
from optsched.placement.realisation import METHODS, realise

__all__ = [
    "METHODS",
    "WORK",
    "Instant",
    "Problem",
    "check_placement",
    "check_rounds",
    "next_round",
    "place_rows",
    "placement_worth",
    "realise",
    "runs_first",
]
