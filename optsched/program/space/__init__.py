"""Programs that know which nodes and groups of nodes hold which gangs."""

from optsched.program.space.best_fit import best_fit, seated_types
from optsched.program.space.cells import (
    CellOnGpus,
    ReservedCells,
    TenantCells,
    cell_rows,
    owner_of,
    owner_of_columns,
    refuse_incompatible_cells,
)
from optsched.program.space.contents import WHOLE_GPU, GangPart, GpuRoom, gpus_of_pieces
from optsched.program.space.dealing import NOT_SHARED, Seat, cells_of, deal, finds_nodes
from optsched.program.space.gangs import GangTypes, NodeClasses, Staying
from optsched.program.space.rows import PLACEABLE, capacity_rows
from optsched.program.space.seats import GangSeats, Space

__all__ = [
    "NOT_SHARED",
    "PLACEABLE",
    "WHOLE_GPU",
    "CellOnGpus",
    "GangPart",
    "GangSeats",
    "GangTypes",
    "GpuRoom",
    "NodeClasses",
    "ReservedCells",
    "Seat",
    "Space",
    "Staying",
    "TenantCells",
    "best_fit",
    "capacity_rows",
    "cell_rows",
    "cells_of",
    "deal",
    "finds_nodes",
    "gpus_of_pieces",
    "owner_of",
    "owner_of_columns",
    "refuse_incompatible_cells",
    "seated_types",
]
