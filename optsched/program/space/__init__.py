"""Programs that know which nodes and groups of nodes hold which gangs."""

from optsched.program.space.contents import packed
from optsched.program.space.gangs import GangTypes, NodeClasses
from optsched.program.space.rows import capacity_rows
from optsched.program.space.seats import GangSeats, Space

__all__ = ["GangSeats", "GangTypes", "NodeClasses", "Space", "capacity_rows", "packed"]
