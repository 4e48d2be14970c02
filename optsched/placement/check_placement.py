"""An independent check of a placement, GPU by GPU, with nothing of what made it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optsched.arrays import IntArray
from optsched.candidates import Classes
from optsched.instance.cluster import Pool
from optsched.instance.documents import parse_index
from optsched.instance.reading import listed, show

SLACK = 1e-6
"""Relative excess of a share, a CPU or a capacity that is rounding."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing that is wrong: the entry of the placement, the part of it, and words."""

    entry: int
    part: str
    message: str


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
            flaws.append(Flaw(p, "gpus", f"found {len(gpus[p])} GPUs, expected none: the row uses no pool"))
            continue
        if pool not in known:
            known[pool] = _nodes(classes.instance.cluster.pools[pool], classes.instance.now)
        told = _wrong_gpus(classes.instance.cluster.pools[pool].name, known[pool], gpus[p])
        flaws += [Flaw(p, f"gpus[{i}]", words) for i, words in told]
        if len(gpus[p]) != table.gpus[c]:
            flaws.append(Flaw(p, "gpus", f"found {len(gpus[p])} GPUs, expected the {table.gpus[c]} of the row"))
        count: dict[str, int] = defaultdict(int)
        for gpu in gpus[p]:
            count[gpu.rpartition("/")[0]] += 1
            load[gpu] += float(table.share[c])
            holders[gpu].append(p)
        on[p] = count
        most = max(int(table.nodes[c]), 1)
        if len(count) > most:
            words = (
                f"found {len(count)} nodes ({listed(count)}), expected at most {most}: the row's throughput is for that"
            )
            flaws.append(Flaw(p, "gpus", words))
    for gpu, amount in load.items():
        if amount > 1 + SLACK:
            for p in holders[gpu]:
                others = ", ".join(_names(classes, job, partner, q) for q in holders[gpu])
                flaws.append(Flaw(p, "gpus", f"{gpu} is given away {amount:g} times (to {others}), expected once"))
    flaws += _resources(classes, column, on)
    return flaws + _apart(classes, job, partner, on, constraints)


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
                found.append(Flaw(p, "row", f"job {name} is placed a second time (entry {seen[job]} is the first)"))
    return found


def _nodes(pool: Pool, now: float) -> dict[str, tuple[int, bool]]:
    """GPUs of each node, and whether it takes work."""
    usable = pool.usable(now).tolist()
    return {pool.node_name(row): (gpus, usable[row]) for row, gpus in enumerate(pool.node_gpus.tolist())}


def _wrong_gpus(pool: str, nodes: Mapping[str, tuple[int, bool]], gpus: Sequence[str]) -> list[tuple[int, str]]:
    """GPUs that are none of the pool's, are on nodes that take no work, or stand there twice."""
    found = []
    for i, gpu in enumerate(gpus):
        node, _, index = gpu.rpartition("/")
        if node not in nodes or not 0 <= parse_index(index) < nodes[node][0]:
            found.append((i, f"found {show(gpu)}, expected a GPU of pool {show(pool)} written node/index"))
        elif not nodes[node][1]:
            found.append((i, f"found {show(gpu)}, but node {node} takes no work now"))
        elif gpu in gpus[:i]:
            found.append((i, f"found {show(gpu)} a second time, expected GPUs that differ"))
    return found


def _resources(classes: Classes, column: IntArray, on: Mapping[int, Mapping[str, int]]) -> list[Flaw]:
    """CPUs and memory of every node, and what belongs to some nodes."""
    cluster = classes.instance.cluster
    capacity: dict[tuple[str, str], float] = {}
    for pool in cluster.pools:
        for row in range(len(pool.node_gpus)):
            name = pool.node_name(row)
            capacity[name, "cpu"], capacity[name, "memory"] = float(pool.node_cpus[row]), float(pool.node_memory[row])
    use: dict[tuple[str, str], float] = defaultdict(float)
    users: dict[tuple[str, str], list[int]] = defaultdict(list)
    groups = [resource for resource in cluster.resources if resource.nodes and resource.kind == "renewable"]
    for p, count in on.items():
        demand = _demand(classes, int(column[p]))
        for node, gpus in count.items():
            places = [((node, name), name) for name in ("cpu", "memory")]
            places += [(("", group.name), group.name) for group in groups if node in (group.nodes or ())]
            for place, name in places:
                if demand.get(name):
                    use[place] += gpus * demand[name]
                    users[place].append(p)
    capacity |= {("", group.name): group.capacity for group in groups}
    found = []
    for (node, name), amount in use.items():
        has = capacity.get((node, name), float("inf"))
        if amount > has * (1 + SLACK) + SLACK:  # what is not stated is NaN, and never exceeded
            where = f"{name} of node {node}" if node else f"{name}"
            words = f"the GPUs need {amount:g} of {where}, expected at most {has:g}"
            found += [Flaw(p, "gpus", words) for p in dict.fromkeys(users[node, name])]
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


def _apart(
    classes: Classes,
    job: IntArray,
    partner: IntArray,
    on: Mapping[int, Mapping[str, int]],
    constraints: Iterable[Mapping[str, Any]],
) -> list[Flaw]:
    """No two jobs of an anti-affinity constraint are on one node."""
    names = classes.instance.jobs_table.names
    found = []
    for constraint in constraints:
        if constraint.get("kind") != "anti-affinity":
            continue
        apart = set(constraint["jobs"])
        seen: dict[str, tuple[str, int]] = {}
        for p, count in on.items():
            for name in [names[int(number)] for number in (job[p], partner[p]) if number >= 0]:
                for node in count if name in apart else ():
                    other, _ = seen.setdefault(node, (name, p))
                    if other != name:
                        words = (
                            f"jobs {other} and {name} are both on node {node}, expected different nodes (anti-affinity)"
                        )
                        found.append(Flaw(p, "gpus", words))
    return found
