"""What the ``analytic`` model reads: its options, and the parameters of workloads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.documents import (
    Document,
    Name,
    NonEmpty,
    NonNegative,
    Positive,
    PositiveCount,
    Share,
)
from optsched.instance.reading import join, key, validate
from optsched.performance.analytic.links import NETWORK_BANDWIDTH, NETWORK_LATENCY
from optsched.performance.analytic.transformer import (
    TRANSFORMER,
    Precision,
    TransformerDocument,
    read_transformer,
)

OPERATIONS, MODEL = "operations", "model"
KINDS = (TRANSFORMER, OPERATIONS, MODEL)
"""Parameters that describe a workload; one of them."""
COMPUTE, MEMORY = 0.6, 0.8
"""Shares of peak FLOP/s and of memory bandwidth that training kernels reach, unless a GPU type has its own.

With 0.6 the plans of Megatron-LM on A100 come out at their published rates (SC 2021, table 1) within -13 and +21 %.
"""
LOG_SD = 0.3
"""Standard deviation of the log rate: model-flop utilisations of 0.3 to 0.55 are usual, a factor of exp(+-0.3)."""


class GpuOptions(Document):
    """What is known of one GPU type: its board's name, if the type is called otherwise, and fitted efficiencies."""

    board: Name | None = None
    compute: Share | None = None
    memory: Share | None = None
    log_sd: Positive | None = None

    @property
    def fitted(self) -> bool:
        """Whether an efficiency was measured."""
        return self.compute is not None or self.memory is not None


class AnalyticOptions(Document):
    """Options of the ``analytic`` model.

    Attributes
    ----------
    compute, memory : float
        Shares of the datasheet's peak FLOP/s and memory bandwidth that are reached.
    gpus : mapping
        By GPU type, what is known better.
    precision : str
        Of workloads that state none.
    overlap : float
        Share of a backward pass that hides the exchange of gradients.
    recompute : str
        Of activations of transformers: auto takes the faster of the two that fits.
    zero : int
        Stage of ZeRO: what data-parallel replicas do not hold twice (1: optimizer, 2: gradients, 3: weights too).
    schedule : str
        Of the pipeline, with ``chunks`` of the model on a device if interleaved.
    all_reduce : str
        How workloads given by operations exchange gradients (`optsched.performance.analytic.exchange`).
    memory_share : float
        Share of a GPU's memory that a plan may fill; the rest is for the driver, buffers and fragments.
    launch : float
        Seconds that an operation takes beside its work.
    network_bandwidth, network_latency : float
        GB/s per direction of a node, and seconds of a step, where neither topology nor pool says.
    log_sd : float
        Standard deviation of the log rate.
    skip_unknown : bool
        Say nothing of pools whose GPU type is not known, for a later model of a chain, instead of refusing them.
    """

    compute: Share = COMPUTE
    memory: Share = MEMORY
    gpus: dict[Name, GpuOptions] = Field(default_factory=dict)
    precision: Precision = "bf16"
    overlap: float = Field(default=0.5, ge=0, le=1)
    recompute: Literal["auto", "full", "none"] = "auto"
    zero: int = Field(default=1, ge=0, le=3)
    schedule: Literal["1f1b", "gpipe", "interleaved", "chimera", "pipemare"] = "1f1b"
    all_reduce: Literal["ring", "tree", "hierarchical", "nccl"] = "ring"
    chunks: PositiveCount = 1
    memory_share: Share = 0.9
    launch: NonNegative = 4e-6
    network_bandwidth: Positive = NETWORK_BANDWIDTH
    network_latency: NonNegative = NETWORK_LATENCY
    log_sd: Positive = LOG_SD
    skip_unknown: bool = False


class OperationDocument(Document):
    """An operation of a training step: FLOPs and bytes per sample, bytes whatever the batch, how many of its kind."""

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
    if (document.chunks > 1) != (document.schedule == "interleaved"):
        raise InvalidInput(
            "performance.chunks",
            f"{document.chunks} beside the schedule {document.schedule}",
            "2 or more chunks with the schedule interleaved, 1 with any other",
        )
    return document


def read_workloads(instance: Instance) -> list[TransformerDocument | OperationsDocument | None]:
    """What each workload of an instance is; None for those whose parameters describe none."""
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
    # Two descriptions could contradict each other: none of them would be the obvious one.
    if len(given) > 1:
        raise InvalidInput(path, " beside ".join(given), f"one of {', '.join(KINDS)}")
    if given == [TRANSFORMER]:
        return read_transformer(parameters, path)
    if given == [OPERATIONS]:
        names = [name for name in OperationsDocument.model_fields if name in parameters]
        return validate(OperationsDocument, {name: parameters[name] for name in names}, path)
    # A model is a list of one operation.
    one = validate(ModelDocument, parameters[MODEL], f"{path}.{MODEL}")
    operation = OperationDocument(flops=one.flops_per_sample, bytes=one.bytes_per_sample)
    return OperationsDocument(
        operations=(operation,), gradient_bytes=one.gradient_bytes, precision=one.precision
    )
