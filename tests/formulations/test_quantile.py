"""Hard deadlines at a quantile of uncertain throughputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from documents import instance_document
from refusals import refuses

import optsched
from optsched.errors import UsageError
from optsched.instance import Instance
from optsched.verify import verify

SD = 0.3
JOBS = 40


def instance_of(**more: Any) -> Instance:
    """Jobs of distinct workloads with deadlines; a model says that their rates are wrong by 30 %."""
    rng = np.random.default_rng(7)
    rate = rng.uniform(1.0, 4.0, (JOBS, 2))
    return Instance.from_document(
        instance_document(
            [{"name": pool, "nodes": 10, "gpus_per_node": 4} for pool in ("fast", "slow")],
            [
                {
                    "id": f"j{row}",
                    "workload": f"w{row}",
                    "steps": float(rng.uniform(500, 1500)),
                    "deadline": 3600,
                }
                for row in range(JOBS)
            ],
            round=360,
            performance={"model": "noisy", "of": {"model": "table"}, "sd": SD, "seed": 3},
            workloads={
                f"w{row}": {"throughput": {"fast": float(2 * a), "slow": float(b)}}
                for row, (a, b) in enumerate(rate)
            },
        )
        | more
    )


def met(solution: Any, error: np.ndarray) -> np.ndarray:
    """Share of the draws in which each job has its steps by the deadline, where its rates err by exp(error)."""
    table = solution.candidates.instance.jobs_table
    got = np.array([solution.throughput[name] for name in table.names])
    return np.mean(
        got[:, None] * np.exp(error) * 3600 >= table.steps_left[:, None] * (1 - 1e-9), axis=1
    )


@pytest.mark.parametrize("quantile", [0.9, 0.99])
def test_deadlines_are_kept_at_the_confidence_that_is_asked_for(quantile: float) -> None:
    """The cheapest allocation gives every job just what its deadline needs, so every row is as tight as it can be."""
    error = np.random.default_rng(0).normal(0.0, SD, (JOBS, 20_000))  # of a job's rates together
    plain = optsched.solve(instance_of(), "max-throughput", constraints=["deadlines"])
    tight = optsched.solve(cheap(), "cost", constraints=["deadlines"])
    sure = optsched.solve(cheap(), "cost", constraints=["deadlines"], quantile=quantile)
    assert plain.status == tight.status == sure.status == "optimal"
    assert met(tight, error).mean() == pytest.approx(0.5, abs=0.02)
    assert met(sure, error) == pytest.approx(np.full(JOBS, quantile), abs=0.012)
    assert sure.objective > tight.objective


def cheap() -> Instance:
    pools = [{"name": pool, "nodes": 10, "gpus_per_node": 4, "cost_per_gpu_hour": cost}
             for pool, cost in (("fast", 2.0), ("slow", 1.5))]  # fmt: skip
    return instance_of(cluster={"pools": pools})


def test_errors_that_do_not_go_together_miss_no_more_deadlines() -> None:
    """A job in several columns whose rates err independently: what one loses another may win."""
    instance = cheap()
    sure = optsched.solve(
        instance, "cost", constraints=["deadlines", {"kind": "budget", "limit": 38.0}], quantile=0.9
    )
    assert sure.status == "optimal"
    rng = np.random.default_rng(1)
    C, x = sure.allocation.classes, sure.allocation.x
    received = np.zeros((JOBS, 20_000))
    for column in np.flatnonzero(x > 0):
        drawn = np.exp(rng.normal(0.0, SD, 20_000))
        received[C.first[C.class_a[column]]] += x[column] * C.rate_a[column] * drawn * 3600
    share = np.mean(received >= instance.jobs_table.steps_left[:, None] * (1 - 1e-9), axis=1)
    assert share.min() > 0.9 - 0.012


def test_the_quantile_is_written_and_verified(tmp_path: Any) -> None:
    instance, path = cheap(), tmp_path / "s.json"
    sure = optsched.solve(instance, "cost", constraints=["deadlines"], quantile=0.9)
    assert sure.options["quantile"] == 0.9
    optsched.write_solution(sure, path)
    assert verify(instance, path).ok
    text = path.read_text()
    assert '"quantile": 0.9' in text
    path.write_text(text.replace('"quantile": 0.9', '"quantile": 0.95'))
    assert not verify(instance, path).ok
    plain = optsched.solve(instance, "cost", constraints=["deadlines"])
    assert "quantile" not in plain.options


def test_what_has_no_hard_deadlines_takes_no_quantile() -> None:
    with refuses("quantile: found 0.9, expected nothing...", UsageError):
        optsched.solve(instance_of(), "max-min-fairness", quantile=0.9)
    for wrong in (0.4, 1.0, float("nan"), "x"):
        with refuses("quantile", UsageError):
            optsched.solve(instance_of(), "cost", constraints=["deadlines"], quantile=wrong)
    with refuses("quantile: found 1..., expected a number below 1", UsageError):
        optsched.solve(instance_of(), "cost", constraints=["deadlines"], quantile=1)


def test_what_cannot_be_kept_so_surely_is_infeasible_in_words() -> None:
    instance = instance_of(
        jobs=[{"id": "a", "workload": "w0", "steps": 10.0, "deadline": 10}],
        workloads={"w0": {"throughput": {"fast": 1.2}}},
        performance={"model": "noisy", "of": {"model": "table"}, "sd": SD, "seed": 0},
    )
    rate = optsched.compile(instance).columns.rate[0]
    steps = 10 * rate * 0.8  # can be done at the median, but not at 90 %
    jobs = [{"id": "a", "workload": "w0", "steps": float(steps), "deadline": 10}]
    instance = instance_of(
        jobs=jobs,
        workloads={"w0": {"throughput": {"fast": 1.2}}},
        performance=dict(instance.performance),
    )
    assert optsched.solve(instance, constraints=["deadlines"]).status == "optimal"
    refused = optsched.solve(instance, constraints=["deadlines"], quantile=0.9)
    assert refused.status == "infeasible"
    assert any("to be 90 % sure" in conflict.words for conflict in refused.conflicts)


def test_leases_are_long_enough() -> None:
    instance = instance_of(round=60)
    plain, sure = (
        optsched.solve(instance, "lease", **options) for options in ({}, {"quantile": 0.9})
    )
    assert plain.status == sure.status == "optimal"

    def leases(solution: Any) -> np.ndarray:
        span = np.zeros(JOBS)
        for row in solution.to_document()["schedule"]:
            span[int(row["job"][1:])] += row["end"] - row["start"]
        return span

    C = sure.schedule.classes
    need = np.full(JOBS, np.inf)
    np.minimum.at(need, C.first[C.class_a], C.duration / np.exp(-1.2815515655446004 * SD))
    assert (leases(sure) >= need - 1e-6).all()
    assert leases(plain).sum() < leases(sure).sum()


def test_stated_durations_and_tables_are_certain() -> None:
    instance = instance_of(performance={"model": "table"})
    plain = optsched.solve(instance, constraints=["deadlines"])
    assert (
        optsched.solve(instance, constraints=["deadlines"], quantile=0.99).objective
        == plain.objective
    )
