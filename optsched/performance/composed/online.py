"""The ``online`` model: another model, corrected by measurements of running jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, model_validator

from optsched.arrays import EMPTY, FloatArray, IntArray, find_sorted, gathered, group_rows, quotient
from optsched.arrays.columns import Columns
from optsched.arrays.values import replace
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.documents import (
    Count,
    Document,
    Finite,
    Name,
    NonNegative,
    Positive,
    Share,
    Tuple,
    refused,
)
from optsched.instance.reading import show
from optsched.performance.composed.base import WrappedModel
from optsched.performance.configurations import Configurations
from optsched.performance.protocol import (
    Feasibility,
    JobBatch,
    Observations,
    PerformanceModel,
    Prediction,
)

LEARNT = "learnt"
"""The option that holds what was learnt."""
MOST_COUNTED = 2**20
"""Larger numbers of GPUs or nodes count as this number, because a cell's key has 64 bits."""
FORGOTTEN = 1e-9
"""A cell whose measurements have less weight than this is dropped."""
RELEASE = 100.0
"""For a cell that was measured many times, forgetting increases the variance of its prior at most
by this factor.
"""


# --- the posterior --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scales:
    """Variances s_a^2, s_b^2, s_d^2 of the offsets and s_o^2 of a measurement, the forgetting
    factor, and the clip in standard deviations.
    """

    workload: float
    gpu: float
    cell: float
    observation: float
    forget: float
    clip: float

    @property
    def prior(self) -> float:
        """Variance of a cell before any measurement."""
        return self.workload + self.gpu + self.cell


@dataclass(frozen=True)
class Posterior:
    """Means and conditional variances of the three levels.

    ``b | a`` has mean (m - a) t and variance v_b; ``d | a + b`` has mean (r - a - b) s and variance
    v_d, with the shares t = s_b^2 / (s_b^2 + 1/P) and s = s_d^2 / (s_d^2 + s_o^2/n).
    """

    a: FloatArray
    var_a: FloatArray
    b: FloatArray
    t: FloatArray
    var_b: FloatArray
    d: FloatArray
    s: FloatArray
    var_d: FloatArray
    measured: FloatArray


@dataclass(frozen=True, repr=False)
class MeasuredCells(Columns):
    """Statistics of the measured cells, arrays of one length: the whole state of `Offsets`.

    Attributes
    ----------
    workload, gpu : IntArray
        Rows.
    gpus, nodes : IntArray
        At most `MOST_COUNTED` - 1.
    weight, mean : FloatArray
        n and r.
    calls : FloatArray
        Calls that measured the workload since the first measurement of the cell.
    """

    workload: IntArray
    gpu: IntArray
    gpus: IntArray
    nodes: IntArray
    weight: FloatArray
    mean: FloatArray
    calls: FloatArray

    @classmethod
    def measured(
        cls,
        workload: IntArray,
        gpu: IntArray,
        gpus: IntArray,
        nodes: IntArray,
        residual: FloatArray,
    ) -> Self:
        """One measurement of each cell."""
        gpus = np.minimum(gpus, MOST_COUNTED - 1)
        nodes = np.minimum(nodes, MOST_COUNTED - 1)
        new = np.zeros(len(residual))
        return cls(workload, gpu, gpus, nodes, new + 1, residual, new)


class Offsets:
    """Offsets of W workloads on G GPU types, estimated from measurements. Each cell keeps two
    numbers: weight n and mean residual r.

    The levels are a tree, so the posterior is exact in two passes:

        up     a cell measures a + b as r with precision     p = 1 / (s_d^2 + s_o^2 / n)
               a type measures a as m = sum p r / sum p       q = 1 / (s_b^2 + 1 / sum p)
        down   a = sum q m / (1/s_a^2 + sum q),  then b given a, then d given a + b

    Attributes
    ----------
    cells : MeasuredCells
        The learnt state. New offsets that start from it behave identically, to the last bit.
    """

    def __init__(
        self,
        scales: Scales,
        workloads: int,
        types: int,
        cells: MeasuredCells | None = None,
    ) -> None:
        self.scales = scales
        self._shape = (workloads, types)
        numbers = np.zeros(0)
        self._keep(cells or MeasuredCells.measured(EMPTY, EMPTY, EMPTY, EMPTY, numbers))

    def _keep(self, cells: MeasuredCells) -> None:
        """Replace the state by these cells."""
        way = _way(cells.gpus, cells.nodes)
        self._ways = np.unique(way)
        owner = self._owner_of(cells.workload, cells.gpu)
        key = owner * len(self._ways) + find_sorted(self._ways, way)
        order = np.argsort(key)
        self.cells = cells.take(order)
        self._key = key[order]
        self._owner = owner[order]
        self._posterior = self._solve()

    def _owner_of(self, workload: IntArray, gpu: IntArray) -> IntArray:
        """Number of the pair (workload, GPU type)."""
        return workload * self._shape[1] + gpu

    def of(
        self,
        workload: IntArray,
        gpu: IntArray,
        gpus: IntArray,
        nodes: IntArray,
    ) -> tuple[FloatArray, FloatArray]:
        """Offset and its variance for each (workload, type, GPUs, nodes); 0 and NaN without
        measurements.
        """
        if len(self._key) == 0:
            return np.zeros(len(workload)), np.full(len(workload), np.nan)
        p = self._posterior
        known = (workload >= 0) & (gpu >= 0)
        w = np.where(known, workload, 0)
        owner = np.where(known, self._owner_of(workload, gpu), 0)
        cell = np.where(known, self._find(owner, gpus, nodes), -1)
        var_u = p.var_b[owner] + (1 - p.t[owner]) ** 2 * p.var_a[w]
        d = gathered(p.d, cell, 0.0)
        s = gathered(p.s, cell, 0.0)
        var_d = gathered(p.var_d, cell, self.scales.cell)
        offset = np.where(known, p.a[w] + p.b[owner] + d, 0.0)
        variance = np.where(known & (p.measured[w] > 0), var_d + (1 - s) ** 2 * var_u, np.nan)
        return offset, variance

    def learn(
        self,
        workload: IntArray,
        gpu: IntArray,
        gpus: IntArray,
        nodes: IntArray,
        residual: FloatArray,
    ) -> None:
        """Update with residuals log(measured / rate before offsets). Several residuals of one cell
        in a call all count.
        """
        scales = self.scales
        cells = self.cells
        offset, variance = self.of(workload, gpu, gpus, nodes)
        expected = np.where(np.isnan(variance), scales.prior, variance)
        reach = scales.clip * np.sqrt(expected + scales.observation)
        clipped = offset + np.clip(residual - offset, -reach, reach)

        # Forgetting counts calls that measure the workload, not time, so cells that are not
        # measured are kept.
        again = np.isin(cells.workload, workload)
        faded = np.where(again, cells.weight * scales.forget, cells.weight)
        before = replace(cells, weight=faded, calls=cells.calls + again)
        before = before.take(np.flatnonzero(faded >= FORGOTTEN))
        new = MeasuredCells.measured(workload, gpu, gpus, nodes, clipped)
        every = MeasuredCells.join([before, new])
        groups = group_rows((every.workload, every.gpu, every.gpus, every.nodes), len(every))
        total = np.bincount(groups.inverse, every.weight, minlength=len(groups)).astype(np.float64)
        mean = np.bincount(groups.inverse, every.weight * every.mean, minlength=len(groups)) / total
        oldest = np.zeros(len(groups))
        np.maximum.at(oldest, groups.inverse, every.calls)
        self._keep(replace(every.take(groups.first), weight=total, mean=mean, calls=oldest))

    def _find(self, owner: IntArray, gpus: IntArray, nodes: IntArray) -> IntArray:
        way = find_sorted(self._ways, _way(gpus, nodes))
        return np.where(way >= 0, find_sorted(self._key, owner * len(self._ways) + way), -1)

    def _solve(self) -> Posterior:
        s = self.scales
        cells = self.cells
        (workloads, types) = self._shape
        # up: from cells to GPU types to workloads
        noise = s.observation / cells.weight
        p = 1.0 / (s.cell + noise)
        P = np.bincount(self._owner, p, minlength=workloads * types)
        pm = np.bincount(self._owner, p * cells.mean, minlength=workloads * types)
        m = pm / np.where(P > 0, P, 1.0)
        spread = quotient(1.0, P, np.inf)
        q = np.where(P > 0, 1.0 / (s.gpu + np.where(P > 0, spread, 0.0)), 0.0)
        Q = q.reshape(workloads, types).sum(axis=1)
        qm = (q * m).reshape(workloads, types).sum(axis=1)
        # down: from workloads to GPU types to cells
        var_a = s.workload / (1.0 + s.workload * Q)
        a = var_a * qm
        t = s.gpu * P / (1.0 + s.gpu * P)
        b = (m - np.repeat(a, types)) * t
        # A cell that was measured many times needs no prior. Without this, forgetting would always
        # pull it back to the prior.
        cell_prior = s.cell * np.minimum(RELEASE, s.forget**-cells.calls)
        share = cell_prior / (cell_prior + noise)
        d = (cells.mean - a[cells.workload] - b[self._owner]) * share
        measured = np.bincount(cells.workload, minlength=workloads).astype(np.float64)
        return Posterior(
            a, var_a, b, t, s.gpu * (1 - t), d, share, cell_prior * (1 - share), measured
        )


def _way(gpus: IntArray, nodes: IntArray) -> IntArray:
    return np.minimum(gpus, MOST_COUNTED - 1) * MOST_COUNTED + np.minimum(nodes, MOST_COUNTED - 1)


# --- what was learnt, as data ---------------------------------------------------------------------

KEY_FIELDS = 4
"""Number of key fields of a cell, which come first: workload, GPU type, GPUs, nodes."""

Ways = Annotated[int, Field(ge=0, lt=MOST_COUNTED)]
Cell = tuple[str, str, int, int, float, float, int]
"""Workload, GPU type, GPUs, nodes; weight, mean residual, calls since it was first measured."""


class LearntDocument(Document):
    """Cells of `Offsets`, one entry each in every list, by names,
    which mean the same in every instance.

    Attributes
    ----------
    workload, gpu : tuple of str
    gpus, nodes : tuple of int
    weight : tuple of float
        Measurements, each counted as often as it is not forgotten.
    mean : tuple of float
        Of log(measured rate / rate of the other model).
    calls : tuple of int
        Calls that measured the workload since the first measurement of the cell.
    """

    workload: Tuple[Name] = ()
    gpu: Tuple[Name] = ()
    gpus: Tuple[Ways] = ()
    nodes: Tuple[Ways] = ()
    weight: Tuple[Positive] = ()
    mean: Tuple[Finite] = ()
    calls: Tuple[Count] = ()

    @property
    def rows(self) -> list[Cell]:
        """The cells, one by one."""
        return list(zip(*dict(self).values(), strict=True))

    @model_validator(mode="after")
    def _each_cell_once(self) -> Self:
        for name, column in self:
            if len(column) != len(self.workload):
                expected = f"one per workload, {len(self.workload)}"
                raise refused(f"{len(column)} entries", expected, f".{name}")
        seen = set()
        for row, cell in enumerate(self.rows):
            key = cell[:KEY_FIELDS]
            if key in seen:
                found = f"{show(list(key))} a second time"
                raise refused(found, "cells that differ", f".workload[{row}]")
            seen.add(key)
        return self

    def read(
        self, workloads: Mapping[str, int], types: Mapping[str, int]
    ) -> tuple[MeasuredCells, list[Cell]]:
        """Cells by rows of workloads and GPU types, and separately the cells of workloads or types
        that the instance does not have.
        """
        workload = np.array([workloads.get(name, -1) for name in self.workload], np.int64)
        gpu = np.array([types.get(name, -1) for name in self.gpu], np.int64)
        known = (workload >= 0) & (gpu >= 0)
        cells = MeasuredCells(
            workload,
            gpu,
            np.array(self.gpus, np.int64),
            np.array(self.nodes, np.int64),
            np.array(self.weight, np.float64),
            np.array(self.mean, np.float64),
            np.array(self.calls, np.float64),
        )
        # Keep cells of workloads and GPU types that are gone, because they may come back.
        away = [cell for cell, found in zip(self.rows, known, strict=True) if not found]
        return cells.take(np.flatnonzero(known)), away


def learnt_document(
    cells: MeasuredCells,
    workloads: Sequence[str],
    types: Sequence[str],
    away: Sequence[Cell],
) -> dict[str, list[Any]]:
    """The document of the cells, sorted by names, so that equal models have equal documents."""
    columns = (
        [workloads[row] for row in cells.workload.tolist()],
        [types[row] for row in cells.gpu.tolist()],
        *(column.tolist() for column in (cells.gpus, cells.nodes, cells.weight, cells.mean)),
        cells.calls.astype(np.int64).tolist(),
    )
    # Sort by names, because row numbers differ between instances.
    every = sorted([*zip(*columns, strict=True), *away])
    fields = LearntDocument.model_fields
    return {name: [cell[place] for cell in every] for place, name in enumerate(fields)}


# --- the model ------------------------------------------------------------------------------------


class SdDocument(Document):
    """Standard deviations, in log rate, of what a model may be wrong by."""

    workload: NonNegative = 0.106
    gpu: NonNegative = 0.075
    cell: Positive = 0.075


class OnlineDocument(Document):
    """Options of the online model beside ``of``."""

    sd: SdDocument = SdDocument()
    observation_sd: Positive = 0.05
    forget: Share = 0.9
    clip: Positive = 3.0
    learnt: LearntDocument = LearntDocument()


class OnlineModel(WrappedModel):
    """Rates of another model, corrected by measurements.

    For workload w, GPU type g and cell c (w on k GPUs and n nodes of g), with the rate r_c of the
    other model,

        log rate_c = log r_c + a_w + b_wg + d_c,    a ~ N(0, s_a^2),  b ~ N(0, s_b^2),  d ~ N(0,
        s_d^2),

    and a measured rate o_c has log o_c = log rate_c + N(0, s_o^2). The prediction is the posterior
    median and its standard deviation (`Offsets`). A measurement further than ``clip`` standard
    deviations from its expectation counts as one at that distance (Huber). Each call that measures
    a workload multiplies the weight of its older measurements by ``forget``. The defaults of s_a,
    s_b, s_d add up (in squares) to a standard deviation of 0.15, the error of a good model.

    Until a workload has been measured, its rates and uncertainties are those of the other model.

    Options
        of              the performance object that is corrected.
        sd              {workload, gpu, cell}: s_a, s_b, s_d (0.106, 0.075, 0.075).
        observation_sd  s_o (0.05: a mean over 50 steps or more).
        forget          in (0, 1] (0.9).
        clip            in standard deviations (3).
        learnt          what has been measured so far, by names (`LearntDocument`); `with_learnt`
                        writes it. Cells of workloads and GPU types that the instance has not now
                        are kept until it has them again.
    """

    name = "online"
    corrects = True
    Options = OnlineDocument

    def __init__(
        self,
        instance: Instance,
        of: PerformanceModel,
        options: OnlineDocument | None = None,
    ) -> None:
        document = options or OnlineDocument()
        super().__init__(instance, of)
        self._learnt = 0
        scales = Scales(
            document.sd.workload**2,
            document.sd.gpu**2,
            document.sd.cell**2,
            document.observation_sd**2,
            document.forget,
            document.clip,
        )
        types: dict[str, int] = {}
        rows = [types.setdefault(pool.gpu, len(types)) for pool in instance.cluster.pools]
        self._type = np.array([*rows, -1], np.int64)
        workloads = {workload.name: row for row, workload in enumerate(instance.workloads)}
        self._names = (tuple(workloads), tuple(types))
        cells, self._away = document.learnt.read(workloads, types)
        self._offsets = Offsets(scales, len(workloads), len(types), cells)

    @property
    def version(self) -> int:
        """Grows with every call that measures something."""
        return self.of.version + self._learnt

    def rates(
        self,
        jobs: JobBatch,
        configurations: Configurations,
        job: IntArray,
        configuration: IntArray,
    ) -> Prediction:
        before = super().rates(jobs, configurations, job, configuration)
        offset, variance = self._offsets.of(
            jobs.workload[job], *self._cell(configurations, configuration)
        )
        runs = before.feasible == Feasibility.OK
        known = runs & ~np.isnan(variance)
        return replace(
            before,
            rate=np.where(runs, before.rate * np.exp(offset), 0.0),
            log_sd=np.where(known, np.sqrt(np.where(known, variance, 0.0)), before.log_sd),
        )

    def observe(self, observations: Observations) -> set[int]:
        """Learn from measured rates, steps/s; returns the workloads whose rates changed.

        Measurements of jobs without a workload, and of cells for which the other model has no rate,
        are ignored.

        Raises
        ------
        InvalidInput
            If a measured rate is not a finite number above 0; then no measurement of the call is
            used.
        """
        wrong = np.flatnonzero(~((observations.rate > 0) & np.isfinite(observations.rate)))
        if len(wrong):
            raise InvalidInput(
                f"observations[{wrong[0]}].rate",
                show(float(observations.rate[wrong[0]])),
                "a finite rate above 0",
            )
        # The other model learns first; residuals are relative to its new rates.
        below = self.of.observe(observations)
        job = np.arange(len(observations.rate), dtype=np.int64)
        # Use only jobs with a workload: otherwise it is not known which jobs are alike.
        edges = (job, observations.configuration)
        before = self.of.predict(observations.jobs, observations.configurations, edges=edges)
        workload = observations.jobs.workload
        teaches = np.flatnonzero((before.feasible == Feasibility.OK) & (workload >= 0))
        if len(teaches) == 0:
            return below
        cell = self._cell(observations.configurations, observations.configuration[teaches])
        self._offsets.learn(
            workload[teaches], *cell, np.log(observations.rate[teaches] / before.rate[teaches])
        )
        self._learnt += 1
        return below | set(workload[teaches].tolist())

    def with_learnt(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """`optsched.performance.LearningModel`:
        with the option ``learnt``, which is left out before the first measurement.
        """
        options = super().with_learnt(document)
        options.pop(LEARNT, None)
        learnt = learnt_document(self._offsets.cells, *self._names, self._away)
        return options | ({LEARNT: learnt} if learnt["workload"] else {})

    def _cell(
        self, configurations: Configurations, rows: IntArray
    ) -> tuple[IntArray, IntArray, IntArray]:
        return (
            self._type[configurations.pool[rows]],
            configurations.gpus[rows],
            configurations.nodes[rows],
        )
