"""GPUs of generated instances: figures from the vendor's datasheets, and public list prices.

Prices are on-demand list prices of 2023 in US regions, rounded to a cent; they differ several times
between vendors, so take them as inputs, never as constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from optsched.performance.analytic.hardware import BOARDS, PRECISIONS

PCIE = 16
"""GB/s per direction of PCIe 3.0 x16."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU type.

    Attributes
    ----------
    name : str
    fp32_tflops : float
        Peak of the vector units in single precision, TFLOPS.
    fp16_tflops : float or None
        Peak in half precision, TFLOPS: of the tensor cores where there are any, else of the vector
        units; None where half precision brings no speed.
    tensor_cores : bool
    memory : float
        GB.
    memory_bandwidth : float
        GB/s.
    link_bandwidth : float
        To the other GPUs of the node, GB/s per direction: NVLink, else PCIe x16.
    watts : float
        Thermal design power, W.
    price : float
        USD per GPU-hour.
    """

    name: str
    fp32_tflops: float
    fp16_tflops: float | None
    tensor_cores: bool
    memory: float
    memory_bandwidth: float
    link_bandwidth: float
    watts: float
    price: float


def _priced(name: str, price: float, **rounded: float) -> Gpu:
    """A board with a price. ``rounded`` overrides figures, so that instances stay as they were when
    figures were rounded.
    """
    (board,) = (board for board in BOARDS if board.name == name)
    peaks = dict(zip(PRECISIONS, board.peaks, strict=True))
    facts: dict[str, Any] = {
        "fp32_tflops": peaks["fp32"],
        "fp16_tflops": peaks["fp16"],
        "tensor_cores": (board.compute_capability or 0.0) >= 7.0,  # from Volta on
        "memory": board.memory,
        "memory_bandwidth": board.bandwidth,
        "link_bandwidth": PCIE if board.nvlink is None else board.nvlink,
        "watts": board.watts,
    }
    return Gpu(name=name, price=price, **{**facts, **rounded})


# All GPU types by name.
GPUS: dict[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        # Google Cloud, GPU alone, us-central1
        _priced("K80", 0.45),
        _priced("P100-PCIe-16GB", 1.46),
        _priced("V100-SXM2-16GB", 2.48),
        _priced("T4", 0.35),
        _priced("A100-SXM4-40GB", 2.93),
        # AWS, an eighth of p4de.24xlarge and p5.48xlarge with their hosts, us-east-1
        _priced("A100-SXM4-80GB", 5.12),
        _priced("H100-SXM5-80GB", 12.29, fp32_tflops=67, fp16_tflops=989),
    )
}
