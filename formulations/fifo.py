"""First in, first out: jobs start in order of arrival,
and the first that finds no room stops the queue.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from pydantic import Field

from formulations.pair_gains import pair_ratios
from formulations.reference_rates import without_rate
from formulations.rule import LARGEST_SEED, Deciding, Rule
from optsched.arrays import FloatArray, IntArray
from optsched.candidates import Candidates, Classes, classes_apart, column_alone

PACKED = 1.5
"""Two jobs share GPUs only if their throughputs, each divided by that of the job alone, add up to
more than this.
"""
ROUNDING = 1e-9
"""Fraction of a capacity by which jobs may exceed it, as rounding."""


class Fifo(Rule):
    """Start whole jobs in order of arrival until one finds no room.

    Parameters
        T_ij throughput of job i on pool j at its gang s_i (its reference column), 0 where it cannot
        run; free_j GPUs of pool j that no earlier job holds
    Rule
        for i in order of arrival (equal arrivals: order in the instance):
            R_i = {j : s_i <= free_j, and every other resource that i holds on j is free}
            R_i empty                     ->  stop: no job overtakes i
            T_ij = 0 for all j in R_i     ->  leave i out and go on
            else                          ->  x_ij = 1 for the j in R_i with the largest T_ij (ties: the first pool)

    Jobs without any column, such as a gang larger than every pool, do not stop the queue. The
    objective reported is the total throughput.

    Options
        variant    ``heterogeneity-aware``: as above.
                   ``agnostic``: j is drawn at random from the pools in R_i with T_ij > 0.
                   ``packed``: as above; then each job i left in the queue, in order, joins the job
                   l that runs alone on as many GPUs with the largest
                   T_i(l)j / T_ij + T_l(i)j / T_lj on the pool j of l (ties: the first to start), if
                   that exceeds 1.5; stop at the first i without such an l.
        seed       of the draws of ``agnostic``; by default that of the run.
        bound      also solve max-throughput with jobs that share time and GPUs, for a bound and a
                   gap.

    References
        D. Narayanan et al., OSDI 2020, repository policies ``fifo_perf``, ``fifo`` (there without
        its draw and the capacity) and ``fifo_packed`` (there without the job at the head of the
        queue).
    """

    name = "fifo"
    leaves_idle = True
    reads = frozenset({"arrival", "gang"})
    order_only = frozenset({"arrival"})

    class Options(Rule.Options):
        """Options of first in, first out."""

        variant: Literal["heterogeneity-aware", "agnostic", "packed"] = "heterogeneity-aware"
        seed: int | None = Field(default=None, ge=0, le=LARGEST_SEED)

    @property
    def own_reads(self) -> frozenset[str]:
        """Only the variant ``packed`` reads ``colocation``."""
        return super().own_reads - (
            frozenset() if self.options.variant == "packed" else {"colocation"}
        )

    @property
    def integral(self) -> bool:
        """A job that starts runs all the time."""
        return True

    def classes(self, candidates: Candidates) -> Classes:
        """One class for each kind, whenever its jobs arrive: `decide` separates those that run."""
        return candidates.classes(frozenset())

    def decide(self, C: Classes, seed: int) -> Deciding:
        """Each job that runs becomes a class of its own; the waiting jobs of a kind stay one
        class.
        """
        yield from ()
        queue = _Queue(C.candidates.by_kind().classes(frozenset()))
        random = self.random(seed) if self.options.variant == "agnostic" else None
        waiting = queue.start(random)
        if self.options.variant == "packed":
            queue.pack(waiting)
        return self.decision(*queue.allocation(C.candidates))


@dataclass
class _Running:
    """A job that started, alone so far."""

    number: int
    """Position in the order of starts."""
    job: int
    place: int
    partner: int = -1
    shared: int = -1
    """Column that it shares with the partner."""


Need = list[tuple[int, float]]
"""(resource, amount)."""


@dataclass
class _Queue:
    """Kinds of jobs, the columns in which they may start, and what is free.

    A place is the reference column of a kind on a pool, or its fastest column without a pool.
    """

    kinds: Classes
    running: list[_Running] = field(default_factory=list)

    def __post_init__(self) -> None:
        K = self.kinds
        pools = len(K.instance.cluster.pools)
        self.free: list[float] = (K.capacity * (1 + ROUNDING)).tolist()
        usage = K.usage.tocsc()
        alone = np.flatnonzero(K.alone & (K.rate_a > 0))
        rateless = np.setdiff1d(K.class_a[K.alone], K.class_a[alone])
        if len(rateless):
            raise without_rate(K, rateless)
        where = np.where(K.pool >= 0, K.pool, pools)[alone]
        # For each kind and pool one column: the one with the fewest GPUs, of these the fastest.
        order = np.lexsort((-K.rate_a[alone], K.gpus[alone], where, K.class_a[alone]))
        cell = (K.class_a[alone] * (pools + 1) + where)[order]
        alone = alone[order][np.diff(cell, prepend=-1) != 0]
        self.places: list[list[int]] = [[] for _ in range(len(K))]
        self.no_place: list[list[int]] = []
        for column, kind in zip(alone.tolist(), K.class_a[alone].tolist(), strict=True):
            self.places[kind].append(column)
        for columns in self.places:
            has = set(K.pool[columns].tolist())
            self.no_place.append(
                [pool for pool in range(pools) if pool not in has] if columns else []
            )
        self.rate = K.rate_a
        ends = zip(usage.indptr[:-1].tolist(), usage.indptr[1:].tolist(), strict=True)
        self.needs: list[Need] = [
            list(zip(usage.indices[a:b].tolist(), usage.data[a:b].tolist(), strict=True))
            for a, b in ends
        ]

    def start(self, random: np.random.Generator | None) -> list[int]:
        """Start jobs until one finds no room; returns the queue from there on."""
        K = self.kinds
        present = np.flatnonzero(K.of_job >= 0)
        order = present[np.argsort(K.instance.jobs_table.arrival[present], kind="stable")]
        gang = K.gang.tolist()
        # Kinds that were left out: they have no column, or only pools without a rate have room for
        # them. They are checked again only after a job has started.
        left_out: set[int] = set()
        for position, (job, kind) in enumerate(
            zip(order.tolist(), K.of_job[order].tolist(), strict=True)
        ):
            if kind in left_out:
                continue
            room = [column for column in self.places[kind] if self._fits(self.needs[column])]
            if room:
                place = (
                    max(room, key=self.rate.__getitem__)
                    if random is None
                    else room[int(random.integers(len(room)))]
                )
                self._take(self.needs[place])
                self.running.append(_Running(len(self.running), job, place))
                left_out.clear()
            # Room on a pool where the kind has no rate does not stop the queue: the job is left
            # out.
            elif self.places[kind] and not any(
                self.free[pool] >= gang[kind] for pool in self.no_place[kind]
            ):
                return list(order[position:].tolist())
            else:
                left_out.add(kind)
        return []

    def pack(self, waiting: list[int]) -> None:
        """Let waiting jobs join running ones, in order, until one finds no partner worth it."""
        K = self.kinds
        pairs = pair_ratios(K)
        worth = np.flatnonzero(pairs.ratio > PACKED)
        # (-ratio, kind, pool, column).
        partners = defaultdict(list)
        for row in worth.tolist():
            column = int(pairs.column[row])
            a, b, pool = int(K.class_a[column]), int(K.class_b[column]), int(K.pool[column])
            # A set, as a pair inside of a kind is the same in both orders.
            for kind, other in {(a, b), (b, a)}:
                partners[kind].append((-float(pairs.ratio[row]), other, pool, column))
        alone: dict[tuple[int, int], deque[_Running]] = defaultdict(deque)
        for item in self.running:
            alone[int(K.class_a[item.place]), int(K.pool[item.place])].append(item)
        for ranked in partners.values():
            ranked.sort()
        for job in waiting:
            best: tuple[float, int, _Running, int, Need] | None = None
            for ratio, kind, pool, column in partners[int(K.of_job[job])]:
                # Sorted by ratio: whatever follows gains less.
                if best is not None and ratio > best[0]:
                    break
                # Jobs of a kind on a pool are alike: the first that started stands for all.
                if alone[kind, pool]:
                    item = alone[kind, pool][0]
                    more = self._more(column, item.place)
                    if self._fits(more) and (best is None or item.number < best[1]):
                        best = (ratio, item.number, item, column, more)
            if best is None:
                return
            _, _, item, column, more = best
            alone[int(K.class_a[item.place]), int(K.pool[item.place])].popleft()
            item.partner, item.shared = job, column
            self._take(more)

    def _more(self, shared: int, place: int) -> Need:
        """What a pair needs in addition to what the job that already runs holds."""
        more = defaultdict(float, self.needs[shared])
        for resource, amount in self.needs[place]:
            more[resource] -= amount
        return [(resource, amount) for resource, amount in more.items() if amount != 0]

    def _fits(self, need: Need) -> bool:
        return all(self.free[resource] >= amount for resource, amount in need)

    def _take(self, need: Need) -> None:
        for resource, amount in need:
            self.free[resource] -= amount

    def allocation(self, candidates: Candidates) -> tuple[Classes, FloatArray]:
        """x = 1 for every job that runs, and for every pair."""
        single = [item for item in self.running if item.partner < 0]
        pairs = [item for item in self.running if item.partner >= 0]
        job = _integers(item.job for item in single)
        shared = self.kinds.kind_column[_integers(item.shared for item in pairs)]
        C = classes_apart(
            candidates,
            frozenset(),
            job,
            (
                _integers(item.job for item in pairs),
                _integers(item.partner for item in pairs),
                shared,
            ),
        )
        x = np.zeros(C.columns)
        x[
            column_alone(C, job, self.kinds.kind_column[_integers(item.place for item in single)])
        ] = 1.0
        x[C.columns - len(pairs) :] = 1.0
        return C, x


def _integers(values: Iterable[int]) -> IntArray:
    return np.array(list(values), np.int64)
