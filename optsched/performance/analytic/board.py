"""A GPU board: what its datasheet says."""

from __future__ import annotations

from dataclasses import dataclass

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")
FALLBACKS = {"tf32": "fp32", "fp16": "fp32", "bf16": "fp32", "fp8": "fp16"}
"""What a board computes in where it has no units for a precision; bf16 without units is done in fp32, not in fp16."""
BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1}
"""Bytes of a number."""


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A MIG profile of a board: compute slices of 7 (4), memory slices of 8 (4), and most instances of it."""

    name: str
    compute_slices: int
    memory_slices: int
    count: int


@dataclass(frozen=True, slots=True)
class Board:
    """One GPU as the system shows it: a board of two dies that are shown as two GPUs is given by the die.

    Attributes
    ----------
    name, architecture : str
    compute_capability : float or None
        None where the vendor has none.
    memory, bandwidth : float
        GB and GB/s.
    peaks : tuple of float or None
        Dense TFLOP/s (no sparsity), in the order of `PRECISIONS`; None where the board has no units for it. fp32 and
        fp64 are the vector figures, the others those of matrix units where there are any.
    sms : int
        Streaming multiprocessors or compute units.
    base_clock : float or None
        MHz.
    nvlink : float or None
        GB/s per direction over all links (of AMD: Infinity Fabric).
    bridge : bool
        Whether these links are an optional bridge between two boards.
    pcie : int
        Generation, 16 lanes.
    watts : float
        Thermal design power.
    source : str
        The manufacturer's document that states the figures.
    unverified : tuple of str
        Fields that were not compared with a second source.
    mig : tuple of MigProfile
    """

    name: str
    architecture: str
    compute_capability: float | None
    memory: float
    bandwidth: float
    peaks: tuple[float | None, ...]
    sms: int
    base_clock: float | None
    nvlink: float | None
    bridge: bool
    pcie: int
    watts: float
    source: str
    unverified: tuple[str, ...] = ()
    mig: tuple[MigProfile, ...] = ()

    def peak(self, precision: str) -> float:
        """FLOP/s at a precision, of the next one that the board has units for (`FALLBACKS`) where it has none."""
        while (value := self.peaks[PRECISIONS.index(precision)]) is None:
            precision = FALLBACKS[precision]
        return value * 1e12

    @property
    def preference(self) -> tuple[bool, float]:
        """Sorts the boards of a family: those with built-in links first, then those with the least memory."""
        return (self.bridge or self.nvlink is None, self.memory)
