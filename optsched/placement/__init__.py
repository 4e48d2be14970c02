"""From fractions of time to rounds, and from rounds to GPUs on nodes."""

from optsched.placement.beside import Seated, Unseated, place_beside
from optsched.placement.check_placement import check_placement
from optsched.placement.check_rounds import Problem, check_rounds
from optsched.placement.check_seats import Seat, SeatFlaw, check_seats
from optsched.placement.exact import WORK
from optsched.placement.instant import Instant
from optsched.placement.place import place_rows, placement_worth, runs_first
from optsched.placement.priority import next_round
from optsched.placement.realisation import METHODS, realise
from optsched.placement.side_by_side import packed
from optsched.placement.standing import Standing
from optsched.placement.unmoved import must_stay, unmoved

__all__ = [
    "METHODS",
    "WORK",
    "Instant",
    "Problem",
    "Seat",
    "SeatFlaw",
    "Seated",
    "Standing",
    "Unseated",
    "check_placement",
    "check_rounds",
    "check_seats",
    "must_stay",
    "next_round",
    "packed",
    "place_beside",
    "place_rows",
    "placement_worth",
    "realise",
    "runs_first",
    "unmoved",
]
