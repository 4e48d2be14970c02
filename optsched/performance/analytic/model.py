"""The ``analytic`` model: rates from datasheets, links and operation counts; no measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from optsched.arrays import BoolArray, FloatArray, IntArray, group_rows
from optsched.arrays.columns import Columns
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.documents import (
    Document,
    Name,
    NonEmpty,
    NonNegative,
    Positive,
    Share,
)
from optsched.instance.layouts import MIG
from optsched.instance.reading import join, key, validate
from optsched.performance.analytic.collectives import exchange_seconds
from optsched.performance.analytic.hardware import BOARDS, PRECISIONS, Board, find, slice_of
from optsched.performance.analytic.links import (
    GB,
    LEVELS,
    NETWORK_BANDWIDTH,
    NETWORK_LATENCY,
    NODE,
    PoolLinks,
)
from optsched.performance.analytic.parallel3d import Machines, Rules, best_plans
from optsched.performance.analytic.roofline import Operations
from optsched.performance.analytic.transformer import (
    TRANSFORMER,
    Precision,
    TransformerDocument,
    Transformers,
    read_transformer,
)
from optsched.performance.batches import Batches
from optsched.performance.configurations import Configurations
from optsched.performance.protocol import Feasibility, JobBatch, Prediction, RateModel, Source

# --- what the model reads -------------------------------------------------------------------------


OPERATIONS, MODEL = "operations", "model"
KINDS = (TRANSFORMER, OPERATIONS, MODEL)
"""Parameters that describe a workload; exactly one is given."""
COMPUTE, MEMORY = 0.6, 0.8
"""Default fractions of peak FLOP/s and of memory bandwidth that training kernels reach. With 0.6,
predicted rates of the plans of Megatron-LM on A100 are within -13 and +21 % of the published ones
(SC 2021, table 1).
"""
LOG_SD = 0.3
"""Standard deviation of the log rate:
model-flop utilisations of 0.3 to 0.55 are usual, a factor of exp(+-0.3).
"""


class GpuOptions(Document):
    """What is known of one GPU type:
    its board's name, if the type is called otherwise, and fitted efficiencies.
    """

    board: Name | None = None
    compute: Share | None = None
    memory: Share | None = None
    log_sd: Positive | None = None

    @property
    def fitted(self) -> bool:
        """Whether an efficiency is stated."""
        return self.compute is not None or self.memory is not None


class AnalyticOptions(Rules):
    """Options of the ``analytic`` model, beside the `Rules` of plans of transformers.

    Attributes
    ----------
    compute, memory : float
        Shares of the datasheet's peak FLOP/s and memory bandwidth that are reached.
    gpus : mapping
        By GPU type, what is known better.
    precision : str
        Of workloads that state none.
    all_reduce : str
        How workloads given by operations exchange gradients
        (`optsched.performance.analytic.collectives`).
    network_bandwidth, network_latency : float
        GB/s per direction of a node, and seconds of a step, where neither topology nor pool says.
    log_sd : float
        Standard deviation of the log rate.
    skip_unknown : bool
        Say nothing of pools whose GPU type is not known, for a later model of a chain, instead of
        refusing them.
    """

    compute: Share = COMPUTE
    memory: Share = MEMORY
    gpus: dict[Name, GpuOptions] = Field(default_factory=dict)
    precision: Precision = "bf16"
    all_reduce: Literal["ring", "tree", "hierarchical", "nccl"] = "ring"
    network_bandwidth: Positive = NETWORK_BANDWIDTH
    network_latency: NonNegative = NETWORK_LATENCY
    log_sd: Positive = LOG_SD
    skip_unknown: bool = False


class OperationDocument(Document):
    """An operation of a training step:
    FLOPs and bytes per sample, bytes whatever the batch, how many of its kind.
    """

    flops: NonNegative
    bytes: NonNegative = 0.0
    fixed_bytes: NonNegative = 0.0
    count: Positive = 1.0


class OperationsDocument(Document):
    """A workload as a list of operations, forward and backward together."""

    operations: NonEmpty[OperationDocument]
    gradient_bytes: NonNegative | None = None
    precision: Precision | None = None


class ModelDocument(Document):
    """A workload as one operation: its training step of a sample."""

    flops_per_sample: Positive
    bytes_per_sample: NonNegative = 0.0
    gradient_bytes: NonNegative | None = None
    precision: Precision | None = None


def read_options(options: Mapping[str, Any], instance: Instance) -> AnalyticOptions:
    """Check the options; raises `InvalidInput` with paths below ``performance``."""
    document = validate(AnalyticOptions, dict(options), "performance")
    types = dict.fromkeys(pool.gpu for pool in instance.cluster.pools)
    for name in document.gpus:
        if name not in types:
            raise InvalidInput(
                f"performance.gpus.{key(name)}",
                "no GPU type of the cluster",
                f"one of {', '.join(types)}",
            )
    return document


def read_workloads(instance: Instance) -> list[TransformerDocument | OperationsDocument | None]:
    """The description of each workload of an instance; None for workloads without one."""
    return [
        _workload(workload.parameters, f"{join('workloads', [workload.name])}.parameters")
        for workload in instance.workloads
    ]


def _workload(
    parameters: Mapping[str, Any], path: str
) -> TransformerDocument | OperationsDocument | None:
    given = [kind for kind in KINDS if kind in parameters]
    if not given:
        return None
    # Two descriptions could contradict each other, so only one is allowed.
    if len(given) > 1:
        raise InvalidInput(path, " beside ".join(given), f"one of {', '.join(KINDS)}")
    if given == [TRANSFORMER]:
        return read_transformer(parameters, path)
    if given == [OPERATIONS]:
        names = [name for name in OperationsDocument.model_fields if name in parameters]
        return validate(OperationsDocument, {name: parameters[name] for name in names}, path)
    # The parameter `model` is a list of one operation.
    model = validate(ModelDocument, parameters[MODEL], f"{path}.{MODEL}")
    operation = OperationDocument(flops=model.flops_per_sample, bytes=model.bytes_per_sample)
    return OperationsDocument(
        operations=(operation,),
        gradient_bytes=model.gradient_bytes,
        precision=model.precision,
    )


# --- the model ------------------------------------------------------------------------------------


BACKWARD = 2 / 3
"""Share of a training step's work that is backward."""
NOT_STATED, AS_TRANSFORMER, AS_OPERATIONS = range(3)
"""Kinds of descriptions of a workload."""


class LinkAssumption(NamedTuple):
    """The assumed links of a pool and their source: GB/s per direction and seconds of a step."""

    pool: str
    board: str
    level: str
    bandwidth: float
    latency: float
    source: str


class TrainingPlan(NamedTuple):
    """How a transformer is trained on a configuration:
    seconds of a step, GB on the fullest GPU, utilisation.
    """

    tensor: int
    stages: int
    replicas: int
    micro_batches: int
    recompute: bool
    seconds: float
    memory: float
    utilisation: float


class AnalyticModel(RateModel):
    """Rates from a description of what a workload computes, and datasheets of GPUs.

    - ``parameters.transformer``: the fastest feasible plan of tensor, pipeline and data parallelism
      (`optsched.performance.analytic.parallel3d`); a step is one global batch. Where plans exist
      but none fits the memory: out of memory. Where there are more GPUs than any plan can use: zero
      rate.
    - ``parameters.operations`` or ``parameters.model``: with m samples on each of k GPUs in each of
      a passes (`optsched.performance.batches`), T(m) the roofline of its operations and S its
      gradient bytes,

          t = a T(m) + max(0, all-reduce of S over k GPUs - overlap x 2/3 T(m)),

      so that k x a x m samples are done; without ``gradient_bytes`` only one GPU has a rate.

    Peak and bandwidth are the datasheet's times an efficiency, and times the configuration's
    ``share``, or the shares of the MIG profile that its attribute ``mig`` names. `links` and
    `assumptions` say where bandwidths come from.

    Source: `Source.PRIOR`, with `AnalyticOptions.log_sd`, as nothing was measured;
    `Source.PARAMETRIC` on a GPU type whose efficiencies are stated in ``gpus``, with the log_sd
    stated there.

    Options: `optsched.performance.analytic.model.AnalyticOptions`.
    """

    name = "analytic"
    knows_levels = True

    def __init__(self, instance: Instance, options: AnalyticOptions) -> None:
        self.options = options
        workloads = read_workloads(instance)
        pools = instance.cluster.pools
        known = [options.gpus.get(pool.gpu, GpuOptions()) for pool in pools]
        self.boards, self._known = _boards(instance, known, options.skip_unknown)
        self.links = PoolLinks.of(
            instance.cluster,
            self.boards,
            options.network_bandwidth,
            options.network_latency,
        )
        self._pools = tuple(pool.name for pool in pools)
        self._names = {workload.name: row for row, workload in enumerate(instance.workloads)}

        compute = np.array(
            [options.compute if gpu.compute is None else gpu.compute for gpu in known]
        )
        memory = np.array([options.memory if gpu.memory is None else gpu.memory for gpu in known])
        self._full_peak = np.array(
            [[board.peak(name) for name in PRECISIONS] for board in self.boards]
        )
        self._peak = self._full_peak * compute[:, np.newaxis]
        self._bandwidth = np.array([board.bandwidth * GB for board in self.boards]) * memory
        stated = zip(pools, self.boards, strict=True)
        self._memory = np.array([(pool.gpu_memory or board.memory) * GB for pool, board in stated])
        self._log_sd = np.array([gpu.log_sd or options.log_sd for gpu in known])
        self._source = np.where(
            [gpu.fitted for gpu in known], Source.PARAMETRIC, Source.PRIOR
        ).astype(np.uint8)

        transformers = [
            workload for workload in workloads if isinstance(workload, TransformerDocument)
        ]
        lists = [workload for workload in workloads if isinstance(workload, OperationsDocument)]
        self._stated_as = np.array(
            [*(_stated_as(workload) for workload in workloads), NOT_STATED], np.int64
        )
        among = [
            np.cumsum(self._stated_as == number) - 1 for number in (AS_TRANSFORMER, AS_OPERATIONS)
        ]
        # Row of each workload among the workloads of the same kind.
        self._row = np.where(self._stated_as == AS_TRANSFORMER, *among)
        self._transformers = Transformers.of(transformers, options.precision)
        self._operations = Operations.of(
            [
                [
                    (operation.flops, operation.bytes, operation.fixed_bytes, operation.count)
                    for operation in part.operations
                ]
                for part in lists
            ]
        )
        self._precision = np.array(
            [PRECISIONS.index(part.precision or options.precision) for part in lists], np.int64
        )
        self._gradient = np.array(
            [np.nan if part.gradient_bytes is None else part.gradient_bytes for part in lists]
        )
        self._batches = Batches.of(instance)
        self._check_batches(instance)

    @classmethod
    def from_instance(cls, instance: Instance, options: Mapping[str, Any]) -> AnalyticModel:
        """The model for an instance;
        raises `InvalidInput` with the path of a wrong option, parameter or GPU type.
        """
        return cls(instance, read_options(options, instance))

    @property
    def assumptions(self) -> tuple[LinkAssumption, ...]:
        """The assumed links of every pool, for all levels beyond one GPU."""
        return tuple(
            LinkAssumption(
                pool,
                self.boards[row].name,
                LEVELS[level],
                float(self.links.bandwidth[row, level] / GB),
                float(self.links.latency[row, level]),
                self.links.sources[row][level],
            )
            for row, pool in enumerate(self._pools)
            if self._known[row]
            for level in range(1, len(LEVELS))
        )

    # --- predictions ------------------------------------------------------------------------------

    def rates(
        self,
        jobs: JobBatch,
        configurations: Configurations,
        job: IntArray,
        configuration: IntArray,
    ) -> Prediction:
        """Rates; see the class. Equal cells (workload, configuration) are computed once."""
        cells, of_pair = WorkloadCells.of(
            jobs.workload[job],
            configuration,
            configurations,
            self.boards,
        )
        rate = np.zeros(len(cells))
        feasible = np.full(len(cells), Feasibility.NO_RATE, np.uint8)
        asked = cells.asked
        # A pool with an unknown board has no rate, so the next model of a chain is asked.
        asked = asked[self._known[cells.pool[asked]]]
        stated_as = self._stated_as[cells.workload[asked]]
        for number, answer in (
            (AS_TRANSFORMER, self._of_transformers),
            (AS_OPERATIONS, self._of_operations),
        ):
            chosen = asked[stated_as == number]
            rate[chosen], feasible[chosen] = answer(cells.take(chosen))
        log_sd = np.where(cells.pool >= 0, self._log_sd[cells.pool], 0.0)
        source = np.where(cells.pool >= 0, self._source[cells.pool], np.uint8(Source.PRIOR))
        return Prediction(rate, log_sd, feasible, source).take(of_pair)

    def plan(self, workload: str, pool: str, gpus: int, nodes: int) -> TrainingPlan | None:
        """The best plan for a transformer on k whole GPUs of a pool; None if no plan fits."""
        cell = WorkloadCells.whole(self._names[workload], self._pools.index(pool), gpus, nodes)
        models, machines = self._machines(cell)
        best = best_plans(models, machines, self.options)
        seconds = float(best.seconds[0])
        if not np.isfinite(seconds):
            return None
        peak = float(self._full_peak[cell.pool[0], models.precision[0]])
        return TrainingPlan(
            tensor=int(best.plan.tensor[0]),
            stages=int(best.plan.stages[0]),
            replicas=int(best.plan.replicas[0]),
            micro_batches=int(best.plan.micro_batches[0]),
            recompute=bool(best.plan.recompute[0]),
            seconds=seconds,
            memory=float(best.memory[0]) / GB,
            utilisation=float(models.step_flops[0]) / (seconds * gpus * peak),
        )

    def _of_transformers(self, cells: WorkloadCells) -> Rates:
        models, machines = self._machines(cells)
        best = best_plans(models, machines, self.options)
        return _rates(
            1.0 / best.seconds,
            best.possible,
            best.memory <= self.options.memory_share * machines.memory,
        )

    def _of_operations(self, cells: WorkloadCells) -> Rates:
        row = self._row[cells.workload]
        gpus = cells.gpus
        samples, passes = self._batches.split(cells.workload, gpus)
        peak = self._peak[cells.pool, self._precision[row]] * cells.compute
        bandwidth = self._bandwidth[cells.pool] * cells.memory
        once = self._operations.seconds(row, samples, peak, bandwidth, self.options.launch)
        exchange = exchange_seconds(
            self.options.all_reduce,
            self._gradient[row],
            self.links,
            self.boards,
            cells.pool,
            gpus,
            cells.nodes,
            cells.group,
        )
        # Gradients are exchanged during the backward pass, which hides part of the exchange.
        seconds = passes * once + np.maximum(0.0, exchange - self.options.overlap * BACKWARD * once)
        possible = samples > 0
        steps = self._batches.steps(cells.workload, gpus * passes * samples)
        rate = np.divide(
            steps,
            seconds,
            out=np.zeros(len(cells)),
            where=possible & ~np.isnan(seconds),
        )
        rate, feasible = _rates(rate, possible, np.ones(len(cells), bool))
        # Without gradient bytes the time on several GPUs is unknown, so the next model of a chain
        # is asked.
        feasible[possible & np.isnan(seconds)] = Feasibility.NO_RATE
        return rate, feasible

    def _machines(self, cells: WorkloadCells) -> tuple[Transformers, Machines]:
        """Transformer and machine of each cell."""
        models = self._transformers.take(self._row[cells.workload])
        pool = cells.pool
        gpus = cells.gpus
        nodes = cells.nodes
        inside, between = self.links.inside_and_between(pool, gpus, nodes, cells.group)
        return models, Machines(
            peak=self._peak[pool, models.precision] * cells.compute,
            bandwidth=self._bandwidth[pool] * cells.memory,
            memory=self._memory[pool] * cells.memory,
            gpus=gpus,
            nodes=nodes,
            inside=self.links.bandwidth[pool, inside],
            between=self.links.bandwidth[pool, between],
            latency_inside=self.links.latency[pool, NODE],
            latency_between=self.links.latency[pool, between],
        )

    def _check_batches(self, instance: Instance) -> None:
        for row in np.flatnonzero(self._stated_as == AS_OPERATIONS).tolist():
            if np.isnan(self._batches.step[row]):
                raise InvalidInput(
                    f"workloads.{key(instance.workloads[row].name)}.parameters",
                    "neither batch nor batch_per_gpu",
                    "one of them, the samples of a step",
                )


def _stated_as(document: TransformerDocument | OperationsDocument | None) -> int:
    if document is None:
        return NOT_STATED
    return AS_TRANSFORMER if isinstance(document, TransformerDocument) else AS_OPERATIONS


Rates = tuple[FloatArray, NDArray[np.uint8]]
"""steps/s and `Feasibility`."""


def _rates(rate: FloatArray, possible: BoolArray, fits: BoolArray) -> Rates:
    """Rates with their `Feasibility`: usable if finite and positive."""
    feasible = np.full(len(rate), Feasibility.OK, np.uint8)
    feasible[rate <= 0] = Feasibility.ZERO_RATE
    feasible[possible & ~fits] = Feasibility.OUT_OF_MEMORY
    feasible[~possible] = Feasibility.ZERO_RATE
    return np.where(feasible == Feasibility.OK, rate, 0.0), feasible


def _boards(
    instance: Instance, known: Sequence[GpuOptions], skip: bool
) -> tuple[tuple[Board, ...], BoolArray]:
    """The board of every pool, and whether it is known. If unknown boards are skipped, they get a
    placeholder.
    """
    boards: list[Board | None] = []
    for row, (pool, gpu) in enumerate(zip(instance.cluster.pools, known, strict=True)):
        option_path = f"performance.gpus.{key(pool.gpu)}.board"
        try:
            boards.append(
                find(gpu.board or pool.gpu, pool.gpu_memory, option_path if gpu.board else "")
            )
        except InvalidInput as error:
            if gpu.board:
                raise
            if not skip:
                raise InvalidInput(
                    f"cluster.pools[{row}].gpu",
                    error.found,
                    f"{error.expected}; or its board as {option_path}",
                ) from None
            boards.append(None)
    some = next((board for board in boards if board is not None), BOARDS[0])
    return tuple(board or some for board in boards), np.array(
        [board is not None for board in boards]
    )


# --- cells ----------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class WorkloadCells(Columns):
    """Structure of arrays of length N.

    Attributes
    ----------
    workload, pool, gpus, nodes : IntArray
    group : IntArray
        Level of the topology that the way states, 0 for none.
    compute, memory : FloatArray
        Shares of a GPU's arithmetic, and of its memory and bandwidth.
    """

    workload: IntArray
    pool: IntArray
    gpus: IntArray
    nodes: IntArray
    group: IntArray
    compute: FloatArray
    memory: FloatArray

    @classmethod
    def of(
        cls,
        workload: IntArray,
        configuration: IntArray,
        configurations: Configurations,
        boards: Sequence[Board],
    ) -> tuple[Self, IntArray]:
        """The distinct cells among pairs (workload, configuration), and the cell of each pair."""
        compute, memory = shares(configurations, boards)
        pool = configurations.pool
        gpus = configurations.gpus
        nodes = configurations.nodes
        group = configurations.levels
        # Many configurations differ only in attributes that the model ignores.
        way = group_rows((pool, gpus, nodes, group, compute, memory), len(configurations)).inverse
        groups = group_rows((workload, way[configuration]), len(workload))
        at = configuration[groups.first]
        cells = cls(
            workload[groups.first],
            pool[at],
            gpus[at],
            nodes[at],
            group[at],
            compute[at],
            memory[at],
        )
        return cells, groups.inverse

    @classmethod
    def whole(cls, workload: int, pool: int, gpus: int, nodes: int) -> Self:
        """One cell of whole GPUs."""
        columns = [np.array([number], np.int64) for number in (workload, pool, gpus, nodes)]
        nowhere = np.zeros(1, np.int64)
        return cls(columns[0], columns[1], columns[2], columns[3], nowhere, np.ones(1), np.ones(1))

    @property
    def asked(self) -> IntArray:
        """Rows that are ways to run: with a pool, GPUs, and at most one node for each."""
        return np.flatnonzero(
            (self.pool >= 0) & (self.gpus > 0) & (self.nodes > 0) & (self.nodes <= self.gpus)
        )


def shares(
    configurations: Configurations, boards: Sequence[Board]
) -> tuple[FloatArray, FloatArray]:
    """Shares of compute and of memory of each configuration: of its MIG profile if it names one,
    else its ``share``.

    Raises
    ------
    InvalidInput
        If a board has no such profile.
    """
    compute = configurations.share.copy()
    memory = configurations.share.copy()
    for number, attributes in enumerate(configurations.attribute_sets):
        if attributes.get(MIG) is None:
            continue
        for row in np.flatnonzero(
            (configurations.attributes == number) & (configurations.pool >= 0)
        ).tolist():
            board = boards[int(configurations.pool[row])]
            compute[row], memory[row] = slice_of(board, attributes[MIG], f"attributes.{MIG}")
    return compute, memory
