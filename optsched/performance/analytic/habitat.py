"""Wave scaling: how long a kernel that was timed on one GPU takes on another.

A GPU runs the b blocks of a kernel in waves of W = SMs x blocks per SM. With D the memory bandwidth, C the base clock
and S the SMs of the origin o and the destination d, and gamma in [0, 1] how far memory limits the kernel there:

    many blocks                        T_d = T_o (D_o/D_d)^gamma (C_o/C_d)^(1-gamma) (S_o/S_d)^(1-gamma)
    fewer than a wave on both          T_d = T_o ((C_o/C_d) ceil(b/S_d) / ceil(b/S_o))^(1-gamma)
    neither FLOPs nor bytes known      T_d = T_o D_o/D_d with many blocks, T_o with few

    gamma = 1 - 0.5 x/R  if x <= R,  0.5 R/x  otherwise;   1 without FLOPs, 0 without bytes
    x = FLOPs / bytes of the kernel,  R = peak / D of the destination

What a run takes beside its kernels (launches, the host) stays as it is.

References
----------
G. X. Yu et al., "Habitat: a runtime-based computational performance predictor for deep neural network training",
USENIX ATC 2021, and its repository geoffxy/habitat (Apache-2.0), whose formulas these are; it uses measured bandwidths,
and neural networks for convolutions, matrix products and LSTMs. Published error: 11.8 % of an iteration's time over 5
models and 6 GPUs (abstract). The paper's general form with ceil(b/W) is not used by its code and not verified here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.errors import UsageError
from optsched.performance.analytic.board import Board


@dataclass(frozen=True)
class Device:
    """A GPU as wave scaling sees it: bytes/s, MHz, FLOP/s."""

    bandwidth: float
    clock: float
    sms: int
    peak: float

    @classmethod
    def of(cls, board: Board, precision: str = "fp32", bandwidth: float | None = None) -> Device:
        """A board of the table; ``bandwidth`` in GB/s, where it was measured, is better than the datasheet's.

        Raises
        ------
        UsageError
            If the base clock of the board is not known.
        """
        if board.base_clock is None:
            raise UsageError(
                f"the base clock of {board.name} is not known, so nothing can be scaled to or from it"
            )
        return cls(
            (board.bandwidth if bandwidth is None else bandwidth) * 1e9,
            board.base_clock,
            board.sms,
            board.peak(precision),
        )


@dataclass(frozen=True)
class Kernels:
    """Kernels of a run, arrays of length K.

    Attributes
    ----------
    seconds : FloatArray
        On the origin.
    flops, moved : FloatArray
        FLOPs and bytes; both NaN where no metrics were collected.
    blocks : IntArray
        b.
    waves : IntArray, shape (2, K)
        Blocks of a wave on the origin and on the destination (`blocks_per_sm` times SMs).
    """

    seconds: FloatArray
    flops: FloatArray
    moved: FloatArray
    blocks: IntArray
    waves: IntArray


def memory_share(flops: FloatArray, moved: FloatArray, destination: Device) -> FloatArray:
    """gamma of kernels on a destination, in [0, 1]."""
    ridge = destination.peak / destination.bandwidth
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        x = np.divide(flops, moved)
        gamma = np.where(x <= ridge, 1 - 0.5 * x / ridge, 0.5 * ridge / x)
    return np.select([flops == 0, moved == 0], [1.0, 0.0], gamma)


def scale(kernels: Kernels, origin: Device, destination: Device) -> FloatArray:
    """Seconds of each kernel on the destination."""
    gamma = memory_share(kernels.flops, kernels.moved, destination)
    b = kernels.blocks
    few: BoolArray = np.logical_and.reduce(b < kernels.waves, axis=0)
    memory = origin.bandwidth / destination.bandwidth
    clock, sms = origin.clock / destination.clock, origin.sms / destination.sms
    rounds = np.ceil(b / destination.sms) / np.ceil(b / origin.sms)
    factor = np.where(
        few, (clock * rounds) ** (1 - gamma), memory**gamma * (clock * sms) ** (1 - gamma)
    )
    unknown = np.isnan(kernels.flops) | np.isnan(kernels.moved)
    seconds: FloatArray = kernels.seconds * np.where(unknown, np.where(few, 1.0, memory), factor)
    return seconds


def run_seconds(kernels: Kernels, origin: Device, destination: Device, total: float) -> float:
    """Seconds of a run on the destination that takes ``total`` on the origin."""
    return total - float(kernels.seconds.sum()) + float(scale(kernels, origin, destination).sum())


LIMITS = {
    3.7: (2048, 16, 131072, 114688),
    6.0: (2048, 32, 65536, 65536),
    7.0: (2048, 32, 65536, 98304),
    7.5: (1024, 16, 65536, 65536),
    8.0: (2048, 32, 65536, 167936),
    8.6: (1536, 16, 65536, 102400),
    8.9: (1536, 24, 65536, 102400),
    9.0: (2048, 32, 65536, 233472),
    10.0: (2048, 32, 65536, 233472),
}
"""Threads, blocks, registers and bytes of shared memory of an SM by compute capability (CUDA programming guide)."""


def blocks_per_sm(
    capability: float, threads: IntArray, registers: IntArray, shared: IntArray
) -> IntArray:
    """Blocks that an SM holds at a time, by threads of a block, registers of a thread and shared bytes of a block.

    The least that the four limits allow; units of allocation are not rounded. 0 where not even one block fits.

    Raises
    ------
    UsageError
        If the limits of the compute capability are not known.
    """
    if capability not in LIMITS:
        raise UsageError(
            f"the limits of compute capability {capability:g} are not known; known: {sorted(LIMITS)}"
        )
    most_threads, most_blocks, most_registers, most_shared = LIMITS[capability]
    by_threads = most_threads // threads
    by_registers = most_registers // np.maximum(registers * threads, 1)
    by_shared = most_shared // np.maximum(shared, 1)
    least = np.minimum(np.minimum(by_threads, by_registers), np.minimum(by_shared, most_blocks))
    return np.asarray(least, np.int64)
