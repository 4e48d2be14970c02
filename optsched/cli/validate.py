"""``optsched validate``: an instance, checked and summarised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from optsched.cli.command import Argument, Option
from optsched.cli.options import FILE, OUTPUT, Json, ModelFile
from optsched.cli.progress import progress
from optsched.cli.shell import Shell
from optsched.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from optsched.candidates import Candidates

DROPPED = {
    "ZERO_RATE": "rate 0",
    "NO_RATE": "no rate is given",
    "OUT_OF_MEMORY": "out of GPU memory",
    "TOO_MANY_GPUS": "more GPUs than the pool has",
    "TOO_MANY_NODES": "more nodes than the pool has",
    "NO_ROOM": "nodes lack CPUs or memory",
    "OVER_CAPACITY": "a resource is too small",
    "OVER_LIMIT": "no worker and server within the limit",
}


def validate(
    shell: Shell,
    instance: Annotated[
        str | None,
        Argument("INSTANCE", f"{FILE}.", source=True),
    ] = None,
    model: ModelFile = None,
    schema: Annotated[
        bool,
        Option("Print the JSON Schema of the format instead.", section=OUTPUT),
    ] = False,
    as_json: Json = False,
) -> int:
    """Check an instance and summarise what it contains, without solving it.

    Exit codes: 0 the instance is valid, 3 it is not; the message names the field, its value and
    what was expected.

    Examples:
        optsched validate cluster.json
        optsched validate - < cluster.json
        optsched validate --schema > optsched-instance.schema.json
    """
    if schema:
        import json

        from optsched.instance import json_schema

        shell.write(json.dumps(json_schema(), indent=1) + "\n")
        return 0
    if instance is None:
        raise UsageError("missing argument INSTANCE")
    from optsched import api

    with progress(shell, "validating"):
        document = summary(api.compile(api.load(instance, model)))
    shell.answer(as_json, lambda: document, _view(document))
    return 0


def summary(candidates: Candidates) -> dict[str, Any]:
    """Counts of what an instance compiles to."""
    import numpy as np

    from optsched.api import make_formulation, own_constraints
    from optsched.candidates import Drop
    from optsched.performance import Source
    from optsched.registry import names

    instance = candidates.instance
    dropped = candidates.dropped.drop
    jobs = instance.jobs_table.names
    constraints = own_constraints(instance)
    return {
        "format": instance.kind,
        "name": instance.name,
        "sha256": instance.sha256,
        "jobs": len(jobs),
        "present": int(candidates.present.sum()),
        "kinds": len(candidates.kinds),
        "workloads": len(instance.workloads),
        "pools": instance.cluster.usable_gpus(instance.now),
        "resources": list(candidates.resources.names),
        "constraints": [dict(item) for item in instance.constraints],
        "columns": len(candidates.columns),
        "pairs": int((candidates.columns.partner >= 0).sum()),
        "dropped": {
            DROPPED.get(Drop(code).name, Drop(code).name.lower()): int(amount)
            for code, amount in zip(*np.unique(dropped, return_counts=True), strict=True)
        },
        "sources": {
            Source(code).name.lower(): {
                "columns": int(amount),
                "log_sd": float(
                    np.median(candidates.columns.log_sd[candidates.columns.source == code])
                ),
            }
            for code, amount in zip(
                *np.unique(candidates.columns.source, return_counts=True), strict=True
            )
        },
        # Formulations read different fields of the jobs, so their classes of equal jobs differ
        "classes": {
            name: len(make_formulation(name, {}, constraints).classes(candidates))
            for name in names("formulation")
        },
        "unplaced": [{"job": jobs[job], "reason": reason} for job, reason in candidates.unplaced()],
    }


def _view(document: dict[str, Any]) -> Iterator[RenderableType]:
    from optsched.cli.solution_view import unplaced
    from optsched.cli.tables import facts, heading, name

    yield heading(f"{name(document['name'])}: valid {document['format']}")
    yield ""
    yield facts(_facts(document))
    yield from unplaced(tuple((row["job"], row["reason"]) for row in document["unplaced"]))


def _facts(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Sizes of the instance, and what it compiles to."""
    from optsched.cli.tables import listed, name, spread
    from optsched.display import count

    def amounts(mapping: dict[str, int]) -> str:
        return listed([f"{name(key)} {value:,}" for key, value in mapping.items()], most=8)

    jobs = document["jobs"]
    present = document["present"]
    kinds = count(document["kinds"], "kind")
    yield "jobs", f"{jobs:,}, of which {present:,} can run now, in {kinds}"
    if document["workloads"]:
        yield "workloads", f"{document['workloads']:,}"
    pools = document["pools"]
    yield "usable GPUs", f"{sum(pools.values()):,}: {amounts(pools)}"
    further = [item for item in document["resources"] if item not in pools]
    if further:
        yield "resources", listed(further, most=8)
    if document["constraints"]:
        yield "constraints", listed([str(item.get("kind")) for item in document["constraints"]], 8)
    pairs = f", {document['pairs']:,} of them pairs" if document["pairs"] else ""
    yield "columns", f"{document['columns']:,}{pairs}"
    if document["dropped"]:
        reasons = [f"{amount:,} {reason}" for reason, amount in document["dropped"].items()]
        yield "dropped", listed(reasons, most=8)
    if set(document["sources"]) - {"measured"}:
        rates = [
            f"{item['columns']:,} {source}{spread(item['log_sd'])}"
            for source, item in document["sources"].items()
        ]
        yield "rates from", listed(rates, most=8)
    yield "classes", amounts(document["classes"])
    yield "sha256", document["sha256"]
