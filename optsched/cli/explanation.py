"""What the duals of a solution say: which jobs hold the level down, which requirements cost something."""

from __future__ import annotations

from typing import Any

import numpy as np

from optsched.api import make_formulation
from optsched.program import AllocationProgram
from optsched.program.ratio import dual_of
from optsched.solution import Solution, Status
from optsched.solution.explanation import assumptions_of
from optsched.solving.stages import settled

NEGLIGIBLE = 1e-9


def explanation(solution: Solution) -> dict[str, Any]:
    """The explanation as plain data; what does not exist is empty."""
    # Duals of another point say nothing
    optimal = solution.status is Status.OPTIMAL
    return {
        "format": "optsched-explanation/1",
        "instance": {"name": solution.instance.name, "sha256": solution.instance.sha256},
        "formulation": solution.formulation,
        "status": str(solution.status),
        "sense": solution.sense,
        "objective": solution.objective,
        "bound": solution.bound,
        "prices": dict(solution.prices) if optimal else {},
        "holding": holding_jobs(solution) if optimal else [],
        "requirements": priced_requirements(solution) if optimal else [],
        "conflicts": [conflict.words for conflict in solution.conflicts],
        "assumptions": [assumption.words for assumption in assumptions_of(solution.conflicts)],
        "unplaced": [{"job": job, "reason": reason} for job, reason in solution.unplaced],
    }


def holding_jobs(solution: Solution) -> list[dict[str, Any]]:
    """Classes of jobs at the smallest level, largest share first.

    A class's share is its dual of the rows ``levels`` times n_k, which sum to 1: the part of an improvement by 1 % that
    the objective would see if these jobs ran 1 % faster everywhere.
    """
    if solution.duals is None or "levels" not in solution.duals or solution.allocation is None:
        return []
    C = solution.allocation.classes
    # A dual is per class; its n_k jobs hold the level together
    share = np.abs(solution.duals["levels"]) * C.count
    share = share / max(float(share.sum()), 1e-300)
    rate = solution.allocation.throughput
    names = C.instance.jobs_table.names
    order = np.argsort(-share, kind="stable")
    return [
        {
            "job": names[int(C.first[k])],
            "jobs": int(C.count[k]),
            "share": float(share[k]),
            "rate": float(rate[int(C.first[k])]),
        }
        for k in order[share[order] > NEGLIGIBLE].tolist()
    ]


def priced_requirements(solution: Solution) -> list[dict[str, Any]]:
    """Rows of side constraints with a dual: what asking for 1 % less would be worth in objective units."""
    if solution.duals is None or solution.allocation is None:
        return []
    # Rows that somebody added in Python cannot be made again from the file
    kinds = [item for item in solution.constraints if item["kind"] != "extend"]
    formulation = make_formulation(solution.formulation, solution.options, kinds)
    program = formulation.program(solution.allocation.classes)
    # A plan takes no side constraints
    if not isinstance(program, AllocationProgram):
        return []
    program = settled(program, solution.stages)
    worth = abs(program.worth_of_duals(solution.allocation.x))
    parts = []
    for side in program.side:
        if side.name not in solution.duals:
            continue
        dual = dual_of(solution.duals, side.name, side.lower, side.upper)
        # A row with a lower bound asks for it, any other limits by its upper bound
        asked = np.where(np.isfinite(side.lower), side.lower, side.upper)
        gain = 0.01 * np.abs(dual * asked) * worth
        parts += [
            {"constraint": side.name, "requirement": side.describe(row), "worth": float(gain[row])}
            for row in np.flatnonzero(gain > NEGLIGIBLE * 0.01).tolist()
        ]
    return sorted(parts, key=lambda item: -float(item["worth"]))
