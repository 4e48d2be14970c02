"""Facts and closed forms behind the generated rates: by hand, in order, and within their limits."""

from __future__ import annotations

import numpy as np
import pytest

# Private names: the draws and steps that generators are made of
from optsched.generate.hardware import GPUS
from optsched.generate.rates import fits, in_half, rate, ring_seconds, slowdown, step
from optsched.generate.workloads import WORKLOADS

ORDER = (
    "K80",
    "P100-PCIe-16GB",
    "T4",
    "V100-SXM2-16GB",
    "A100-SXM4-40GB",
    "A100-SXM4-80GB",
    "H100-SXM5-80GB",
)
"""GPUs from slow to fast in half-precision products and normalisations."""


@pytest.mark.parametrize("model", ["ResNet-50", "BERT-base", "GPT-2-medium"])
def test_faster_gpu_is_faster(model: str) -> None:
    assert set(ORDER) == set(GPUS)
    rates = [rate(WORKLOADS[model], GPUS[name]) for name in ORDER]
    assert rates == sorted(rates) and len(set(rates)) == len(rates)


def test_resnet_rates_are_near_the_vendors_figures() -> None:
    """NVIDIA publishes about 1,300 (V100) and 2,500 (A100) images/s for mixed-precision training of ResNet-50."""
    model = WORKLOADS["ResNet-50"]
    for gpu, images in (("V100-SXM2-16GB", 1300), ("A100-SXM4-40GB", 2500)):
        assert 2 / 3 < model.batch * rate(model, GPUS[gpu]) / images < 3 / 2


def test_roofline_and_ring_by_hand() -> None:
    vae, vgg, v100 = WORKLOADS["Mult-VAE"], WORKLOADS["VGG-16"], GPUS["V100-SXM2-16GB"]
    assert step(vae, v100).compute == pytest.approx(500 * 3 * 49e6 / (0.5 * 15.7e12))
    assert step(vae, v100).memory == pytest.approx(
        (500 * 4 * 42e3 * 4 + 32 * 24.5e6) / (0.7 * 900e9)
    )
    assert ring_seconds(vgg, v100, 4, 150) == pytest.approx(2 * 3 / 4 * 2 * 138.4e6 / (0.8 * 150e9))
    assert ring_seconds(vgg, v100, 1, 150) == 0
    assert ring_seconds(vgg, GPUS["K80"], 2, 16) == pytest.approx(
        4 * 138.4e6 / (0.8 * 16e9)
    )  # single precision


@pytest.mark.parametrize("gpu", GPUS)
def test_scaling_is_at_most_linear_and_sharing_costs(gpu: str) -> None:
    for workload in WORKLOADS.values():
        one = rate(workload, GPUS[gpu])
        assert 0 < one < np.inf
        for gpus in (2, 4, 8):
            together = rate(workload, GPUS[gpu], gpus)
            assert rate(workload, GPUS[gpu], gpus, 2, 1.25) < together < gpus * one
        for other in WORKLOADS.values():
            factor = slowdown(workload, other, GPUS[gpu])
            assert 1 < factor < 2.5
            assert factor == slowdown(other, workload, GPUS[gpu])


def test_memory_decides_where_a_model_fits() -> None:
    largest = WORKLOADS["GPT-2-XL"]
    assert [name for name in ORDER if fits(largest, GPUS[name])] == list(ORDER[4:])
    assert not in_half(largest, GPUS["K80"]) and in_half(largest, GPUS["T4"])
    small = WORKLOADS["ResNet-18"]
    assert small.memory(half=True) == pytest.approx(1 + 16 * 11.69e-3 + 64 * 4.96e-3 * 2)
