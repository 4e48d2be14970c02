"""From fractions of time to rounds, and from rounds to GPUs on nodes."""

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names

if TYPE_CHECKING:
    from optsched.placement.beside import Seated, Unseated, place_beside
    from optsched.placement.exact import WORK
    from optsched.placement.instant import Instant
    from optsched.placement.place import place_rows, placement_worth, runs_first
    from optsched.placement.placement_checks import check_placement
    from optsched.placement.priority import next_round
    from optsched.placement.realisation import METHODS, realise
    from optsched.placement.round_checks import Problem, check_rounds
    from optsched.placement.seat_checks import Seat, SeatFlaw, check_seats
    from optsched.placement.shares import packed
    from optsched.placement.standing import Standing

# Loaded when used: an allocation needs one of them, to count what fits side by side.
_HOME = {
    "Instant": ".instant",
    "METHODS": ".realisation",
    "Problem": ".round_checks",
    "Seat": ".seat_checks",
    "SeatFlaw": ".seat_checks",
    "Seated": ".beside",
    "Standing": ".standing",
    "Unseated": ".beside",
    "WORK": ".exact",
    "check_placement": ".placement_checks",
    "check_rounds": ".round_checks",
    "check_seats": ".seat_checks",
    "next_round": ".priority",
    "packed": ".shares",
    "place_beside": ".beside",
    "place_rows": ".place",
    "placement_worth": ".place",
    "realise": ".realisation",
    "runs_first": ".place",
}

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
    "next_round",
    "packed",
    "place_beside",
    "place_rows",
    "placement_worth",
    "realise",
    "runs_first",
]

__getattr__ = lazy_names(__name__, _HOME)
