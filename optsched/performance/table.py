"""The ``table`` model: throughputs that the instance states, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optsched.arrays import (
    AnyArray,
    BoolArray,
    FloatArray,
    IntArray,
    blocks,
    constant,
    find_sorted,
    gathered,
    is_constant,
    is_range,
    ranges,
    shown,
)
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.cluster import PoolSizes
from optsched.instance.reading import key, show
from optsched.instance.tables import ANY_SPREAD, OWN_GANG, RateTable
from optsched.performance.configurations import Configurations
from optsched.performance.protocol import Feasibility, JobBatch, Prediction, RateModel, Source

# --- lookups --------------------------------------------------------------------------------------


STRIDE = 2**32
"""More than any count of GPUs or nodes.
Keys are (position in the level above) x `STRIDE` + count: no overflow.
"""
SPARSE = 4
"""Cells per entry from which on a table of all cells is not worth its memory."""
FEW = 1024
"""Cells that cost nothing."""


def keys_of(rates: RateTable) -> Iterator[tuple[slice, IntArray]]:
    """``profile * places + place`` of the entries of a table,
    block by block: which, and their keys.
    """
    for part in blocks(len(rates)):
        # Some profiles at a time: their keys need not be there all at once.
        length = np.diff(rates.indptr[part.start : part.stop + 1])
        own = slice(rates.indptr[part.start], rates.indptr[part.stop])
        first = np.arange(part.start, part.stop, dtype=np.int64) * len(rates.places)
        yield own, np.repeat(first, length) + rates.place[own]


class Places(NamedTuple):
    """The pairs (profile, place) that a rate table has, numbered in order.

    Attributes
    ----------
    places : int
        Places that there are.
    cells : NDArray[int32] or None, shape (profiles x places + 1,)
        Number of each pair, -1 for those that the table has not; None where these are too many.
    keys : IntArray or None
        Then ``profile * places + place`` of the pairs, sorted.
    """

    places: int
    cells: NDArray[np.int32] | None
    keys: IntArray | None

    @classmethod
    def of(cls, rates: RateTable) -> tuple[Places, IntArray]:
        """The pairs of a table, and the number of the pair of each entry."""
        places = len(rates.places)
        entries = len(rates.place)
        if not rates.one_by_one:
            keys, number = np.unique(rates.profile * places + rates.place, return_inverse=True)
            return cls._of_keys(places, keys, len(rates)), number.astype(np.int64)
        number = np.arange(entries, dtype=np.int64)
        # A table of all cells is a look-up in one step; sorted keys take a binary search.
        if len(rates) * places > SPARSE * entries + FEW or entries > np.iinfo(np.int32).max:
            return cls(places, None, rates.profile * places + rates.place), number
        cells = np.full(len(rates) * places + 1, -1, np.int32)
        for own, keys in keys_of(rates):
            cells[keys] = number[own]
        return cls(places, cells, None), number

    @classmethod
    def _of_keys(cls, places: int, keys: IntArray, profiles: int) -> Places:
        if profiles * places > SPARSE * len(keys) + FEW:
            return cls(places, None, keys)
        cells = np.full(profiles * places + 1, -1, np.int32)
        cells[keys] = np.arange(len(keys))
        return cls(places, cells, None)

    def find(self, profile: IntArray, place: IntArray) -> IntArray:
        """Number of each pair, or -1; profile or place may be -1 as well."""
        key = np.where((profile >= 0) & (place >= 0), profile * self.places + place, -1)
        if self.cells is not None:
            return self.cells[key].astype(np.int64)  # the last cell is of no pair
        assert self.keys is not None
        return find_sorted(self.keys, key)


class Level(NamedTuple):
    """Numbers below each of the places of the level above.

    Attributes
    ----------
    keys : IntArray or None
        ``place * STRIDE + number``, sorted; None where every place has one number.
    number : IntArray
        Then this number, by place.
    """

    keys: IntArray | None
    number: IntArray

    @classmethod
    def of(cls, above: IntArray, number: IntArray) -> tuple[Level, IntArray]:
        """The level of entries, given by the place above and the number of each,
        and the place of each entry.
        """
        if is_range(above, len(above)):
            # One number below each place: keys are not needed, and equal numbers are kept once.
            alike = len(number) > 0 and (number == number[0]).all()
            return cls(None, constant(number[0], len(number), np.int64) if alike else number), above
        keys, place = np.unique(above * STRIDE + number, return_inverse=True)
        return cls(keys, number), place.astype(np.int64)

    def find(self, above: IntArray, number: IntArray | int) -> IntArray:
        """Place of a number below each place of the level above; -1 where there is none."""
        if self.keys is not None:
            return np.where(above >= 0, find_sorted(self.keys, above * STRIDE + number), -1)
        if not len(self.number):
            return np.full(len(above), -1, np.int64)
        # A million jobs with one plain number each: all or none has the number.
        if is_constant(self.number) and isinstance(number, int):
            return above if self.number[0] == number else np.full(len(above), -1, np.int64)
        own = self.number[:1] if is_constant(self.number) else self.number[above]
        return np.where((above >= 0) & (own == number), above, -1)

    def above(self, places: IntArray, least: int) -> tuple[IntArray, IntArray]:
        """All numbers above ``least`` below the places: rows of the places given, and numbers."""
        if self.keys is None:
            rows = np.flatnonzero(places >= 0)
            rows = rows[self.number[places[rows]] > least]
            return rows, self.number[places[rows]]
        first = np.searchsorted(self.keys, places * STRIDE + least, "right")
        length = np.searchsorted(self.keys, (places + 1) * STRIDE) - first
        rows = np.repeat(np.arange(len(places), dtype=np.int64), length)
        return rows, self.keys[ranges(first, length)] % STRIDE


class Entries(NamedTuple):
    """The entries of a table, level by level:
    (profile, place), then its GPU counts, then the nodes spanned of each.

    Attributes
    ----------
    at : Places
    counts, spreads : Level
    rate : FloatArray
        By the place of the last level.
    """

    at: Places
    counts: Level
    spreads: Level
    rate: FloatArray

    @classmethod
    def of(cls, rates: RateTable) -> Entries:
        """Those of a table."""
        # Each level is found by the place in the level above and one number.
        at, owner = Places.of(rates)
        counts, owner = Level.of(owner, rates.gpus)
        spreads, entry = Level.of(owner, rates.nodes)
        rate = rates.rate
        if not is_range(entry, len(entry)):
            rate = np.empty(len(entry))
            rate[entry] = rates.rate
        return cls(at, counts, spreads, rate)


# --- tables of plain numbers ----------------------------------------------------------------------


class PlainRates(NamedTuple):
    """Rates of a table of plain numbers alone,
    as matrices of jobs and pools become, profile by profile.

    Attributes
    ----------
    places : int
        Places that there are.
    cells : FloatArray, shape (profiles x places + 1,)
        NaN where the table has none; the last cell is of no profile and no place.
    """

    places: int
    cells: FloatArray

    @classmethod
    def of(cls, rates: RateTable) -> PlainRates | None:
        """The rates of a table;
        None where it has rates of counts or spreads, or too few for so many places.
        """
        places = len(rates.places)
        entries = len(rates.rate)
        room = len(rates) * places
        if room > SPARSE * entries + FEW or not (
            _all(rates.gpus, OWN_GANG) and _all(rates.nodes, ANY_SPREAD)
        ):
            return None
        if not rates.one_by_one:
            return None
        # Every profile has a rate in every place: the entries are the table.
        if entries == room:
            return cls(places, np.append(rates.rate, np.nan))
        cells = np.full(room + 1, np.nan)
        for own, keys in keys_of(rates):
            cells[keys] = rates.rate[own]
        return cls(places, cells)

    def find(self, profile: IntArray, place: IntArray) -> FloatArray:
        """Rate of each pair, NaN for none; profile or place may be -1 as well."""
        # In place: of a million jobs each array counts.
        key = profile * self.places
        key += place
        if profile.min(initial=0) < 0 or place.min(initial=0) < 0:
            key[(profile < 0) | (place < 0)] = -1
        return self.cells[key]

    def rows(self, profile: IntArray, place: IntArray) -> FloatArray:
        """Rates of profiles in places, shape (profiles, places);
        NaN for none, also where a place is -1.
        """
        table = self.cells[:-1].reshape(-1, self.places)
        own = table[profile]
        if len(place) == self.places and is_range(place, self.places):
            return own
        return np.where(place >= 0, own[:, place], np.nan)


def _all(column: AnyArray, value: int) -> bool:
    return bool((shown(column) == value).all())


# --- the model ------------------------------------------------------------------------------------


CODES = np.array([Feasibility.NO_RATE, Feasibility.ZERO_RATE, Feasibility.OK], np.uint8)
"""Feasibility where no entry is found, one that is 0, and one that is not."""


class TableModel(RateModel):
    """Look up stated rates.

    For job profile p, pool j, k GPUs on n nodes the rate is, in this order,

    1. the entry for (k, n) nodes spanned;
    2. the entry for k GPUs, if n is the fewest nodes that k GPUs need in the pool;
    3. the plain number, if k is the job's gang (a job's own profile) or 1 (a workload's profile),
       on the fewest nodes.

    An entry under the pool's name hides those under its GPU type. What is not listed is no
    candidate (`NO_RATE`), a zero says that the job cannot run so (`ZERO_RATE`).
    """

    name = "table"

    def __init__(self, rates: RateTable, instance: Instance, later_nodes: bool = False) -> None:
        pools = instance.cluster.pools
        self.sizes = PoolSizes.of(pools, np.inf) if later_nodes else instance.pool_sizes
        self._made_of = (rates, instance.cluster, instance.now, later_nodes)
        rows = {place: row for row, place in enumerate(rates.places)}
        self.places_of_pools = np.array([rows.get(pool.name, -1) for pool in pools], np.int64)
        self._type_place = np.array([rows.get(pool.gpu, -1) for pool in pools], np.int64)
        # Where pools and GPU types are the same places, a rate is looked up in one table.
        one_place = (self._type_place < 0) | (self._type_place == self.places_of_pools)
        self.plain = PlainRates.of(rates) if one_place.all() else None
        self.has_spreads = self.plain is None and bool((rates.nodes != ANY_SPREAD).any())
        counted = rates.gpus != OWN_GANG
        self._has_plain_numbers = not counted.all()
        self._has_counts = self.plain is None and bool(counted.any())

    @cached_property
    def _profile_counts(self) -> IntArray:
        """``profile * STRIDE + count`` of the GPU counts that profiles list for any place, sorted."""
        rates = self._made_of[0]
        counted = rates.gpus != OWN_GANG
        return np.unique(rates.profile[counted] * STRIDE + rates.gpus[counted])

    @cached_property
    def _entries(self) -> Entries:
        return Entries.of(self._made_of[0])

    @classmethod
    def again(cls, model: object, instance: Instance, later_nodes: bool) -> TableModel:
        """The model of the instance's own rates: the one given, if it is one."""
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
        model = cls(instance.rates, instance)
        model._refuse_plain_numbers(instance)
        return model

    def rates(
        self,
        jobs: JobBatch,
        configurations: Configurations,
        job: IntArray,
        configuration: IntArray,
    ) -> Prediction:
        """Look up the rates; see the class."""
        fewest = configurations.nodes == self.fewest_nodes(configurations.pool, configurations.gpus)
        rate = np.empty(len(job))
        feasible = np.empty(len(job), np.uint8)
        # Block by block: what is made on the way stays in the cache.
        for part in blocks(len(job)):
            stated = self._stated(jobs, configurations, fewest, job[part], configuration[part])
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
        job: IntArray,
        way: IntArray,
    ) -> FloatArray:
        """Rate for each (job, way to run), or NaN; some ways span as few nodes as they can."""
        profile = jobs.profile[job]
        gpus = ways.gpus[way]
        # 0 is a mark in the table (OWN_GANG, ANY_SPREAD), which no way to run may find.
        on_gpus = (ways.gpus > 0) & (ways.nodes > 0)
        # A job's own plain number is for its gang, that of a workload for one GPU.
        here = gpus == np.where(jobs.own[job], jobs.gang[job], 1)
        if not fewest.all():
            here &= fewest[way]
        if self.plain is not None:
            places = np.where(on_gpus & (ways.pool >= 0), self.places_of_pools[ways.pool], -1)
            rate = self.plain.find(profile, places[way])
            if not here.all():
                rate[~here] = np.nan
            return rate
        table = self._entries
        place = self._find_place(profile, ways.pool[way])
        if not on_gpus.all():
            place = np.where(on_gpus[way], place, -1)
        entry = plain = constant(-1, len(place), np.int64)
        if self._has_plain_numbers:
            plain = table.spreads.find(table.counts.find(place, OWN_GANG), ANY_SPREAD)
            entry = plain = np.where(here, plain, -1)
        # Rates by GPU count, where some profile has them: by nodes first, then for the fewest
        # nodes.
        if self._has_counts:
            count = table.counts.find(place, gpus)
            entry = table.spreads.find(count, ways.nodes[way])
            entry = np.where(
                (entry < 0) & fewest[way], table.spreads.find(count, ANY_SPREAD), entry
            )
            entry = np.where(entry < 0, plain, entry)
        return gathered(table.rate, entry, np.nan)

    def _find_place(self, profile: IntArray, pool: IntArray) -> IntArray:
        """Position of the (profile, place) of a profile in a pool:
        the pool's, else its GPU type's.
        """
        found = self._entries.at.find(profile, self.places_of_pools[pool])
        # An entry under the name of the pool hides those under its GPU type.
        if (self._type_place != self.places_of_pools).any():
            found = np.where(
                found >= 0, found, self._entries.at.find(profile, self._type_place[pool])
            )
        return np.where(pool < 0, -1, found) if (pool < 0).any() else found

    def fewest_nodes(self, pool: IntArray, gpus: IntArray) -> IntArray:
        """Fewest nodes that hold so many GPUs; one more than the pool has where they don't fit."""
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
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        first = np.searchsorted(self._profile_counts, profile * STRIDE + low, "right")
        length = np.searchsorted(self._profile_counts, profile * STRIDE + high, "right") - first
        rows = np.repeat(np.arange(len(profile), dtype=np.int64), length)
        return rows, self._profile_counts[ranges(first, length)] % STRIDE

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
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return self._entries.spreads.above(
            self._entries.counts.find(self._find_place(jobs.profile[job], pool), gpus), ANY_SPREAD
        )

    def _refuse_plain_numbers(self, instance: Instance) -> None:
        """A plain number of a workload is its rate on 1 GPU:
        refused where a larger gang would have to use it.
        """
        if not instance.workloads or not self._has_plain_numbers:
            return
        table = instance.jobs_table
        pools = len(instance.cluster.pools)
        profiles = np.array([*(workload.rates for workload in instance.workloads), -1], np.int64)
        place = self._find_place(
            np.repeat(profiles, pools), np.tile(np.arange(pools), len(profiles))
        )
        plain = np.reshape(self._entries.counts.find(place, OWN_GANG) >= 0, (-1, pools))
        if not plain.any():
            return
        # The smallest gang of a job is the first of its levels, if it has any.
        lowest = np.array([*(counts[0] for counts in table.level_lists), 0], np.int64)[table.levels]
        smallest = np.maximum(table.gpus_min, lowest)
        from_workload = (table.rates < 0) & (table.options < 0)
        wrong = np.flatnonzero(
            from_workload & np.logical_or.reduce(plain, axis=1)[table.workload] & (smallest > 1)
        )
        if len(wrong) == 0:
            return
        job = int(wrong[0])
        gang = int(smallest[wrong[0]])
        workload = instance.workloads[table.workload[job]]
        pool = instance.cluster.pools[int(np.flatnonzero(plain[table.workload[job]])[0])]
        document = instance.rates.document(workload.rates)
        where = pool.name if pool.name in document else pool.gpu
        raise InvalidInput(
            f"workloads.{key(workload.name)}.throughput.{key(where)}",
            f"the plain number {document[where]:g} (the rate on 1 GPU), "
            f"which job {show(table.names[job])} would need "
            f"for {gang} GPUs",
            f'rates by GPU count such as {{"1": {document[where]:g}, "{gang}": ...}}',
        )
