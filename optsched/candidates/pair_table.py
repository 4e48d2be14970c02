"""Pairs that are not columns yet: the rates of two sorts of jobs that share a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray, group_rows, mask_of
from optsched.candidates.columns import KindColumns, is_kept
from optsched.candidates.generate import drop_unfit, pair_columns
from optsched.candidates.kinds import Kinds
from optsched.candidates.modelled_pairs import GAIN, pairable
from optsched.candidates.resources import Resources, resource_rows
from optsched.candidates.room import drop_roomless
from optsched.candidates.task import CompileTask
from optsched.candidates.usage import Usage
from optsched.display import Displayed
from optsched.errors import InvalidInput, UsageError
from optsched.instance import Instance
from optsched.performance import ColocatingModel, Configurations, Feasibility, PairPrediction
from optsched.performance.composed import colocating

MOST_CELLS = 50_000_000
"""Most cells of a table (ways x sorts x sorts)."""
STEP = 1_000_000
"""Cells per call of a model of pairs."""


@dataclass(frozen=True, repr=False)
class PairTable(Displayed):
    """The columns of pairs that can be made: W ways (pool, GPUs, nodes) x S sorts x S sorts.

    Kinds of one sort behave the same when they share GPUs; only their rates alone differ. In way w,
    a kind a of sort A runs beside any kind of sort B at

        alone[a, w] fraction[w, A, B] + stated[w, A, B]     steps/s

    where one of the two terms is 0: a model predicts fractions, an instance states rates. A pair
    with a fraction can be a column only if both kinds have a column alone in the way.

    Attributes
    ----------
    kinds : Kinds
    sort : IntArray, shape (kinds,)
    pool, gpus, nodes : IntArray, shape (W,)
    row : IntArray, shape (kinds, W)
        Row of ``columns`` of a kind alone in a way, -1 for none.
    allowed, modelled : BoolArray, shape (W, S, S)
        Which sorts can share GPUs in a way, and which of these pairs have fractions from a model.
        Symmetric.
    fraction, stated : FloatArray, shape (W, S, S)
    log_sd : FloatArray, shape (W, S, S)
    source : NDArray[uint8], shape (W, S, S)
    columns : KindColumns
        All columns without a partner.
    beside : KindColumns
        For every sort and way in which it can share GPUs, the column that it would have alone.
        These decide which resources have rows.
    needs : FloatArray, shape (W, S, R)
        Amount of each resource that a kind of a sort holds in a way. GPUs are not included, because
        the two jobs of a pair hold them together.
    """

    kinds: Kinds
    sort: IntArray
    pool: IntArray
    gpus: IntArray
    nodes: IntArray
    row: IntArray
    allowed: BoolArray
    modelled: BoolArray
    fraction: FloatArray
    stated: FloatArray
    log_sd: FloatArray
    source: NDArray[np.uint8]
    columns: KindColumns
    beside: KindColumns
    needs: FloatArray

    @property
    def ways(self) -> int:
        return len(self.pool)

    def rate(self, kind: IntArray, partner: IntArray, way: IntArray) -> FloatArray:
        """steps/s of each kind beside its partner in a way; elementwise."""
        cell = (way, self.sort[kind], self.sort[partner])
        return self.rate_alone(kind, way) * self.fraction[cell] + self.stated[cell]

    def rate_alone(self, kind: IntArray, way: IntArray | int) -> FloatArray:
        """steps/s of each kind alone in a way, 0 if it has no such column; elementwise."""
        row = self.row[kind, way]
        return np.where(row >= 0, np.append(self.columns.rate, 0.0)[row], 0.0)

    def can_share(self, kind: IntArray, partner: IntArray, way: IntArray) -> BoolArray:
        """Whether two kinds can share GPUs in a way; elementwise."""
        cell = (way, self.sort[kind], self.sort[partner])
        seated = (self.row[kind, way] >= 0) & (self.row[partner, way] >= 0)
        return self.allowed[cell] & (seated | ~self.modelled[cell])

    def usage(self, kind: IntArray, partner: IntArray, way: IntArray) -> FloatArray:
        """Amount of each resource that each pair holds, shape (pairs, R)."""
        held = self.needs[way, self.sort[kind]] + self.needs[way, self.sort[partner]]
        # The two jobs share the GPUs; their CPUs and memory add up.
        held[np.arange(len(way)), self.pool[way]] += self.gpus[way]
        return held

    def columns_of(self, kind: IntArray, partner: IntArray, way: IntArray) -> KindColumns:
        """The columns of pairs of kinds, the lower kind first,
        that can share GPUs in these ways.
        """
        cell = (way, self.sort[kind], self.sort[partner])
        modelled, alone = self.modelled[cell], self.columns
        log_sd, source = np.append(alone.log_sd, 0.0), np.append(alone.source, 0)
        a, b = self.row[kind, way], self.row[partner, way]
        return KindColumns.make(
            kind,
            self.pool[way],
            self.gpus[way],
            self.nodes[way],
            partner=partner,
            rate=self.rate(kind, partner, way),
            partner_rate=self.rate(partner, kind, way),
            log_sd=np.where(
                modelled, np.hypot(np.maximum(log_sd[a], log_sd[b]), self.log_sd[cell]), 0.0
            ),
            source=np.where(
                modelled, np.maximum(np.maximum(source[a], source[b]), self.source[cell]), 0
            ),
        )

    def find(self, pool: IntArray, gpus: IntArray, nodes: IntArray) -> IntArray:
        """The way of each configuration, -1 for none."""
        both = [
            np.concatenate(part)
            for part in ((self.pool, pool), (self.gpus, gpus), (self.nodes, nodes))
        ]
        same = group_rows(both, len(both[0]))
        way = same.first[same.inverse[self.ways :]] if len(pool) else pool
        return np.where(way < self.ways, way, -1)

    def usage_rows(self, instance: Instance, columns: KindColumns) -> tuple[Resources, Usage]:
        """Resources and their use by some columns;
        the rows are those of all columns that could be made.
        """
        resources, usage = resource_rows(
            instance, self.kinds, KindColumns.concatenate([columns, self.beside])
        )
        return resources, usage.take(np.arange(len(columns)))


def pair_table(task: CompileTask, alone: KindColumns, others: KindColumns) -> PairTable:
    """The table of all columns that `pair_columns` and `modelled_pairs` would make.

    Parameters
    ----------
    task : CompileTask
    alone : KindColumns
        Columns that a performance model may pair (`rated_columns`), including dropped ones.
    others : KindColumns
        All further columns without a partner.

    Raises
    ------
    InvalidInput
        If the table would have more than `MOST_CELLS` cells.
    OutOfTime
        The time limit is reached.
    """
    instance, kinds, pairs = task.instance, task.kinds, colocating(task.model)
    by_workload = pairs is None or getattr(pairs, "pairs_by_workload", False)
    sort = _sorts(instance, kinds, apart=not by_workload)
    sorts = int(sort.max(initial=-1)) + 1
    first = np.full(sorts, len(kinds), np.int64)
    # Kinds of a sort differ only in their rates alone, so the model is asked about the first kind.
    np.minimum.at(first, sort, np.arange(len(kinds), dtype=np.int64))

    # The first two kinds of each sort are enough: all other pairs of the sort behave like them.
    stated = pair_columns(task, among=_first_two(sort, sorts))
    columns = KindColumns.concatenate([alone, others])
    columns = columns.take(np.flatnonzero(is_kept(columns.drop)))
    seats = pairable(columns) if pairs is not None else EMPTY
    both = [
        np.concatenate([getattr(stated, name), getattr(columns, name)[seats]])
        for name in ("pool", "gpus", "nodes")
    ]
    ways = group_rows(both, len(both[0]))
    pool, gpus, nodes = (column[ways.first] for column in both)
    cells = _Cells.unknown(len(ways), sorts)
    row = np.full((len(kinds), len(ways)), -1, np.int64)
    row[columns.kind[seats], ways.inverse[len(stated) :]] = seats
    cells.state(stated, ways.inverse[: len(stated)], sort)
    if pairs is not None:
        seated = np.zeros((sorts, len(ways)), bool)
        np.logical_or.at(seated, sort, row >= 0)
        _predict(task, pairs, cells, seated, first, (pool, gpus, nodes))

    _refuse_bare(instance, kinds, columns, cells.stated_sorts[sort])
    way, of_sort = np.nonzero(cells.allowed.any(axis=2))
    beside = KindColumns.make(first[of_sort], pool[way], gpus[way], nodes[way])
    return PairTable(
        kinds=kinds,
        sort=sort,
        pool=pool,
        gpus=gpus,
        nodes=nodes,
        row=row,
        allowed=cells.allowed,
        modelled=cells.modelled,
        fraction=cells.fraction,
        stated=cells.stated,
        log_sd=cells.log_sd,
        source=cells.source,
        columns=columns,
        beside=beside,
        needs=_needs(instance, kinds, columns, beside, (way, of_sort), (len(ways), sorts)),
    )


@dataclass(frozen=True)
class _Cells:
    """Cells (way, sort, sort) while the table is built; cells that are ``known`` need no model."""

    known: BoolArray
    allowed: BoolArray
    modelled: BoolArray
    fraction: FloatArray
    stated: FloatArray
    log_sd: FloatArray
    source: NDArray[np.uint8]

    @classmethod
    def unknown(cls, ways: int, sorts: int) -> _Cells:
        """Cells that are all unknown; refuses more than `MOST_CELLS`."""
        shape = (ways, sorts, sorts)
        if np.prod(shape, dtype=np.float64) > MOST_CELLS:
            raise InvalidInput(
                "performance",
                f"{sorts:,} sorts of jobs that share GPUs in {ways:,} configurations",
                f"at most {MOST_CELLS:,} pairs of sorts; "
                "jobs of fewer workloads, or of fewer GPU counts, make fewer",
            )
        known, allowed, modelled = (np.zeros(shape, bool) for _ in range(3))
        fraction, stated, log_sd = (np.zeros(shape) for _ in range(3))
        return cls(known, allowed, modelled, fraction, stated, log_sd, np.zeros(shape, np.uint8))

    def state(self, pairs: KindColumns, way: IntArray, sort: IntArray) -> None:
        """Enter pairs whose rates the instance states, in both orders."""
        kept = is_kept(pairs.drop)
        # Cell (way, A, B) has the rate of the job of sort A.
        for first, second, rate in (
            (pairs.kind, pairs.partner, pairs.rate),
            (pairs.partner, pairs.kind, pairs.partner_rate),
        ):
            cell = (way, sort[first], sort[second])
            self.known[cell] = True
            self.allowed[cell] = kept
            self.stated[cell] = np.where(kept, rate, 0.0)

    def predict(
        self, way: IntArray, a: IntArray, b: IntArray, said: PairPrediction, use: BoolArray
    ) -> None:
        """Enter predictions of a model; ``use`` is the mask of pairs that can be columns."""
        for cell, fraction in (((way, a, b), said.first), ((way, b, a), said.second)):
            self.allowed[cell] = use
            self.modelled[cell] = use
            self.fraction[cell] = np.where(use, fraction, 0.0)
            self.log_sd[cell] = said.log_sd
            self.source[cell] = said.source

    @property
    def stated_sorts(self) -> BoolArray:
        """Mask of sorts for which the instance states a pair, shape (S,)."""
        return np.asarray(np.any(self.allowed & ~self.modelled, axis=(0, 2)))


def _predict(
    task: CompileTask,
    pairs: ColocatingModel,
    cells: _Cells,
    seated: BoolArray,
    first: IntArray,
    way: tuple[IntArray, IntArray, IntArray],
) -> None:
    """Ask a model of pairs for the cells that are not known, a part of them at a time.

    Parameters
    ----------
    task : CompileTask
    pairs : ColocatingModel
    cells : _Cells
        Receives the predictions.
    seated : BoolArray, shape (S, W)
        Whether some kind of a sort has a column alone in a way.
    first : IntArray, shape (S,)
        A representative kind of each sort.
    way : (pool, GPUs, nodes), each of shape (W,)
    """
    pool, gpus, nodes = way
    table = Configurations(pool, gpus, nodes, np.ones(len(pool)), np.zeros(len(pool), np.int64))
    for w, a, b in task.timer.watching(_unknown_cells(seated, cells.known)):
        said = pairs.pair_fractions(task.kinds.batch, table, first[a], first[b], w)
        _refuse_lopsided(said.first, said.second, a == b)
        made = KindColumns.make(first[a], pool[w], gpus[w], nodes[w], partner=first[b])
        drop = drop_roomless(task, made, drop_unfit(task, made))
        gains = said.first + said.second > 1 + GAIN
        runs = said.feasible == Feasibility.OK
        cells.predict(w, a, b, said, runs & gains & is_kept(drop))


def _needs(
    instance: Instance,
    kinds: Kinds,
    columns: KindColumns,
    beside: KindColumns,
    where: tuple[IntArray, IntArray],
    shape: tuple[int, int],
) -> FloatArray:
    """`PairTable.needs`, computed from the resources that the columns ``beside`` use."""
    resources, usage = resource_rows(instance, kinds, KindColumns.concatenate([columns, beside]))
    held = usage.matrix.tocsc()[:, len(columns) :].T.toarray()
    # Remove the GPUs here; `PairTable.usage` counts them once for both jobs.
    held[np.arange(len(beside)), beside.pool] -= beside.gpus
    needs = np.zeros((*shape, len(resources)))
    needs[where] = held
    return needs


def _sorts(instance: Instance, kinds: Kinds, apart: bool) -> IntArray:
    """Sort of each kind; with ``apart`` every kind is a separate sort.

    So is a kind whose job a co-location entry names.
    """
    number = np.arange(len(kinds), dtype=np.int64)
    if apart:
        return number
    jobs = [job for entry in instance.colocation if entry.jobs is not None for job in entry.jobs]
    named = mask_of(kinds.of_job[jobs], len(kinds) + 1)
    decisive = [
        kinds.workload,
        kinds.options < 0,
        kinds.law,
        kinds.gpus_min,
        kinds.gpus_max,
        kinds.levels,
        np.where(named[:-1], number, -1),
    ]
    return group_rows(decisive, len(kinds)).inverse


def _first_two(sort: IntArray, sorts: int) -> IntArray:
    """The first two kinds of each sort:
    enough to represent any two of its kinds.
    """
    order = sort.argsort(kind="stable")
    start = sort[order].searchsorted(np.arange(sorts))
    second = np.minimum(start + 1, len(order) - 1)
    return np.unique(
        np.concatenate([order[start], order[second][sort[order[second]] == np.arange(sorts)]])
    )


def _unknown_cells(
    seated: BoolArray, known: BoolArray
) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """(way, sort, sort) of the unknown cells, the lower sort first, in blocks."""
    for way in range(seated.shape[1]):
        sorts = np.flatnonzero(seated[:, way])
        step = max(1, STEP // max(1, len(sorts)))
        for start in range(0, len(sorts), step):
            block = sorts[start : start + step]
            a, b = np.nonzero(
                (block[:, None] <= sorts[None, :]) & ~known[way][np.ix_(block, sorts)]
            )
            yield np.full(len(a), way, np.int64), block[a], sorts[b]


def _refuse_bare(instance: Instance, kinds: Kinds, columns: KindColumns, paired: BoolArray) -> None:
    """Refuse jobs without a column alone: column generation starts with these columns."""
    alone = mask_of(columns.kind, len(kinds))
    bare = np.flatnonzero(paired & ~alone)
    if len(bare):
        name = instance.jobs_table.names[int(kinds.first[bare[0]])]
        raise UsageError(
            f"columns are generated only for jobs that can run alone, which job {name} cannot"
        )


def _refuse_lopsided(first: FloatArray, second: FloatArray, alike: BoolArray) -> None:
    """Refuse different fractions for two jobs of one sort, which cannot be distinguished."""
    wrong = np.flatnonzero(alike & (first != second))
    if len(wrong):
        raise InvalidInput(
            "performance",
            f"a model that says {first[wrong[0]]:g} and {second[wrong[0]]:g} of two jobs of one "
            "workload side by side",
            "one fraction for both, where columns of pairs are generated",
        )
