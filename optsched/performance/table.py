"""The ``table`` model: throughputs that the instance states, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from optsched.arrays import IntArray, find_sorted, ranges
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.reading import key, show
from optsched.instance.tables import ANY_SPREAD, OWN_GANG, RateTable
from optsched.performance.configurations import Configurations
from optsched.performance.protocol import Edges, Feasibility, JobBatch, Observations, Prediction, Source, expand_edges
from optsched.performance.sizes import PoolSizes

STRIDE = 2**32
"""More than any count of GPUs or nodes. Keys are (position in the level above) x `STRIDE` + count: no overflow."""


class TableModel:
    """Look up stated rates.

    For job profile p, pool j, k GPUs on n nodes the rate is, in this order,

    1. the entry for (k, n) nodes spanned;
    2. the entry for k GPUs, if n is the fewest nodes that k GPUs need in the pool;
    3. the plain number, if k is the job's gang (a job's own profile) or 1 (a workload's profile), on the fewest nodes.

    An entry under the pool's name hides those under its GPU type. What is not listed is no candidate (`NO_RATE`), a
    zero says that the job cannot run so (`ZERO_RATE`).
    """

    name = "table"

    def __init__(self, rates: RateTable, instance: Instance, later_nodes: bool = False) -> None:
        self.version = 0
        self.sizes = PoolSizes.of(instance, later_nodes)
        pools = instance.cluster.pools
        rows = {place: row for row, place in enumerate(rates.places)}
        self._pool_place = np.array([rows.get(pool.name, -1) for pool in pools], np.int64)
        self._type_place = np.array([rows.get(pool.gpu, -1) for pool in pools], np.int64)
        self._places = len(rates.places)
        profile = rates.profile
        # Sorted keys, level by level: (profile, place), then its GPU counts, then the nodes spanned of each.
        self._place_keys, owner = np.unique(profile * self._places + rates.place, return_inverse=True)
        self._count_keys, owner = np.unique(owner * STRIDE + rates.gpus, return_inverse=True)
        spread_keys = owner * STRIDE + rates.nodes
        order = np.argsort(spread_keys)
        self._spread_keys, self._rate = spread_keys[order], rates.rate[order]
        self._has_spreads = bool((rates.nodes != ANY_SPREAD).any())
        counted = rates.gpus != OWN_GANG
        self._profile_counts = np.unique(profile[counted] * STRIDE + rates.gpus[counted])

    @classmethod
    def from_instance(cls, instance: Instance, options: Mapping[str, Any]) -> TableModel:
        """The model of the instance's own rate table; takes no options."""
        if options:
            name = next(iter(options))
            raise InvalidInput(
                f"performance.{key(name)}", show(options[name]), "no option, as the table model has none"
            )
        model = cls(instance.rates, instance)
        model._refuse_plain_numbers(instance)
        return model

    def observe(self, observations: Observations) -> set[int]:
        """A table does not learn."""
        return set()

    def predict(self, jobs: JobBatch, configurations: Configurations, *, edges: Edges | None = None) -> Prediction:
        """Look up the rates; see the class."""
        job, configuration, shape = expand_edges(jobs, configurations, edges)
        pool, gpus, nodes = (
            column[configuration] for column in (configurations.pool, configurations.gpus, configurations.nodes)
        )
        entry = self._find(jobs, job, pool, gpus, nodes)
        found = entry >= 0
        rate = np.zeros(len(job))
        rate[found] = self._rate[entry[found]]
        feasible = np.full(len(job), Feasibility.NO_RATE, np.uint8)
        feasible[found] = np.where(rate[found] > 0, Feasibility.OK, Feasibility.ZERO_RATE)
        return Prediction(
            rate=rate.reshape(shape),
            log_sd=np.zeros(shape),
            feasible=feasible.reshape(shape),
            source=np.full(shape, Source.MEASURED, np.uint8),
        )

    def _find(self, jobs: JobBatch, job: IntArray, pool: IntArray, gpus: IntArray, nodes: IntArray) -> IntArray:
        """Entry for each (job, pool, gpus, nodes), in the order of the sorted keys, or -1."""
        place = self._find_place(jobs.profile[job], pool)
        place = np.where((gpus > 0) & (nodes > 0), place, -1)  # 0 is a mark in the table: OWN_GANG, ANY_SPREAD
        count = _find_below(self._count_keys, place, gpus)
        fewest = nodes == self.fewest_nodes(pool, gpus)
        entry = _find_below(self._spread_keys, count, nodes)
        entry = np.where((entry < 0) & fewest, _find_below(self._spread_keys, count, ANY_SPREAD), entry)
        plain_count = np.where(jobs.own, jobs.gang, 1)[job]
        plain = _find_below(self._spread_keys, _find_below(self._count_keys, place, OWN_GANG), ANY_SPREAD)
        return np.where((entry < 0) & fewest & (gpus == plain_count), plain, entry)

    def _find_place(self, profile: IntArray, pool: IntArray) -> IntArray:
        """Position of the (profile, place) that speaks for a profile in a pool: the pool's, else its GPU type's."""
        by_pool, by_type = (self._find_in(profile, place[pool]) for place in (self._pool_place, self._type_place))
        return np.where(pool < 0, -1, np.where(by_pool >= 0, by_pool, by_type))

    def _find_in(self, profile: IntArray, place: IntArray) -> IntArray:
        position = find_sorted(self._place_keys, profile * self._places + place)
        return np.where((profile >= 0) & (place >= 0), position, -1)

    def fewest_nodes(self, pool: IntArray, gpus: IntArray) -> IntArray:
        """Fewest nodes that hold so many GPUs; one more than the pool has where they don't fit."""
        return self.sizes.fewest_nodes(pool, gpus)

    def listed_counts(self, profile: IntArray, low: IntArray, high: IntArray) -> tuple[IntArray, IntArray]:
        """GPU counts in (low, high] that the profiles list for any place: (rows of the profiles given, counts)."""
        first = np.searchsorted(self._profile_counts, profile * STRIDE + low, "right")
        length = np.searchsorted(self._profile_counts, profile * STRIDE + high, "right") - first
        rows = np.repeat(np.arange(len(profile), dtype=np.int64), length)
        return rows, self._profile_counts[ranges(first, length)] % STRIDE

    def listed_spreads(
        self, jobs: JobBatch, job: IntArray, pool: IntArray, gpus: IntArray
    ) -> tuple[IntArray, IntArray]:
        """Spreads that the table lists by nodes spanned: (rows of the edges given, nodes spanned)."""
        if not self._has_spreads:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        count = _find_below(self._count_keys, self._find_place(jobs.profile[job], pool), gpus)
        first = np.searchsorted(self._spread_keys, count * STRIDE + ANY_SPREAD, "right")
        length = np.searchsorted(self._spread_keys, (count + 1) * STRIDE) - first
        rows = np.repeat(np.arange(len(job), dtype=np.int64), length)
        return rows, self._spread_keys[ranges(first, length)] % STRIDE

    def _refuse_plain_numbers(self, instance: Instance) -> None:
        """A plain number of a workload is its rate on 1 GPU: refused where a larger gang would have to use it."""
        table, pools = instance.jobs_table, len(instance.cluster.pools)
        profiles = np.array([*(workload.rates for workload in instance.workloads), -1], np.int64)
        place = self._find_place(np.repeat(profiles, pools), np.tile(np.arange(pools), len(profiles)))
        plain = np.reshape(_find_below(self._count_keys, place, OWN_GANG) >= 0, (-1, pools))
        lowest = np.array([*(counts[0] for counts in table.level_lists), 0], np.int64)[table.levels]
        smallest = np.maximum(table.gpus_min, lowest)
        from_workload = (table.rates < 0) & (table.options < 0)
        wrong = np.flatnonzero(from_workload & np.logical_or.reduce(plain, axis=1)[table.workload] & (smallest > 1))
        if len(wrong) == 0:
            return
        job, gang = int(wrong[0]), int(smallest[wrong[0]])
        workload = instance.workloads[table.workload[job]]
        pool = instance.cluster.pools[int(np.flatnonzero(plain[table.workload[job]])[0])]
        document = instance.rates.document(workload.rates)
        where = pool.name if pool.name in document else pool.gpu
        raise InvalidInput(
            f"workloads.{key(workload.name)}.throughput.{key(where)}",
            f"the plain number {document[where]:g} (the rate on 1 GPU), which job {show(table.names[job])} would need "
            f"for {gang} GPUs",
            f'rates by GPU count such as {{"1": {document[where]:g}, "{gang}": ...}}',
        )


def _find_below(keys: IntArray, above: IntArray, count: IntArray | int) -> IntArray:
    """Position of the key of a count below each position of the level above; -1 where there is none."""
    return np.where(above >= 0, find_sorted(keys, above * STRIDE + count), -1)
