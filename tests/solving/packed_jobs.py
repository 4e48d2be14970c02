"""What jobs of some workloads do to each other on the same GPUs, as instances say it."""

from __future__ import annotations

from typing import Any


def interference(utilisation: dict[str, Any]) -> dict[str, Any]:
    """Of the utilisation of each workload on each GPU type."""
    pairs = {
        "model": "utilisation",
        "log_sd": 0.2,
        "sums": [],
        "logs": [],
        "measured": [],
        "workloads": utilisation,
    }
    return {"model": "interference", "of": {"model": "table"}, "pairs": pairs}
