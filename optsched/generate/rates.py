"""Closed-form rates: a roofline for one GPU, a ring all-reduce for several,
shared units for a pair on one GPU.

These are models with published forms and round constants, good to perhaps a factor of 1.5; they
make instances that look like measured ones, but do not predict a real machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from optsched.generate.hardware import Gpu
from optsched.generate.workloads import STATE_BYTES, TrainedModel

# Share of the tensor cores' peak that training reaches, by kind of mathematics.
TENSOR_EFFICIENCY = {"convolution": 0.35, "matrix": 0.5}
# Share of the vector units' peak.
VECTOR_EFFICIENCY = 0.5
# Share of the memory bandwidth.
MEMORY_EFFICIENCY = 0.7
# Share of a link's bandwidth.
LINK_EFFICIENCY = 0.8
# Transfers of a kept activation per step: written and read forward, read again backward, its
# gradient written.
PASSES = 4
# FLOPs of a step over those of its forward pass: the backward pass costs twice the forward pass.
BACKWARD = 3
# Time the host takes to launch one operator, s; a step launches three per forward operator.
LAUNCH = 1e-5
# Relative loss of two jobs on one GPU that never need the same unit at the same time.
CONTENTION = 0.1


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one training step on one GPU, by activity.

    Attributes
    ----------
    compute : float
        Convolutions and matrix products, which the compute units limit.
    memory : float
        Element-wise operators, normalisations and the optimiser, which the memory bandwidth limits.
    host : float
        Launching all operators, which overlaps with the other two.
    """

    compute: float
    memory: float
    host: float

    @property
    def seconds(self) -> float:
        """Time of the step."""
        return max(self.compute + self.memory, self.host)


def in_half(workload: TrainedModel, gpu: Gpu) -> bool:
    """Whether this GPU trains this workload in half precision."""
    return workload.mixed and gpu.fp16_tflops is not None


def fits(workload: TrainedModel, gpu: Gpu, *others: TrainedModel) -> bool:
    """Whether weights, state and activations fit in the GPU's memory, with those of others that
    share it.
    """
    return sum(each.memory(in_half(each, gpu)) for each in (workload, *others)) <= gpu.memory


def step(workload: TrainedModel, gpu: Gpu) -> StepTime:
    """Roofline of a training step (Williams, Waterman and Patterson 2009), operator by operator.

    An operator runs at the lower of two roofs, the peak and the memory bandwidth; of training, the
    products are under the first and everything else is under the second, and they take turns. The
    launching host is a third roof::

        samples/s = batch / max(compute + memory, host)
        compute   = batch * 3 * forward FLOPs / (efficiency * peak)
        memory    = (batch * 4 * activation bytes + 32 * parameters) / (0.7 * memory bandwidth)
        host      = 3 * operators * 10 us

    The optimiser reads and writes 16 bytes per parameter. The peak is that of half precision for
    workloads in mixed precision where the GPU has it; activations take 2 bytes then, else 4.
    """
    half = in_half(workload, gpu)
    if half and gpu.fp16_tflops is not None:
        efficiency = TENSOR_EFFICIENCY[workload.math] if gpu.tensor_cores else VECTOR_EFFICIENCY
        flops = efficiency * gpu.fp16_tflops * 1e12
    else:
        flops = VECTOR_EFFICIENCY * gpu.fp32_tflops * 1e12
    traffic = (
        workload.batch * PASSES * workload.activations * (2 if half else 4)
        + 2 * STATE_BYTES * workload.parameters
    )
    return StepTime(
        compute=workload.batch * BACKWARD * workload.forward_flops / flops,
        memory=traffic / (MEMORY_EFFICIENCY * gpu.memory_bandwidth * 1e9),
        host=3 * workload.operators * LAUNCH,
    )


def ring_seconds(workload: TrainedModel, gpu: Gpu, gpus: int, bandwidth: float) -> float:
    """Ring all-reduce of the gradients, s:
    ``2 (k - 1) / k * bytes / (0.8 * bandwidth)`` (Patarasuk and Yuan 2009).

    Parameters
    ----------
    bandwidth : float
        Of the ring's slowest link, GB/s per direction.
    """
    size = workload.parameters * (2 if in_half(workload, gpu) else 4)
    return 2 * (gpus - 1) / gpus * size / (LINK_EFFICIENCY * bandwidth * 1e9)


def rate(
    workload: TrainedModel,
    gpu: Gpu,
    gpus: int = 1,
    nodes: int = 1,
    node_bandwidth: float = 12.5,
) -> float:
    """Rate of a data-parallel job in steps/s, a step being one batch of one GPU.

    Weak scaling: every GPU works on its own batch, then all wait for the all-reduce (no overlap),
    so k GPUs make ``k / (step + ring)`` steps/s. A ring enters and leaves each node once; over
    several nodes its slowest link is the network card.

    Parameters
    ----------
    gpus, nodes : int
        GPUs in all, and nodes they are spread over.
    node_bandwidth : float
        Network card of a node, GB/s per direction.
    """
    bandwidth = gpu.link_bandwidth if nodes == 1 else min(gpu.link_bandwidth, node_bandwidth)
    return gpus / (step(workload, gpu).seconds + ring_seconds(workload, gpu, gpus, bandwidth))


def slowdown(first: TrainedModel, second: TrainedModel, gpu: Gpu) -> float:
    """Factor by which two jobs slow each other down on one shared GPU; both by the same.

    With u and v the shares of a step in which a job keeps the compute units and the memory busy
    when alone,

    ::

        slowdown = 1.1 * max(1, u_a + u_b, v_a + v_b)

    so two jobs share well if the host limits them, or if they need different units. A slowdown
    below 2 is better than taking turns.
    """
    a = step(first, gpu)
    b = step(second, gpu)
    compute = a.compute / a.seconds + b.compute / b.seconds
    memory = a.memory / a.seconds + b.memory / b.seconds
    return (1 + CONTENTION) * max(1.0, compute, memory)
