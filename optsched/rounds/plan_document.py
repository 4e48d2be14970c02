"""A plan as a document, ``optsched-plan/1``."""

from __future__ import annotations

from typing import Any

import numpy as np

from optsched.rounds.plan import Decision, Plan, Verdict

FORMAT = "optsched-plan/1"


def plan_document(plan: Plan) -> dict[str, Any]:
    """See `Plan.to_document`; numbers that do not exist are null."""
    solution = plan.solution
    return {
        "format": FORMAT,
        "round": plan.number,
        "now": plan.now,
        "until": plan.until,
        "start": [_seated(item) for item in plan.start],
        "keep": [_seated(item) for item in plan.keep],
        "move": [_seated(item) | {"reason": item.reason} for item in plan.move],
        "preempt": [{"job": item.job, "reason": item.reason} for item in plan.preempt],
        "hold": [{"job": item.job, "reason": item.reason} for item in plan.hold],
        "actions": [
            {"kind": step.kind, "job": step.job, "pool": step.pool, "gpus": list(step.gpus)} for step in plan.diff()
        ],
        "allocation": [] if solution is None or solution.allocation is None else solution.allocation.to_records(),
        "status": None if solution is None else solution.status.value,
        "objective": None if solution is None else solution.objective,
        "bound": None if solution is None else solution.bound,
        "gap": None if solution is None else solution.gap,
        "certificate": None
        if solution is None
        else {"ok": solution.certificate.ok, "proof": solution.certificate.proof},
        "prices": {} if solution is None else dict(solution.prices),
        "fallback": plan.fallback,
        "notices": list(plan.notices),
        "metrics": metrics(plan),
        "reproducible": True if solution is None else solution.reproducible,
        "started_from": plan.started_from,
        "timings": dict(plan.timings),
    }


def metrics(plan: Plan) -> dict[str, Any]:
    """Counts and shares of a plan."""
    cluster, now = plan.instance.cluster, plan.now
    gpus = cluster.gpus(now)
    used = np.zeros(len(gpus))
    held: set[str] = set()
    for pool, names, _ in plan.running.values():
        used[pool] += len(set(names) - held)
        held.update(names)
    count = np.bincount(plan.verdict, minlength=len(Verdict))
    return {
        "jobs": {verdict.name.lower(): int(count[verdict]) for verdict in Verdict},
        "gpus": int(gpus.sum()),
        "gpus_in_use": int(used.sum()),
        "utilisation": {
            pool.name: float(mine / there) if there else None
            for pool, mine, there in zip(cluster.pools, used.tolist(), gpus.tolist(), strict=True)
        },
    }


def _seated(item: Decision) -> dict[str, Any]:
    return {"job": item.job, "pool": item.pool, "gpus": list(item.gpus)}
