"""Programs that know which nodes and groups of nodes hold which gangs."""

from optsched.program.space.best_fit import best_fit, seated_types
from optsched.program.space.contents import WHOLE_GPU, GangPart, GpuRoom, gpus_of_pieces
from optsched.program.space.dealing import NOT_SHARED, Seat, deal, finds_nodes
from optsched.program.space.gangs import GangTypes, NodeClasses, Staying
from optsched.program.space.rows import PLACEABLE, capacity_rows
from optsched.program.space.seats import GangSeats, Space

__all__ = [
    "NOT_SHARED",
    "PLACEABLE",
    "WHOLE_GPU",
    "GangPart",
    "GangSeats",
    "GangTypes",
    "GpuRoom",
    "NodeClasses",
    "Seat",
    "Space",
    "Staying",
    "best_fit",
    "capacity_rows",
    "deal",
    "finds_nodes",
    "gpus_of_pieces",
    "seated_types",
]
