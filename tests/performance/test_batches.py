"""How batches of workloads are split over GPUs and passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from documents import instance_document
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from optsched.instance import Instance

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.batches import Batches


def batches(**parameters: Any) -> Batches:
    return Batches.of(
        Instance.from_document(
            instance_document({"p": 8}, workloads={"w": {"parameters": parameters}})
        )
    )


def split(found: Batches, gpus: int) -> tuple[float, int]:
    samples, passes = found.split(np.zeros(1, np.int64), np.array([gpus]))
    return float(samples[0]), int(passes[0])


@given(st.integers(1, 10_000), st.integers(1, 500), st.integers(1, 64))
def test_no_pass_has_more_than_the_most_and_all_samples_are_taken(
    batch: int, most: int, gpus: int
) -> None:
    samples, passes = split(batches(batch=batch, max_batch_per_gpu=most), gpus)
    if gpus > batch:
        assert samples == 0
    else:
        assert samples == int(samples) <= most and samples * passes * gpus >= batch
        assert (samples - 1) * passes * gpus < batch  # no more than rounding up asks for


@given(st.floats(0.01, 1000), st.floats(0.01, 100))
def test_samples_of_a_gpu_need_not_be_whole(each: float, most: float) -> None:
    samples, passes = split(batches(batch_per_gpu=each, max_batch_per_gpu=most), 3)
    assert samples <= most * (1 + 1e-9) and samples * passes == pytest.approx(each)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (
            {"batch": 21, "max_batch_per_gpu": 10.5},
            "found 10.5, expected a whole number of samples, as a batch is",
        ),
        (
            {"batch": 1e15, "max_batch_per_gpu": 1e-9},
            "found 1e-09, expected a whole number of samples",
        ),
        (
            {"batch": 1e15, "max_batch_per_gpu": 1},
            "found 1.0, expected samples that take fewer than 2^31 passes",
        ),
        (
            {"batch_per_gpu": 1e15, "max_batch_per_gpu": 1e-9},
            "found 1e-09, expected samples that take fewer than 2^31",
        ),
    ],
)
def test_what_cannot_be_split_is_refused(parameters: dict[str, float], words: str) -> None:
    with refuses(f"workloads.w.parameters.max_batch_per_gpu: {words}..."):
        batches(**parameters)
