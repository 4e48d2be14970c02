"""The ``prior`` model: known rates of a workload on some GPU types, scaled to other types by
datasheet figures.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np
from pydantic import Field

from optsched.arrays import (
    FloatArray,
    IntArray,
    pointers,
    ranges,
)
from optsched.arrays.values import replace
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.cluster import PoolSizes
from optsched.instance.documents import Document, Name, NonEmpty, Positive, PositiveCount
from optsched.instance.rates import ANY_SPREAD, LEVEL, OWN_GANG
from optsched.performance.analytic.hardware import find
from optsched.performance.analytic.transformer import Precision
from optsched.performance.configurations import Configurations
from optsched.performance.parametric.fitting import by_names, flat
from optsched.performance.profiles import Profiles, group_medians
from optsched.performance.protocol import Feasibility, JobBatch, Prediction, Source
from optsched.performance.times import StoredModel, Times, TimesOnInstance
from optsched.performance.ways import Ways, numbered

ROUNDING = 1e-9
"""Variances with a smaller relative difference count as equal."""


class KnownRateDocument(Document):
    """A rate in samples/s of k GPUs on n nodes with so many samples of a GPU
    in a pass and passes of a step.
    """

    gpus: PositiveCount
    nodes: PositiveCount = 1
    samples: Positive
    passes: PositiveCount = 1
    rate: Positive


class PriorDocument(Document):
    """Options of the ``prior`` model.

    Attributes
    ----------
    rates : mapping
        Measured rates by workload, then GPU type.
    precision : str
        Whose peak the ratio of FLOP/s is taken at.
    log_sd_gpu : float
        Standard deviation of the log rate on another GPU type.
    log_sd_gpus, log_sd_nodes, log_sd_batch : float
        The same for each doubling of GPUs, nodes spanned, and samples of a GPU or passes.
    log_sd_least : float
        Of what was measured in this very way: two measurements differ by about 5 %.
    """

    rates: dict[Name, dict[Name, NonEmpty[KnownRateDocument]]] = Field(default_factory=dict)
    precision: Precision = "fp32"
    log_sd_gpu: float = Field(0.3, ge=0, le=10)
    log_sd_gpus: float = Field(0.3, ge=0, le=10)
    log_sd_nodes: float = Field(0.3, ge=0, le=10)
    log_sd_batch: float = Field(0.1, ge=0, le=10)
    log_sd_least: float = Field(0.05, ge=1e-6, le=10)


@dataclass(frozen=True)
class KnownRates:
    """Rates of W workloads; workload w owns the rows ``indptr[w]:indptr[w + 1]``.

    Attributes
    ----------
    indptr : IntArray, shape (W + 1,)
    ways : Ways
        The way of each measurement.
    rate : FloatArray
        Above 0; steps/s or samples/s.
    """

    indptr: IntArray
    ways: Ways
    rate: FloatArray

    @classmethod
    def of(cls, ways: Ways, rate: FloatArray) -> KnownRates:
        """From rows in any order."""
        order = np.argsort(ways.workload, kind="stable")
        count = np.bincount(ways.workload, minlength=len(ways.workloads))
        indptr = pointers(count)
        return cls(indptr, ways.take(order), rate[order])

    def nearest(self, wanted: Ways, options: PriorDocument) -> tuple[FloatArray, FloatArray]:
        """Rates and their log_sd from the known rate of the same workload
        with the least variance, elementwise.

            rate' = rate x sqrt(FLOPS'/FLOPS x bandwidth'/bandwidth) x k'/k
            log_sd^2 = sd_least^2 + [g' != g] sd_gpu^2 + (sd_gpus log2(k'/k))^2 + (sd_nodes
            log2(n'/n))^2
                       + (sd_batch log2(m'/m))^2 + (sd_batch log2(A'/A))^2        A passes

        NaN if no rate of the workload is known, or if the GPU types differ and one is not a known
        board. Of equal variances, the same GPU type comes first, then the first given.
        """
        rate, log_sd = np.full((2, len(wanted)), np.nan)
        workload = wanted.workload_among(numbered(self.ways.workloads))
        length = np.append(np.diff(self.indptr), 0)[workload]
        asked = np.flatnonzero(length > 0)
        if len(asked) == 0:
            return rate, log_sd
        length = length[asked]
        entry = ranges(self.indptr[workload[asked]], length)
        way = np.repeat(asked, length)
        source = self.ways.take(entry)
        target = wanted.take(way)
        other_type = target.gpu_among(numbered(source.gpu_types)) != source.gpu
        ratio = _log_speeds(target.gpu_types, options.precision)[target.gpu]
        ratio -= _log_speeds(source.gpu_types, options.precision)[source.gpu]
        ratio[~other_type] = 0.0
        variance = options.log_sd_least**2 + np.where(other_type, options.log_sd_gpu**2, 0.0)
        for sd, new, old in (
            (options.log_sd_gpus, target.gpus, source.gpus),
            (options.log_sd_nodes, target.nodes, source.nodes),
            (options.log_sd_batch, target.samples, source.samples),
            (options.log_sd_batch, target.passes, source.passes),
        ):
            variance += (sd * np.log2(new / old)) ** 2
        variance[np.isnan(ratio)] = np.inf
        # The entries of a way are contiguous, so its smallest variance is a segmented minimum.
        first = np.cumsum(length) - length
        least = np.minimum.reduceat(variance, first)
        hit = np.flatnonzero(variance <= np.repeat(least, length) * (1 + ROUNDING))
        # Of equal variances, the same GPU type comes first, then the first given.
        hit = hit[np.lexsort((hit, other_type[hit], way[hit]))]
        _, at = np.unique(way[hit], return_index=True)
        best = hit[at]
        carried = (
            self.rate[entry[best]] * np.exp(ratio[best]) * (target.gpus[best] / source.gpus[best])
        )
        found = np.isfinite(least)
        rate[asked[found]] = carried[found]
        log_sd[asked[found]] = np.sqrt(least[found])
        return rate, log_sd


def _log_speeds(gpu_types: Sequence[str], precision: str) -> FloatArray:
    """log sqrt(FLOP/s x bandwidth) of each GPU type, and an entry for no type; NaN for unknown
    boards.
    """
    return np.array([*(_log_speed(name, precision) for name in gpu_types), np.nan])


@cache
def _log_speed(gpu_type: str, precision: str) -> float:
    try:
        board = find(gpu_type)
    except InvalidInput:
        # A GPU type with an unknown name: no rates are scaled to it or from it.
        return np.nan
    return float(0.5 * np.log(board.peak(precision) * board.bandwidth))


class Prior(StoredModel):
    """Known rates, scaled to other GPU types and numbers of GPUs.

        rate' = rate x sqrt(FLOPS'/FLOPS x bandwidth'/bandwidth) x k'/k

    with the datasheet's peak FLOP/s and memory bandwidth of the two boards, from the known rate
    with the smallest resulting variance (`KnownRates`). Scaling in GPUs is linear, which is usually
    too optimistic, and log_sd grows with the distance. Known rates are the fitted ones in samples/s
    and, on an instance, the rates in steps/s that its workloads state; the latter take precedence.
    A GPU type without a known board gets rates only from itself.

    Where the numbers come from: the ratio is wrong by 27.5 % on average on one GPU (Gavel's
    physical table, 25 jobs), about as much as anything learnt from three GPU types: log_sd 0.3 (all
    ordered pairs of types: root mean square 0.42, with a heavy tail). Linear scaling is off by 0.25
    to 0.35 in log for each doubling on one node and by 0.4 to 0.75 over slow networks (Gavel,
    ElasticFlow), nearly always too optimistic: 0.3 for a doubling of GPUs and as much again for a
    doubling of nodes. That of the batch is a guess.

    Source: `Source.PRIOR`.
    """

    name = "prior"
    Stored = PriorDocument

    def __init__(self, document: PriorDocument) -> None:
        super().__init__(document)
        rates = flat(document.rates)
        pairs = [pair for pair, known in rates.items() for _ in known]
        known = [row for of_pair in rates.values() for row in of_pair]
        ways = Ways.named(
            workload=[workload for workload, _ in pairs],
            gpu=[gpu for _, gpu in pairs],
            gpus=np.array([row.gpus for row in known], np.int64),
            nodes=np.array([row.nodes for row in known], np.int64),
            samples=np.array([row.samples for row in known], np.float64),
            passes=np.array([row.passes for row in known], np.int64),
        )
        self._known = KnownRates.of(ways, np.array([row.rate for row in known], np.float64))

    @classmethod
    def fit(cls, profiles: Profiles, options: Mapping[str, Any]) -> Self:
        """Keep the median rate of each way to run;
        ``options`` are those of the document without ``rates``.
        """
        if "rates" in options:
            raise InvalidInput("performance.rates", "rates beside a profile", "one of the two")
        profiles = profiles.sorted()
        ways = profiles.ways
        groups = ways.groups
        first = ways.take(groups.first)
        columns = (first.gpus, first.nodes, first.samples, first.passes)
        median = group_medians(profiles.samples_per_second, groups)
        rows = zip(*(column.tolist() for column in (*columns, median)), strict=True)
        fields = ("gpus", "nodes", "samples", "passes", "rate")
        rates = by_names(first, [dict(zip(fields, row, strict=True)) for row in rows])
        return cls.from_document({**options, "rates": rates})

    def times(self, ways: Ways) -> Times:
        """Seconds of a step from the known samples/s."""
        rate, log_sd = self._known.nearest(ways, self.stored)
        return Times.of(ways.samples_per_step / rate, Source.PRIOR, np.nan_to_num(log_sd))

    @classmethod
    def on_instance(
        cls, instance: Instance, model: Self, whole_steps: Collection[str]
    ) -> PriorOnInstance:
        """The model for an instance, including the rates that its workloads state."""
        return PriorOnInstance(instance, model, whole_steps)


class PriorOnInstance(TimesOnInstance):
    """A `Prior` as the performance model of an instance: rates of its workloads come first."""

    model: Prior

    def __init__(self, instance: Instance, model: Prior, whole_steps: Collection[str] = ()) -> None:
        super().__init__(instance, model, whole_steps)
        self._stated = _stated(instance)

    def rates(
        self,
        jobs: JobBatch,
        configurations: Configurations,
        job: IntArray,
        configuration: IntArray,
    ) -> Prediction:
        """Rates scaled from stated rates of the workloads, else from the fitted rates."""
        fitted = super().rates(jobs, configurations, job, configuration)
        pool, gpus, nodes = (
            getattr(configurations, name)[configuration] for name in ("pool", "gpus", "nodes")
        )
        runs = (pool >= 0) & (gpus > 0) & (nodes > 0) & (configurations.share[configuration] == 1)
        # A way with fewer samples than GPUs cannot run, even if a rate is stated.
        asked = np.flatnonzero(runs & (fitted.feasible != Feasibility.ZERO_RATE))
        wanted = replace(
            _batchless(jobs.workload[job[asked]], pool[asked], gpus[asked], nodes[asked]),
            workloads=self._stated.ways.workloads,
            gpu_types=self._gpu_types,
        )
        stated, log_sd = self._stated.nearest(wanted, self.model.stored)
        known = ~np.isnan(stated)
        rows = asked[known]
        fitted.rate[rows], fitted.log_sd[rows] = stated[known], log_sd[known]
        fitted.feasible[rows], fitted.source[rows] = Feasibility.OK, Source.PRIOR
        return fitted


def _batchless(workload: IntArray, gpu: IntArray, gpus: IntArray, nodes: IntArray) -> Ways:
    """Ways to run of stated rates, which are in steps/s:
    their batch does not matter, so it is the same for all.
    """
    ones = np.ones(len(workload), np.int64)
    return Ways(workload, gpu, gpus, nodes, ones.astype(np.float64), ones, (), ())


def _stated(instance: Instance) -> KnownRates:
    """Positive rates in steps/s that the workloads of an instance state, by pool or GPU type."""
    table = instance.rates
    pools = instance.cluster.pools
    # A name that is both a pool and a GPU type means the pool.
    by_place = {pool.gpu: row for row, pool in reversed(list(enumerate(pools)))}
    by_place |= {pool.name: row for row, pool in enumerate(pools)}
    place = np.array([by_place[name] for name in table.places], np.int64)
    profile = np.array([workload.rates for workload in instance.workloads], np.int64)
    stating = np.flatnonzero(profile >= 0)
    start = table.indptr[profile[stating]]
    length = table.indptr[profile[stating] + 1] - start
    entry = ranges(start, length)
    workload = np.repeat(stating, length)
    # A rate within a group of nodes is not a rate on a number of nodes.
    above = (table.rate[entry] > 0) & (table.nodes[entry] < LEVEL)
    entry = entry[above]
    workload = workload[above]
    pool = place[table.place[entry]]
    gpus = np.where(table.gpus[entry] == OWN_GANG, 1, table.gpus[entry])
    fewest = np.maximum(PoolSizes.of(pools, np.inf).fewest_nodes(pool, gpus), 1)
    nodes = np.where(table.nodes[entry] == ANY_SPREAD, fewest, table.nodes[entry])
    types = numbered(each.gpu for each in pools)
    gpu = np.array([types[each.gpu] for each in pools], np.int64)[pool]
    ways = replace(
        _batchless(workload, gpu, gpus, nodes),
        workloads=tuple(each.name for each in instance.workloads),
        gpu_types=tuple(types),
    )
    return KnownRates.of(ways, table.rate[entry])
