"""What tests of column generation share: interference of workloads, refusals, and what a stopped run must keep."""

from __future__ import annotations

from typing import Any

import optsched


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


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("water-filling", {}, "water-filling generates no columns"),
    ("isolated", {}, "isolated generates no columns"),
    ("max-throughput", {"integral": True}, "jobs are whole"),
    ("max-min-fairness", {"agnostic": True}, "generates no columns with agnostic"),
    (
        "max-min-fairness",
        {"constraints": [{"kind": "minimum-service", "fraction": 0.1}]},
        "side constraints have rows",
    ),
    ("max-min-fairness", {"extend": lambda program, variables, classes: None}, "extra rows"),
]
"""Formulations whose columns cannot be generated, with options, and what is said of it."""


def check_stopped(instance: optsched.Instance, work: int) -> None:
    """A run that is stopped is certified, and its bound holds for the program of all columns."""
    full = optsched.solve(instance)
    stopped = optsched.solve(instance, generate_columns=True, work_limit=work)
    if stopped.objective is not None:
        assert stopped.ok and full.objective is not None
        assert stopped.objective <= full.objective * (1 + 1e-9)
        assert stopped.bound is not None and stopped.bound >= full.objective * (1 - 1e-9)
