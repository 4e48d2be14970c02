"""The shipped instances: same bytes as the generator's, valid, and of the character that their README states."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Collection
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import lil_array

# Private names: the draws and steps that generators are made of
from optsched.generate.__main__ import main
from optsched.generate.instances import INSTANCES, large
from optsched.generate.profiles import best_rate
from optsched.instance import read_instance, topology_graph

SHIPPED = Path(__file__).parents[2] / "instances"
NAMES = list(INSTANCES)
README = (SHIPPED / "README.md").read_text()


def shipped(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((SHIPPED / f"{name}.json").read_bytes())
    return document


RATED = ["quickstart", "infeasible", "packing", "large", "topology"]
"""Those whose jobs have workloads with rates."""


def node_sizes(pool: dict[str, Any]) -> list[int]:
    """GPUs of the nodes that can take work."""
    if isinstance(pool["nodes"], int):
        return [pool["gpus_per_node"]] * pool["nodes"]
    return [node["gpus"] for node in pool["nodes"] if node.get("state", "up") == "up"]


def gpus_of(document: dict[str, Any]) -> dict[str, int]:
    return {pool["name"]: sum(node_sizes(pool)) for pool in document["cluster"]["pools"]}


def most_fair(
    document: dict[str, Any], leave_out: Collection[str] = (), pairs: bool = False
) -> tuple[float, float]:
    """Max-min fairness (deadlines kept when the document asks) by an LP of its own: (level or NaN, trivial bound).

    A column is a job, or two that share a GPU, in one pool at its best spread; x is its fraction of time.
    """
    capacity = gpus_of(document)
    jobs = [job for job in document["jobs"] if job["id"] not in leave_out]
    gangs = [job.get("gpus", 1) for job in jobs]
    profiles = [document["workloads"][job["workload"]]["throughput"] for job in jobs]
    alone = [
        {
            pool: best_rate({pool: profile[pool]}, gang)
            for pool in profile
            if str(gang) in profile[pool]
        }
        for profile, gang in zip(profiles, gangs, strict=True)
    ]
    columns = [
        ({i: rates[pool]}, pool, gangs[i]) for i, rates in enumerate(alone) for pool in rates
    ]
    if pairs:
        shared = {}
        for entry in document["colocation"]:
            first, second = entry.get("workloads") or entry["jobs"]
            shared[entry["pool"], first, second] = entry["throughput"]
            shared[entry["pool"], second, first] = entry["throughput"][::-1]
        for a, b in combinations(range(len(jobs)), 2):
            for pool in capacity:
                by_job = shared.get((pool, jobs[a]["id"], jobs[b]["id"]))
                both = by_job or shared.get((pool, jobs[a]["workload"], jobs[b]["workload"]))
                if both:
                    columns.append(({a: both[0], b: both[1]}, pool, 1))
    total = sum(capacity.values())
    scale = [
        gang / job.get("weight", 1) / sum(rates[pool] * capacity[pool] / total for pool in rates)
        for job, gang, rates in zip(jobs, gangs, alone, strict=True)
    ]
    n, pools = len(jobs), list(capacity)
    matrix = lil_array((3 * n + len(pools), len(columns) + 1))
    right = np.concatenate((np.ones(n), np.zeros(2 * n), list(capacity.values())))
    for column, (members, pool, gang) in enumerate(columns):
        for i, speed in members.items():
            matrix[i, column], matrix[n + i, column] = 1, -scale[i] * speed
            matrix[2 * n + i, column] = -speed
        matrix[3 * n + pools.index(pool), column] = gang
    for i, job in enumerate(jobs):
        matrix[n + i, len(columns)] = 1
        if document.get("constraints") and "deadline" in job:
            right[2 * n + i] = -job["steps"] / (job["deadline"] - document["now"])
    result = linprog([0] * len(columns) + [-1], A_ub=matrix.tocsr(), b_ub=right)
    bound = min(factor * max(rates.values()) for factor, rates in zip(scale, alone, strict=True))
    return (np.nan if result.x is None else float(result.x[-1])), bound


def test_shipped_files_are_what_the_generator_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(tmp_path)])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"{name}.json" for name in NAMES
    )
    assert capsys.readouterr().out.split() == [str(tmp_path / f"{name}.json") for name in NAMES]
    for name in NAMES:
        assert (tmp_path / f"{name}.json").read_bytes() == (
            SHIPPED / f"{name}.json"
        ).read_bytes(), name


def test_no_shipped_file_is_without_a_generator() -> None:
    assert sorted(path.stem for path in SHIPPED.glob("*.json")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_seed_decides_the_content(name: str) -> None:
    make: Any = INSTANCES[name]
    seed = inspect.signature(make).parameters["seed"].default
    assert make(seed) == make()
    assert make(seed + 100) != make()


@pytest.mark.parametrize("name", NAMES)
def test_instance_reads_back(name: str) -> None:
    document = shipped(name)
    instance = read_instance(SHIPPED / f"{name}.json")
    assert instance.name == name
    assert [job.id for job in instance.jobs] == [job["id"] for job in document["jobs"]]
    assert [pool.capacity(instance.now) for pool in instance.cluster.pools] == list(
        gpus_of(document).values()
    )
    assert len(instance.colocation) == len(document.get("colocation", ()))
    assert (instance.jobs_table.arrival <= instance.now).all()


@pytest.mark.parametrize("name", RATED)
def test_every_gang_has_a_rate_and_every_rate_a_place(name: str) -> None:
    document = shipped(name)
    pools = {pool["name"]: pool for pool in document["cluster"]["pools"]}
    for job in document["jobs"]:
        assert (
            best_rate(document["workloads"][job["workload"]]["throughput"], job.get("gpus", 1)) > 0
        ), job["id"]
    for workload in document["workloads"].values():
        for name_of_pool, by_count in workload["throughput"].items():
            pool = pools[name_of_pool]
            assert workload["gpu_memory"] <= pool["gpu_memory"]
            for count, entry in by_count.items():
                by_nodes = entry if isinstance(entry, dict) else {"1": entry}
                for nodes, speed in by_nodes.items():
                    assert 0 < speed <= int(count) * by_count["1"] * 1.001
                    assert int(nodes) <= min(len(node_sizes(pool)), int(count))
                    assert int(count) <= int(nodes) * max(node_sizes(pool))
                assert list(by_nodes.values()) == sorted(
                    by_nodes.values(), reverse=True
                )  # wider is never faster


def test_quickstart_is_bound_by_capacity_and_its_deadlines_can_be_met() -> None:
    document = shipped("quickstart")
    assert len(document["jobs"]) == 12
    assert {job["gpus"] for job in document["jobs"]} == {1, 2, 4}
    assert {job["tenant"] for job in document["jobs"]} == {"vision", "language"}
    assert sum("deadline" in job for job in document["jobs"]) == 2
    level, bound = most_fair(document)
    assert level < 0.95 * bound
    met, _ = most_fair(document | {"constraints": [{"kind": "deadlines"}]})
    assert 0.8 * level < met < 0.999 * level  # the deadlines can be met, and they cost something


def test_infeasible_has_one_conflict_of_three_jobs() -> None:
    document = shipped("infeasible")
    assert document["constraints"] == [{"kind": "deadlines"}]
    ids = [job["id"] for job in document["jobs"]]
    conflict = [job["id"] for job in document["jobs"] if job["workload"].startswith("GPT-2-XL")]
    assert len(ids) == 7 and len(conflict) == 3
    assert np.isnan(most_fair(document)[0])
    assert np.isnan(most_fair(document, leave_out=set(ids) - set(conflict))[0])
    for job in ids:
        assert most_fair(document, leave_out=set(ids) - {job})[0] > 0, job
    for job in conflict:
        assert most_fair(document, leave_out={job})[0] > 0, job


def test_packing_gains_by_sharing_gpus() -> None:
    document = shipped("packing")
    assert len(document["jobs"]) == 24
    assert all(job.get("gpus", 1) == 1 for job in document["jobs"])
    assert sum("jobs" in entry for entry in document["colocation"]) == 2
    alone, _ = most_fair(document)
    shared, bound = most_fair(document, pairs=True)
    assert 1.1 * alone < shared < bound
    workload = {job["id"]: job["workload"] for job in document["jobs"]}
    gains = set()
    for entry in document["colocation"]:
        names = entry.get("workloads") or [workload[job] for job in entry["jobs"]]
        rates = [document["workloads"][name]["throughput"][entry["pool"]]["1"] for name in names]
        shares = [both / one for both, one in zip(entry["throughput"], rates, strict=True)]
        assert all(0 < share < 1 for share in shares), entry
        gains.add(sum(shares) > 1)
    assert gains == {True, False}  # some pairs should share and some should not


def test_large_is_what_its_docstring_says() -> None:
    document = shipped("large")
    jobs = document["jobs"]
    assert (SHIPPED / "large.json").stat().st_size < 600_000
    assert (SHIPPED / "large.json").read_text().count("\n") >= len(jobs) == 2000
    assert len({job["steps"] for job in jobs}) == len(jobs)
    for key, values, shares in (
        ("gpus", (1, 2, 4, 8), (0.7, 0.1, 0.15, 0.05)),
        ("weight", (1, 2, 4), (0.8, 0.15, 0.05)),
    ):
        counts = [sum(job[key] == value for job in jobs) for value in values]
        assert np.allclose(np.array(counts) / len(jobs), shares, atol=0.03)
    wanted = sum(job["gpus"] for job in jobs)
    assert sum(gpus_of(document).values()) == pytest.approx(wanted / 6, rel=0.05)
    hours = [
        job["steps"]
        / 3600
        / best_rate(document["workloads"][job["workload"]]["throughput"], job["gpus"])
        for job in jobs
    ]
    assert np.median(hours) == pytest.approx(4, rel=0.1)
    assert np.mean(hours) > 1.5 * np.median(hours)
    assert max(hours) < 48.1


def test_large_is_bound_by_capacity() -> None:
    level, bound = most_fair(shipped("large"))
    assert level < 0.9 * bound


def test_large_keeps_steps_apart_where_draws_meet() -> None:
    jobs = large(jobs=20_000)["jobs"]
    assert len({job["steps"] for job in jobs}) == len(jobs)


# --- the instances of other problems -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["topology", "unrelated", "leases", "knapsack"])
def test_small_files(name: str) -> None:
    assert (SHIPPED / f"{name}.json").stat().st_size < 20_000


def test_topology_has_three_racks_and_a_drained_node() -> None:
    instance = read_instance(SHIPPED / "topology.json")
    graph = topology_graph(instance.cluster)
    racks = [set(graph.neighbors(f"leaf/rack-{row}")) for row in range(3)]
    assert all(len(rack - {"spine-0", "spine-1"}) == 4 for rack in racks)
    assert {pool.name: sorted(pool.node_gpus.tolist()) for pool in instance.cluster.pools} == {
        "a100": [4, 4, 8, 8, 8], "v100": [2, 2, 2, 4, 4, 4, 4]
    }  # fmt: skip
    assert [int((pool.node_state != 0).sum()) for pool in instance.cluster.pools] == [1, 0]
    gangs = instance.jobs_table.gpus_min
    assert len(gangs) == 12 and gangs.min() == 2 and gangs.max() == 8
    assert (gangs.sum(), instance.cluster.gpus(0).sum()) == (50, 46)


def durations(document: dict[str, Any]) -> np.ndarray:
    return np.array([[option["duration"] for option in job["options"]] for job in document["jobs"]])


def test_unrelated_has_the_optimum_that_the_readme_tells() -> None:
    p = durations(shipped("unrelated"))
    assert p.shape == (15, 3)
    n, m = p.shape
    once = np.hstack([np.kron(np.eye(n), np.ones(m)), np.zeros((n, 1))])
    load = np.hstack([np.tile(np.eye(m), n) * p.ravel(), -np.ones((m, 1))])
    cost = np.append(np.zeros(n * m), 1.0)
    rows = [LinearConstraint(once, 1, 1), LinearConstraint(load, ub=0)]
    whole = milp(cost, constraints=rows, integrality=np.append(np.ones(n * m), 0))
    assert round(whole.fun) == told("unrelated", r"shortest makespan is (\d+) s")
    split = milp(cost, constraints=rows)
    assert split.fun <= whole.fun < split.fun + p.max()


def test_knapsack_has_the_optimum_that_the_readme_tells() -> None:
    document = shipped("knapsack")
    options = [
        (row, option) for row, job in enumerate(document["jobs"]) for option in job["options"]
    ]
    assert len(document["jobs"]) == 24 and len(options) == 72
    value = np.array([option["value"] for _, option in options])
    once = np.array([[float(owner == row) for owner, _ in options] for row in range(24)])
    names = [resource["name"] for resource in document["cluster"]["resources"]]
    use = np.array([[option["uses"].get(name, 0.0) for _, option in options] for name in names])
    capacity = [resource["capacity"] for resource in document["cluster"]["resources"]]
    rows = [LinearConstraint(once, ub=1), LinearConstraint(use, ub=capacity)]
    best = milp(
        -value, constraints=rows, integrality=np.ones(len(value)), options={"mip_rel_gap": 0}
    )
    relaxed = milp(-value, constraints=rows, bounds=(0, 1))
    assert round(-best.fun) == told("knapsack", r"best value is ([\d,]+)")
    assert np.floor(-relaxed.fun) == told("knapsack", r"relaxation reaches ([\d,]+)")


def test_leases_can_all_be_kept_but_not_at_a_steady_pace() -> None:
    instance = read_instance(SHIPPED / "leases.json")
    table, lease = instance.jobs_table, instance.round
    gang, needed = table.gpus_min, np.ceil(table.steps / lease)
    due = (table.deadline / lease).astype(int)
    T = due.max()
    own, use = np.kron(np.eye(24), np.ones(T)), np.kron(gang, np.eye(T))
    upper = (np.arange(T) < due[:, np.newaxis]).ravel().astype(float)
    rows = [LinearConstraint(own, needed, needed), LinearConstraint(use, ub=16)]
    assert milp(
        np.zeros(24 * T), constraints=rows, integrality=np.ones(24 * T), bounds=Bounds(0, upper)
    ).success
    assert (gang * table.steps / table.deadline).sum() > 16


def told(name: str, pattern: str) -> int:
    """A number that the README tells of an instance."""
    (paragraph,) = re.findall(
        rf"^- \*\*{name}\.\*\*(.*?)(?=^- |^$)", README, re.MULTILINE | re.DOTALL
    )
    match = re.search(pattern, " ".join(paragraph.split()))
    assert match is not None, pattern
    return int(match[1].replace(",", ""))


def test_the_table_of_the_readme() -> None:
    rows = re.findall(r"^\| `(\w+)\.json` \| (\d+) \| ([\d,]+)", README, re.MULTILINE)
    assert [name for name, *_ in rows] == NAMES
    for name, seed, jobs in rows:
        assert inspect.signature(INSTANCES[name]).parameters["seed"].default == int(seed)
        assert len(shipped(name)["jobs"]) == int(jobs.replace(",", ""))
