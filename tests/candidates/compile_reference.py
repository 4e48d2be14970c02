"""The compile step once more: loops over jobs, pools and counts of a plain document, slow and easy to check.

Written from the format's description (design, sections 5 and 9), not from the code; works on documents, so that nothing
of `optsched` but the names of reasons is shared with what it checks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from optsched.candidates import Absence, Drop

Document = Mapping[str, Any]
Fill = Callable[[str, int, int], "float | Drop"]
"""A second model: (pool, GPUs, nodes) -> rate, or why there is none."""


class Column(NamedTuple):
    """A way to run; jobs in the order of the file."""

    jobs: tuple[str, ...]
    pool: str | None
    gpus: int
    nodes: int
    share: float
    option: int | None
    rates: tuple[float, ...]
    usage: frozenset[tuple[str, float]]
    duration: float | None = None
    value: float = 0.0
    cost: float = 0.0


class Dropped(NamedTuple):
    """A way in which jobs cannot run; nodes 0 where the pool is too small anyhow."""

    jobs: tuple[str, ...]
    pool: str | None
    gpus: int
    nodes: int
    option: int | None
    reason: Drop


@dataclass
class Pool:
    """A pool with its usable nodes, largest first."""

    document: Document
    now: float
    nodes: list[dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        pool, nodes = self.document, self.document["nodes"]
        if isinstance(nodes, int):
            nodes = [{} for _ in range(nodes)]
        self.nodes = []
        for node in nodes:
            if node.get("state", "up") == "up" and node.get("available_from", self.now) <= self.now:
                self.nodes.append(
                    {
                        "gpus": node.get("gpus", pool.get("gpus_per_node")),
                        "cpu": node.get("cpus", pool.get("cpus_per_node")),
                        "memory": node.get("memory", pool.get("memory_per_node")),
                    }
                )
        self.nodes.sort(key=lambda node: -node["gpus"])

    @property
    def name(self) -> str:
        return str(self.document["name"])

    @property
    def type(self) -> str:
        return str(self.document.get("gpu") or self.name)

    @cached_property
    def capacity(self) -> int:
        return sum(node["gpus"] for node in self.nodes)

    @property
    def hosts(self) -> int:
        """Nodes that have GPUs."""
        return sum(node["gpus"] > 0 for node in self.nodes)

    def fewest(self, gpus: int) -> int | None:
        """Fewest nodes that hold so many GPUs."""
        for count in range(len(self.nodes) + 1):
            if sum(node["gpus"] for node in self.nodes[:count]) >= gpus:
                return count
        return None

    def unfit(self, gpus: int, nodes: int) -> Drop | None:
        """Why a gang of so many GPUs cannot be had on exactly so many nodes: each gives one GPU at least."""
        if gpus > self.capacity:
            return Drop.TOO_MANY_GPUS
        chosen = [node["gpus"] for node in self.nodes if node["gpus"] > 0][:nodes]
        return (
            None
            if gpus == 0 or (len(chosen) == nodes and nodes <= gpus <= sum(chosen))
            else Drop.TOO_MANY_NODES
        )

    def limit(self, resource: str) -> float | None:
        """CPUs or memory of all usable nodes; None where one of them does not say."""
        amounts = [node[resource] for node in self.nodes]
        return None if None in amounts else float(sum(amounts))


class Reference:
    """Everything that `compile` should find, for a document and perhaps a second model."""

    def __init__(self, document: Document, fill: Fill | None = None) -> None:
        self.document = document
        self.now = document.get("now", 0.0)
        self.fill = fill
        self.pools = {pool["name"]: Pool(pool, self.now) for pool in document["cluster"]["pools"]}
        self.resources = {r["name"]: r for r in document["cluster"].get("resources", ())}
        self.workloads: dict[str, dict[str, Any]] = {
            k: dict(v) for k, v in document.get("workloads", {}).items()
        }
        for name, rates in document.get("throughputs", {}).items():
            self.workloads.setdefault(name, {})["throughput"] = rates
        self.jobs = {job["id"]: job for job in document["jobs"]}
        self.order = {name: row for row, name in enumerate(self.jobs)}
        self.columns: list[Column] = []
        self.dropped: list[Dropped] = []
        self.absent: dict[str, Absence] = {}
        self._compile()

    # --- jobs ------------------------------------------------------------------------------------------------------

    def workload(self, job: Document) -> dict[str, Any]:
        return self.workloads.get(job.get("workload", ""), {})

    def counts(self, job: Document) -> list[int]:
        """GPU counts that a job allows."""
        gpus = job.get("gpus", 1)
        if isinstance(gpus, int):
            return [gpus]
        return gpus.get("levels") or list(range(gpus["min"], gpus["max"] + 1))

    def candidate_counts(self, job: Document) -> list[int]:
        """Those to look at: of a range without levels only listed ones (and the smallest), unless a model fills in."""
        counts = sorted(self.counts(job))
        if isinstance(job.get("gpus", 1), int) or job["gpus"].get("levels"):
            return counts
        largest = max(pool.capacity for pool in self.pools.values())
        counts = [count for count in counts if count <= largest or count == counts[0]]
        if self.fill and "throughput" not in job:
            return counts
        rates = job.get("throughput", self.workload(job).get("throughput", {}))
        listed = {
            int(count)
            for by_count in rates.values()
            if isinstance(by_count, dict)
            for count in by_count
        }
        return [count for count in counts if count in listed or count == counts[0]]

    def entry(self, job: Document, pool: Pool) -> Any:
        """What the job's table, else its workload's, says of a pool: by the pool's name, else by its GPU type."""
        rates = job.get("throughput", self.workload(job).get("throughput", {}))
        return rates.get(pool.name, rates.get(pool.type))

    def rate(self, job: Document, pool: Pool, gpus: int, nodes: int) -> float | None:
        """Stated rate, None where nothing is stated."""
        entry, fewest = self.entry(job, pool), pool.fewest(gpus)
        if isinstance(entry, dict):
            entry = entry.get(str(gpus))
            if isinstance(entry, dict):
                wider = [int(n) for n in entry if int(n) >= nodes == pool.hosts]
                return entry.get(str(min(wider, default=nodes)))
            return entry if nodes == fewest else None
        stands_for = (
            self.counts(job) if "throughput" in job else [1]
        )  # no elastic job has plain numbers
        return entry if [gpus] == stands_for and nodes == fewest else None

    def spreads(self, job: Document, pool: Pool, gpus: int) -> list[int]:
        """Nodes to span: the fewest, and those that the table lists."""
        entry, spreads = self.entry(job, pool), set()
        if isinstance(entry, dict) and isinstance(entry.get(str(gpus)), dict):
            listed = {int(nodes) for nodes in entry[str(gpus)]}
            wide = {nodes for nodes in listed if nodes >= pool.hosts}
            # A rate for more nodes than there are holds on all of them.
            spreads = (
                listed - wide | {max(pool.hosts, 1)} | (wide - {min(wide)}) if wide else listed
            )
        fewest = pool.fewest(gpus)
        return sorted(spreads | ({0} if fewest is None else {fewest}))

    def out_of_memory(self, jobs: list[Document], pool: Pool, share: float = 1.0) -> bool:
        need = sum(self.workload(job).get("gpu_memory") or 0.0 for job in jobs)
        has = pool.document.get("gpu_memory")
        return has is not None and need > has * share * (1 + 1e-9)

    def roomless(self, jobs: list[Document], pool: Pool, gpus: int, nodes: int) -> Drop | None:
        """Why GPUs that could be had find no room: what a workload demands goes with every GPU, on the GPU's node."""
        demand: dict[str, float] = {}
        for job in jobs:
            for name, amount in self.workload(job).get("demand", {}).items():
                demand[name] = demand.get(name, 0.0) + amount
        if not any(
            sum(self.hosts(node, demand, gpus) for node in chosen) >= gpus
            for chosen in itertools.combinations(pool.nodes, nodes)
        ):
            return Drop.NO_ROOM
        for name, resource in self.resources.items():
            counts = (
                resource.get("pool") in (None, pool.name)
                and resource.get("kind", "renewable") == "renewable"
            )
            if counts and demand.get(name, 0.0) * gpus > resource["capacity"] * (1 + 1e-9):
                return Drop.OVER_CAPACITY
        return None

    @staticmethod
    def hosts(node: Document, demand: Mapping[str, float], gpus: int) -> int:
        """Most of so many GPUs for which a node has CPUs and memory."""
        count = min(gpus, node["gpus"])
        for name in ("cpu", "memory"):
            while node[name] is not None and count * demand.get(name, 0.0) > node[name] * (
                1 + 1e-9
            ):
                count -= 1
        return count

    # --- columns ---------------------------------------------------------------------------------------------------

    def _compile(self) -> None:
        for name, job in self.jobs.items():
            if job.get("steps", 1.0) - job.get("steps_done", 0.0) <= 0:
                self.absent[name] = Absence.NO_STEP_LEFT
            elif job.get("arrival", min(0.0, self.now)) > self.now:
                self.absent[name] = Absence.ARRIVES_LATER
            elif "options" in job:
                for number, option in enumerate(job["options"]):
                    self._option(job, number, option)
            else:
                for pool in self.pools.values():
                    for gpus in self.candidate_counts(job):
                        for nodes in self.spreads(job, pool, gpus):
                            self._generated(job, pool, gpus, nodes)
        names = [name for name in self.jobs if name not in self.absent]
        for row, first in enumerate(names):
            for second in names[row + 1 :]:
                self._pairs(self.jobs[first], self.jobs[second])
        placed = {name for column in self.columns for name in column.jobs}
        self.absent |= {name: Absence.NO_COLUMN for name in names if name not in placed}

    def _generated(self, job: Document, pool: Pool, gpus: int, nodes: int) -> None:
        reason, rate = pool.unfit(gpus, nodes), self.rate(job, pool, gpus, nodes)
        if reason is None and self.out_of_memory([job], pool):
            reason = Drop.OUT_OF_MEMORY
        reason = reason or self.roomless([job], pool, gpus, nodes)
        if reason is None and rate is None and self.fill and "throughput" not in job:
            answer = self.fill(pool.name, gpus, nodes)
            reason, rate = (answer, None) if isinstance(answer, Drop) else (None, answer)
        elif reason is None and not rate:
            reason = Drop.NO_RATE if rate is None else Drop.ZERO_RATE
        self._add(
            Column((job["id"],), pool.name, gpus, nodes, 1.0, None, (rate or 0.0,), frozenset()),
            [job],
            reason,
        )

    def _option(self, job: Document, number: int, option: Document) -> None:
        pool = self.pools.get(option.get("pool") or "")
        gpus, share = option.get("gpus", 0), option.get("share", 1.0)
        nodes = 0 if pool is None else option.get("nodes") or pool.fewest(gpus) or 0
        rate, duration, reason = option.get("throughput"), option.get("duration"), None
        if pool is not None and gpus > 0:
            reason = pool.unfit(gpus, nodes)
            if reason is None and self.out_of_memory([job], pool, share):
                reason = Drop.OUT_OF_MEMORY
        if reason is None and rate == 0:
            reason = Drop.ZERO_RATE
        if rate is None:
            rate = 0.0 if duration is None else job.get("steps", 1.0) / duration
        column = Column(
            (job["id"],), None if pool is None else pool.name, gpus, nodes, share, number, (rate,), frozenset(),
            duration, option.get("value", 0.0), option.get("cost", 0.0),
        )  # fmt: skip
        self._add(column, [job], reason, option.get("uses", {}))

    def _entries(
        self, first: Document, second: Document
    ) -> Iterator[tuple[Document, tuple[float, float]]]:
        """Co-location entries for two jobs and their rates, those that win over others first."""
        entries = self.document.get("colocation", ())
        for by in ("jobs", "workloads"):
            for stated in (True, False):
                for entry in entries:
                    if by not in entry or ("nodes" in entry) != stated:
                        continue
                    if by == "workloads" and ("options" in first or "options" in second):
                        continue
                    key = "id" if by == "jobs" else "workload"
                    here, rates = [first.get(key), second.get(key)], entry["throughput"]
                    if here[0] == here[1] and here == list(entry[by]):
                        yield entry, (sum(rates) / 2, sum(rates) / 2)
                    elif here == list(entry[by]):
                        yield entry, (rates[0], rates[1])
                    elif here == list(entry[by])[::-1]:
                        yield entry, (rates[1], rates[0])

    def _pairs(self, first: Document, second: Document) -> None:
        seen = set()
        for entry, rates in self._entries(first, second):
            pool, gpus = self.pools[entry["pool"]], entry.get("gpus", 1)
            nodes = entry.get("nodes") or pool.fewest(gpus) or 0
            if (
                gpus not in self.counts(first)
                or gpus not in self.counts(second)
                or (pool.name, gpus, nodes) in seen
            ):
                continue
            seen.add((pool.name, gpus, nodes))
            reason = pool.unfit(gpus, nodes)
            if reason is None and self.out_of_memory([first, second], pool):
                reason = Drop.OUT_OF_MEMORY
            reason = reason or self.roomless([first, second], pool, gpus, nodes)
            if reason is None and not any(rates):
                reason = Drop.ZERO_RATE
            jobs = (first["id"], second["id"])
            self._add(
                Column(jobs, pool.name, gpus, nodes, 1.0, None, rates, frozenset()),
                [first, second],
                reason,
            )

    def _add(
        self,
        column: Column,
        jobs: list[Document],
        reason: Drop | None,
        uses: Mapping[str, float] | None = None,
    ) -> None:
        if reason is not None:
            nodes = 0 if reason is Drop.TOO_MANY_GPUS else column.nodes
            self.dropped.append(
                Dropped(column.jobs, column.pool, column.gpus, nodes, column.option, reason)
            )
            return
        usage: dict[str, float] = {}
        if column.pool is not None:
            usage[column.pool] = column.gpus * column.share
        needs = {}
        if uses is not None:
            needs = dict(uses)
        else:
            for job in jobs:
                for name, amount in self.workload(job).get("demand", {}).items():
                    needs[name] = needs.get(name, 0.0) + amount * column.gpus
        for name, amount in needs.items():
            if name in ("cpu", "memory"):
                if column.pool is not None and self.pools[column.pool].limit(name) is not None:
                    usage[f"{column.pool}.{name}"] = amount
            elif uses is not None or self.resources[name].get("pool") in (None, column.pool):
                usage[name] = amount
        used = frozenset((name, amount) for name, amount in usage.items() if amount > 0)
        self.columns.append(column._replace(usage=used))

    # --- resources -------------------------------------------------------------------------------------------------

    def capacities(self) -> dict[str, tuple[float, bool]]:
        """Capacity of each resource and whether it is renewable, in order."""
        rows = {name: (float(pool.capacity), True) for name, pool in self.pools.items()}
        used = {name for column in self.columns for name, _ in column.usage}
        for resource in ("cpu", "memory"):
            for name, pool in self.pools.items():
                limit = pool.limit(resource)
                if f"{name}.{resource}" in used and limit is not None:
                    rows[f"{name}.{resource}"] = (limit, True)
        for name, resource in self.resources.items():
            rows[name] = (
                float(resource["capacity"]),
                resource.get("kind", "renewable") == "renewable",
            )
        return rows

    def refused(self) -> list[str]:
        """Jobs whose larger gang would have to use a workload's plain number."""
        return [
            name
            for name, job in self.jobs.items()
            if "throughput" not in job
            and "options" not in job
            and min(self.counts(job)) > 1
            and any(
                isinstance(entry := self.entry(job, pool), int | float) and entry > 0
                for pool in self.pools.values()
            )
        ]
