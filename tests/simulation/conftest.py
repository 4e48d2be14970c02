"""Traces for tests of the simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from optsched.traces import Trace


def trace_of(jobs: list[dict[str, Any]], pools: dict[str, int] | None = None, **more: Any) -> Trace:
    """Jobs on pools of single-GPU nodes, rounds of 100 s; ``more`` are further keys of instance or trace."""
    outer = {name: more.pop(name) for name in ("regimes", "node_events") if name in more}
    cluster = {
        "pools": [
            {"name": name, "nodes": gpus, "gpus_per_node": 1}
            for name, gpus in (pools or {"p": 1}).items()
        ]
    }
    instance = {
        "format": "optsched-instance/1",
        "round": 100.0,
        "cluster": cluster,
        "jobs": jobs,
    } | more
    return Trace.from_document(
        {"format": "optsched-trace/1", "instance": instance} | outer if outer else instance
    )


@pytest.fixture
def make() -> Callable[..., Trace]:
    """`trace_of`."""
    return trace_of
