"""Programs that know which nodes and groups of nodes hold which gangs."""

from optsched.program.space.best_fit import best_fit, seated_types
from optsched.program.space.contents import GangPart, gpus_of_pieces
from optsched.program.space.dealing import NOT_SHARED, Seat, deal, finds_nodes
from optsched.program.space.gangs import GangTypes, NodeClasses
from optsched.program.space.rows import PLACEABLE, capacity_rows
from optsched.program.space.seats import GangSeats, Space

__all__ = [
    "NOT_SHARED",
    "PLACEABLE",
    "GangPart",
    "GangSeats",
    "GangTypes",
    "NodeClasses",
    "Seat",
    "Space",
    "best_fit",
    "capacity_rows",
    "deal",
    "finds_nodes",
    "gpus_of_pieces",
    "seated_types",
]
