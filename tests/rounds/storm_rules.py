"""What every plan must keep, checked on documents and names alone: nothing here comes from optsched.rounds.checking."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optsched.rounds import Action, Plan, RoundState

Place = tuple[str, tuple[str, ...]]
"""Pool and GPUs."""
SLACK = 1e-6


@dataclass
class Node:
    """A node as the storm knows it."""

    pool: str
    gpus: int
    cpus: float | None
    memory: float | None
    state: str = "up"


@dataclass
class Facts:
    """All that is known of a cluster and its jobs, by name."""

    nodes: dict[str, Node]
    workloads: Mapping[str, Any]
    pairs: Mapping[frozenset[str], set[tuple[str, int]]]
    """Workloads that may share GPUs -> pool and GPUs."""
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    reservations: dict[str, tuple[tuple[str, ...], float, float]] = field(default_factory=dict)
    apart: tuple[frozenset[str], ...] = ()
    """Sets of jobs of which no two may be on one node."""
    pinned: frozenset[str] = frozenset()
    """Jobs that may run on v100 only."""
    now: float = 0.0
    shrunk: bool = False
    """Whether CPUs of nodes were taken away: jobs that cannot be preempted may then hold too many."""
    strained: bool = False
    """Whether there were jobs that are to run on without having been started as such, or on nodes that took no work: no
    allocation may then keep the side constraints."""

    def takes_work(self, node: str, until: float) -> bool:
        reserved = any(
            node in nodes and a < until and b > self.now
            for nodes, a, b in self.reservations.values()
        )
        return self.nodes[node].state == "up" and not reserved

    def share(self, job: str, pool: str, gpus: int) -> float:
        """Least share of each GPU that the job takes in such a place."""
        options = self.jobs[job].get("options")
        if options is None:
            return 1.0
        fits = [
            o.get("share", 1.0)
            for o in options
            if o.get("pool") == pool and o.get("gpus", 0) == gpus
        ]
        return min(fits, default=1.0)

    def need(self, job: str, pool: str, gpus: int, resource: str) -> float:
        """CPUs or memory per GPU."""
        document = self.jobs[job]
        if "options" in document:
            fits = [
                o for o in document["options"] if o.get("pool") == pool and o.get("gpus", 0) == gpus
            ]
            return min(
                (o.get("uses", {}).get(resource, 0.0) / max(gpus, 1) for o in fits), default=0.0
            )
        workload = self.workloads.get(document.get("workload"), {})
        return float(workload.get("demand", {}).get(resource, 0.0))

    def may_have(self, job: str, place: Place) -> bool:
        """Whether a job may run on so many GPUs of such a pool, and on so many nodes."""
        pool, gpus = place
        count, spanned = len(gpus), len({gpu.rpartition("/")[0] for gpu in gpus})
        document = self.jobs[job]
        if "options" in document:
            return any(
                o.get("pool") == pool
                and o.get("gpus", 0) == count
                and spanned <= o.get("nodes", 99)
                for o in document["options"]
            )
        wanted = document.get("gpus", 1)
        if isinstance(wanted, int):
            sized = count == wanted
        else:
            sized = wanted["min"] <= count <= wanted["max"] and count in wanted.get(
                "levels", [count]
            )
        rates = document.get(
            "throughput", self.workloads.get(document.get("workload"), {}).get("throughput", {})
        )
        rate = rates.get(pool)
        if rate is None:
            return False
        if isinstance(rate, dict):
            rate = rate.get(str(count))
            if rate is None:
                return False
        if isinstance(rate, dict):
            return sized and spanned <= max(map(int, rate))
        return sized


def broken(
    facts: Facts, before: Mapping[str, Place], state: RoundState, plan: Plan, previous: Plan | None
) -> list[str]:
    """Everything that is wrong with a plan; ``before`` is what ran, ``state`` what the scheduler was before it."""
    found: list[str] = []
    after = {
        item.job: (item.pool, item.gpus)
        for item in (*plan.start, *plan.keep, *plan.move)
        if item.gpus
    }
    told = [item.job for item in (*plan.start, *plan.keep, *plan.move, *plan.preempt, *plan.hold)]
    if sorted(told) != sorted(facts.jobs):
        found.append("not every job has exactly one decision")
    until = facts.now + plan.instance.round
    must = _cannot_stop(facts, before)
    for job, place in after.items():
        found += _one_job(facts, job, place, must, before, until)
    found += [
        f"{job} cannot be stopped, and is stopped or moved"
        for job in must
        if after.get(job) != before[job]
    ]
    found += _crowded(facts, after)
    found += _over_nodes(facts, after, must)
    found += _steps(facts, "the hand-over", before, after, plan.diff())
    if previous is not None:
        was = {
            item.job: (item.pool, item.gpus)
            for item in (*previous.start, *previous.keep, *previous.move)
        }
        was = {job: place for job, place in was.items() if place[1]}
        steps = [
            step for step in plan.diff(previous) if step.job in facts.jobs or step.kind == "stop"
        ]
        found += _steps(facts, "the difference to the plan before", was, after, steps)
    for jobs in facts.apart:
        nodes = [
            gpu.rpartition("/")[0]
            for job in sorted(jobs & set(after))
            for gpu in set(after[job][1])
        ]
        mine = {job: {gpu.rpartition("/")[0] for gpu in after[job][1]} for job in jobs & set(after)}
        if len(set(nodes)) < sum(map(len, mine.values())):
            found.append(f"{sorted(mine)} are to be on different nodes: {mine}")
    found += [
        f"{job} runs where it may not"
        for job in facts.pinned & set(after)
        if after[job][0] != "v100"
    ]
    found += [f"{item.job} waits without a reason" for item in plan.hold if not item.reason.strip()]
    found += [
        f"{item.job} is stopped without a reason"
        for item in plan.preempt
        if not item.reason.strip()
    ]
    found += _figures(state, plan)
    if not {item.job for item in plan.keep} <= {*before, *_bare(facts)}:
        found.append("a job is kept that did not run")
    return found


def strained(facts: Facts, before: Mapping[str, Place], until: float) -> bool:
    """Whether jobs that cannot be stopped are on nodes that take no work: they are in no allocation."""
    gpus = [gpu for job in _cannot_stop(facts, before) for gpu in before[job][1]]
    return not all(facts.takes_work(gpu.rpartition("/")[0], until) for gpu in gpus)


def displaced(facts: Facts, before: Mapping[str, Place], plan: Plan) -> list[str]:
    """Jobs that are stopped or moved where nothing but the allocation asks for it."""
    until = facts.now + plan.instance.round
    if _over_nodes(facts, before, ()):
        return []  # some had to go
    return [
        item.job
        for item in (*plan.preempt, *plan.move)
        if item.job in before
        and all(facts.takes_work(gpu.rpartition("/")[0], until) for gpu in before[item.job][1])
        and facts.jobs[item.job].get("steps_done", 0.0) < facts.jobs[item.job]["steps"]
        and facts.may_have(item.job, before[item.job])
        and not any(
            set(before[other][1]) & set(before[item.job][1])
            and other != item.job
            and _done(facts, other)
            for other in before
        )  # nobody stands in a pair with a job that has no steps left
    ]


def _done(facts: Facts, job: str) -> bool:
    return bool(facts.jobs[job].get("steps_done", 0.0) >= facts.jobs[job]["steps"])


def _cannot_stop(facts: Facts, before: Mapping[str, Place]) -> list[str]:
    return [
        job
        for job, (_, gpus) in before.items()
        if not facts.jobs[job].get("preemptible", True)
        and all(facts.nodes[gpu.rpartition("/")[0]].state != "down" for gpu in gpus)
    ]


def _bare(facts: Facts) -> list[str]:
    """Jobs that may run without GPUs."""
    return [
        job
        for job, document in facts.jobs.items()
        if any(o.get("gpus", 0) == 0 for o in document.get("options", ()))
    ]


def _one_job(
    facts: Facts,
    job: str,
    place: Place,
    must: Iterable[str],
    before: Mapping[str, Place],
    until: float,
) -> list[str]:
    pool, gpus = place
    found = []
    for gpu in gpus:
        node, _, index = gpu.rpartition("/")
        there = facts.nodes.get(node)
        if there is None or there.pool != pool or not 0 <= int(index) < there.gpus:
            found.append(f"{job} gets {gpu}, which is no GPU of {pool}")
        elif not facts.takes_work(node, until) and not (job in must and before[job] == place):
            found.append(f"{job} gets {gpu} of a node that takes no work")
    if len(set(gpus)) < len(gpus):
        found.append(f"{job} gets a GPU twice")
    if not facts.may_have(job, place) and job not in must:
        found.append(f"{job} may not run on {len(gpus)} GPUs of {pool} like this: {gpus}")
    document = facts.jobs[job]
    if any(other in facts.jobs for other in document.get("after", ())) and job not in must:
        found.append(f"{job} runs before {document['after']}")
    if document.get("arrival", 0.0) > facts.now:
        found.append(f"{job} runs before it arrives")
    return found


def _crowded(facts: Facts, after: Mapping[str, Place]) -> list[str]:
    held: dict[str, list[str]] = defaultdict(list)
    for job, (_, gpus) in after.items():
        for gpu in gpus:
            held[gpu].append(job)
    found = []
    for gpu, jobs in held.items():
        if len(jobs) == 1:
            continue
        total = sum(facts.share(job, after[job][0], len(after[job][1])) for job in jobs)
        if total > 1 + SLACK and not _pair(facts, after, jobs):
            found.append(f"{gpu} is given to {jobs}")
    return found


def _pair(facts: Facts, after: Mapping[str, Place], jobs: list[str]) -> bool:
    if (
        len(jobs) != 2
        or len({(pool, frozenset(gpus)) for pool, gpus in (after[job] for job in jobs)}) > 1
    ):
        return False
    names = frozenset(facts.jobs[job].get("workload", "") for job in jobs)
    pool, gpus = after[jobs[0]]
    return (pool, len(gpus)) in facts.pairs.get(names, set())


def _over_nodes(facts: Facts, after: Mapping[str, Place], must: Iterable[str]) -> list[str]:
    found = []
    for resource in ("cpu", "memory"):
        used: dict[str, float] = defaultdict(float)
        who: dict[str, set[str]] = defaultdict(set)
        for job, (pool, gpus) in after.items():
            for gpu in gpus:
                node = gpu.rpartition("/")[0]
                used[node] += facts.need(job, pool, len(gpus), resource)
                who[node].add(job)
        for node, amount in used.items():
            there = facts.nodes[node].cpus if resource == "cpu" else facts.nodes[node].memory
            if (
                there is None
                or amount <= there * (1 + SLACK)
                or (facts.shrunk and must and who[node] <= set(must))
            ):
                continue
            found.append(
                f"{amount} {resource} of {there} of {node} are used by {sorted(who[node])}"
            )
    return found


def _steps(
    facts: Facts,
    what: str,
    before: Mapping[str, Place],
    after: Mapping[str, Place],
    steps: Iterable[Action],
) -> list[str]:
    """Carry the actions out, one by one."""
    now, found = dict(before), []
    for step in (step for step in steps if step.gpus):
        if step.kind == "stop":
            if now.pop(step.job, None) != (step.pool, step.gpus):
                found.append(f"{what}: {step.job} is stopped where it does not run")
            continue
        if step.job in now:
            found.append(f"{what}: {step.job} is started twice")
        now[step.job] = (step.pool, step.gpus)
        mine = {job: place for job, place in now.items() if set(place[1]) & set(step.gpus)}
        if all(job in facts.jobs for job in mine):
            found += [f"{what}: {words}" for words in _crowded(facts, mine)]
        else:
            found.append(f"{what}: {step.job} is started on GPUs of a job that has left")
    if now != dict(after):
        found.append(f"{what} does not lead to the plan")
    return found


def _figures(state: RoundState, plan: Plan) -> list[str]:
    found = []
    for name in ("fraction", "owed", "received", "carried"):
        if not np.isfinite(getattr(plan.ledger, name)).all():
            found.append(f"the ledger's {name} is not finite")
    if (plan.ledger.fraction < 0).any() or (plan.ledger.fraction > 1 + SLACK).any():
        found.append("a fraction of the time outside 0 to 1")
    if plan.solution is not None and not plan.solution.certificate.ok:
        found.append("the certificate does not hold")
    if plan.round != state.round:
        found.append("the plan has another round's number")
    json.dumps(plan.to_document(), allow_nan=False)
    return found
