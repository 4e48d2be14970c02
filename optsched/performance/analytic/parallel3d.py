"""Training a transformer on k GPUs: T-way tensor, p-way pipeline and d-way data parallelism, M micro-batches.

k = T p d GPUs on n nodes with G GPUs each, of which T is inside a node, data parallelism next, the pipeline outermost.
A micro-batch has m = ceil(ceil(B/d) / M) sequences; a stage has l = ceil(L/p) layers. With peak and bandwidth of the
GPU times their efficiencies e_c, e_m, B1 and B2 the links inside and between nodes, S = m s h numbers:

    layer, forward    t_l = max(F_l m / (T peak e_c), W_l / (T bw e_m)) + 2 A_l m / (bw e_m) + 10 launch
    layer             3 t_l, 4 t_l with recomputation;  and 4 (6) ring all-reduces of S over the T GPUs on B1
    head              3 (max(F_h m / (T peak e_c), V h / (T bw e_m)) + 8 V s m / (T bw e_m))   on the last stage
    between stages    2 S min(G/T, d) / B2 (the groups of a node that send at a time), or 2 S / B1 within a node
    pipeline          M t_max + (sum of the stages - t_max) / v        t_max: the slowest stage, v chunks on a device
                      Chimera and PipeMare: `pipeline`, with t_max on every stage
    gradients         ring all-reduce of the stage's W / T over d GPUs, on B1 within a node, else min(B1, B2 / T)
                      (x 1.5 with ZeRO-3, which gathers weights twice); hidden: overlap x the last backward pass
    optimizer         30 bytes moved for each parameter, / d with ZeRO

A_l are the activations of a layer (`optsched.performance.analytic.transformer`), W_l and W its and the stage's weights.
For equal stages the pipeline is M + p - 1 times a stage (`optsched.performance.analytic.pipeline`).

Memory of the fullest GPU, against a share of what it has:

    16 bytes x parameters of the first stage / T     2 weight, 2 gradient, 12 optimizer (4, 4, 8 at 4 bytes); of these
      (Chimera: of two stages)                       ZeRO-1 divides the last by d, ZeRO-2 the last two, ZeRO-3 all
    + activations in flight x l A_l m                on the first stage; with recomputation only the inputs S of its
                                                     layers, and A_l of one
    or, if more, those of the last stage with (bytes + 4) V s m / T of the head

The volumes are those of Megatron-LM: two all-reduces of a layer forward, two backward, two more with recomputation. The
scheme is ours (specialised rooflines and closed forms of the pipeline), its accuracy is not verified on measurements;
against the published rates of Megatron-LM on A100 (SC 2021, table 1) see the tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.performance.analytic.collectives import ring_all_reduce
from optsched.performance.analytic.pipeline import in_flight, step_seconds
from optsched.performance.analytic.transformer import Transformers

OPERATIONS = 10
"""Of a layer forward: six matrix products, norms, the activation, additions."""
EVEN = ("chimera", "pipemare")
"""Schedules whose closed forms are those of equal stages."""
OPTIMIZER_BYTES = 30
"""Adam reads 16 bytes of state and gradient of a parameter and writes 14 of them."""


@dataclass(frozen=True)
class Rules:
    """What plans may do, the same for all.

    Attributes
    ----------
    schedule : str
        Of `optsched.performance.analytic.pipeline`, interleaved with ``chunks`` of the model on a device.
    recompute : tuple of bool
        The choices allowed.
    zero : int
        Stage of ZeRO.
    overlap : float
        Share of the last backward pass that hides the exchange of gradients.
    memory : float
        Share of a GPU's memory that a plan may fill.
    launch : float
        Seconds of an operation beside its work.
    """

    schedule: str = "1f1b"
    chunks: int = 1
    recompute: tuple[bool, ...] = (False, True)
    zero: int = 1
    overlap: float = 0.5
    memory: float = 0.9
    launch: float = 4e-6


@dataclass(frozen=True)
class Plans:
    """T, p, d, M and whether to recompute, arrays of length N."""

    tensor: FloatArray
    stages: FloatArray
    replicas: FloatArray
    micro_batches: FloatArray
    recompute: BoolArray

    def __len__(self) -> int:
        return len(self.tensor)

    def take(self, rows: IntArray) -> Self:
        """The plans at these rows."""
        return type(self)(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Machines:
    """Where each plan runs, arrays of length N: efficiencies and shares are in already.

    Attributes
    ----------
    peak, bandwidth, memory : FloatArray
        Of a GPU: FLOP/s and bytes/s that are reached, bytes.
    gpus, nodes : IntArray
        k, n.
    inside, between : FloatArray
        B1, B2: bytes/s per direction between the GPUs of a node, and of a node.
    latency_inside, latency_between : FloatArray
        Seconds of a step of a ring.
    """

    peak: FloatArray
    bandwidth: FloatArray
    memory: FloatArray
    gpus: IntArray
    nodes: IntArray
    inside: FloatArray
    between: FloatArray
    latency_inside: FloatArray
    latency_between: FloatArray

    def take(self, rows: IntArray) -> Self:
        """The machines at these rows."""
        return type(self)(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


class PlanOutcome(NamedTuple):
    """Seconds of a step, bytes on the fullest GPU, and whether the plan is one and fits; arrays of length N."""

    seconds: FloatArray
    memory: FloatArray
    allowed: BoolArray
    fits: BoolArray


@lru_cache(maxsize=4096)
def factorisations(gpus: int) -> IntArray:
    """All (T, p, d) with T p d = k, shape (., 3), in this order."""
    divisors = [one for one in range(1, gpus + 1) if gpus % one == 0]
    found = [(T, p, gpus // T // p) for T in divisors for p in divisors if gpus % (T * p) == 0]
    table = np.array(found, np.int64).reshape(-1, 3)
    table.setflags(write=False)  # it is cached
    return table


def plans(gpus: int, batch: int, rules: Rules) -> Plans:
    """All plans for k GPUs and B sequences: every (T, p, d) with d <= B, every M that makes another micro-batch."""
    parts = []
    for T, p, d in factorisations(gpus).tolist():
        if d <= batch:
            M = micro_batches(-(-batch // d))
            for recompute in rules.recompute:
                parts.append(
                    np.stack(
                        [np.full(len(M), one) for one in (T, p, d)]
                        + [M, np.full(len(M), recompute)]
                    )
                )
    table = np.concatenate(parts, axis=1) if parts else np.zeros((5, 0), np.int64)
    T, p, d, M = table[:4].astype(np.float64)
    return Plans(T, p, d, M, table[4].astype(bool))


@lru_cache(maxsize=4096)
def micro_batches(local: int) -> IntArray:
    """Every M = ceil(local / m) for m = 1, 2, ..., local."""
    root = int(local**0.5) + 1
    sizes = np.arange(1, min(root, local) + 1, dtype=np.int64)
    sizes = np.unique(np.concatenate([sizes, -(-local // sizes)]))
    counts: IntArray = np.unique(-(-local // sizes))
    counts.setflags(write=False)  # it is cached
    return counts


def evaluate(models: Transformers, plan: Plans, machines: Machines, rules: Rules) -> PlanOutcome:
    """What each plan takes, elementwise: row i is model i by plan i on machine i."""
    T, p, d, M = plan.tensor, plan.stages, plan.replicas, plan.micro_batches
    L, h, s, V, B = models.layers, models.hidden, models.sequence, models.vocabulary, models.batch
    k, n, v = machines.gpus.astype(np.float64), machines.nodes.astype(np.float64), rules.chunks
    m = np.ceil(np.ceil(B / d) / M)
    layers, fewest = np.ceil(L / p), np.floor(L / p)
    most, least = np.ceil(k / n), np.floor(k / n)
    again = plan.recompute.astype(np.float64)

    forward, work = _layer(models, T, m, machines, rules)
    boundary = m * models.boundary_bytes
    inside, near = machines.inside, machines.latency_inside
    tensor = ring_all_reduce(boundary, T, inside, near)
    layer = (3 + again) * forward + (4 + 2 * again) * tensor
    head = 3 * (
        np.maximum(
            models.head_flops * m / T / machines.peak,
            V * h * models.number / T / machines.bandwidth,
        )
        + 8 * V * s * m / T / machines.bandwidth
    )
    groups = np.minimum(np.maximum(np.floor(most / T), 1), d)
    sent = np.where(
        n > 1,
        groups * boundary / machines.between + machines.latency_between,
        boundary / inside + near,
    )
    hop = np.where(p > 1, 2 * v * sent, 0.0)
    slowest = np.maximum(layers * layer + hop, fewest * layer + head + hop)
    whole = L * layer + head + (p - 1) * hop
    pipeline = M * slowest + np.maximum(whole - slowest, 0.0) / v
    if rules.schedule in EVEN:
        once = slowest / (3 + again)  # forward; the rest is backward
        even = step_seconds(rules.schedule, p, M, once, slowest - once)
        pipeline = np.where(p > 1, even, M * slowest)

    stage = (layers * models.layer_parameters + models.table_parameters) / T
    held = np.where(p > 1, 2.0, 1.0) * stage if rules.schedule == "chimera" else stage
    per_node = np.maximum(np.floor(most / T), 1)
    over = np.ceil(d / per_node)
    ring = np.where(over > 1, np.minimum(inside, machines.between / T), inside)
    latency = ((d - over) * near + (over - 1) * machines.latency_between) / np.maximum(d - 1, 1)
    exchange = ring_all_reduce(stage * models.number, d, ring, latency) * (
        1.5 if rules.zero == 3 else 1.0
    )
    backward = layers * ((2 + again) * forward + (2 + 2 * again) * tensor)
    exposed = np.maximum(0.0, exchange - rules.overlap * backward)
    optimizer = OPTIMIZER_BYTES * stage / (d if rules.zero else 1) / machines.bandwidth
    seconds = pipeline + exposed + optimizer

    memory = _memory(models, plan, held, layers, m, work, rules)
    divides = (T == 1) | (
        (most % T == 0) & (least % T == 0) & (np.where(models.heads > 0, models.heads, h) % T == 0)
    )
    allowed = divides & (p <= L) & (d <= B) & (T * p * d == k)
    allowed &= ~np.isnan(pipeline)
    if v > 1:
        allowed &= (p == 1) | ((M % p == 0) & (L % (p * v) == 0))
    return PlanOutcome(seconds, memory, allowed, memory <= rules.memory * machines.memory)


def _layer(
    models: Transformers, T: FloatArray, m: FloatArray, machines: Machines, rules: Rules
) -> tuple[FloatArray, FloatArray]:
    """t_l, and the bytes A_l m that the layer keeps."""
    weights = 12 * models.hidden**2 * models.number / T
    work = models.layer_bytes(T) * m
    products = np.maximum(models.layer_flops * m / T / machines.peak, weights / machines.bandwidth)
    return products + 2 * work / machines.bandwidth + OPERATIONS * rules.launch, work


def _memory(
    models: Transformers,
    plan: Plans,
    stage: FloatArray,
    layers: FloatArray,
    m: FloatArray,
    work: FloatArray,
    rules: Rules,
) -> FloatArray:
    """Bytes on the fullest GPU."""
    T, p, d, M = plan.tensor, plan.stages, plan.replicas, plan.micro_batches
    weight = np.maximum(models.number, 2)
    gradient, state = weight, 16 - 2 * weight
    by_stage = (
        weight + gradient + state,
        weight + gradient + state / d,
        weight + (gradient + state) / d,
        16 / d,
    )
    parameters = stage * by_stage[rules.zero]
    kept = np.where(plan.recompute, models.boundary_bytes * m, work) * layers
    working = np.where(plan.recompute, work, 0.0)
    flight = in_flight(rules.schedule, p, M, rules.chunks)
    flight = np.where(
        p == 1, 1.0, flight
    )  # one stage runs a micro-batch forward and backward, then the next
    first = flight * kept + working
    last = kept * (M if rules.schedule == "gpipe" else 1.0) * (p > 1) + kept * (p == 1) + working
    logits = (models.number + 4) * models.vocabulary * models.sequence * m / T
    total: FloatArray = parameters + np.maximum(first, last + logits)
    return total
