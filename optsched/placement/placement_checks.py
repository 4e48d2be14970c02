"""An independent check of a placement, GPU by GPU, with nothing of what made it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from optsched.arrays import IntArray
from optsched.candidates import Classes
from optsched.instance.reading import listed
from optsched.placement.check_nodes import (
    SLACK,
    Flaw,
    nodes_over_capacity,
    nodes_shared_wrongly,
    sizes_and_states,
    wrong_gpus,
)
from optsched.placement.keeping import must_stay


def check_placement(
    classes: Classes,
    job: IntArray,
    partner: IntArray,
    column: IntArray,
    gpus: Sequence[Sequence[str]],
    constraints: Iterable[Mapping[str, Any]] = (),
) -> list[Flaw]:
    """What is wrong with the GPUs of some rows that run at one time; an empty list where nothing is.

    Parameters
    ----------
    classes : Classes
    job, partner, column : IntArray, shape (P,)
        The rows: jobs (partner -1 for a job alone) and the column of the classes in which they run.
    gpus : sequence of sequences of str, length P
        ``node/index``.
    constraints : iterable of mappings
        Side constraints; those of kind ``anti-affinity`` count.
    """
    flaws = _once(classes, [(p, int(job[p]), int(partner[p])) for p in range(len(gpus))])
    load: dict[str, float] = defaultdict(float)
    holders: dict[str, list[int]] = defaultdict(list)
    on: dict[int, dict[str, int]] = {}
    known: dict[int, dict[str, tuple[int, bool]]] = {}
    for p in range(len(gpus)):
        c = int(classes.configuration[column[p]])
        table = classes.configurations
        pool = int(table.pool[c])
        if pool < 0:
            flaws.append(
                Flaw(p, "gpus", f"found {len(gpus[p])} GPUs, expected none: the row uses no pool")
            )
            continue
        if pool not in known:
            known[pool] = sizes_and_states(
                classes.instance.cluster.pools[pool], classes.instance.now
            )
        told = wrong_gpus(classes.instance.cluster.pools[pool].name, known[pool], gpus[p])
        flaws += [Flaw(p, f"gpus[{i}]", words) for i, words in told]
        if len(gpus[p]) != table.gpus[c]:
            flaws.append(
                Flaw(
                    p, "gpus", f"found {len(gpus[p])} GPUs, expected the {table.gpus[c]} of the row"
                )
            )
        count: dict[str, int] = defaultdict(int)
        for gpu in gpus[p]:
            count[gpu.rpartition("/")[0]] += 1
            load[gpu] += float(table.share[c])
            holders[gpu].append(p)
        on[p] = count
        most = max(int(table.nodes[c]), 1)
        if len(count) > most:
            words = (
                f"found {len(count)} nodes ({listed(count)}), expected at most {most}: "
                "the row's throughput is for that"
            )
            flaws.append(Flaw(p, "gpus", words))
    for gpu, amount in load.items():
        if amount > 1 + SLACK:
            for p in holders[gpu]:
                others = ", ".join(_names(classes, job, partner, q) for q in holders[gpu])
                flaws.append(
                    Flaw(
                        p,
                        "gpus",
                        f"{gpu} is given away {amount:g} times (to {others}), expected once",
                    )
                )
    flaws += nodes_over_capacity(
        classes.instance.cluster, on, {p: _demand(classes, int(column[p])) for p in on}
    )
    names = classes.instance.jobs_table.names
    named = {p: [names[int(number)] for number in (job[p], partner[p]) if number >= 0] for p in on}
    return (
        flaws
        + nodes_shared_wrongly(named, on, constraints)
        + _moved(classes, job, partner, column, gpus)
    )


def _moved(
    classes: Classes,
    job: IntArray,
    partner: IntArray,
    column: IntArray,
    gpus: Sequence[Sequence[str]],
) -> list[Flaw]:
    """Jobs that run and cannot be preempted have the GPUs that they hold, and nobody else has these whole."""
    table, share = (
        classes.instance.jobs_table,
        classes.configurations.share[classes.configuration[column]],
    )
    stays = must_stay(classes.instance)
    found, holder = [], dict[str, str]()
    for number in np.flatnonzero(stays).tolist():
        holder |= dict.fromkeys(table.running[number][1], table.names[number])
    for p, mine in enumerate(gpus):
        jobs = [number for number in (int(job[p]), int(partner[p])) if number >= 0]
        firm = [number for number in jobs if stays[number]]
        for number in firm:
            held = table.running[number][1]
            if sorted(mine) != sorted(held):
                told = f"job {table.names[number]} runs on {listed(held)} and cannot be preempted"
                found.append(
                    Flaw(p, "gpus", f"found {listed(mine)}, expected {listed(held)}: {told}")
                )
        taken = [gpu for gpu in mine if gpu in holder and share[p] == 1.0]
        if taken and not firm:
            told = f"job {holder[taken[0]]}, which holds {taken[0]}, cannot be preempted"
            found.append(Flaw(p, "gpus", f"found {taken[0]}, expected other GPUs: {told}"))
    return found


def _names(classes: Classes, job: IntArray, partner: IntArray, row: int) -> str:
    names = classes.instance.jobs_table.names
    first = names[int(job[row])]
    return first if partner[row] < 0 else f"{first} + {names[int(partner[row])]}"


def _once(classes: Classes, rows: list[tuple[int, int, int]]) -> list[Flaw]:
    """A job runs in one row at a time."""
    seen: dict[int, int] = {}
    found = []
    for p, *jobs in rows:
        for job in jobs:
            if job >= 0 and seen.setdefault(job, p) != p:
                name = classes.instance.jobs_table.names[job]
                found.append(
                    Flaw(
                        p,
                        "row",
                        f"job {name} is placed a second time (entry {seen[job]} is the first)",
                    )
                )
    return found


def _demand(classes: Classes, column: int) -> dict[str, float]:
    """What a row needs per GPU, by name."""
    candidates, instance = classes.candidates, classes.instance
    kind_column = int(classes.kind_column[column])
    columns = candidates.columns
    option = int(columns.option[kind_column])
    if option >= 0:
        gpus = max(int(columns.gpus[kind_column]), 1)
        return {name: amount / gpus for name, amount in instance.options.uses[option].items()}
    total: dict[str, float] = defaultdict(float)
    for kind in (int(columns.kind[kind_column]), int(columns.partner[kind_column])):
        workload = -1 if kind < 0 else int(candidates.kinds.workload[kind])
        for name, amount in {} if workload < 0 else instance.workloads[workload].demand.items():
            total[name] += amount
    return total
