"""Metrics of simulations against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optsched.simulation import read_simulation, simulate, simulation_bytes

# Private names: single rules and figures, without a whole simulation
from optsched.simulation.fairness import isolated_rates, mean_present
from optsched.traces import Trace

Make = Callable[..., Trace]


def job(name: str, steps: float, **more: object) -> dict[str, object]:
    return {"id": name, "steps": steps, "throughput": {"p": 1.0}, **more}


def test_who_was_there_with_a_job(make: Make) -> None:
    """a from 0 to 100 s, b from 50 s to 150 s on another GPU: each is alone for half of its time."""
    result = simulate(
        make([job("a", 100.0), job("b", 100.0, arrival=50.0)], {"p": 2}), replan="events"
    )
    assert result.jobs.finish.tolist() == [100.0, 150.0]
    assert mean_present(np.array([0.0, 50.0]), result.jobs.finish).tolist() == [1.5, 1.5]


def test_finish_time_ratios_by_every_definition(make: Make) -> None:
    """Two jobs of 100 s on one GPU, one after the other: 100 s and 200 s, two there, then one."""
    result = simulate(make([job("a", 100.0), job("b", 100.0)]), "fifo")
    assert mean_present(np.zeros(2), result.jobs.finish).tolist() == [2.0, 1.5]
    assert result.finish_time_ratios("isolated") == pytest.approx([100.0 / 200.0, 200.0 / 150.0])
    assert result.finish_time_ratios("contention") == pytest.approx([100.0 / 200.0, 200.0 / 150.0])
    assert result.finish_time_ratios("static") == pytest.approx([100.0 / 200.0, 200.0 / 200.0])
    metrics = result.metrics(rho="isolated", unfair=1.2)
    assert metrics["worst_rho"] == pytest.approx(4.0 / 3.0)
    assert metrics["unfair_fraction"] == 0.5
    assert result.metrics(rho="static", unfair=1.05)["unfair_fraction"] == 0.0


@pytest.mark.parametrize("mode", ["rounds", "fluid", "gavel"])
def test_finish_time_ratios_are_of_the_rates_at_which_jobs_ran(
    make: Make, mode: str, tmp_path: Path
) -> None:
    """Wherever the rates come from: the instance, what the scheduler believes, or another truth."""

    def model(rate: float) -> dict[str, Any]:
        return {"model": "oracle", "throughput": {"w": {"p": {"1": rate}}}}

    def trace(rate: float | None) -> Trace:
        stated = {} if rate is None else {"throughput": {"p": {"1": rate}}}
        jobs = [{"id": name, "steps": 800.0, "gpus": 1, "workload": "w"} for name in "ab"]
        return make(jobs, workloads={"w": stated})

    stated = simulate(trace(1.0), mode=mode)
    assert stated.metrics()["mean_rho"] > 0
    bare = trace(None)
    for given in ({"performance": model(1.0)}, {"performance": model(1.0), "truth": model(1.0)},
                  {"performance": model(2.0), "truth": model(1.0)}):  # fmt: skip
        result = simulate(bare, mode=mode, **given)
        for definition in ("isolated", "contention", "static"):
            expected = stated.finish_time_ratios(definition)
            assert result.finish_time_ratios(definition) == pytest.approx(expected)
        path = tmp_path / "simulation.npz"
        path.write_bytes(simulation_bytes(result))
        assert read_simulation(path).metrics()["mean_rho"] == result.metrics()["mean_rho"]


@pytest.mark.parametrize("mode", ["rounds", "fluid", "gavel"])
def test_jobs_without_steps_change_nothing_of_others(make: Make, mode: str) -> None:
    """Not even alone: they are of no kind of jobs that can run."""
    gang = {"gpus": 2, "throughput": {"p": {"2": 1.0}}}
    done = {**job("z", 0.0), "gpus": 1}
    alone = simulate(make([{**job("a", 100.0), **gang}], {"p": 2}), "fifo", mode=mode)
    beside = simulate(make([{**job("a", 100.0), **gang}, done], {"p": 2}), "fifo", mode=mode)
    assert beside.jobs.finish[0] == alone.jobs.finish[0]
    if mode != "gavel":  # there they are jobs that cannot run, and stay
        assert beside.finish_time_ratios()[0] == pytest.approx(alone.finish_time_ratios()[0])
    assert len(simulate(make([done], {"p": 2}), "fifo", mode=mode).jobs.finish) == 1


def test_isolated_rates_are_gavels_slices() -> None:
    """4 + 2 GPUs, 3 jobs: a third of each pool, whole jobs at most; a gang of 2 has half as many slices."""
    rate, gpus = np.array([[2.0, 1.0], [4.0, 0.0]]), np.array([4, 2])
    found = isolated_rates(rate, np.array([1, 2]), gpus, np.array([3.0, 3.0]))
    assert found == pytest.approx([(4 / 3 * 2.0 + 2 / 3 * 1.0) / 2.0, 4.0 * (4 / 6)])


def test_regimes_count_in_ratios(make: Make) -> None:
    trace = make(
        [{"id": "a", "workload": "slow", "steps": 200.0}],
        workloads={"slow": {"throughput": {"p": 1.0}}, "fast": {"throughput": {"p": 4.0}}},
        regimes={"a": [{"after": 100.0, "workload": "fast"}]},
    )
    assert simulate(trace).finish_time_ratios("static") == pytest.approx([1.0])


def test_deadlines_cost_and_energy(make: Make) -> None:
    cluster = {"pools": [{"name": "p", "nodes": 2, "gpus_per_node": 1, "cost_per_gpu_hour": 3.6, "watts_per_gpu": 300.0,
                          "watts_idle": 50.0}]}  # fmt: skip
    jobs = [
        job("a", 100.0, deadline=100.0),
        job("b", 300.0, deadline=299.0),
        job("c", 100.0, arrival=0.0),
    ]
    result = simulate(make(jobs, cluster=cluster), "fifo")
    assert result.jobs.finish.tolist() == [100.0, 300.0, 200.0]
    metrics = result.metrics()
    assert metrics["deadlines_met"] == 0.5
    assert metrics["cost"] == pytest.approx(500.0 / 3600.0 * 3.6)
    assert metrics["energy"] == pytest.approx((500.0 * 300.0 + 100.0 * 50.0) / 3.6e6)
    assert metrics["mean_queue"] == pytest.approx(100.0 / 300.0)


def test_what_cannot_be_said_is_none(make: Make) -> None:
    result = simulate(make([], {"p": 1}))
    metrics = result.metrics()
    assert metrics["jobs"] == metrics["completed"] == 0
    assert all(
        metrics[name] is None
        for name in ("mean_jct", "makespan", "worst_rho", "deadlines_met", "utilisation")
    )
    plain = simulate(make([job("a", 10.0)])).metrics()
    assert plain["cost"] is None and plain["energy"] is None


def test_fragmentation_is_what_is_free_on_nodes_in_use(make: Make) -> None:
    """One GPU of a node with four is in use; another node is empty: 3 of 7 free GPUs."""
    cluster = {"pools": [{"name": "p", "nodes": 2, "gpus_per_node": 4}]}
    assert simulate(make([job("a", 100.0)], cluster=cluster)).metrics()[
        "fragmentation"
    ] == pytest.approx(3 / 7)
