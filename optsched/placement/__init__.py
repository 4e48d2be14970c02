"""From fractions of time to rounds, and from rounds to GPUs on nodes."""

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names

if TYPE_CHECKING:
    from optsched.placement.beside import PlacedRows, place_beside
    from optsched.placement.bound_cells import BoundCells, bind_cells
    from optsched.placement.cells import BuddyCells, place_pods
    from optsched.placement.checks import check_placement, check_rounds
    from optsched.placement.exact import WORK
    from optsched.placement.fragmentation import Fragmentation, fragmentation_of
    from optsched.placement.gpu_slices import SlicedGpus, slices
    from optsched.placement.instant import Instant
    from optsched.placement.occupied import Occupied
    from optsched.placement.over_time import jobs_without_nodes
    from optsched.placement.place import place_rows, placement_worth, runs_first
    from optsched.placement.realisation import METHODS, realise
    from optsched.placement.shares import packed

# Loaded when used: a solve needs `packed` alone, to count the rows that fit side by side.
_HOME = {
    "METHODS": ".realisation",
    "WORK": ".exact",
    "BoundCells": ".bound_cells",
    "BuddyCells": ".cells",
    "Fragmentation": ".fragmentation",
    "Instant": ".instant",
    "PlacedRows": ".beside",
    "SlicedGpus": ".gpu_slices",
    "Occupied": ".occupied",
    "bind_cells": ".bound_cells",
    "check_placement": ".checks",
    "check_rounds": ".checks",
    "fragmentation_of": ".fragmentation",
    "jobs_without_nodes": ".over_time",
    "packed": ".shares",
    "place_beside": ".beside",
    "place_pods": ".cells",
    "place_rows": ".place",
    "placement_worth": ".place",
    "realise": ".realisation",
    "runs_first": ".place",
    "slices": ".gpu_slices",
}

__all__ = [
    "METHODS",
    "WORK",
    "BoundCells",
    "BuddyCells",
    "Fragmentation",
    "Instant",
    "Occupied",
    "PlacedRows",
    "SlicedGpus",
    "bind_cells",
    "check_placement",
    "check_rounds",
    "fragmentation_of",
    "jobs_without_nodes",
    "packed",
    "place_beside",
    "place_pods",
    "place_rows",
    "placement_worth",
    "realise",
    "runs_first",
    "slices",
]

__getattr__ = lazy_names(__name__, _HOME)
