"""Simulations as files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from refusals import refuses

from optsched.errors import InvalidInput
from optsched.simulation import read_simulation, simulate, simulation_bytes

# Private names: single rules and figures, without a whole simulation
from optsched.traces import Trace

Make = Callable[..., Trace]
JOBS = [
    {"id": "a", "workload": "slow", "steps": 300.0},
    {"id": "b", "workload": "slow", "steps": 200.0, "arrival": 30.0, "deadline": 900.0},
]


def eventful(make: Make) -> Trace:
    return make(
        JOBS, {"p": 2},
        workloads={"slow": {"throughput": {"p": 1.0}}, "fast": {"throughput": {"p": 2.0}}},
        regimes={"a": [{"after": 100.0, "workload": "fast"}]},
        node_events=[{"at": 120.0, "node": "p-1", "state": "down"}, {"at": 300.0, "node": "p-1", "state": "up"}],
    )  # fmt: skip


def test_a_simulation_is_its_file(make: Make, tmp_path: Path) -> None:
    simulation = simulate(eventful(make), "fifo", seed=3)
    path = tmp_path / "run.npz"
    path.write_bytes(simulation_bytes(simulation))
    again = read_simulation(path)
    assert again.trace.to_document() == simulation.trace.to_document()
    assert again.trace.sha256 == simulation.trace.sha256
    assert (again.policy, again.options, again.notices) == ("fifo", {"seed": 3}, simulation.notices)
    for name in ("jobs", "rounds", "segments"):
        one, other = getattr(simulation, name), getattr(again, name)
        assert all(
            np.array_equal(getattr(one, field.name), getattr(other, field.name), equal_nan=True)
            for field in fields(one)
        )
    assert again.metrics() == simulation.metrics()
    assert simulation_bytes(again) == simulation_bytes(simulation)


@pytest.mark.parametrize(
    "damage", [lambda data: data[:200], lambda data: b"no zip", lambda data: b""]
)
def test_damage_is_told_in_one_sentence(
    make: Make, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "run.npz"
    path.write_bytes(damage(simulation_bytes(simulate(eventful(make)))))
    with refuses("run.npz: found no simulation (..., expected an npz file..."):
        read_simulation(path)


def test_another_archive_is_none(make: Make, tmp_path: Path) -> None:
    from optsched.instance import instance_bytes

    path = tmp_path / "instance.npz"
    path.write_bytes(instance_bytes(eventful(make).instance, "npz"))
    with pytest.raises(InvalidInput) as error:
        read_simulation(path)
    assert error.value.file == str(path)
