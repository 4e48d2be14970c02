"""A hash of what a plan decides."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields

import numpy as np

from optsched.arrays import AnyArray
from optsched.rounds.ledger import Ledger
from optsched.rounds.plan import Plan


def plan_digest(plan: Plan) -> str:
    """A hash of all that a plan decides, and of what the next one depends on."""
    told = {
        "round": plan.number,
        "now": plan.now,
        "fallback": plan.fallback,
        "running": [[job, *held] for job, held in plan.running.items()],
    }
    found = hashlib.blake2b(json.dumps(told).encode(), digest_size=16)
    ledger = plan.ledger
    parts: list[AnyArray] = [
        plan.verdict,
        plan.speed,
        *(getattr(ledger, field.name) for field in fields(Ledger)),
    ]
    if plan.warm is not None:
        found.update(json.dumps(dict(plan.warm.prices)).encode() if plan.warm.prices else b"")
        parts += [
            plan.warm.of_job,
            plan.warm.column,
            *plan.warm.columns.values(),
            *plan.warm.rows.values(),
        ]
    for part in parts:
        found.update(np.ascontiguousarray(part).tobytes())
    return found.hexdigest()
