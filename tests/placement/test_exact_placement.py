"""The exact placement is the brute force's optimum; the best fit breaks no rule and keeps its bounds."""

from __future__ import annotations

import numpy as np
import pytest
from placement_cases import (
    apart_documents,
    brute_force,
    engine,
    instance_of,
    job,
    pool_of,
    random_case,
    rows_of,
)

from optsched.placement import check_placement, place_rows

# Private names: single searches and bounds, without the choice among them
from optsched.placement.exact import solve_exactly
from optsched.placement.problem import Bounds, Problem, Worth
from optsched.placement.requests import Requests
from optsched.registry import load_solver
from optsched.solution import Placement
from optsched.solvers import Limits
from optsched.solving import Engine

pytestmark = pytest.mark.property


def place(seed: int, columns: int) -> tuple[Placement, list[object]]:
    classes, rows, apart = random_case(seed)
    placement = place_rows(
        classes, rows, np.arange(len(rows)), engine(), apart_documents(apart), columns=columns
    )
    flaws = check_placement(
        classes, rows.job[placement.row], rows.partner[placement.row], rows.column[placement.row], placement.gpus,
        apart_documents(apart),
    )  # fmt: skip
    return placement, list(flaws)


@pytest.mark.parametrize(
    "block", [*range(3), *(pytest.param(block, marks=pytest.mark.study) for block in range(3, 6))]
)
def test_exact_is_brute_force(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        placement, flaws = place(seed, columns=10**6)
        assert flaws == [], seed
        best = brute_force(*random_case(seed))
        found = placement.figures
        assert best.reached_by(found), seed
        assert found["exact"] == 1.0
        assert (found["rows_bound"], found["nodes_bound"]) == (best.rows, best.nodes)
        assert len(placement) + len(placement.refused) == len(placement.rows)


def test_the_random_problems_are_of_every_sort() -> None:
    seen: dict[str, int] = {}
    for seed in range(120):
        classes, rows, apart = random_case(seed)
        instance, table = classes.instance, classes.configurations
        pool = instance.cluster.pools[0]
        found = {
            "sizes": len(set(pool.node_gpus.tolist())) > 1,
            "states": not pool.usable(0.0).all(),
            "cpus": bool(np.isfinite(pool.node_cpus).any())
            and any("cpu" in uses for uses in instance.options.uses),
            "group": bool(instance.cluster.resources),
            "shares": bool((table.share < 1).any()),
            "pairs": bool((rows.partner >= 0).any()),
            "spread": bool((table.nodes > 1).any()),
            "topology": instance.cluster.topology is not None,
            "running": bool(instance.jobs_table.running),
            "apart": bool(apart),
        }
        for name, holds in found.items():
            seen[name] = seen.get(name, 0) + holds
    assert min(seen.values()) >= 20, seen


@pytest.mark.parametrize("block", range(3))
def test_best_fit_breaks_no_rule_and_keeps_its_bounds(block: int) -> None:
    proven = 0
    for seed in range(1000 + 25 * block, 1025 + 25 * block):
        placement, flaws = place(seed, columns=0)
        assert flaws == [], seed
        best = brute_force(*random_case(seed))
        found = placement.figures
        assert found["rows_placed"] <= best.rows <= found["rows_bound"], seed
        assert found["nodes_bound"] <= found["nodes_spanned"], seed
        if found["rows_placed"] == best.rows:
            assert found["nodes_bound"] <= best.nodes <= found["nodes_spanned"], seed
        if found["exact"]:
            proven += 1
            assert best.reached_by(found), seed
    assert proven


@pytest.mark.parametrize("columns", (0, 10**6))
def test_the_same_problem_twice_is_the_same_placement(columns: int) -> None:
    for seed in (3, 11, 12):
        first, _ = place(seed, columns)
        again, _ = place(seed, columns)
        assert (first.gpus, first.refused, first.figures) == (
            again.gpus,
            again.refused,
            again.figures,
        )


def test_the_sum_of_bottlenecks_is_what_counts() -> None:
    """A pair on the best link leaves 1 to a gang of three: 10 + 1 < 9 + 6."""
    widths = [("a", "b", 10.0), ("b", "c", 9.0), ("d", "e", 6.0), ("c", "d", 1.0)]
    topology = {
        "nodes": [{"id": f"p{name}"} for name in "abcde"],
        "links": [
            {"source": f"p{u}", "target": f"p{v}", "bandwidth": width} for u, v, width in widths
        ],
    }
    jobs = [job("three", 3, nodes=3), job("two", 2, nodes=2)]
    classes, rows = rows_of(instance_of(jobs, [pool_of(1, 1, 1, 1, 1)], topology=topology))
    problem = Problem.of(Requests.of(classes, rows, np.arange(2)))
    exact = solve_exactly(problem, Worth(2, 5, 0.0, 0), Bounds(2, 5), engine())
    assert exact.proven and exact.assignment is not None
    assert problem.worth(exact.assignment) == Worth(2, 5, 15.0, 0)


def test_a_limit_ends_the_search_without_a_proof() -> None:
    sizes = np.random.default_rng(1).choice([3, 6, 12, 5], 20).tolist()
    jobs = [job(f"j{i}", size, nodes=3 if size > 8 else 1) for i, size in enumerate(sizes)]
    pool = pool_of(*[8] * 16, bandwidth={"intra_node": 100, "node": 10})
    classes, rows = rows_of(instance_of(jobs, [pool]))
    limited = Engine(load_solver, limits=Limits(work=1))
    placement = place_rows(classes, rows, np.arange(len(rows)), limited, columns=10**4)
    parts = (rows.job[placement.row], rows.partner[placement.row], rows.column[placement.row])
    assert check_placement(classes, *parts, placement.gpus) == []
    assert placement.figures["exact"] == 0.0
    assert placement.figures["nodes_bound"] <= placement.figures["nodes_spanned"]
