"""The exact placement is the brute force's optimum; the best fit breaks no rule and keeps its bounds."""

from __future__ import annotations

import numpy as np
import pytest
from placement_cases import apart_documents, brute_force, engine, random_case

from optsched.placement import check_placement, place_rows
from optsched.solution.placement import Placement


def place(seed: int, columns: int) -> tuple[Placement, list[object]]:
    classes, rows, apart = random_case(seed)
    placement = place_rows(classes, rows, np.arange(len(rows)), engine(), apart_documents(apart), columns=columns)
    flaws = check_placement(
        classes, rows.job[placement.row], rows.partner[placement.row], rows.column[placement.row], placement.gpus,
        apart_documents(apart),
    )  # fmt: skip
    return placement, list(flaws)


@pytest.mark.parametrize("block", range(6))
def test_exact_is_brute_force(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        placement, flaws = place(seed, columns=10**6)
        assert flaws == [], seed
        best = brute_force(*random_case(seed))
        found = placement.figures
        got = (found["rows_placed"], found["nodes_spanned"], round(found["bandwidth"], 6), found["gpus_moved"])
        assert got == (best.rows, best.nodes, round(best.bandwidth, 6), best.moved), seed
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
            "cpus": bool(np.isfinite(pool.node_cpus).any()) and any("cpu" in uses for uses in instance.options.uses),
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
            got = (found["rows_placed"], found["nodes_spanned"], round(found["bandwidth"], 6), found["gpus_moved"])
            assert got == (best.rows, best.nodes, round(best.bandwidth, 6), best.moved), seed
    assert proven


@pytest.mark.parametrize("columns", (0, 10**6))
def test_the_same_problem_twice_is_the_same_placement(columns: int) -> None:
    for seed in (3, 11, 12):
        first, _ = place(seed, columns)
        again, _ = place(seed, columns)
        assert (first.gpus, first.refused, first.figures) == (again.gpus, again.refused, again.figures)
