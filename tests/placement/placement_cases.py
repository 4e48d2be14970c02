"""Small placement problems, random ones among them, and a brute force over every choice of GPUs."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import networkx
import numpy as np

import optsched
from optsched import Instance
from optsched.candidates import Classes, JobRows
from optsched.instance import topology_graph
from optsched.registry import load_solver
from optsched.solving import Engine

Document = dict[str, Any]


def engine() -> Engine:
    return Engine(load_solver)


def job(name: str, gpus: int = 1, *, pool: str = "p", **option: Any) -> Document:
    """A job with one way to run."""
    running = option.pop("running", None)
    given = {"id": name, "options": [{"pool": pool, "gpus": gpus, "throughput": 1.0, **option}]}
    return given if running is None else {**given, "running": {"pool": pool, "gpus": running}}


def instance_of(jobs: list[Document], pools: list[Document], **cluster: Any) -> Instance:
    return Instance.from_document(
        {"format": "optsched-instance/1", "cluster": {"pools": pools, **cluster}, "jobs": jobs}
    )


def pool_of(*sizes: int, name: str = "p", **more: Any) -> Document:
    """A pool with a node of each size, called ``<name>a``, ``<name>b``, ..."""
    nodes = [{"name": f"{name}{chr(97 + i)}", "gpus": size} for i, size in enumerate(sizes)]
    return {"name": name, "nodes": nodes, **more}


def rows_of(instance: Instance) -> tuple[Classes, JobRows]:
    """Every job in its first column, and every pair in its."""
    classes = optsched.compile(instance).per_job().classes(frozenset())
    paired = np.flatnonzero(classes.class_b >= 0)
    shared = set(classes.class_a[paired].tolist()) | set(classes.class_b[paired].tolist())
    alone = [c for c in np.unique(classes.class_a[classes.alone]).tolist() if c not in shared]
    column = [
        int(np.flatnonzero(classes.alone & (classes.class_a == c))[0]) for c in alone
    ] + paired.tolist()
    job = [int(classes.first[classes.class_a[c]]) for c in column]
    partner = [
        int(classes.first[classes.class_b[c]]) if classes.class_b[c] >= 0 else -1 for c in column
    ]
    order = np.argsort(job)
    arrays = (np.array(values, np.int64)[order] for values in (job, partner, column))
    ones = np.ones(len(column))
    return classes, JobRows(*arrays, ones, ones, ones)


# --- brute force -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Best:
    """The lexicographic optimum."""

    rows: int
    nodes: int
    bandwidth: float
    moved: int

    def reached_by(self, figures: Mapping[str, Any]) -> bool:
        """Whether a placement with these figures is as good."""
        return (
            figures["rows_placed"],
            figures["nodes_spanned"],
            round(figures["bandwidth"], 6),
            figures["gpus_moved"],
        ) == (self.rows, self.nodes, round(self.bandwidth, 6), self.moved)


def bottleneck(graph: Any, gpus: list[str], cap: float) -> float:
    """Least width, over pairs of the nodes' GPUs, of the widest path; by removing links from the narrowest on."""
    best = 0.0
    for level in sorted(
        {data["bandwidth"] for _, _, data in graph.edges(data=True) if "bandwidth" in data}
    ):
        wide = networkx.Graph()
        wide.add_nodes_from(graph)
        wide.add_edges_from(
            (u, v) for u, v, data in graph.edges(data=True) if data.get("bandwidth", cap) >= level
        )
        if len({frozenset(networkx.node_connected_component(wide, gpu)) for gpu in gpus}) == 1:
            best = level
    return best


def brute_force(
    classes: Classes,
    rows: JobRows,
    apart: list[list[str]],
    fixed: Mapping[int, tuple[str, ...]] | None = None,
    barred: Mapping[int, Collection[str]] | None = None,
) -> Best:
    """Try every set of GPUs for every row; fixed rows have theirs, and count for nothing in what is best."""
    instance = classes.instance
    cluster, table, names = instance.cluster, instance.jobs_table, instance.jobs_table.names
    graph = topology_graph(cluster)
    widths = [data["bandwidth"] for _, _, data in graph.edges(data=True) if "bandwidth" in data]
    cap = max(widths, default=0.0)
    known: dict[frozenset[str], float] = {}

    def width(pool: Any, nodes: frozenset[str]) -> float:
        if nodes not in known:
            sizes = {pool.node_name(row): int(k) for row, k in enumerate(pool.node_gpus)}
            known[nodes] = bottleneck(
                graph, [f"{n}/{i}" for n in sorted(nodes) for i in range(sizes[n])], cap
            )
        return known[nodes]

    choices: list[list[tuple[tuple[str, ...], int, float, int]]] = []
    needs: list[dict[str, float]] = []
    shares = []
    for row in range(len(rows)):
        c = int(rows.column[row])
        configuration = int(classes.configuration[c])
        pool = cluster.pools[int(classes.pool[c])]
        usable = pool.usable(instance.now)
        free = [
            f"{pool.node_name(n)}/{i}"
            for n in np.flatnonzero(usable).tolist()
            for i in range(int(pool.node_gpus[n]))
        ]
        gpus, span = int(classes.gpus[c]), int(classes.configurations.nodes[configuration])
        shares.append(float(classes.configurations.share[configuration]))
        option = int(classes.candidates.columns.option[classes.kind_column[c]])
        if option >= 0:
            need = {name: amount / gpus for name, amount in instance.options.uses[option].items()}
        else:
            need = {}
            for j in (int(rows.job[row]), int(rows.partner[row])):
                if j >= 0 and table.workload[j] >= 0:
                    for name, amount in instance.workloads[int(table.workload[j])].demand.items():
                        need[name] = need.get(name, 0.0) + amount
        needs.append(need)
        running = [
            table.running[j]
            for j in (int(rows.job[row]), int(rows.partner[row]))
            if j in table.running
        ]
        options: list[tuple[tuple[str, ...], int, float, int]] = []
        choices.append(options)
        if fixed and row in fixed:
            options.append((fixed[row], 0, 0.0, 0))
            continue
        off = (barred or {}).get(row, ())
        free = [gpu for gpu in free if gpu.split("/")[0] not in off]
        for chosen in itertools.combinations(free, gpus):
            nodes = frozenset(gpu.split("/")[0] for gpu in chosen)
            if len(nodes) <= span:
                moved = sum(sum(gpu not in held for gpu in chosen) for _, held, _ in running)
                options.append((chosen, len(nodes), width(pool, nodes) if gpus > 1 else 0.0, moved))

    cpus = {
        pool.node_name(n): float(pool.node_cpus[n])
        for pool in cluster.pools
        for n in range(len(pool.node_gpus))
    }
    members = [
        {names[int(j)] for j in (rows.job[row], rows.partner[row]) if j >= 0}
        for row in range(len(rows))
    ]
    best: tuple[float, ...] = (0, 0, 0.0, 0)

    def fits(taken: list[tuple[int, tuple[str, ...]]]) -> bool:
        load: dict[str, float] = {}
        cpu: dict[str, float] = {}
        group = {r.name: 0.0 for r in cluster.resources if r.nodes}
        on: dict[str, set[int]] = {}
        for row, gpus in taken:
            for gpu in gpus:
                node = gpu.split("/")[0]
                load[gpu] = load.get(gpu, 0.0) + shares[row]
                cpu[node] = cpu.get(node, 0.0) + needs[row].get("cpu", 0.0)
                on.setdefault(node, set()).add(row)
                for r in cluster.resources:
                    if r.nodes and node in r.nodes:
                        group[r.name] += needs[row].get(r.name, 0.0)
        if any(amount > 1 + 1e-9 for amount in load.values()):
            return False
        if any(amount > cpus[node] + 1e-9 for node, amount in cpu.items()):
            return False
        if any(group[r.name] > r.capacity + 1e-9 for r in cluster.resources if r.nodes):
            return False
        for together in apart:
            for present in on.values():
                jobs = [name for row in present for name in members[row] if name in together]
                if len(jobs) > 1:
                    return False
        return True

    def search(
        row: int, taken: list[tuple[int, tuple[str, ...]]], worth: tuple[float, ...]
    ) -> None:
        nonlocal best
        if row == len(rows):
            worth = (worth[0] + len(fixed or ()), *worth[1:])
            best = min(best, (worth[0], worth[1], round(worth[2], 9), worth[3]))
            return
        if -worth[0] - len(fixed or ()) + len(rows) - row < -best[0]:
            return
        for gpus, nodes, wide, moved in choices[row]:
            more = [*taken, (row, gpus)]
            if fits(more):
                search(
                    row + 1,
                    more,
                    (worth[0] - 1, worth[1] + nodes, worth[2] - wide, worth[3] + moved),
                )
        if not fixed or row not in fixed:
            search(row + 1, taken, worth)

    search(0, [], (0, 0, 0.0, 0))
    return Best(int(-best[0]), int(best[1]), -best[2], int(best[3]))


# --- random problems -------------------------------------------------------------------------------------------------


def random_case(seed: int) -> tuple[Classes, JobRows, list[list[str]]]:
    """A small cluster with mixed nodes, states, CPUs, links; jobs with gangs, shares, pairs, needs; some running."""
    random = np.random.default_rng(seed)
    sizes = random.choice([1, 1, 2, 2, 3], random.integers(2, 5)).tolist()
    nodes = [{"name": f"n{i}", "gpus": int(size)} for i, size in enumerate(sizes)]
    if random.random() < 0.3:
        nodes[-1]["state"] = str(random.choice(["drain", "down"]))
    if random.random() < 0.2:
        nodes[0]["available_from"] = float(random.choice([-5.0, 5.0]))
    if random.random() < 0.4:
        for node in nodes:
            node["cpus"] = float(random.integers(2, 9))
    pool: Document = {"name": "p", "nodes": nodes}
    if random.random() < 0.6:
        stated = {"intra_node": float(random.integers(1, 9)), "node": float(random.integers(1, 9))}
        pool["bandwidth"] = {key: value for key, value in stated.items() if random.random() < 0.8}
    spots = [f"{node['name']}/{i}" for node in nodes for i in range(node["gpus"])]
    cluster: Document = {"pools": [pool]}
    if random.random() < 0.3:
        cluster["topology"] = random_topology(random, nodes, spots)
    if random.random() < 0.3:
        cluster["resources"] = [
            {
                "name": "rack",
                "capacity": float(random.integers(1, 5)),
                "nodes": [node["name"] for node in nodes[:2]],
            }
        ]
    jobs = []
    for i in range(int(random.integers(2, 5))):
        gpus = int(random.choice([1, 1, 2, 2, 3, 4]))
        option: Document = {"nodes": int(random.integers(1, gpus + 1))}
        if random.random() < 0.3:
            option["share"] = float(random.choice([0.25, 0.5, 0.6]))
        if random.random() < 0.4:
            option["uses"] = {"cpu": float(gpus * random.integers(1, 5))}
            if "resources" in cluster:
                option["uses"]["rack"] = float(gpus)
        if random.random() < 0.4:
            held = random.choice(spots, min(int(random.integers(1, 4)), len(spots)), replace=False)
            option["running"] = [str(spot) for spot in held]
        jobs.append(job(f"j{i}", gpus, **option))
    names = [item["id"] for item in jobs]
    colocation = []
    if random.random() < 0.3:
        for name in ("x", "y"):
            spot = [str(random.choice(spots))]
            jobs.append(
                {
                    "id": name,
                    "gpus": 1,
                    "throughput": {"p": 1.0},
                    "running": {"pool": "p", "gpus": spot},
                }
            )
        colocation = [{"jobs": ["x", "y"], "pool": "p", "gpus": 1, "throughput": [0.5, 0.5]}]
        names += ["x", "y"]
    apart = []
    if random.random() < 0.3:
        apart = [[str(name) for name in random.choice(names, 2, replace=False)]]
    instance = Instance.from_document(
        {
            "format": "optsched-instance/1",
            "cluster": cluster,
            "jobs": jobs,
            "colocation": colocation,
        }
    )
    return *rows_of(instance), apart


def random_topology(
    random: np.random.Generator, nodes: list[Document], spots: list[str]
) -> Document:
    """Switches in a random tree with a chord; every GPU of a node hangs on it by the same link."""
    switches = ["s0", "s1"]
    links = [{"source": "s0", "target": "s1", "bandwidth": float(random.integers(1, 5))}]
    for node in nodes:
        links.append({"source": node["name"], "target": str(random.choice(switches))})
        links[-1] |= {"bandwidth": float(random.integers(1, 7))} if random.random() < 0.8 else {}
        links += [
            {"source": spot, "target": node["name"], "bandwidth": 5.0}
            for spot in spots
            if spot.startswith(f"{node['name']}/")
        ]
    ends = random.choice([node["name"] for node in nodes], 2, replace=False)
    links.append(
        {"source": str(ends[0]), "target": str(ends[1]), "bandwidth": float(random.integers(1, 7))}
    )
    ids = [*switches, *(node["name"] for node in nodes), *spots]
    return {"nodes": [{"id": name} for name in ids], "links": links}


def apart_documents(apart: list[list[str]]) -> list[Document]:
    return [{"kind": "anti-affinity", "jobs": jobs} for jobs in apart]


def cases(first: int, count: int) -> Iterator[int]:
    return iter(range(first, first + count))


__all__ = [name for name in dir() if not name.startswith("_") and name not in ("math",)]
