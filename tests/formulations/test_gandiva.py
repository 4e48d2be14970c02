"""Packing in pairs: at random, greedily, and by an exact matching that plain enumeration and networkx check."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import networkx as nx
import numpy as np
import pytest
from refusals import refuses

import optsched
from optsched import Instance
from optsched.errors import SolverUnavailable, UsageError
from optsched.solution import Solution

pytestmark = pytest.mark.property

POOLS = ("a", "b")


def case(seed: int, jobs: int = 12, workloads: int = 4) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    rates = {
        f"w{i}": {pool: float(random.uniform(1, 5)) for pool in POOLS} for i in range(workloads)
    }
    return {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": pool, "nodes": 1, "gpus_per_node": 2} for pool in POOLS]},
        "workloads": {
            name: {"throughput": {pool: {"1": value, "2": 1.9 * value} for pool, value in rate.items()}}
            for name, rate in rates.items()
        },
        "jobs": [
            {"id": f"j{i}", "workload": f"w{random.integers(workloads)}", "gpus": int(random.choice([1, 1, 2]))}
            for i in range(jobs)
        ],
        "colocation": [
            {
                "workloads": [f"w{i}", f"w{j}"], "pool": pool, "gpus": gpus,
                "throughput": [rates[f"w{x}"][pool] * (1.9 if gpus == 2 else 1) * random.uniform(0.2, 0.9)
                               for x in (i, j)],
            }
            for i in range(workloads) for j in range(i, workloads) for pool in POOLS for gpus in (1, 2)
            if random.random() < 0.8
        ],
    }  # fmt: skip


def pair_case(**ratios: tuple[float, float]) -> dict[str, Any]:
    """Five jobs x and y alike on pools of 1 GPU, sharing GPUs at these parts of their throughput alone."""
    return {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": pool, "nodes": 1, "gpus_per_node": 1} for pool in POOLS]},
        "jobs": [{"id": name, "throughput": {"a": 4.0, "b": 2.0}} for name in ("x", "y", "z")],
        "colocation": [
            {"jobs": ["x", "y"], "pool": pool, "gpus": 1, "throughput": [first * alone, second * alone]}
            for pool, alone in (("a", 4.0), ("b", 2.0)) if pool in ratios for first, second in [ratios[pool]]
        ],
    }  # fmt: skip


def solve(document: dict[str, Any], formulation: str, **options: Any) -> Solution:
    instance = Instance.from_document(document)
    solution = optsched.solve(instance, formulation, **options)
    assert solution.ok, solution.certificate
    verification = optsched.verify(instance, json.loads(json.dumps(solution.to_document())))
    assert verification.ok, str(verification)
    usage, capacity = solution.allocation.usage, solution.candidates.resources.capacity
    assert (usage <= capacity * (1 + 1e-12)).all()
    return solution


def gains(document: dict[str, Any]) -> dict[tuple[str, str], float]:
    """Largest ratio - 1 over the pools, of every two jobs of one size that can share."""
    ratios: dict[tuple[str, str, int], list[float]] = {}
    for entry in document["colocation"]:
        first, second, pool, gpus = *entry["workloads"], entry["pool"], entry["gpus"]
        alone = [
            document["workloads"][name]["throughput"][pool][str(gpus)] for name in (first, second)
        ]
        ratio = sum(rate / of for rate, of in zip(entry["throughput"], alone, strict=True))
        for key in {(first, second, gpus), (second, first, gpus)}:
            ratios.setdefault(key, []).append(ratio)
    return {
        (one["id"], other["id"]): max(ratios[one["workload"], other["workload"], one["gpus"]]) - 1
        for one, other in combinations(document["jobs"], 2)
        if one["gpus"] == other["gpus"]
        and (one["workload"], other["workload"], one["gpus"]) in ratios
    }


def pairs_of(solution: Solution) -> set[tuple[str, str]]:
    return {tuple(sorted(row["jobs"])) for row in solution.allocation.to_records() if "jobs" in row}


def best_by_enumeration(names: list[str], gain: dict[tuple[str, str], float]) -> float:
    if len(names) < 2:
        return 0.0
    first, rest = names[0], names[1:]
    values = [best_by_enumeration(rest, gain)]
    for other in rest:
        worth = gain.get((first, other), 0.0)
        if worth > 0:
            values.append(
                worth + best_by_enumeration([name for name in rest if name != other], gain)
            )
    return max(values)


@pytest.mark.parametrize("seed", range(8))
def test_matching_is_the_best_of_all_pairings(seed: int) -> None:
    made = case(seed, jobs=9)
    gain = gains(made)
    expected = best_by_enumeration([job["id"] for job in made["jobs"]], gain)
    for classes in (True, False):
        solution = solve(made, "matching", classes=classes)
        assert solution.objective == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert sum(gain[pair] for pair in pairs_of(solution)) == pytest.approx(
            expected, rel=1e-9, abs=1e-12
        )


@pytest.mark.parametrize("seed", range(4))
def test_matching_is_the_matching_of_the_graph_of_jobs(seed: int) -> None:
    """Few kinds of many jobs, and as many kinds as jobs."""
    for workloads in (3, 40):
        made = case(100 + seed, jobs=40, workloads=workloads)
        gain = gains(made)
        graph = nx.Graph()
        graph.add_weighted_edges_from((*pair, worth) for pair, worth in gain.items() if worth > 0)
        expected = sum(gain[tuple(sorted(pair, key=lambda name: int(name[1:])))]  # type: ignore[index]
                       for pair in nx.max_weight_matching(graph))  # fmt: skip
        solution = solve(made, "matching")
        assert solution.objective == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(15))
def test_matching_is_at_least_greedy_and_greedy_at_least_half(seed: int) -> None:
    made = case(200 + seed, jobs=20)
    best = solve(made, "matching").objective
    greedy = solve(made, "gandiva", pairing="greedy").objective
    random = solve(made, "gandiva", seed=seed).objective
    assert best * (1 + 1e-9) >= greedy >= best / 2 * (1 - 1e-9)
    assert best * (1 + 1e-9) >= random >= 0
    assert best > 0


@pytest.mark.parametrize("formulation", ["gandiva", "matching"])
@pytest.mark.parametrize("seed", range(6))
def test_no_pair_loses_and_none_is_of_two_sizes(formulation: str, seed: int) -> None:
    solution = solve(case(300 + seed, jobs=16), formulation, seed=seed)
    C, rows = solution.allocation.classes, solution.allocation.rows
    alone = {
        (int(job), int(C.pool[column]), int(C.gpus[column])): C.rate_a[column]
        for column in np.flatnonzero(C.alone) for job in C.jobs_of(int(C.class_a[column]))
    }  # fmt: skip
    shared = np.flatnonzero(rows.partner >= 0)
    assert len(shared)
    gang = solution.instance.jobs_table.gpus_min
    for row in shared.tolist():
        place = (int(C.pool[rows.column[row]]), int(C.gpus[rows.column[row]]))
        first, second = int(rows.job[row]), int(rows.partner[row])
        ratio = (
            rows.rate[row] / alone[first, *place] + rows.partner_rate[row] / alone[second, *place]
        )
        assert ratio >= 1
        assert gang[first] == gang[second] == place[1]
    partners: dict[int, set[int]] = {}
    for row in shared.tolist():
        partners.setdefault(int(rows.job[row]), set()).add(int(rows.partner[row]))
        partners.setdefault(int(rows.partner[row]), set()).add(int(rows.job[row]))
    assert all(len(of) == 1 for of in partners.values())


def test_a_pair_is_dropped_pool_by_pool() -> None:
    """F9: 1.6 on one pool and 0.8 on the other add up to more than 1, and the pair still loses on the other."""
    solution = solve(pair_case(a=(0.8, 0.8), b=(0.4, 0.4)), "matching")
    rows = [(row.get("jobs", [row.get("job")]), row["pool"], row["fraction"])
            for row in solution.allocation.to_records()]  # fmt: skip
    # On a: one pair and z, half each; on b: three jobs, a third each.
    third, half = pytest.approx(1 / 3, rel=1e-12), pytest.approx(1 / 2, rel=1e-12)
    assert sorted(rows) == [
        (["x"], "b", third), (["x", "y"], "a", half), (["y"], "b", third), (["z"], "a", half), (["z"], "b", third),
    ]  # fmt: skip
    assert solution.objective == pytest.approx(0.6)
    assert solution.figures["gain"] == {"x": pytest.approx(0.6), "y": pytest.approx(0.6), "z": 0.0}


def test_a_pair_that_loses_on_every_pool_is_none() -> None:
    """F9: Gavel adds 0.9 and 0.8 to 1.7 and keeps the pair."""
    lost = pair_case(a=(0.5, 0.4), b=(0.4, 0.4))
    isolated = solve(lost, "isolated")
    for formulation in ("gandiva", "matching"):
        solution = solve(lost, formulation)
        assert pairs_of(solution) == set()
        assert solution.objective == 0
        assert dict(solution.throughput) == pytest.approx(dict(isolated.throughput), rel=1e-12)


@pytest.mark.parametrize("formulation", ["gandiva", "matching"])
def test_nobody_shares_where_there_is_room(formulation: str) -> None:
    made = pair_case(a=(0.9, 0.9), b=(0.9, 0.9))
    made["cluster"]["pools"][0]["gpus_per_node"] = 2
    options: dict[str, Any] = {"pairing": "greedy"} if formulation == "gandiva" else {}
    solution = solve(made, formulation, **options)
    isolated = solve(made, "isolated")
    assert pairs_of(solution) == set()
    assert dict(solution.throughput) == pytest.approx(dict(isolated.throughput), rel=1e-12)
    assert solve(made, formulation, bound=True, **options).bound == 0
    assert pairs_of(solve(made, formulation, pack="always", **options)) == {("x", "y")}


def test_jobs_that_run_in_few_pools() -> None:
    made = pair_case(a=(0.9, 0.9))
    del made["jobs"][1]["throughput"]["b"]
    solution = solve(made, "matching")
    assert pairs_of(solution) == {("x", "y")}
    one, other = solution.throughput["x"], solution.throughput["y"]
    assert one == pytest.approx(0.5 * 0.9 * 4 + 2.0 / 3, rel=1e-12)
    assert other == pytest.approx(0.5 * 0.9 * 4, rel=1e-12)


def test_draws_follow_the_seed() -> None:
    made = case(7, jobs=20)
    drawn = [pairs_of(solve(made, "gandiva", seed=seed)) for seed in range(6)]
    assert drawn == [pairs_of(solve(made, "gandiva", options={"seed": seed})) for seed in range(6)]
    assert len({frozenset(pairs) for pairs in drawn}) > 3
    document = solve(made, "gandiva", seed=3).to_document()
    document["solver"]["seed"] = 4
    assert not optsched.verify(Instance.from_document(made), document).ok


@pytest.mark.parametrize("seed", range(8))
def test_bounds(seed: int) -> None:
    made = case(400 + seed, jobs=15)
    instance = Instance.from_document(made)
    exact = solve(made, "matching", bound=True)
    assert exact.bound == pytest.approx(exact.objective, rel=1e-9)
    assert (exact.bound_source, exact.certificate.proof, exact.status) == (
        "solver",
        "claimed",
        "optimal",
    )
    greedy = solve(made, "gandiva", pairing="greedy", bound=True)
    assert greedy.bound >= exact.objective * (1 - 1e-9)
    assert greedy.bound_source == "relaxation"
    assert greedy.status == ("optimal" if greedy.gap <= 1e-6 else "feasible")
    written = greedy.to_document()
    for name in ("objective", "bound"):
        wrong = written | {name: written[name] * 1.1}
        assert name in {finding.field for finding in optsched.verify(instance, wrong).findings}
    written["figures"]["gain"]["j0"] += 0.1
    assert {finding.field for finding in optsched.verify(instance, written).findings} == {
        "figures.gain.j0"
    }


def test_the_relaxation_knows_that_three_alike_are_one_pair() -> None:
    made = case(0, jobs=0)
    made["jobs"] = [{"id": f"j{i}", "workload": "w0"} for i in range(3)]
    pair = {"workloads": ["w0", "w0"], "gpus": 1, "pool": "a", "throughput": [0.8, 0.8]}
    made |= {"workloads": {"w0": {"throughput": {"a": 1.0}}}, "colocation": [pair]}
    for options in ({"pairing": "greedy"}, {"pairing": "random"}):
        solution = solve(made, "gandiva", bound=True, pack="always", **options)
        assert (solution.objective, solution.bound) == (pytest.approx(0.6), pytest.approx(0.6))


def test_pairs_hold_what_each_would_hold_alone() -> None:
    """An elastic job has its smallest count alone, and shares no larger one."""
    made = pair_case(a=(0.9, 0.9))
    for pool in made["cluster"]["pools"]:
        pool["gpus_per_node"] = 2
    for number in (0, 1):
        made["jobs"] = [
            {"id": name, "gpus": 2, "throughput": {"a": 4.0, "b": 2.0}} for name in ("x", "y", "z")
        ]
        made["colocation"][0]["gpus"] = 2
        assert pairs_of(solve(made, "matching")) == {("x", "y")}
        rates = {pool: {"1": 2.0, "2": 3.0} for pool in POOLS}
        made["jobs"][number] |= {"gpus": {"min": 1, "max": 2}, "throughput": rates}
        assert pairs_of(solve(made, "matching", pack="always")) == set()


def test_solvers_and_constraints_that_do_not_fit() -> None:
    with pytest.raises(SolverUnavailable, match="clarabel"):
        optsched.solve(Instance.from_document(case(1)), "matching", solver="clarabel")
    with refuses('pairing: found "best", expected one of...', UsageError):
        optsched.solve("@quickstart", "gandiva", pairing="best")


@pytest.mark.clock
def test_a_matching_that_a_limit_stops_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from optsched.solution import Status, Termination
    from optsched.solving import Engine

    real = Engine.solve_linear

    def stopped(engine: Engine, *given: Any) -> Any:
        outcome = real(engine, *given)
        values = replace(outcome.values, termination=Termination.TIME_LIMIT)
        return replace(outcome, values=values, status=Status.FEASIBLE)

    instance = Instance.from_document(case(1))
    monkeypatch.setattr(Engine, "solve_linear", stopped)
    solution = optsched.solve(instance, "matching")
    assert (solution.status, solution.termination, solution.reproducible) == (
        "limit",
        "time_limit",
        False,
    )
    assert solution.allocation is None and solution.objective is None
    assert optsched.verify(instance, solution.to_document()).ok


def test_no_jobs() -> None:
    made = case(1, jobs=1)
    made["jobs"][0] |= {"steps": 1, "steps_done": 1}
    for formulation in ("gandiva", "matching"):
        assert solve(made, formulation, bound=True).objective == 0
    made = case(1, jobs=1)
    assert solve(made, "gandiva", pack="always").objective == 0
