"""The ``prior`` model: what is known of a workload on some GPU types, carried to others by their datasheets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field

from optsched.arrays import FloatArray, IntArray, group_rows
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.documents import Document, Name, NonEmpty, Positive, PositiveCount
from optsched.instance.reading import validate
from optsched.instance.tables import ANY_SPREAD, OWN_GANG
from optsched.performance.analytic.board import Board
from optsched.performance.analytic.hardware import find
from optsched.performance.analytic.transformer import Precision
from optsched.performance.configurations import Configurations
from optsched.performance.known_rates import KnownRates, Setting, Spreads
from optsched.performance.profiles import Profiles
from optsched.performance.protocol import (
    Edges,
    Feasibility,
    JobBatch,
    Prediction,
    Source,
    expand_edges,
)
from optsched.performance.sizes import PoolSizes
from optsched.performance.times import TimeModel, Times, TimesOnInstance
from optsched.performance.ways import Ways


class MeasuredDocument(Document):
    """A rate in samples/s of k GPUs on n nodes with so many samples of a GPU in a pass and passes of a step."""

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

    rates: dict[Name, dict[Name, NonEmpty[MeasuredDocument]]] = Field(default_factory=dict)
    precision: Precision = "fp32"
    log_sd_gpu: Annotated[float, Field(ge=0, le=10)] = 0.3
    log_sd_gpus: Annotated[float, Field(ge=0, le=10)] = 0.3
    log_sd_nodes: Annotated[float, Field(ge=0, le=10)] = 0.3
    log_sd_batch: Annotated[float, Field(ge=0, le=10)] = 0.1
    log_sd_least: Annotated[float, Field(ge=1e-6, le=10)] = 0.05


class Prior(TimeModel):
    """A workload that is known on some GPU types and counts gets a rate on all others.

        rate' = rate x sqrt(FLOPS'/FLOPS x bandwidth'/bandwidth) x k'/k

    with the datasheet's peak FLOP/s and memory bandwidth of the two boards, from the known rate that leaves least doubt
    (`optsched.performance.known_rates`): scaling in GPUs is linear, which is an upper bound more often than not, and
    log_sd grows with the distance. Known are rates in samples/s that it was fitted to, and on an instance what its
    workloads state in steps/s; the latter come first where both speak. A GPU type without a known board gets rates only
    from itself.

    Where the numbers come from: the ratio is wrong by 27.5 % on average on one GPU (Gavel's physical table, 25 jobs),
    about as much as anything learnt from three GPU types: log_sd 0.3 (all ordered pairs of types: root mean square
    0.42, with a heavy tail). Linear scaling is off by 0.25 to 0.35 in log for each doubling on one node and by 0.4 to
    0.75 over slow networks (Gavel, ElasticFlow), nearly always too optimistic: 0.3 for a doubling of GPUs and as much
    again for a doubling of nodes. That of the batch is a guess.

    Source: `Source.PRIOR`.
    """

    name = "prior"

    def __init__(self, document: PriorDocument) -> None:
        self.options = document
        self.workloads = {name: row for row, name in enumerate(document.rates)}
        self.gpu_types = tuple(
            dict.fromkeys(name for rates in document.rates.values() for name in rates)
        )
        gpu = {name: row for row, name in enumerate(self.gpu_types)}
        table = [
            (
                self.workloads[workload],
                gpu[name],
                one.gpus,
                one.nodes,
                one.samples,
                one.passes,
                one.rate,
            )
            for workload, rates in document.rates.items()
            for name, entries in rates.items()
            for one in entries
        ]
        columns = np.array(table, np.float64).reshape(-1, 7).T
        setting = Setting(columns[1].astype(np.int64), *columns[2:6])
        self._known = KnownRates.of(
            len(self.workloads), columns[0].astype(np.int64), setting, columns[6]
        )

    @property
    def spreads(self) -> Spreads:
        """How doubt grows."""
        options = self.options
        return Spreads(
            options.log_sd_gpu,
            options.log_sd_gpus,
            options.log_sd_nodes,
            options.log_sd_batch,
            options.log_sd_least,
        )

    @classmethod
    def fit(cls, profiles: Profiles, options: Mapping[str, Any]) -> Self:
        """Keep the median rate of each way to run; ``options`` are those of the document without ``rates``."""
        if "rates" in options:
            raise InvalidInput("performance.rates", "rates beside a profile", "one of the two")
        profiles = profiles.sorted()
        ways = profiles.ways
        names = ("workload", "gpu", "gpus", "nodes", "samples", "passes")
        groups = group_rows([getattr(ways, name) for name in names], len(ways))
        first = ways.take(groups.first)
        rates: dict[str, dict[str, list[dict[str, Any]]]] = {}
        rows = zip(
            first.workload.tolist(), first.gpu.tolist(), first.gpus.tolist(), first.nodes.tolist(),
            first.samples.tolist(), first.passes.tolist(),
            _medians(profiles.samples_per_second, groups.inverse, groups.count).tolist(), strict=True,
        )  # fmt: skip
        for workload, gpu, *way in rows:
            by_gpu = rates.setdefault(ways.workloads[workload], {})
            entry = dict(zip(("gpus", "nodes", "samples", "passes", "rate"), way, strict=True))
            by_gpu.setdefault(ways.gpu_types[gpu], []).append(entry)
        return cls.from_document({**options, "rates": rates})

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The model of its options; raises `InvalidInput`."""
        return cls(validate(PriorDocument, dict(document), "performance"))

    def document(self) -> dict[str, Any]:
        """The options, with the rates that it was fitted to."""
        return {"model": self.name, **self.options.model_dump(mode="json")}

    def times(self, ways: Ways) -> Times:
        """Seconds of a step from the known samples/s."""
        log_ratio = log_ratios(self.gpu_types, ways.gpu_types, self.options.precision)
        gpu = _merged(self.gpu_types, ways.gpu_types)[ways.gpu]
        gpus, nodes, passes = (
            column.astype(np.float64) for column in (ways.gpus, ways.nodes, ways.passes)
        )
        wanted = Setting(gpu, gpus, nodes, ways.samples, passes)
        rate, log_sd = self._known.nearest(
            ways.workload_among(self.workloads), wanted, log_ratio, self.spreads
        )
        return Times(
            ways.samples_per_step / rate,
            np.nan_to_num(log_sd),
            np.full(len(ways), Source.PRIOR, np.uint8),
        )

    @classmethod
    def from_instance(cls, instance: Instance, options: Mapping[str, Any]) -> PriorOnInstance:
        """The model, speaking for an instance."""
        return PriorOnInstance(instance, cls.from_document(options))


class PriorOnInstance(TimesOnInstance):
    """A `Prior` as the performance model of an instance: its workloads' own rates first."""

    model: Prior

    def __init__(self, instance: Instance, model: Prior) -> None:
        super().__init__(instance, model)
        self._log_ratio = log_ratios((), self._gpu_types, model.options.precision)
        self._type = _merged((), self._gpu_types)
        self._stated = _stated(instance, self._type)

    def predict(
        self, jobs: JobBatch, configurations: Configurations, *, edges: Edges | None = None
    ) -> Prediction:
        """Rates carried over from what the workloads state, else from the rates that the model was fitted to."""
        job, configuration, shape = expand_edges(jobs, configurations, edges)
        fitted = super().predict(jobs, configurations, edges=(job, configuration))
        pool, gpus, nodes = (
            getattr(configurations, name)[configuration] for name in ("pool", "gpus", "nodes")
        )
        fine = (pool >= 0) & (gpus > 0) & (nodes > 0) & (configurations.share[configuration] == 1)
        asked = np.flatnonzero(fine & (fitted.feasible != Feasibility.ZERO_RATE))
        here = pool[asked]
        nothing = np.full(len(asked), np.nan)
        wanted = Setting(
            self._type[here], gpus[asked].astype(np.float64), nodes[asked].astype(np.float64), nothing, nothing
        )  # fmt: skip
        workload = jobs.workload[job[asked]]
        stated, log_sd = self._stated.nearest(workload, wanted, self._log_ratio, self.model.spreads)
        told = ~np.isnan(stated)
        rows = asked[told]
        fitted.rate[rows], fitted.log_sd[rows] = stated[told], log_sd[told]
        fitted.feasible[rows], fitted.source[rows] = Feasibility.OK, Source.PRIOR
        return Prediction(
            fitted.rate.reshape(shape),
            fitted.log_sd.reshape(shape),
            fitted.feasible.reshape(shape),
            fitted.source.reshape(shape),
        )


def _medians(values: FloatArray, group: IntArray, count: IntArray) -> FloatArray:
    """Median of the values of each group."""
    ordered = values[np.lexsort((values, group))]
    start = np.cumsum(count) - count
    return np.asarray(
        (ordered[start + (count - 1) // 2] + ordered[start + count // 2]) / 2, np.float64
    )


def log_ratios(known: Sequence[str], others: Sequence[str], precision: str) -> FloatArray:
    """log sqrt(FLOPS ratio x bandwidth ratio) between all GPU types, from rows to columns, as `_merged` numbers them.

    NaN between different types of which one is no known board.
    """
    names = list(dict.fromkeys([*known, *others]))
    boards = [_board(name) for name in names]
    speed = [np.nan if b is None else 0.5 * np.log(b.peak(precision) * b.bandwidth) for b in boards]
    table: FloatArray = np.subtract.outer(speed, speed).T
    np.fill_diagonal(table, 0.0)
    return table


def _merged(known: Sequence[str], others: Sequence[str]) -> IntArray:
    """Number of each of the others among all different names, the known ones first."""
    number = {name: row for row, name in enumerate(dict.fromkeys([*known, *others]))}
    return np.array([*(number[name] for name in others), -1], np.int64)


def _board(name: str) -> Board | None:
    try:
        return find(name)
    except InvalidInput:
        return None  # a name of the user's own: nothing is carried over to it or from it


def _stated(instance: Instance, types: IntArray) -> KnownRates:
    """What the workloads of an instance state: rates above 0 in steps/s, at a pool's or a GPU type's name."""
    table, pools = instance.rates, instance.cluster.pools
    by_place = {pool.gpu: row for row, pool in reversed(list(enumerate(pools)))}
    by_place |= {pool.name: row for row, pool in enumerate(pools)}
    place = np.array([by_place[name] for name in table.places], np.int64)
    profile = [workload.rates for workload in instance.workloads]
    workload, entry = [], []
    for row, number in enumerate(profile):
        if number >= 0:
            rows = np.arange(table.indptr[number], table.indptr[number + 1])
            workload.append(np.full(len(rows), row))
            entry.append(rows)
    at = np.concatenate(entry) if entry else np.zeros(0, np.int64)
    who = np.concatenate(workload) if workload else np.zeros(0, np.int64)
    above = table.rate[at] > 0
    at, who = at[above], who[above]
    pool = place[table.place[at]]
    gpus = np.where(table.gpus[at] == OWN_GANG, 1, table.gpus[at])
    fewest = np.maximum(PoolSizes.of(instance, later=True).fewest_nodes(pool, gpus), 1)
    nodes = np.where(table.nodes[at] == ANY_SPREAD, fewest, table.nodes[at])
    nothing = np.full(len(at), np.nan)
    setting = Setting(
        types[pool], gpus.astype(np.float64), nodes.astype(np.float64), nothing, nothing
    )
    return KnownRates.of(len(profile), who, setting, table.rate[at])
