"""The ``table`` model: throughputs that the instance states, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from optsched.arrays import (
    EMPTY,
    BoolArray,
    FloatArray,
    IntArray,
    blocks,
    constant,
    gathered,
    owners,
    ranges,
)
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.rates import ANY_SPREAD, LEVEL, OWN_GANG, STRIDE, PlainRates, RateTable
from optsched.instance.reading import key, show
from optsched.performance.configurations import Configurations
from optsched.performance.protocol import Feasibility, JobBatch, Prediction, RateModel, Source

CODES = np.array([Feasibility.NO_RATE, Feasibility.ZERO_RATE, Feasibility.OK], np.uint8)
"""Feasibility if there is no entry, an entry of 0, and another entry."""


class TableModel(RateModel):
    """Stated rates only.

    For job profile p, pool j, k GPUs on n nodes the rate is, in this order,

    1. the entry for k GPUs on n nodes, or within a group of a level of the topology;
    2. the entry for k GPUs, if n is the fewest nodes that k GPUs need in the pool;
    3. the plain number, if k is the job's gang (a job's own profile) or 1 (a workload's profile),
       on the fewest nodes.

    An entry under the pool's name hides those under its GPU type. A configuration that is not
    listed is no candidate (`NO_RATE`); a zero says that the job cannot run there (`ZERO_RATE`).
    """

    name = "table"

    def __init__(self, rates: RateTable, instance: Instance, later_nodes: bool = False) -> None:
        pools = instance.cluster.pools
        self.sizes = instance.cluster.sizes(np.inf if later_nodes else instance.now)
        self._rates = rates
        self._made_of = (rates, instance.cluster, instance.now, later_nodes)
        rows = {place: row for row, place in enumerate(rates.places)}
        self.places_of_pools = np.array([rows.get(pool.name, -1) for pool in pools], np.int64)
        of_types = np.array([rows.get(pool.gpu, -1) for pool in pools], np.int64)
        # If every pool has the name of its GPU type, one lookup is enough.
        one_place = (of_types < 0) | (of_types == self.places_of_pools)
        self.plain = PlainRates.of(rates) if one_place.all() else None
        # Place of the rates of each pool: its name, else its GPU type.
        both = (self.places_of_pools, of_types)
        self._places = [places for places in both if (places >= 0).any()] or [both[0]]
        self.has_spreads = self.plain is None and rates.has_spreads
        self._has_counts = self.plain is None and rates.has_counts

    @classmethod
    def for_instance(cls, model: object, instance: Instance, later_nodes: bool) -> TableModel:
        """The table model of the instance: ``model`` if it is one, else a new one."""
        if type(model) is cls:
            rates, cluster, now, later = model._made_of  # noqa: SLF001
            if (
                rates is instance.rates
                and cluster is instance.cluster
                and (now, later) == (instance.now, later_nodes)
            ):
                return model
        return cls(instance.rates, instance, later_nodes)

    @classmethod
    def from_instance(cls, instance: Instance, options: Mapping[str, Any]) -> TableModel:
        """The model of the instance's own rate table; takes no options."""
        if options:
            name = next(iter(options))
            raise InvalidInput(
                f"performance.{key(name)}",
                show(options[name]),
                "no option, as the table model has none",
            )
        return cls(instance.rates, instance)

    def rates(
        self,
        jobs: JobBatch,
        configurations: Configurations,
        job: IntArray,
        configuration: IntArray,
    ) -> Prediction:
        """Look up the rates; see the class."""
        fewest = configurations.nodes == self.fewest_nodes(configurations.pool, configurations.gpus)
        spread = configurations.nodes
        if configurations.level is not None:
            # A rate within a group holds for any nodes of the group, but not for the pool.
            spread = np.where(configurations.level > 0, LEVEL + configurations.level, spread)
            fewest &= configurations.level == 0
        rate = np.empty(len(job))
        feasible = np.empty(len(job), np.uint8)
        # In blocks, so that temporary arrays stay in the CPU cache.
        for part in blocks(len(job)):
            stated = self._stated(
                jobs, configurations, fewest, spread, job[part], configuration[part]
            )
            found = ~np.isnan(stated)
            rate[part] = np.where(found, stated, 0.0)
            feasible[part] = CODES[found.astype(np.uint8) + (rate[part] > 0)]
        return Prediction(
            rate=rate,
            log_sd=constant(0.0, len(job), np.float64),
            feasible=feasible,
            source=constant(Source.MEASURED, len(job), np.uint8),
        )

    def _stated(
        self,
        jobs: JobBatch,
        ways: Configurations,
        fewest: BoolArray,
        spread: IntArray,
        job: IntArray,
        way: IntArray,
    ) -> FloatArray:
        """Rate for each (job, way to run), or NaN; some ways span as few nodes as they can.

        ``spread`` is where the table has the rate of each way: nodes, or a level.
        """
        profile = jobs.profile[job]
        gpus = ways.gpus[way]
        # 0 is a special value in the table (OWN_GANG, ANY_SPREAD), which queries must not match.
        on_gpus = (ways.gpus > 0) & (ways.nodes > 0)
        if self.plain is not None or self._rates.has_plain_numbers:
            # A plain number of a job holds for its gang, a plain number of a workload for one GPU.
            applies = gpus == np.where(jobs.own[job], jobs.gang[job], 1)
            if not fewest.all():
                applies &= fewest[way]
        if self.plain is not None:
            places = np.where(on_gpus & (ways.pool >= 0), self.places_of_pools[ways.pool], -1)
            rate = self.plain.find(profile, places[way])
            if not applies.all():
                rate[~applies] = np.nan
            return rate
        entries = self._rates.entries
        place = self._find_place(profile, ways.pool[way])
        if not on_gpus.all():
            place = np.where(on_gpus[way], place, -1)
        entry = plain = constant(-1, len(place), np.int64)
        if self._rates.has_plain_numbers:
            plain = entries.spreads.find(entries.counts.find(place, OWN_GANG), ANY_SPREAD)
            entry = plain = np.where(applies, plain, -1)
        # Rates by GPU count, if some profile has them: first by nodes, then for the fewest nodes.
        if self._has_counts:
            count = entries.counts.find(place, gpus)
            entry = entries.spreads.find(count, spread[way])
            if self.has_spreads:
                # A rate holds on fewer nodes, too: all nodes have that of the next number.
                all_nodes = (spread == self.sizes.nodes[ways.pool])[way]
                entry = np.where(
                    (entry < 0) & all_nodes, entries.spreads.next(count, spread[way], LEVEL), entry
                )
            entry = np.where(
                (entry < 0) & fewest[way], entries.spreads.find(count, ANY_SPREAD), entry
            )
            if self._rates.has_plain_numbers:
                entry = np.where(entry < 0, plain, entry)
        return gathered(entries.rate, entry, np.nan)

    def _find_place(self, profile: IntArray, pool: IntArray) -> IntArray:
        """Position of the pair (profile, place) for a profile and a pool: with the pool's name,
        else with its GPU type.
        """
        at, (first, *others) = self._rates.entries.at, self._places
        found = at.find(profile, first[pool])
        # An entry under the name of the pool takes precedence over entries under its GPU type.
        for places in others:
            found = np.where(found >= 0, found, at.find(profile, places[pool]))
        return np.where(pool < 0, -1, found) if (pool < 0).any() else found

    def fewest_nodes(self, pool: IntArray, gpus: IntArray) -> IntArray:
        """Fewest nodes that hold these GPUs; one more than the pool has if they do not fit."""
        return self.sizes.fewest_nodes(pool, gpus)

    def listed_counts(
        self,
        profile: IntArray,
        low: IntArray,
        high: IntArray,
    ) -> tuple[IntArray, IntArray]:
        """GPU counts in (low, high] that the profiles list for any place: (rows
        of the profiles given, counts).
        """
        if not self._has_counts or not (low < high).any():
            return EMPTY, EMPTY
        listed = self._rates.profile_counts
        first = listed.searchsorted(profile * STRIDE + low, "right")
        length = listed.searchsorted(profile * STRIDE + high, "right") - first
        rows = owners(length)
        return rows, listed[ranges(first, length)] % STRIDE

    def listed_spreads(
        self,
        jobs: JobBatch,
        job: IntArray,
        pool: IntArray,
        gpus: IntArray,
    ) -> tuple[IntArray, IntArray]:
        """Spreads that the table lists by nodes spanned:
        (rows of the edges given, nodes spanned).
        """
        if not self.has_spreads:
            return EMPTY, EMPTY
        return self._rates.entries.spreads.above(
            self._rates.entries.counts.find(self._find_place(jobs.profile[job], pool), gpus),
            ANY_SPREAD,
        )

    @classmethod
    def refuse_plain_numbers(cls, instance: Instance) -> None:
        """Refuse plain numbers of workloads (rates on 1 GPU) that larger gangs would need."""
        if not instance.workloads or not instance.rates.has_plain_numbers:
            return
        table = instance.jobs_table
        # The smallest gang of a job is the first of its levels, if it has any.
        lowest = np.array([*(counts[0] for counts in table.level_lists), 0], np.int64)[table.levels]
        smallest = np.maximum(table.gpus_min, lowest)
        rows = np.flatnonzero((table.rates < 0) & (table.options < 0) & (smallest > 1))
        gangs = (
            (table.names[row], int(table.workload[row]), int(smallest[row]))
            for row in rows.tolist()
        )
        cls(instance.rates, instance).refuse_gangs(instance, gangs)

    def refuse_gangs(self, instance: Instance, gangs: Iterable[tuple[str, int, int]]) -> None:
        """Refuse jobs that would have to use a workload's plain number on several GPUs.

        Parameters
        ----------
        instance : Instance
            The instance with the workloads.
        gangs : iterable of (name, row of the workload, GPUs)
            Jobs on more than one GPU whose rates are those of their workload.

        Raises
        ------
        InvalidInput
        """
        pools = len(instance.cluster.pools)
        profiles = instance.workloads.rates
        place = self._find_place(profiles.repeat(pools), np.tile(np.arange(pools), len(profiles)))
        entries = self._rates.entries
        entry = entries.spreads.find(entries.counts.find(place, OWN_GANG), ANY_SPREAD)
        # A plain 0 is harmless: the job cannot run there on any number of GPUs.
        plain = np.reshape(gathered(entries.rate, entry, 0.0) > 0, (-1, pools))
        with_plain = np.logical_or.reduce(plain, axis=1)
        for job, row, gang in gangs:
            if not with_plain[row]:
                continue
            workload = instance.workloads[row]
            pool = instance.cluster.pools[int(np.flatnonzero(plain[row])[0])]
            document = instance.rates.document(workload.rates)
            where = pool.name if pool.name in document else pool.gpu
            raise InvalidInput(
                f"workloads.{key(workload.name)}.throughput.{key(where)}",
                f"the plain number {document[where]:g} (the rate on 1 GPU), "
                f"which job {show(job)} would need for {gang} GPUs",
                f'rates by GPU count such as {{"1": {document[where]:g}, "{gang}": ...}}',
            )


def reads_table(performance: Any) -> bool:
    """Whether a performance object has the table of rates as its model, or as a part of it."""
    if isinstance(performance, Mapping):
        return performance.get("model") == "table" or any(map(reads_table, performance.values()))
    return isinstance(performance, list | tuple) and any(map(reads_table, performance))
