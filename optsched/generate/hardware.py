"""GPUs: figures from the vendor's datasheets and public list prices.

Peaks are dense (no sparsity), at boost clock, per device as a scheduler sees it: a K80 board is two
devices. Prices are on-demand list prices of 2023 in US regions, rounded to a cent; they differ
several times between vendors, so take them as inputs, never as constants.
"""

from __future__ import annotations

from dataclasses import dataclass


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
    source, price_source : str
        Documents that have the figures.
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
    source: str
    price_source: str


_GCP = "Google Cloud, GPU alone, us-central1"
_AWS = "AWS, an eighth of {} with its host, us-east-1"

# All GPU types by name.
GPUS: dict[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        Gpu(
            name="K80",  # one of the board's two dies: half of 8.74 TFLOPS, 24 GB, 480 GB/s and 300 W; no fast FP16
            fp32_tflops=4.37, fp16_tflops=None, tensor_cores=False, memory=12, memory_bandwidth=240,
            link_bandwidth=16, watts=150, price=0.45,
            source="NVIDIA Tesla K80 datasheet and board specification (BD-07317-001)", price_source=_GCP,
        ),
        Gpu(
            name="P100-PCIe-16GB",
            fp32_tflops=9.3, fp16_tflops=18.7, tensor_cores=False, memory=16, memory_bandwidth=732,
            link_bandwidth=16, watts=250, price=1.46,
            source="NVIDIA Tesla P100 datasheet, PCIe 16 GB column", price_source=_GCP,
        ),
        Gpu(
            name="V100-SXM2-16GB",
            fp32_tflops=15.7, fp16_tflops=125, tensor_cores=True, memory=16, memory_bandwidth=900,
            link_bandwidth=150, watts=300, price=2.48,
            source="NVIDIA Tesla V100 datasheet, NVLink column", price_source=_GCP,
        ),
        Gpu(
            name="T4",
            fp32_tflops=8.1, fp16_tflops=65, tensor_cores=True, memory=16, memory_bandwidth=320,
            link_bandwidth=16, watts=70, price=0.35,
            source="NVIDIA T4 datasheet; bandwidth: T4 product brief (PB-09256-001)", price_source=_GCP,
        ),
        Gpu(
            name="A100-SXM4-40GB",
            fp32_tflops=19.5, fp16_tflops=312, tensor_cores=True, memory=40, memory_bandwidth=1555,
            link_bandwidth=300, watts=400, price=2.93,
            source="NVIDIA A100 datasheet, SXM 40 GB column", price_source=_GCP,
        ),
        Gpu(
            name="A100-SXM4-80GB",
            fp32_tflops=19.5, fp16_tflops=312, tensor_cores=True, memory=80, memory_bandwidth=2039,
            link_bandwidth=300, watts=400, price=5.12,
            source="NVIDIA A100 datasheet, SXM 80 GB column", price_source=_AWS.format("p4de.24xlarge"),
        ),
        Gpu(
            name="H100-SXM5-80GB",  # the datasheet prints 1979 TFLOPS with sparsity
            fp32_tflops=67, fp16_tflops=989, tensor_cores=True, memory=80, memory_bandwidth=3350,
            link_bandwidth=450, watts=700, price=12.29,
            source="NVIDIA H100 datasheet, SXM column", price_source=_AWS.format("p5.48xlarge"),
        ),
    )
}  # fmt: skip
