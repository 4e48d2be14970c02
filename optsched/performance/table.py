"""The ``table`` model: throughputs that the instance states, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from optsched.arrays import AnyArray, BoolArray, IntArray, find_sorted
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.reading import show
from optsched.instance.tables import ANY_SPREAD, OWN_GANG, RateTable
from optsched.performance.configurations import Configurations
from optsched.performance.protocol import Feasibility, JobBatch, Observations, Prediction, Source


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

    def __init__(self, rates: RateTable, instance: Instance) -> None:
        self.version = 0
        self._rates = rates
        pools = instance.cluster.pools
        rows = {place: row for row, place in enumerate(rates.places)}
        self._pool_place = np.array([rows.get(pool.name, -1) for pool in pools], np.int64)
        self._type_place = np.array([rows.get(pool.gpu, -1) for pool in pools], np.int64)
        self._reach = [pool.reach(instance.now) for pool in pools]

    @classmethod
    def from_instance(cls, instance: Instance, options: Mapping[str, Any]) -> TableModel:
        """The model of the instance's own rate table; takes no options."""
        if options:
            key = next(iter(options))
            raise InvalidInput(f"performance.{key}", show(options[key]), "no option, as the table model has none")
        refuse_plain_numbers(instance)
        return cls(instance.rates, instance)

    def observe(self, observations: Observations) -> set[int]:
        """A table does not learn."""
        return set()

    def predict(
        self, jobs: JobBatch, configurations: Configurations, *, edges: tuple[IntArray, IntArray] | None = None
    ) -> Prediction:
        """Look up the rates; see the class."""
        shape: tuple[int, ...] = (len(jobs), len(configurations))
        if edges is None:
            job, configuration = (index.ravel() for index in np.indices(shape))
        else:
            job, configuration = edges
            shape = (len(job),)
        pool, gpus, nodes = (
            column[configuration] for column in (configurations.pool, configurations.gpus, configurations.nodes)
        )
        entry = self._find(jobs, job, pool, gpus, nodes)
        found = entry >= 0
        rate = np.zeros(len(job))
        rate[found] = self._rates.rate[entry[found]]
        feasible = np.full(len(job), Feasibility.NO_RATE, np.uint8)
        feasible[found] = np.where(rate[found] > 0, Feasibility.OK, Feasibility.ZERO_RATE)
        return Prediction(
            rate=rate.reshape(shape),
            log_sd=np.zeros(shape),
            feasible=feasible.reshape(shape),
            source=np.full(shape, Source.MEASURED, np.uint8),
        )

    def _find(self, jobs: JobBatch, job: IntArray, pool: IntArray, gpus: IntArray, nodes: IntArray) -> IntArray:
        """Entry of the rate table for each (job, pool, gpus, nodes), or -1."""
        table = self._rates
        places = len(table.places)
        counts = int(max(table.gpus.max(initial=0), gpus.max(initial=0))) + 1
        spreads = int(max(table.nodes.max(initial=0), nodes.max(initial=0))) + 1

        def key(profile: AnyArray, place: AnyArray, gpus: AnyArray | int, nodes: AnyArray | int) -> IntArray:
            return np.asarray(((profile * places + place) * counts + gpus) * spreads + nodes, np.int64)

        keys = key(table.profile, table.place, table.gpus, table.nodes)
        order = np.argsort(keys)
        keys = keys[order]

        profile = jobs.profile[job]
        known = (profile >= 0) & (pool >= 0)
        place = self._place(profile, pool)
        known &= place >= 0

        def find(gpus: AnyArray | int, nodes: AnyArray | int, where: BoolArray) -> IntArray:
            position = find_sorted(keys, key(profile, place, gpus, nodes))
            return np.where(where & (position >= 0), order[position], -1)

        fewest = nodes == self.fewest_nodes(pool, gpus)
        plain_count = np.where(jobs.own, jobs.gang, 1)[job]
        entry = find(gpus, nodes, known)
        entry = np.where(entry >= 0, entry, find(gpus, ANY_SPREAD, known & fewest))
        return np.where(entry >= 0, entry, find(OWN_GANG, ANY_SPREAD, known & fewest & (gpus == plain_count)))

    def _place(self, profile: IntArray, pool: IntArray) -> IntArray:
        """Place that speaks for (profile, pool): the pool if the profile names it, else its GPU type."""
        table, places = self._rates, len(self._rates.places)
        named = np.unique(table.profile * places + table.place)
        by_pool = self._pool_place[pool]
        has_pool = (by_pool >= 0) & (find_sorted(named, profile * places + by_pool) >= 0)
        return np.where(has_pool, by_pool, self._type_place[pool])

    def fewest_nodes(self, pool: IntArray, gpus: IntArray) -> IntArray:
        """Fewest nodes that hold so many GPUs; one more than the pool has where they don't fit."""
        fewest = np.zeros(len(pool), np.int64)
        for row, reach in enumerate(self._reach):
            here = pool == row
            fewest[here] = np.searchsorted(reach, gpus[here])
        return fewest

    def listed_spreads(
        self, jobs: JobBatch, job: IntArray, pool: IntArray, gpus: IntArray
    ) -> tuple[IntArray, IntArray]:
        """Spreads that the table lists beside the fewest nodes: (rows of the edges given, nodes spanned)."""
        table = self._rates
        listed = np.flatnonzero(table.nodes != ANY_SPREAD)
        if len(listed) == 0:
            empty = np.zeros(0, np.int64)
            return empty, empty
        places, counts = len(table.places), int(max(table.gpus.max(initial=0), gpus.max(initial=0))) + 1
        keys = (table.profile[listed] * places + table.place[listed]) * counts + table.gpus[listed]
        order = np.argsort(keys, kind="stable")
        keys, nodes = keys[order], table.nodes[listed][order]
        profile, place = jobs.profile[job], self._place(jobs.profile[job], pool)
        wanted = np.where((profile >= 0) & (place >= 0), (profile * places + place) * counts + gpus, -1)
        first, last = np.searchsorted(keys, wanted, "left"), np.searchsorted(keys, wanted, "right")
        length = (last - first).astype(np.int64)
        rows = np.repeat(np.arange(len(job), dtype=np.int64), length)
        offset = np.repeat(first - np.concatenate(([0], np.cumsum(length)[:-1])), length)
        return rows, nodes[offset + np.arange(len(rows))]


def refuse_plain_numbers(instance: Instance) -> None:
    """A plain number of a workload is its rate on 1 GPU: refused where a larger gang would have to use it."""
    table, rates = instance.jobs_table, instance.rates
    workload_rates = np.array([*(workload.rates for workload in instance.workloads), -1], np.int64)
    profile = workload_rates[table.workload]
    uses_workload = (table.rates < 0) & (table.options < 0) & (profile >= 0)
    plain = np.zeros(len(rates) + 1, bool)
    plain[rates.profile[rates.gpus == OWN_GANG]] = True
    wrong = np.flatnonzero(uses_workload & plain[profile] & (table.gpus_min > 1))
    if len(wrong):
        job = int(wrong[0])
        workload = instance.workloads[table.workload[job]]
        document = rates.document(workload.rates)
        place = next(place for place, value in document.items() if isinstance(value, float))
        gang = int(table.gpus_min[job])
        raise InvalidInput(
            f"workloads.{workload.name}.throughput.{place}",
            f"the plain number {document[place]:g} (the rate on 1 GPU), which job {show(table.names[job])} would need "
            f"for {gang} GPUs",
            f'rates by GPU count such as {{"1": {document[place]:g}, "{gang}": ...}}',
        )
