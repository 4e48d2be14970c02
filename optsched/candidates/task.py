"""The inputs of one compile, for all passes over its columns."""

from __future__ import annotations

from typing import NamedTuple

from optsched.candidates.kinds import Kinds
from optsched.instance import Instance
from optsched.instance.durations import UNLIMITED, Timer
from optsched.performance import PerformanceModel, PoolSizes, TableModel
from optsched.performance.composed import knows_levels


class CompileTask(NamedTuple):
    """The instance and the model that columns are made of.

    Attributes
    ----------
    instance : Instance
    kinds : Kinds
    model : PerformanceModel
    table : TableModel
        The rates that the instance states.
    later_nodes : bool
        Whether nodes that are not available yet are counted on.
    timer : Timer
        Checked between two passes, and between two blocks of columns.
    """

    instance: Instance
    kinds: Kinds
    model: PerformanceModel
    table: TableModel
    later_nodes: bool = False
    timer: Timer = UNLIMITED

    @property
    def levels_of_model(self) -> int:
        """Levels of the topology at which the model rates gangs on several nodes, 0 for none."""
        return len(self.instance.cluster.levels) if knows_levels(self.model) else 0

    @property
    def sizes(self) -> PoolSizes:
        """GPUs on the nodes that are counted on."""
        return self.table.sizes
