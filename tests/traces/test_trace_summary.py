"""What `describe` says of a trace: by hand on small ones, against a loop on drawn ones, fast on large ones."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Instance
from optsched.traces import Trace, TraceSummary, describe

CLUSTER = {
    "pools": [
        {"name": "fast", "nodes": 1, "gpus_per_node": 4},
        {"name": "slow", "nodes": 3, "gpus_per_node": 4},
    ]
}
HOUR = 3600.0


def trace(jobs: list[dict[str, Any]], **more: Any) -> Trace:
    instance = {"format": "optsched-instance/1", "name": "t", "cluster": CLUSTER, "jobs": jobs}
    instance |= {key: more.pop(key) for key in ("workloads", "tenants") if key in more}
    return Trace.from_document({"format": "optsched-trace/1", "instance": instance, **more})


def summary(jobs: list[dict[str, Any]], **more: Any) -> TraceSummary:
    return describe(trace(jobs, **more))


def test_demand_of_a_gang() -> None:
    job = {"id": "a", "gpus": 2, "steps": 7200, "throughput": {"fast": 2.0, "slow": 1.0}}
    found = summary([job, {**job, "id": "b", "arrival": HOUR}])
    assert found.demand.seconds == pytest.approx([HOUR, HOUR])
    assert found.demand.least == pytest.approx([2.0, 2.0])
    assert found.demand.mean == pytest.approx([2 * 7200 / (0.25 * 2.0 + 0.75 * 1.0) / HOUR] * 2)
    assert (found.gpus, found.span, found.per_hour) == (16, HOUR, 1.0)
    assert found.load == pytest.approx(4.0 / 16)
    assert [(pool.name, pool.runnable, pool.only) for pool in found.pools] == [
        ("fast", 2, 0),
        ("slow", 2, 0),
    ]
    assert [pool.load for pool in found.pools] == pytest.approx([4.0 / 4, 0.0])


def test_pools_that_are_equally_good_share_a_job_by_their_gpus() -> None:
    job = {"id": "a", "gpus": 4, "steps": HOUR, "throughput": {"fast": 1.0, "slow": 1.0}}
    found = summary([job, {**job, "id": "b", "arrival": HOUR, "throughput": {"slow": 1.0}}])
    assert [pool.gpu_hours for pool in found.pools] == pytest.approx([1.0, 7.0])
    assert [(pool.runnable, pool.only) for pool in found.pools] == [(1, 0), (2, 1)]


def test_elastic_jobs_need_fewest_gpu_hours_elsewhere_than_where_they_are_fastest() -> None:
    rates = {"fast": {"1": 1.0, "4": 2.0}}
    found = summary([{"id": "a", "gpus": {"min": 1, "max": 4}, "steps": 7200, "throughput": rates}])
    assert found.demand.seconds == pytest.approx([HOUR])
    assert found.demand.least == pytest.approx([2.0])
    assert [part.name for part in found.gangs] == ["1-4"]
    assert (found.span, found.per_hour, found.load) == (0.0, None, None)


def test_shares_of_a_gpu_and_options() -> None:
    options = [{"pool": "fast", "gpus": 1, "share": 0.25, "throughput": 1.0}]
    found = summary([{"id": "a", "steps": HOUR, "options": options}])
    assert found.demand.least == pytest.approx([0.25])
    assert [(part.name, part.gpu_hours) for part in found.gangs] == [("0.25", pytest.approx(0.25))]


def test_steps_that_are_done_do_not_count() -> None:
    job = {"id": "a", "steps": 100, "steps_done": 40, "throughput": {"fast": 1.0}}
    found = summary([job, {**job, "id": "b", "steps_done": 100}])
    assert found.demand.seconds == pytest.approx([60.0, 0.0])
    assert found.demand.runs.all()


def test_regimes_are_parts_at_their_own_rates() -> None:
    workloads = {
        "one": {"throughput": {"fast": 1.0}},
        "four": {"throughput": {"fast": 4.0, "slow": 2.0}},
    }
    jobs = [
        {"id": "a", "workload": "one", "steps": 100},
        {"id": "b", "workload": "one", "steps": 100, "steps_done": 50, "arrival": 10},
    ]
    turns = [{"after": 20, "workload": "four"}, {"after": 60, "workload": "one"}]
    found = summary(jobs, workloads=workloads, regimes={"a": turns, "b": turns})
    assert found.demand.seconds == pytest.approx([20 + 40 / 4 + 40, 10 / 4 + 40])
    assert found.demand.mean[0] == pytest.approx((20 + 40 / (0.25 * 4 + 0.75 * 2) + 40) / HOUR)
    assert (found.regime_jobs, found.regime_changes) == (2, 4)


def test_a_regime_that_can_run_nowhere_stops_the_job() -> None:
    workloads = {"one": {"throughput": {"fast": 1.0}}, "never": {"throughput": {"fast": 0.0}}}
    jobs = [{"id": "a", "workload": "one", "steps": 100}]
    found = summary(jobs, workloads=workloads, regimes={"a": [{"after": 20, "workload": "never"}]})
    assert not found.demand.runs[0] and np.isnan(found.demand.least[0])
    assert [(item.jobs, item.first) for item in found.nowhere] == [(1, "a")]
    assert "rate 0 on 1 GPU" in found.nowhere[0].reason


def test_jobs_that_can_run_nowhere_by_reason() -> None:
    wide = {"gpus": 64, "steps": 10, "throughput": {"slow": 1.0}}
    jobs = [{"id": f"w{k}", **wide} for k in range(3)]
    jobs += [
        {"id": "zero", "steps": 10, "throughput": {"slow": 0.0}},
        {"id": "fine", "throughput": {"slow": 1.0}},
    ]
    found = summary(jobs)
    assert [(item.jobs, item.first) for item in found.nowhere] == [(3, "w0"), (1, "zero")]
    assert "needs 64 GPUs" in found.nowhere[0].reason
    assert found.durations["max"] == 1.0


def test_deadlines() -> None:
    job = {"steps": 100, "throughput": {"fast": 1.0}, "arrival": 1000}
    found = summary(
        [
            {"id": "a", **job, "deadline": 1150},
            {"id": "b", **job, "deadline": 1050, "deadline_kind": "soft"},
            {"id": "c", **job},
        ]
    ).deadlines
    assert (found.jobs, found.soft, found.hopeless) == (2, 1, 1)
    assert (found.tightness["min"], found.tightness["p50"]) == (0.5, 1.0)


def test_workloads_tenants_and_node_events() -> None:
    workloads = {"x": {"throughput": {"fast": 1.0}}, "y": {"throughput": {"fast": 1.0}}}
    jobs = [
        {"id": f"j{k}", "workload": "y" if k else "x", "tenant": "t1" if k == 2 else None}
        for k in range(3)
    ]
    events = [
        {"at": 1, "node": "fast-0", "state": "down"},
        {"at": 2, "node": "fast-0", "state": "up"},
    ]
    found = summary(
        jobs, workloads=workloads, tenants=[{"name": "t0"}, {"name": "t1"}], node_events=events
    )
    assert [(part.name, part.jobs) for part in found.workloads] == [("y", 2), ("x", 1)]
    assert [(part.name, part.jobs) for part in found.tenants] == [("(none)", 2), ("t1", 1)]
    assert found.node_events == {"up": 1, "drain": 0, "down": 1, "nodes": 1}


def test_the_document_is_strict_json() -> None:
    document = summary([]).document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert (document["format"], document["jobs"], document["first"]) == (
        "optsched-trace-summary/1",
        0,
        None,
    )
    jobs = [{"id": "a", "gpus": 64, "throughput": {"fast": 1.0}}]
    assert json.dumps(summary(jobs).document(), allow_nan=False)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(0, 10**6))
def test_demand_is_that_of_a_loop(count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    W, T = random.integers(1, 9, 3), random.integers(0, 4, (count, 3)).astype(float)
    gang, steps = random.integers(1, 9, count), random.integers(1, 9999, count).astype(float)
    pools = {f"p{k}": int(size) for k, size in enumerate(W)}
    found = describe(
        Trace(Instance.from_arrays(pools=pools, throughput=T, gpus=gang, steps=steps))
    ).demand
    for i in range(count):
        rates = [T[i, p] if gang[i] <= W[p] else 0.0 for p in range(3)]
        assert found.runs[i] == (max(rates) > 0)
        if max(rates) > 0:
            assert found.seconds[i] == pytest.approx(steps[i] / max(rates))
            assert found.least[i] == pytest.approx(gang[i] * steps[i] / max(rates) / HOUR)
            assert found.mean[i] == pytest.approx(
                gang[i] * steps[i] / (rates @ W / W[np.array(rates) > 0].sum()) / HOUR
            )
    assert found.wanted.sum() == pytest.approx(np.nansum(found.least))
    assert sum(item.jobs for item in found.nowhere) == np.count_nonzero(~found.runs)


def test_two_hundred_thousand_jobs() -> None:
    random, count = np.random.default_rng(0), 200_000
    instance = Instance.from_arrays(
        pools={"a": 64, "b": 64},
        throughput=random.integers(1, 9, (count, 2)),
        gpus=random.choice([1, 2, 4, 8], count),
        steps=random.lognormal(8, 2, count),
        arrival=np.sort(random.uniform(0, 1e7, count)),
    )
    found = describe(Trace(instance))
    assert found.jobs == count
