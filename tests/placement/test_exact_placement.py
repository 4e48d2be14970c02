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
