"""Every performance object in docs/reference/performance-models.md is one that an instance can have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from documents import instance_document

import optsched
from optsched.assembly import make_model

pytestmark = pytest.mark.documentation

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "performance-models.md"
EXAMPLES = [
    document["performance"]
    for document in map(
        json.loads, re.findall(r"^```json\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    )
    if "performance" in document
]
INSTANCE: dict[str, Any] = instance_document(
    [
        {"name": "v100", "gpu": "V100", "nodes": 2, "gpus_per_node": 2},
        {"name": "a100", "gpu": "A100", "nodes": 1, "gpus_per_node": 2},
    ],
    [
        {"id": "a", "workload": "ResNet-50", "gpus": 1, "steps": 100},
        {"id": "b", "workload": "BERT", "gpus": 1, "steps": 100},
    ],
    workloads={
        "ResNet-50": {"parameters": {"batch_per_gpu": 64}, "throughput": {"v100": {"1": 5.0}}},
        "BERT": {"parameters": {"batch_per_gpu": 8}, "throughput": {"v100": {"1": 2.0}}},
    },
)


def test_each_of_the_models_has_an_example() -> None:
    assert {example["model"] for example in EXAMPLES} == {
        "chain", "prior", "online", "cached", "noisy", "oracle", "interference"
    }  # fmt: skip


@pytest.mark.parametrize("performance", EXAMPLES, ids=lambda example: example["model"])
def test_the_examples_load_and_solve(performance: dict[str, Any]) -> None:
    instance = optsched.Instance.from_document({**INSTANCE, "performance": performance})
    assert make_model(instance, performance).name == performance["model"]
    solution = optsched.solve(instance, "max-throughput")
    assert solution.certificate.ok
    assert solution.objective > 0
