"""What is asked of HiGHS in the names of its options."""

from __future__ import annotations

from typing import Any

from optsched.solvers.base import Limits

PRIMAL = 4
"""The primal simplex: the dual one re-initialises its weights where it is warm."""


def options_of(limits: Limits, algorithm: str, *, integer: bool, warm: bool) -> dict[str, Any]:
    """Every option that is not to be as HiGHS has it."""
    tight = max(limits.tolerance, 1e-10)
    options: dict[str, Any] = {
        "output_flag": limits.on_log is not None,
        "threads": limits.threads,
        "random_seed": limits.seed,
        "primal_feasibility_tolerance": tight,
        "dual_feasibility_tolerance": tight,
        "ipm_optimality_tolerance": max(limits.tolerance, 1e-12),
        "mip_feasibility_tolerance": max(limits.tolerance, 1e-9),
        "mip_rel_gap": 0.0 if limits.gap is None else limits.gap,
        "solver": "choose" if integer else algorithm,
    }
    if warm and algorithm == "simplex" and not integer:
        options["simplex_strategy"] = PRIMAL
    if limits.time is not None:
        options["time_limit"] = max(limits.time, 1e-3)
    if limits.work is not None:
        options |= {
            "simplex_iteration_limit": limits.work,
            "ipm_iteration_limit": limits.work,
            "mip_max_nodes": limits.work,
        }
    return {**options, **limits.options}
