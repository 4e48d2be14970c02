"""From fractions of time to rounds, and from rounds to GPUs on nodes."""

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names

if TYPE_CHECKING:
    from optsched.placement.beside import Seated, place_beside
    from optsched.placement.exact import WORK
    from optsched.placement.gpu_checks import check_placement
    from optsched.placement.instant import Instant
    from optsched.placement.place import place_rows, placement_worth, runs_first
    from optsched.placement.realisation import METHODS, realise
    from optsched.placement.round_checks import check_rounds
    from optsched.placement.shares import packed
    from optsched.placement.standing import Standing

# Loaded when used: a solve needs `packed` alone, to count the rows that fit side by side.
_HOME = {
    "METHODS": ".realisation",
    "WORK": ".exact",
    "Instant": ".instant",
    "Seated": ".beside",
    "Standing": ".standing",
    "check_placement": ".gpu_checks",
    "check_rounds": ".round_checks",
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
    "Seated",
    "Standing",
    "check_placement",
    "check_rounds",
    "packed",
    "place_beside",
    "place_rows",
    "placement_worth",
    "realise",
    "runs_first",
]

__getattr__ = lazy_names(__name__, _HOME)
