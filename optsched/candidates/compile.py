"""Compile: instance x performance model -> `Candidates`,
with all columns or with some of them on demand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optsched.arrays.values import replace
from optsched.candidates.classes import Candidates
from optsched.candidates.columns import KindColumns, gathered
from optsched.candidates.generate import option_columns, pair_columns, rated_columns
from optsched.candidates.kinds import find_kinds
from optsched.candidates.modelled_pairs import modelled_pairs
from optsched.candidates.plain_columns import plain_columns
from optsched.candidates.servers import server_columns
from optsched.candidates.task import CompileTask
from optsched.instance import Instance
from optsched.instance.durations import UNLIMITED, Timer
from optsched.performance import PerformanceModel, TableModel
from optsched.performance.composed import colocating, only_table

if TYPE_CHECKING:
    from optsched.candidates.configuration_table import ConfigurationTable
    from optsched.candidates.pair_table import PairTable


def compile(
    instance: Instance,
    model: PerformanceModel,
    future: bool = False,
    later_nodes: bool = False,
    on_demand: bool = False,
    timer: Timer = UNLIMITED,
) -> Candidates:
    """Make the candidates of an instance with the throughputs of a performance model.

    Jobs that have not arrived are left out, unless ``future``, and columns that fit only with nodes
    that are not available yet, unless ``later_nodes`` (for programs that plan ahead). The capacity
    is always that of now.

    With ``on_demand``, pairs of jobs become columns only by `Candidates.with_pairs`. If no jobs can
    share GPUs, jobs with many configurations start with a few columns, and
    `Candidates.with_configurations` adds more.

    Raises `OutOfTime`, between two passes, when the time limit is reached.
    """
    kinds = find_kinds(instance, future)
    timer.check()
    table = TableModel.for_instance(model, instance, later_nodes)
    task = CompileTask(instance, kinds, model, table, later_nodes, timer)
    if not on_demand:
        columns, dropped = every_column(task)
        timer.check()
        return Candidates.of(instance, kinds, columns, dropped, later_nodes)
    if instance.colocation or colocating(model) is not None:
        columns, dropped, pairs = all_but_pairs(task)
        return Candidates.of(instance, kinds, columns, dropped, later_nodes, pairs)
    columns, dropped, elastic = few_configurations(task)
    return replace(Candidates.of(instance, kinds, columns, dropped, later_nodes), elastic=elastic)


def not_compiled(instance: Instance, future: bool = False) -> Candidates:
    """Candidates of an instance for whose compile step there was no time: they have no columns."""
    kinds, nothing = find_kinds(instance, future), KindColumns.none()
    return replace(Candidates.of(instance, kinds, nothing, nothing, False), unfinished=True)


def every_column(task: CompileTask) -> tuple[KindColumns, KindColumns]:
    """All columns, kept and dropped."""
    alone, dropped = _rated(task)
    task.timer.check()
    stated = pair_columns(task)
    task.timer.check()
    others = [
        option_columns(task),
        stated,
        modelled_pairs(task, alone, stated),
        server_columns(task),
    ]
    return _sorted_out(alone, dropped, KindColumns.concatenate(others))


def all_but_pairs(task: CompileTask) -> tuple[KindColumns, KindColumns, PairTable]:
    """All columns of jobs alone, kept and dropped, and the table of the pairs that can be made."""
    from optsched.candidates.pair_table import pair_table

    alone, dropped = _rated(task)
    others = _stated(task)
    return *_sorted_out(alone, dropped, others), pair_table(task, alone, others)


def few_configurations(task: CompileTask) -> tuple[KindColumns, KindColumns, ConfigurationTable]:
    """The columns to start with, kept and dropped,
    and the table of the configurations that can be made.
    """
    from optsched.candidates.configuration_table import configuration_table

    elastic, alone, dropped = configuration_table(task)
    return *_sorted_out(alone, dropped, _stated(task)), elastic


def _rated(task: CompileTask) -> tuple[KindColumns, KindColumns]:
    """The columns of jobs alone on GPUs, kept and dropped."""
    table, stated = task.table, only_table(task.model)
    plain = plain_columns(task) if stated else None
    if plain is not None:
        return plain
    counts = task.kinds.counts(int(table.sizes.gpus.max()), table, complete=stated)
    # If the instance states spreads, each part has another table of ways. Then the parts are joined
    # at the end.
    most = 0 if table.has_spreads else len(counts[0]) * len(table.sizes.gpus)
    return gathered(rated_columns(task, counts), most)


def _stated(task: CompileTask) -> KindColumns:
    """Columns of options and of parameter servers."""
    return KindColumns.concatenate([option_columns(task), server_columns(task)])


def _sorted_out(
    alone: KindColumns, dropped: KindColumns, others: KindColumns
) -> tuple[KindColumns, KindColumns]:
    """Split columns into kept and dropped ones."""
    if not len(others):
        return alone, dropped
    stay, gone = others.sifted(others.drop)
    return KindColumns.concatenate([alone, stay]), KindColumns.concatenate([dropped, gone])
