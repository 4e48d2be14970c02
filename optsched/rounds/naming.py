"""Side constraints that name jobs, after some of these have left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optsched.instance import Instance

FEWEST = {"anti-affinity": 2}
"""Jobs that a constraint must name to mean anything, where it is more than one."""
TOLD = 4
"""Names that a notice tells."""


def still_meant(
    documents: Sequence[Mapping[str, Any]], instance: Instance
) -> tuple[tuple[Mapping[str, Any], ...], tuple[str, ...]]:
    """Side constraints without the jobs that are not there, and what to tell of it.

    One that names no job that is there, or a workload that went with its last job, has no effect and is left out: with
    no names at all it would speak of every job.
    """
    there, workloads = instance.jobs_table.names, {own.name for own in instance.workloads}
    kept: list[Mapping[str, Any]] = []
    notices = []
    for document in documents:
        named = document.get("jobs")
        names = [named] if isinstance(named, str) else list(named or ())
        gone = [name for name in names if name not in there]
        workload = document.get("workload")
        lacks = workload is not None and workload not in workloads
        if not gone and not lacks:
            kept.append(document)
            continue
        what = f"workload {workload}" if lacks else f"jobs {', '.join(map(str, gone[:TOLD]))}"
        what += " and more" if len(gone) > TOLD and not lacks else ""
        left = [name for name in names if name in there]
        kind = str(document.get("kind"))
        if lacks or len(left) < FEWEST.get(kind, 1):
            notices.append(f"the side constraint {kind} has no effect: {what} left")
            continue
        kept.append({**document, "jobs": left})
        notices.append(f"the side constraint {kind} goes on without {what}, which left")
    return tuple(kept), tuple(notices)
