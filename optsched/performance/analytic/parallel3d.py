"""Training a transformer on k GPUs:
T-way tensor, p-way pipeline and d-way data parallelism, M micro-batches.

k = T p d GPUs on n nodes with G GPUs each, where tensor parallelism is inside a node, data
parallelism next, the pipeline outermost. A micro-batch has m = ceil(ceil(B/d) / M) sequences; a
stage has l = ceil(L/p) layers. With peak and bandwidth of the GPU times their efficiencies e_c,
e_m, B1 and B2 the links inside and between nodes, S = m s h numbers:

    layer, forward    t_l = max(F_l m / (T peak e_c), W_l / (T bw e_m)) + 2 A_l m / (bw e_m) + 10 launch
    layer             3 t_l, 4 t_l with recomputation;  and 4 (6) ring all-reduces of S over the T GPUs on B1
    head              3 (max(F_h m / (T peak e_c), V h / (T bw e_m)) + 8 V s m / (T bw e_m))   on the last stage
    between stages    2 S min(G/T, d) / B2 (the groups of a node that send at a time), or 2 S / B1 within a node
    pipeline          M t_max + (sum of the stages - t_max) / v        t_max: the slowest stage, v chunks on a device
                      Chimera and PipeMare: `step_seconds`, with t_max on every stage
    gradients         ring all-reduce of the stage's W / T over d GPUs, on B1 within a node, else
                      min(B1, B2 / T) (x 1.5 with ZeRO-3, which gathers weights twice); hidden:
                      overlap x the last backward pass
    optimizer         30 bytes moved for each parameter, / d with ZeRO

A_l are the activations of a layer (`optsched.performance.analytic.transformer`), W_l and W its and
the stage's weights. For equal stages the pipeline is M + p - 1 times a stage (`step_seconds`).

Memory of the fullest GPU, against a share of what it has:

    16 bytes x parameters of the first stage / T     2 weight, 2 gradient, 12 optimizer (4, 4, 8 at 4 bytes); of these
      (Chimera: of two stages)                       ZeRO-1 divides the last by d, ZeRO-2 the last two, ZeRO-3 all
    + activations in flight x l A_l m                on the first stage; with recomputation only the inputs S of its
                                                     layers, and A_l of one
    or, if more, those of the last stage with (bytes + 4) V s m / T of the head

The volumes are those of Megatron-LM: two all-reduces of a layer forward, two backward, two more
with recomputation. The scheme is ours (specialised rooflines and closed forms of the pipeline), its
accuracy is not verified on measurements; against the published rates of Megatron-LM on A100 (SC
2021, table 1) see the tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from optsched.arrays import BoolArray, FloatArray, IntArray, group_rows, ranges
from optsched.arrays.columns import Columns
from optsched.errors import unknown_name
from optsched.instance.documents import Document, NonNegative, PositiveCount, Share, refused
from optsched.performance.analytic.collectives import Numbers, ring_all_reduce
from optsched.performance.analytic.transformer import Transformers

# --- pipeline schedules ---------------------------------------------------------------------------


SCHEDULES = ("1f1b", "chimera", "gpipe", "interleaved", "pipemare")


def step_seconds(
    schedule: str,
    stages: Numbers,
    micro_batches: Numbers,
    forward: Numbers,
    backward: Numbers,
    chunks: Numbers = 1,
) -> FloatArray:
    """Seconds of a step of M micro-batches on p stages; arrays that broadcast together.

    Every device holds 1/p of the model; f and b are the seconds of a micro-batch forward and
    backward on one device, u = min(f, b) and w = max(f, b). Sending between stages counts to f and
    b.

        gpipe         (M + p - 1) (f + b)                                          keeps M
        1f1b          (M + p - 1) (f + b)                                          keeps min(p, M)
        interleaved   M (f + b) + (p - 1) (f + b) / v                              keeps min(M v, v p + p - 1) / v
        chimera       M <= p:  p u + (M' + p - 2) w      M' = M rounded up to even
                      M = K p: p u + (2p - 2) w + (K - 1) (2 u + (2p - 2) w)       keeps min(p, M)
        pipemare      M (f + b)                                                    keeps min(p, M)

    "keeps" is the number of activations, in units of one micro-batch on one device, on the device
    with most. The interleaved schedule with v chunks of the model on every device needs M to be a
    multiple of p; Chimera needs p even and M <= p or a multiple of p, and keeps the weights of two
    stages; other cases are NaN. PipeMare never drains the pipeline and works with stale weights
    instead: its step time is that of the steady state.

    The bubble is the idle share beyond the ideal M (f + b): (p - 1)/M of gpipe and 1f1b, (p - 1)/(M
    v) interleaved. The form (p - 2)/(2M + p - 2) of the step that is often given for Chimera holds
    if and only if f = b and p divides M; with b = 2f one unit of p micro-batches takes p f + (2p -
    2) b, as in the paper's figure, and units that follow each other in the order of equal slots
    take longer than that form. All lines are compared with an event simulation in the tests.

    References
    ----------
    Y. Huang et al., "GPipe", NeurIPS 2019. S. Fan et al., "DAPPLE", PPoPP 2021 (1f1b). D. Narayanan
    et al., "Efficient large-scale language model training on GPU clusters using Megatron-LM", SC
    2021 (interleaved). S. Li, T. Hoefler, "Chimera: efficiently training large-scale neural
    networks with bidirectional pipelines", SC 2021. B. Yang et al., "PipeMare: asynchronous
    pipeline parallel DNN training", MLSys 2021.
    """
    p, M, f, b, v = _numbers(stages, micro_batches, forward, backward, chunks)
    match schedule:
        case "gpipe" | "1f1b":
            return (M + p - 1) * (f + b)
        case "interleaved":
            return _allowed(M % p == 0, M * (f + b) + (p - 1) * (f + b) / v)
        case "chimera":
            u = np.minimum(f, b)
            w = np.maximum(f, b)
            # A unit is p micro-batches in two directions; an odd number takes as long as the next
            # even one.
            unit = p * u + (np.minimum(np.ceil(M / 2) * 2, p) + p - 2) * w
            # Units follow each other in equal slots, so a bubble remains if f != b.
            more = np.maximum(np.ceil(M / p) - 1, 0) * (2 * u + (2 * p - 2) * w)
            return _allowed((p % 2 == 0) & ((p >= M) | (M % p == 0)), unit + more)
        case "pipemare":
            return M * (f + b)
    raise unknown_name("schedule", schedule, SCHEDULES, f"unknown pipeline schedule {schedule!r}")


def in_flight(
    schedule: str,
    stages: Numbers,
    micro_batches: Numbers,
    chunks: Numbers = 1,
) -> FloatArray:
    """Most activations that a device keeps at a time, in units of one micro-batch on the whole
    device.
    """
    p, M, v = _numbers(stages, micro_batches, chunks)
    match schedule:
        case "gpipe":
            return M * np.ones_like(p)
        case "1f1b" | "pipemare":
            return np.minimum(p, M)
        case "interleaved":
            return _allowed(M % p == 0, np.minimum(M * v, v * p + p - 1) / v)
        case "chimera":
            return _allowed((p % 2 == 0) & ((p >= M) | (M % p == 0)), np.minimum(p, M))
    raise unknown_name("schedule", schedule, SCHEDULES, f"unknown pipeline schedule {schedule!r}")


def _numbers(*given: Numbers) -> tuple[FloatArray, ...]:
    return tuple(np.asarray(numbers, np.float64) for numbers in given)


def _allowed(condition: FloatArray, seconds: FloatArray) -> FloatArray:
    return np.where(condition, seconds, np.nan)


# --- plans ----------------------------------------------------------------------------------------


OPERATIONS = 10
"""Operations of a layer's forward pass: six matrix products, norms, the activation, additions."""
EVEN = ("chimera", "pipemare")
"""Schedules whose closed forms assume equal stages."""
OPTIMIZER_BYTES = 30
"""Bytes per parameter: Adam reads 16 bytes of state and gradient and writes 14."""


class Rules(Document):
    """What plans may do, the same for all.

    Attributes
    ----------
    overlap : float
        Share of the last backward pass that hides the exchange of gradients.
    recompute : str
        Of activations of transformers: auto takes the faster of the two that fits.
    zero : int
        Stage of ZeRO: what data-parallel replicas do not hold twice (1: optimizer, 2: gradients, 3:
        weights too).
    schedule : str
        Of the pipeline (`step_seconds`), with ``chunks`` of the model on a device if interleaved.
    memory_share : float
        Share of a GPU's memory that a plan may fill; the rest is for the driver, buffers and
        fragments.
    launch : float
        Seconds that an operation takes beside its work.
    """

    overlap: float = Field(default=0.5, ge=0, le=1)
    recompute: Literal["auto", "full", "none"] = "auto"
    zero: int = Field(default=1, ge=0, le=3)
    schedule: Literal["1f1b", "gpipe", "interleaved", "chimera", "pipemare"] = "1f1b"
    chunks: PositiveCount = 1
    memory_share: Share = 0.9
    launch: NonNegative = 4e-6

    @model_validator(mode="after")
    def _chunks_are_interleaved(self) -> Self:
        if (self.chunks > 1) != (self.schedule == "interleaved"):
            raise refused(
                f"{self.chunks} beside the schedule {self.schedule}",
                "2 or more chunks with the schedule interleaved, 1 with any other",
                ".chunks",
            )
        return self


RECOMPUTE = {"auto": (False, True), "full": (True,), "none": (False,)}
"""The values of recomputation that are tried, by option."""


@dataclass(frozen=True, repr=False)
class Plans(Columns):
    """T, p, d, M and whether to recompute, arrays of length N."""

    tensor: FloatArray
    stages: FloatArray
    replicas: FloatArray
    micro_batches: FloatArray
    recompute: BoolArray


@dataclass(frozen=True, repr=False)
class Machines(Columns):
    """The machine of each plan, arrays of length N; efficiencies and shares are already applied.

    Attributes
    ----------
    peak, bandwidth, memory : FloatArray
        Of a GPU: reached FLOP/s, reached bytes/s, and bytes.
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


class PlanOutcome(NamedTuple):
    """Seconds of a step, bytes on the fullest GPU, and whether the plan is valid and fits; arrays
    of length N.
    """

    seconds: FloatArray
    memory: FloatArray
    allowed: BoolArray
    fits: BoolArray


@lru_cache(maxsize=4096)
def factorisations(gpus: int) -> IntArray:
    """All (T, p, d) with T p d = k, shape (., 3), in this order."""
    divisors = [divisor for divisor in range(1, gpus + 1) if gpus % divisor == 0]
    found = [(T, p, gpus // T // p) for T in divisors for p in divisors if gpus % (T * p) == 0]
    table = np.array(found, np.int64).reshape(-1, 3)
    # Read-only, because the array is cached.
    table.setflags(write=False)
    return table


def plans(gpus: int, batch: int, rules: Rules) -> Plans:
    """All plans for k GPUs and B sequences:
    every (T, p, d) with d <= B, and every M that gives a different micro-batch size.
    """
    parts = []
    for T, p, d in factorisations(gpus).tolist():
        if d <= batch:
            M = micro_batches(-(-batch // d))
            for recompute in RECOMPUTE[rules.recompute]:
                parts.append(
                    np.stack(
                        [np.full(len(M), degree) for degree in (T, p, d)]
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
    counts = np.unique(-(-local // sizes))
    # Read-only, because the array is cached.
    counts.setflags(write=False)
    return counts


def evaluate(models: Transformers, plan: Plans, machines: Machines, rules: Rules) -> PlanOutcome:
    """Evaluate plans elementwise: row i is model i with plan i on machine i."""
    T = plan.tensor
    p = plan.stages
    d = plan.replicas
    M = plan.micro_batches
    L = models.layers
    h = models.hidden
    B = models.batch
    k = machines.gpus.astype(np.float64)
    n = machines.nodes.astype(np.float64)
    v = rules.chunks
    # The last replica and the last micro-batch may be smaller; all wait for the largest.
    m = np.ceil(np.ceil(B / d) / M)
    layers = np.ceil(L / p)
    forward, work = _layer(models, T, m, machines, rules)
    boundary = m * models.boundary_bytes
    tensor = ring_all_reduce(boundary, T, machines.inside, machines.latency_inside)
    # A layer has 1 part forward, 2 parts backward, and 1 more forward with recomputation. Each
    # forward and each backward pass has 2 all-reduces over the tensor group.
    again = plan.recompute.astype(np.float64)
    layer = (3 + again) * forward + (4 + 2 * again) * tensor
    backward = layers * ((2 + again) * forward + (2 + 2 * again) * tensor)

    pipeline = _pipeline(models, plan, machines, rules, m, layer)
    stage = (layers * models.layer_parameters + models.table_parameters) / T
    # Only the last backward pass hides the exchange, because gradients are complete only then.
    exchange = _exchange(plan, machines, rules, stage * models.number)
    exposed = np.maximum(0.0, exchange - rules.overlap * backward)
    optimizer = OPTIMIZER_BYTES * stage / (d if rules.zero else 1) / machines.bandwidth
    seconds = pipeline + exposed + optimizer

    # Chimera keeps the weights of two stages.
    stored = np.where(p > 1, 2.0, 1.0) * stage if rules.schedule == "chimera" else stage
    memory = _memory(models, plan, stored, layers, m, work, rules)
    # Tensor parallelism stays inside a node and gives each GPU whole heads of attention.
    most = np.ceil(k / n)
    least = np.floor(k / n)
    heads = np.where(models.heads > 0, models.heads, h)
    within_nodes = (most % T == 0) & (least % T == 0)
    divides = (T == 1) | (within_nodes & (heads % T == 0))
    allowed = divides & (p <= L) & (d <= B) & (T * p * d == k)
    allowed &= ~np.isnan(pipeline)
    # Interleaved schedules take whole rounds of p micro-batches, and equal chunks of layers.
    if v > 1:
        allowed &= (p == 1) | ((M % p == 0) & (L % (p * v) == 0))
    return PlanOutcome(seconds, memory, allowed, memory <= rules.memory_share * machines.memory)


def _pipeline(
    models: Transformers,
    plan: Plans,
    machines: Machines,
    rules: Rules,
    m: FloatArray,
    layer: FloatArray,
) -> FloatArray:
    """Seconds of all micro-batches on all stages; ``layer``: seconds of one layer forward and
    backward.
    """
    T = plan.tensor
    p = plan.stages
    d = plan.replicas
    M = plan.micro_batches
    L = models.layers
    h = models.hidden
    s = models.sequence
    V = models.vocabulary
    # The head: a roofline of its matrix product, and a softmax that only moves bytes.
    head_compute = models.head_flops * m / T / machines.peak
    head_weights = V * h * models.number / T / machines.bandwidth
    softmax = 8 * V * s * m / T / machines.bandwidth
    head = 3 * (np.maximum(head_compute, head_weights) + softmax)
    # Between stages, all tensor groups of a node send at the same time over the one link of the
    # node.
    boundary = m * models.boundary_bytes
    groups = np.minimum(_groups_of_node(plan, machines), d)
    sent = np.where(
        machines.nodes > 1,
        groups * boundary / machines.between + machines.latency_between,
        boundary / machines.inside + machines.latency_inside,
    )
    hop = np.where(p > 1, 2 * rules.chunks * sent, 0.0)
    # The slowest stage is a full stage, or the last one, which has the head and perhaps fewer
    # layers.
    slowest = np.maximum(np.ceil(L / p) * layer + hop, np.floor(L / p) * layer + head + hop)
    if rules.schedule in EVEN:
        # One of 3 parts (4 with recomputation) is forward, the rest is backward.
        once = slowest / (3 + plan.recompute)
        even = step_seconds(rules.schedule, p, M, once, slowest - once)
        return np.where(p > 1, even, M * slowest)
    whole = L * layer + head + (p - 1) * hop
    return M * slowest + np.maximum(whole - slowest, 0.0) / rules.chunks


def _exchange(plan: Plans, machines: Machines, rules: Rules, size: FloatArray) -> FloatArray:
    """Seconds in which the replicas of a stage exchange ``size`` bytes of gradients."""
    d = plan.replicas
    # Replicas are packed into nodes first, so that the ring leaves nodes as rarely as possible.
    nodes = np.ceil(d / _groups_of_node(plan, machines))
    shared = np.minimum(machines.inside, machines.between / plan.tensor)
    ring = np.where(nodes > 1, shared, machines.inside)
    near = machines.latency_inside
    far = machines.latency_between
    latency = ((d - nodes) * near + (nodes - 1) * far) / np.maximum(d - 1, 1)
    # ZeRO-3 gathers the weights twice, and scatters the gradients once.
    volume = 1.5 if rules.zero == 3 else 1.0
    return volume * ring_all_reduce(size, d, ring, latency)


def _groups_of_node(plan: Plans, machines: Machines) -> FloatArray:
    """Tensor groups on the fullest node."""
    most = np.ceil(machines.gpus / machines.nodes)
    return np.maximum(np.floor(most / plan.tensor), 1)


def _layer(
    models: Transformers,
    T: FloatArray,
    m: FloatArray,
    machines: Machines,
    rules: Rules,
) -> tuple[FloatArray, FloatArray]:
    """t_l, and the bytes A_l m that the layer keeps."""
    # One forward pass reads all weights of the layer, however small the micro-batch is.
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
    T = plan.tensor
    p = plan.stages
    d = plan.replicas
    M = plan.micro_batches
    weight = np.maximum(models.number, 2)
    gradient = weight
    state = 16 - 2 * weight
    # ZeRO stages 0 to 3: state that is not stored by every replica is divided by d.
    by_stage = (
        weight + gradient + state,
        weight + gradient + state / d,
        weight + (gradient + state) / d,
        16 / d,
    )
    parameters = stage * by_stage[rules.zero]
    # With recomputation a layer keeps only its input, and one layer at a time has all activations.
    kept = np.where(plan.recompute, models.boundary_bytes * m, work) * layers
    working = np.where(plan.recompute, work, 0.0)
    flight = in_flight(rules.schedule, p, M, rules.chunks)
    # A single stage runs micro-batches one after the other, so one is in flight.
    flight = np.where(p == 1, 1.0, flight)
    first = flight * kept + working
    last = kept * (M if rules.schedule == "gpipe" else 1.0) * (p > 1) + kept * (p == 1) + working
    logits = (models.number + 4) * models.vocabulary * models.sequence * m / T
    total: FloatArray = parameters + np.maximum(first, last + logits)
    return total


# --- the fastest plan -----------------------------------------------------------------------------

CHUNK = 250_000
"""Plans per block."""
ZERO = np.zeros(1)
NO_PLAN = Plans(ZERO, ZERO, ZERO, ZERO, recompute=np.zeros(1, bool))


class BestPlans(NamedTuple):
    """The best plan of each of N cells.

    Attributes
    ----------
    seconds : FloatArray
        Seconds of a step by the fastest plan that fits; inf if there is none.
    memory : FloatArray
        Bytes on its fullest GPU; if no plan fits, of the plan with the least memory.
    possible : BoolArray
        Whether there is any plan, whatever its memory.
    plan : Plans
        The fastest plan that fits, else the plan with the least memory; meaningless if ``possible``
        is False.
    """

    seconds: FloatArray
    memory: FloatArray
    possible: BoolArray
    plan: Plans


def best_plans(models: Transformers, machines: Machines, rules: Rules) -> BestPlans:
    """Enumerate all (T, p, d, M) of every cell: transformer i on machine i."""
    cells = len(models)
    batch = models.batch.astype(np.int64)
    # Plans depend only on the numbers of GPUs and sequences, so they are listed once per pair.
    groups = group_rows((machines.gpus, batch), cells)
    pairs = zip(machines.gpus[groups.first].tolist(), batch[groups.first].tolist(), strict=True)
    # Row 0 stands for no plan.
    parts = [NO_PLAN, *(plans(gpus, size, rules) for gpus, size in pairs)]
    length = np.array([len(part) for part in parts], np.int64)
    table = Plans.join(parts)
    start = (np.cumsum(length) - length)[groups.inverse + 1]
    size = length[groups.inverse + 1]

    seconds = np.full(cells, np.inf)
    memory = np.full(cells, np.inf)
    possible = np.zeros(cells, bool)
    chosen = np.zeros(cells, np.int64)
    for piece in _pieces(size):
        row = ranges(start[piece], size[piece])
        cell = np.repeat(piece, size[piece])
        out = evaluate(models.take(cell), table.take(row), machines.take(cell), rules)
        time = np.where(out.allowed & out.fits, out.seconds, np.inf)
        need = np.where(out.allowed, out.memory, np.inf)
        first = np.cumsum(size[piece]) - size[piece]
        seconds[piece] = np.minimum.reduceat(time, first)
        least = np.minimum.reduceat(need, first)
        possible[piece] = np.isfinite(least)
        # If no plan fits, the plan with the least memory shows how much is missing.
        wanted = np.where(np.repeat(np.isfinite(seconds[piece]), size[piece]), time, need)
        target = np.minimum.reduceat(wanted, first)
        hit = np.flatnonzero(wanted == np.repeat(target, size[piece]))
        # Take the first of equally good plans, so that the result does not depend on the blocks.
        _, at = np.unique(cell[hit], return_index=True)
        chosen[piece] = row[hit[at]]
        memory[piece] = out.memory[hit[at]]
    return BestPlans(seconds, memory, possible, table.take(chosen))


def _pieces(size: IntArray) -> list[IntArray]:
    """Cells with plans, in blocks with about `CHUNK` plans each."""
    cells = np.flatnonzero(size > 0)
    if len(cells) == 0:
        return []
    piece = np.cumsum(size[cells]) // CHUNK
    return np.split(cells, np.flatnonzero(np.diff(piece)) + 1)
