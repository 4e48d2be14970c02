"""Compile: instance x performance model -> `Candidates`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optsched.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    group_rows,
    in_order,
    is_range,
    looked_up,
)
from optsched.candidates.classes import Classes
from optsched.candidates.columns import Drop, KindColumns, Ways
from optsched.candidates.configuration_table import ConfigurationTable
from optsched.candidates.generate import gpu_memory
from optsched.candidates.kinds import Absence, Kinds, find_kinds
from optsched.candidates.making import all_but_pairs, every_column, few_configurations
from optsched.candidates.merging import build_classes
from optsched.candidates.pair_table import PairTable
from optsched.candidates.resources import Resources, resource_rows
from optsched.candidates.room_words import RoomWords
from optsched.candidates.usage import Usage
from optsched.instance import Instance
from optsched.instance.reading import listed
from optsched.performance import Configurations, PerformanceModel
from optsched.performance.composed import colocating


@dataclass(frozen=True)
class Candidates:
    """Every way in which the jobs of an instance can run, by kind.

    Formulations work on `Classes`, which `classes` makes for the job data that they read.

    Attributes
    ----------
    instance : Instance
    kinds : Kinds
        Jobs with equal columns.
    columns : KindColumns
        Columns by kind, sorted by (kind, partner, pool, GPUs, nodes, option, workers, servers); none of them dropped.
    configuration : IntArray, shape (N,)
        Row of ``configurations`` of each column.
    configurations : Configurations
    resources : Resources
    holds : Usage
        Resources that one unit of each column holds.
    dropped : KindColumns
        Columns that cannot run, each with its `Drop`.
    later_nodes : bool
        Whether nodes that are not available yet were counted on.
    aggregate : bool
        False: every job is a class of its own (`per_job`), for comparison.
    not_meant : mapping of words to a mask of jobs
        Jobs that are not to be dealt with, by the reason why (`without_jobs`).
    quantile : float, optional
        Probability with which hard deadlines are to be kept; None: rates are taken as they are.
    """

    instance: Instance
    kinds: Kinds
    columns: KindColumns
    configuration: np.ndarray
    configurations: Configurations
    resources: Resources
    holds: Usage
    dropped: KindColumns
    later_nodes: bool = False
    aggregate: bool = True
    not_meant: Mapping[str, BoolArray] = field(default_factory=dict)
    quantile: float | None = None
    pairs: PairTable | None = None
    """Pairs that can be made columns when they are asked for (`with_pairs`); None: all of them are columns."""
    elastic: ConfigurationTable | None = None
    """Configurations that can be made columns (`with_configurations`); None: all of them are columns."""
    _classes: dict[tuple[frozenset[str] | bytes, ...], Classes] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def usage(self) -> sp.csr_matrix:
        """Resources that one unit of each column holds, shape (R, N)."""
        return self.holds.matrix

    def classes(self, reads: frozenset[str], labels: Sequence[IntArray] = ()) -> Classes:
        """Merge jobs that a formulation which reads only these job arrays cannot tell apart.

        Jobs with different numbers in any array of ``labels``, each of shape (jobs,), stay apart as well.
        """
        key: tuple[frozenset[str] | bytes, ...] = (reads, *(label.tobytes() for label in labels))
        if key not in self._classes:
            self._classes[key] = build_classes(self, reads, labels)
        return self._classes[key]

    def at(self, instance: Instance) -> Candidates:
        """The same candidates of the instance at a later time, with the same jobs, nodes and rates."""
        return replace(self, instance=instance, _classes={})

    def per_job(self) -> Candidates:
        """The same candidates, but with every job a class of its own."""
        return replace(self, aggregate=False, _classes={})

    def with_pairs(self, kind: IntArray, partner: IntArray, way: IntArray) -> Candidates:
        """The same candidates with columns for these pairs of kinds in ways of ``pairs``; they replace those before."""
        assert self.pairs is not None
        first, second = np.minimum(kind, partner), np.maximum(kind, partner)
        once = group_rows((first, second, way), len(way)).first
        made = self.pairs.columns_of(first[once], second[once], way[once])
        alone = self.columns.take(np.flatnonzero(self.columns.partner < 0))
        return self._with_columns(KindColumns.concatenate([alone, made]))

    def with_configurations(self, cells: IntArray) -> Candidates:
        """The same candidates with columns for these cells of ``elastic``, each given once, beside those there are."""
        assert self.elastic is not None
        return self._with_columns(
            KindColumns.concatenate([self.columns, self.elastic.columns_of(cells)])
        )

    def _with_columns(self, columns: KindColumns) -> Candidates:
        grown = _candidates(
            self.instance, self.kinds, columns, self.dropped, self.later_nodes, self.pairs
        )
        return replace(
            grown,
            aggregate=self.aggregate,
            not_meant=self.not_meant,
            quantile=self.quantile,
            elastic=self.elastic,
        )

    def by_kind(self) -> Candidates:
        """The same candidates with equal jobs merged, whatever `per_job` said."""
        return self if self.aggregate else replace(self, aggregate=True, _classes={})

    def at_quantile(self, quantile: float | None) -> Candidates:
        """The same candidates for hard deadlines that are kept with this probability."""
        return self if quantile == self.quantile else replace(self, quantile=quantile, _classes={})

    def without(self, reasons: NDArray[np.uint8]) -> Candidates:
        """The same candidates without the columns that have a reason; they are remembered as dropped for it.

        Parameters
        ----------
        reasons : NDArray[uint8], shape (N,)
            `Drop` of each column; 0 for those that stay.
        """
        stay = np.flatnonzero(reasons == Drop.KEPT)
        if len(stay) == len(reasons):
            return self
        leave = np.flatnonzero(reasons != Drop.KEPT)
        leaving = replace(self.columns.take(leave), drop=reasons[leave].astype(np.uint8))
        return replace(
            self,
            columns=self.columns.take(stay),
            configuration=self.configuration[stay],
            holds=self.holds.take(stay),
            dropped=KindColumns.concatenate([self.dropped, leaving]),
            _classes={},
        )

    def admitting(self, *reasons: Drop, where: BoolArray | None = None) -> Candidates:
        """The same candidates with the columns that were dropped for these reasons put back, at rate 0.

        ``where``, a mask over ``dropped``, chooses among them.
        """
        back = np.isin(self.dropped.drop, reasons)
        back = back if where is None else back & where
        if not back.any():
            return self
        dropped = replace(
            self.dropped,
            rate=np.where(back, 0.0, self.dropped.rate),
            partner_rate=np.where(back, 0.0, self.dropped.partner_rate),
            drop=np.where(back, Drop.KEPT, self.dropped.drop).astype(np.uint8),
        )
        both = KindColumns.concatenate([self.columns, dropped])
        keep = both.drop == Drop.KEPT
        made = _candidates(
            self.instance, self.kinds, both.take(keep), both.take(~keep), self.later_nodes
        )
        return replace(
            made, aggregate=self.aggregate, not_meant=self.not_meant, quantile=self.quantile
        )

    def without_jobs(self, jobs: BoolArray, why: str) -> Candidates:
        """The same candidates without jobs that are not to be dealt with; they are unplaced for that reason.

        They take the place of those that were left out for the same reason before.
        """
        if not jobs.any() and why not in self.not_meant:
            return self
        others = {words: mask for words, mask in self.not_meant.items() if words != why}
        return replace(self, not_meant={**others, why: jobs} if jobs.any() else others, _classes={})

    @cached_property
    def absence(self) -> np.ndarray:
        """`Absence` of each job, with jobs of kinds without any column marked."""
        absence = self.kinds.absence.copy()
        has_column = np.zeros(len(self.kinds) + 1, bool)
        has_column[self.columns.kind] = True
        has_column[self.columns.partner[self.columns.pairs]] = True
        present = absence == Absence.PRESENT
        if not has_column[:-1].all():
            absence[present & ~has_column[self.kinds.of_job]] = Absence.NO_COLUMN
        for jobs in self.not_meant.values():
            absence[(absence == Absence.PRESENT) & jobs] = Absence.NOT_MEANT
        return absence

    def unplaced(self) -> Iterator[tuple[int, str]]:
        """Jobs that are not in the program, with the reason in words."""
        table = self.instance.jobs_table
        reasons: dict[int, str] = {}
        for job in np.flatnonzero(self.absence != Absence.PRESENT).tolist():
            if self.absence[job] == Absence.NO_STEP_LEFT:
                yield job, "no step left to do"
            elif self.absence[job] == Absence.ARRIVES_LATER:
                yield (
                    job,
                    f"arrives at {table.arrival[job]:g} s, after now ({self.instance.now:g} s)",
                )
            elif self.absence[job] == Absence.NOT_MEANT:
                yield job, next(words for words, jobs in self.not_meant.items() if jobs[job])
            else:
                kind = int(self.kinds.of_job[job])
                if kind not in reasons:
                    reasons[kind] = self.why_no_column(kind)
                yield job, reasons[kind]

    @cached_property
    def _dropped_by_kind(self) -> tuple[IntArray, IntArray]:
        """Dropped columns of kinds alone in order of the kind, and where each kind begins."""
        alone = np.flatnonzero(self.dropped.partner < 0)
        order = alone[np.argsort(self.dropped.kind[alone], kind="stable")]
        return order, np.searchsorted(self.dropped.kind[order], np.arange(len(self.kinds) + 1))

    @cached_property
    def _dropped_memory(self) -> tuple[FloatArray, FloatArray]:
        return gpu_memory(self.instance, self.kinds, self.dropped)

    @cached_property
    def _room_words(self) -> RoomWords:
        return RoomWords.of(self.dropped, self.instance, self.kinds, self.later_nodes)

    def dropped_of(self, kind: int) -> Iterator[tuple[int, str]]:
        """Rows of ``dropped`` that a kind has alone, each with the reason in words."""
        order, start = self._dropped_by_kind
        for row in order[start[kind] : start[kind + 1]].tolist():
            yield row, self._drop_words(row)

    def why_no_column(self, kind: int) -> str:
        """Why a kind can run nowhere, pool by pool."""
        told = self.why_dropped(kind)
        return (
            f"can run nowhere: {told}"
            if told
            else "can run nowhere: it has no configuration of its own"
        )

    def why_dropped(self, kind: int) -> str:
        """Why some columns of a kind were dropped, pool by pool; empty where none was."""
        pools = self.instance.cluster.pools
        parts: dict[str, dict[str, None]] = {}
        for row, words in self.dropped_of(kind):
            pool = int(self.dropped.pool[row])
            place = "without a pool" if pool < 0 else pools[pool].name
            parts.setdefault(words, {})[place] = None
        told = "; ".join(f"{listed(places)}: {words}" for words, places in list(parts.items())[:4])
        return told + ("; ..." if len(parts) > 4 else "")

    def _drop_words(self, row: int) -> str:
        columns = self.dropped
        gpus, nodes, pool = int(columns.gpus[row]), int(columns.nodes[row]), int(columns.pool[row])
        reason = Drop(columns.drop[row])
        count = f"{gpus} GPU" + ("s" if gpus != 1 else "")
        if reason is Drop.TOO_MANY_GPUS:
            has = int(self.resources.capacity[pool])  # the pools are the first resources
            usable = {0: "none is", 1: "only 1 is"}.get(has, f"only {has} are")
            return f"needs {count}, but {usable} usable"
        if reason is Drop.TOO_MANY_NODES:
            return f"{count} cannot be had on {nodes} node" + ("s" if nodes != 1 else "")
        if reason is Drop.OUT_OF_MEMORY:
            needs, available = self._dropped_memory
            if (
                needs[row] <= available[row]
            ):  # the performance model knows of more than the workload's own need
                return f"out of GPU memory on {count}"
            return f"out of GPU memory (needs {needs[row]:g} GB per GPU, has {available[row]:g})"
        if reason in (Drop.NO_ROOM, Drop.OVER_CAPACITY):
            return self._room_words.of_row(row)
        if reason is Drop.OVER_LIMIT:
            return (
                "1 worker and 1 server need more than there is or than its limit"
                if columns.workers[row]
                else ("needs more than its limit")
            )
        if reason in _LEFT_OUT:
            return _LEFT_OUT[reason]
        if reason is Drop.ZERO_RATE:
            return f"rate 0 on {count}" if gpus else "rate 0"
        return f"no rate is given for {count}"


_LEFT_OUT = {
    Drop.DOMINATED: "another way to run it has no smaller value and needs no more of anything",
    Drop.NOT_CHOSEN: "another way to run it was chosen",
}


def compile(
    instance: Instance,
    model: PerformanceModel,
    future: bool = False,
    later_nodes: bool = False,
    on_demand: bool = False,
) -> Candidates:
    """Make the candidates of an instance with the throughputs of a performance model.

    Jobs that have not arrived are left out, unless ``future``, and columns that fit only with nodes that are not
    available yet, unless ``later_nodes`` (for programs that plan ahead). The capacity is always that of now.

    With ``on_demand`` pairs of jobs are no columns until `Candidates.with_pairs` asks for them; where there can be
    none, jobs with many configurations have a few until `Candidates.with_configurations` asks for more.
    """
    kinds = find_kinds(instance, future)
    if not on_demand:
        return _candidates(
            instance, kinds, *every_column(instance, kinds, model, later_nodes), later_nodes
        )
    if instance.colocation or colocating(model) is not None:
        columns, dropped, pairs = all_but_pairs(instance, kinds, model, later_nodes)
        return _candidates(instance, kinds, columns, dropped, later_nodes, pairs)
    columns, dropped, elastic = few_configurations(instance, kinds, model, later_nodes)
    return replace(_candidates(instance, kinds, columns, dropped, later_nodes), elastic=elastic)


def _candidates(
    instance: Instance,
    kinds: Kinds,
    kept: KindColumns,
    dropped: KindColumns,
    later_nodes: bool,
    pairs: PairTable | None = None,
) -> Candidates:
    place = kept.way if is_range(kept.ways.rank, len(kept.ways)) else kept.ways.rank[kept.way]
    keys = (kept.kind, kept.partner, place, kept.option, kept.workers, kept.servers)
    columns = kept if in_order(keys) else kept.take(np.lexsort(keys[::-1]))
    configuration, configurations = _intern_configurations(instance, columns)
    ways = Ways(
        configurations.pool, configurations.gpus, configurations.nodes, configurations.share
    )
    columns = replace(columns, way=configuration, ways=ways)
    rows = (
        resource_rows(instance, kinds, columns)
        if pairs is None
        else pairs.usage_rows(instance, columns)
    )
    return Candidates(
        instance,
        kinds,
        columns,
        configuration,
        configurations,
        *rows,
        dropped,
        later_nodes,
        pairs=pairs,
    )


def _intern_configurations(
    instance: Instance, columns: KindColumns
) -> tuple[np.ndarray, Configurations]:
    sets: dict[str, int] = {"{}": 0}
    documents: list[Mapping[str, Any]] = [{}]
    rows = np.zeros(len(instance.options.attributes) + 1, np.int64)
    for option, free in enumerate(instance.options.attributes):
        key = json.dumps(free, sort_keys=True)
        if key not in sets:
            sets[key] = len(documents)
            documents.append(dict(free))
        rows[option] = sets[key]
    attributes = looked_up(rows, columns.option)
    served = np.flatnonzero(columns.workers > 0)
    if len(served):
        attributes = np.array(attributes)
        pairs = group_rows((columns.workers[served], columns.servers[served]), len(served))
        numbers = np.zeros(len(pairs), np.int64)
        for number, column in enumerate(served[pairs.first].tolist()):
            free = {
                "workers": int(columns.workers[column]),
                "servers": int(columns.servers[column]),
            }
            numbers[number] = sets.setdefault(json.dumps(free, sort_keys=True), len(documents))
            if numbers[number] == len(documents):
                documents.append(free)
        attributes[served] = numbers[pairs.inverse]
    ways = columns.ways
    alike = group_rows((ways.pool, ways.gpus, ways.nodes, ways.share), len(ways))
    way = columns.way if len(alike) == len(ways) else alike.inverse[columns.way]
    groups = group_rows((way, attributes), len(columns))
    first = groups.first
    ways = ways.take(columns.way[first])
    table = Configurations(
        ways.pool, ways.gpus, ways.nodes, ways.share, attributes[first], tuple(documents)
    )
    return groups.inverse, table
