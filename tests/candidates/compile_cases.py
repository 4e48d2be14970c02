"""Random instance documents with every feature of the format that candidates depend on, and small helpers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from compile_reference import Column, Dropped

from optsched.candidates import Candidates, Drop, compile
from optsched.instance import Instance
from optsched.performance import (
    Configurations,
    Feasibility,
    JobBatch,
    Observations,
    PerformanceModel,
    Prediction,
    Source,
    TableModel,
)

Document = dict[str, Any]

RATES = (0.0, 0.5, 1.0, 1.5, 3.0, 40.25)
NOW = 100.0


def compiled(document: Mapping[str, Any], model: PerformanceModel | None = None) -> Candidates:
    """Compile a document with the stated rates, or with another model beside them."""
    instance = Instance.from_document(document)
    return compile(instance, model or TableModel(instance.rates, instance))


def document(pools: Any, jobs: Any, **more: Any) -> Document:
    """A document; pools may be GPUs by name, jobs without ids are called j0, j1, ...

    ``resources`` goes to the cluster.
    """
    if isinstance(pools, dict):
        pools = [
            {"name": name, "nodes": count, "gpus_per_node": 1} for name, count in pools.items()
        ]
    jobs = [{"id": f"j{row}"} | job for row, job in enumerate(jobs)]
    cluster = {"pools": pools, "resources": more.pop("resources", [])}
    return {"format": "optsched-instance/1", "cluster": cluster, "jobs": jobs} | more


@cache
def random_candidates(seed: int) -> Candidates:
    """The candidates of `random_document`, which are frozen."""
    return compiled(random_document(seed))


# --- random documents ----------------------------------------------------------------------------------------------


def random_document(seed: int) -> Document:
    """A valid document with a few pools and about ten jobs; small numbers, so that everything collides."""
    rng = random.Random(seed)
    pools = _pools(rng)
    places = sorted({str(pool.get(key, pool["name"])) for pool in pools for key in ("name", "gpu")})
    resources = _resources(rng, pools)
    workloads = {f"w{row}": _workload(rng, places, resources) for row in range(rng.randint(1, 4))}
    jobs = [
        _job(rng, f"j{row}", places, pools, workloads, resources)
        for row in range(rng.randint(0, 10))
    ]
    for row, job in enumerate(jobs):  # equal jobs make kinds and classes
        if rng.random() < 0.4:
            jobs[row] = rng.choice(jobs) | {"id": job["id"]}
    made: Document = document(pools, jobs, now=NOW, resources=resources, workloads=workloads)
    made["colocation"] = _colocation(rng, pools, jobs, workloads)
    if rng.random() < 0.2:
        name = rng.choice(list(workloads))
        made["throughputs"] = {name: workloads[name].pop("throughput", None) or {places[0]: 2.0}}
    return made


def _pools(rng: random.Random) -> list[Document]:
    pools = []
    for row in range(rng.randint(1, 3)):
        pool: Document = {"name": f"p{row}"}
        if rng.random() < 0.6:
            pool["gpu"] = rng.choice(["x", "y", "p0"])  # a type may be called like another pool
        if rng.random() < 0.5:
            pool |= {"nodes": rng.randint(0, 3), "gpus_per_node": rng.randint(0, 4)}
        else:
            pool |= {"gpus_per_node": rng.randint(0, 4), "nodes": []}
            for number in range(rng.randint(0, 4)):
                node: Document = {"name": f"n{row}.{number}"}
                if rng.random() < 0.5:
                    node["gpus"] = rng.randint(0, 4)
                if rng.random() < 0.3:
                    node["cpus"] = float(rng.randint(0, 40))
                if rng.random() < 0.3:
                    node["state"] = rng.choice(["up", "drain", "down", "reserved"])
                if rng.random() < 0.3:
                    node["available_from"] = NOW + rng.choice([-1, 0, 1])
                pool["nodes"].append(node)
        for key, values in {
            "gpu_memory": (8, 10), "cpus_per_node": (0, 8, 32), "memory_per_node": (2, 100)
        }.items():  # fmt: skip
            if rng.random() < 0.6:
                pool[key] = rng.choice(values)
        pools.append(pool)
    return pools


def _resources(rng: random.Random, pools: list[Document]) -> list[Document]:
    resources: list[Document] = []
    for row in range(rng.randint(0, 3)):
        resource: Document = {"name": f"r{row}", "capacity": rng.choice([0, 2.5, 10])}
        if rng.random() < 0.4:
            resource["kind"] = rng.choice(["renewable", "consumable"])
        if rng.random() < 0.4:
            resource["pool"] = rng.choice(pools)["name"]
        resources.append(resource)
    return resources


def _rates(rng: random.Random, places: list[str], plain: bool) -> Document:
    rates: Document = {}
    for place in rng.sample(places, rng.randint(0, len(places))):
        if plain and rng.random() < 0.5:
            rates[place] = rng.choice(RATES)
            continue
        rates[place] = {}
        for count in rng.sample(range(1, 7), rng.randint(1, 4)):
            if rng.random() < 0.6:
                rates[place][str(count)] = rng.choice(RATES)
            else:
                nodes = rng.sample(range(1, count + 1), rng.randint(1, min(count, 3)))
                rates[place][str(count)] = {str(spread): rng.choice(RATES) for spread in nodes}
    return rates


def _workload(rng: random.Random, places: list[str], resources: list[Document]) -> Document:
    workload: Document = {}
    if rng.random() < 0.9:
        workload["throughput"] = _rates(rng, places, plain=True)
    names = ["cpu", "memory", *(r["name"] for r in resources if r.get("kind") != "consumable")]
    if rng.random() < 0.5:
        demanded = rng.sample(names, rng.randint(1, len(names)))
        workload["demand"] = {name: rng.choice([0, 1, 2.5, 6]) for name in demanded}
    if rng.random() < 0.7:
        workload["gpu_memory"] = rng.choice([0, 4, 6, 8, 9])
    return workload


def _gpus(rng: random.Random) -> Any:
    if rng.random() < 0.5:
        return rng.choice([1, 1, 2, 2, 2, 3, 4, 5])
    low = rng.randint(1, 3)
    gpus: Document = {"min": low, "max": low + rng.randint(0, 4)}
    if rng.random() < 0.5:
        allowed = range(gpus["min"], gpus["max"] + 1)
        gpus["levels"] = rng.sample(allowed, rng.randint(1, len(allowed)))
    return gpus


def _job(
    rng: random.Random,
    name: str,
    places: list[str],
    pools: list[Document],
    workloads: Document,
    resources: list[Document],
) -> Document:
    job: Document = {"id": name, "gpus": _gpus(rng)}
    elastic = isinstance(job["gpus"], dict) and job["gpus"]["min"] < job["gpus"]["max"]
    how = rng.random()
    if how < 0.55:
        job["workload"] = rng.choice(list(workloads))
    elif how < 0.8:
        job["throughput"] = _rates(rng, places, plain=not elastic)
        if rng.random() < 0.5:
            job["workload"] = rng.choice([*workloads, "a mere label"])
    else:
        job["options"] = [_option(rng, pools, resources) for _ in range(rng.randint(1, 4))]
        job["gpus"] = rng.randint(1, 2)
        if rng.random() < 0.5:
            job["workload"] = rng.choice(list(workloads))
    job["steps"] = rng.choice([0.0, 10.0, 20.0, 20.0])
    for key, values in {
        "steps_done": (0, 5, 20, 30), "arrival": (0, NOW, NOW + 1), "weight": (1, 2), "isolated_time": ()
    }.items():  # fmt: skip
        if values and rng.random() < 0.3:
            job[key] = rng.choice(values)
    return job


def _option(rng: random.Random, pools: list[Document], resources: list[Document]) -> Document:
    option: Document = {}
    pool = rng.choice([None, *pools])
    names = [r["name"] for r in resources if pool is None or r.get("pool") in (None, pool["name"])]
    if pool is not None:
        option |= {"pool": pool["name"], "gpus": rng.randint(0, 5)}
        names += ["cpu", "memory"]
        if option["gpus"] and rng.random() < 0.4:
            option["nodes"] = rng.randint(1, option["gpus"])
        if rng.random() < 0.3:
            option["share"] = rng.choice([0.25, 0.5, 1.0])
    if (pool is not None and not option["gpus"]) or rng.random() < 0.6:
        option["throughput"] = rng.choice(RATES)
    if rng.random() < 0.4:
        option["duration"] = rng.choice([5.0, 50.0])
    if names and rng.random() < 0.6:
        option["uses"] = {
            name: rng.choice([0, 1, 4.5]) for name in rng.sample(names, rng.randint(1, len(names)))
        }
    if rng.random() < 0.3:
        option |= {
            "value": rng.choice([-1, 7]),
            "cost": 2,
            "attributes": {"servers": rng.choice([1, 2])},
        }
    return option


def _colocation(
    rng: random.Random, pools: list[Document], jobs: list[Document], workloads: Document
) -> list[Document]:
    entries: list[Document] = []
    seen = set()
    for _ in range(rng.randint(0, 8)):
        entry: Document = {"pool": rng.choice(pools)["name"], "gpus": rng.choice([1, 1, 2, 2, 3])}
        entry["throughput"] = (
            [0.0, 0.0] if rng.random() < 0.2 else [rng.choice(RATES), rng.choice(RATES)]
        )
        if rng.random() < 0.4:
            entry["nodes"] = rng.randint(1, entry["gpus"])
        if rng.random() < 0.5:
            names = [rng.choice([*workloads]) for _ in range(2)]
            entry["workloads"] = names
        else:
            names = [job["id"] for job in jobs if _allows(job["gpus"], entry["gpus"])]
            if len(names) < 2:
                continue
            names = entry["jobs"] = rng.sample(names, 2)
        key = ("jobs" in entry, *sorted(names), entry["pool"], entry["gpus"], entry.get("nodes"))
        if key not in seen:
            seen.add(key)
            entries.append(entry)
    return entries


def _allows(gpus: Any, count: int) -> bool:
    if isinstance(gpus, int):
        return gpus == count
    return count in gpus.get("levels", range(gpus["min"], gpus["max"] + 1))


# --- what compile found, in the reference's words ------------------------------------------------------------------


def columns_of(candidates: Candidates) -> list[Column]:
    """Columns of a program in which every job stands for itself."""
    classes = candidates.per_job().classes(frozenset())
    instance, columns = candidates.instance, candidates.columns
    usage = classes.usage.tocsc()
    found = []
    for number in range(classes.columns):
        at, configuration = int(classes.kind_column[number]), int(classes.configuration[number])
        table = classes.configurations
        jobs = [int(classes.first[classes.class_a[number]])]
        rates = [float(classes.rate_a[number])]
        if classes.class_b[number] >= 0:
            jobs.append(int(classes.first[classes.class_b[number]]))
            rates.append(float(classes.rate_b[number]))
        pool, option = int(table.pool[configuration]), int(columns.option[at])
        if option >= 0:
            option -= int(instance.options.indptr[instance.jobs_table.options[jobs[0]]])
        used = zip(
            usage.indices[usage.indptr[number] : usage.indptr[number + 1]],
            usage.data[usage.indptr[number] : usage.indptr[number + 1]],
            strict=True,
        )
        duration = float(columns.duration[at])
        found.append(
            Column(
                jobs=tuple(instance.jobs_table.names[job] for job in jobs),
                pool=None if pool < 0 else instance.cluster.pools[pool].name,
                gpus=int(table.gpus[configuration]),
                nodes=int(table.nodes[configuration]),
                share=float(table.share[configuration]),
                option=None if option < 0 else option,
                rates=tuple(rates),
                usage=frozenset(
                    (candidates.resources.names[row], float(amount))
                    for row, amount in used
                    if amount
                ),
                duration=None if np.isnan(duration) else duration,
                value=float(columns.value[at]),
                cost=float(columns.cost[at]),
            )
        )
    return found


def dropped_of(candidates: Candidates) -> list[Dropped]:
    """Dropped columns of kinds, told for every job (or two jobs) of the kinds."""
    instance, kinds, dropped = candidates.instance, candidates.kinds, candidates.dropped
    names = instance.jobs_table.names
    found = []
    for row in range(len(dropped)):
        jobs = np.flatnonzero(kinds.of_job == dropped.kind[row]).tolist()
        if dropped.partner[row] < 0:
            groups = {(job,) for job in jobs}
        else:
            partners = np.flatnonzero(kinds.of_job == dropped.partner[row]).tolist()
            groups = {(min(a, b), max(a, b)) for a in jobs for b in partners if a != b}  # type: ignore[misc]
        pool, option = int(dropped.pool[row]), int(dropped.option[row])
        if option >= 0:
            option -= int(instance.options.indptr[instance.jobs_table.options[jobs[0]]])
        reason = Drop(dropped.drop[row])
        found += [
            Dropped(
                tuple(names[job] for job in group),
                None if pool < 0 else instance.cluster.pools[pool].name,
                int(dropped.gpus[row]),
                0 if reason is Drop.TOO_MANY_GPUS else int(dropped.nodes[row]),
                None if option < 0 else option,
                reason,
            )
            for group in groups
        ]
    return found


# --- a second model ------------------------------------------------------------------------------------------------


class ConstantModel:
    """Knows nothing: 0.125 steps/s per GPU everywhere, but 3 GPUs are out of memory and 5 run at rate 0."""

    name = "constant"

    def __init__(self) -> None:
        self.version = 0
        self.asked: list[tuple[JobBatch, Configurations, Any]] = []

    def predict(
        self,
        jobs: JobBatch,
        configurations: Configurations,
        *,
        edges: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> Prediction:
        self.asked.append((jobs, configurations, edges))
        assert edges is not None
        gpus = configurations.gpus[edges[1]]
        feasible = np.select(
            [gpus == 3, gpus == 5],
            [Feasibility.OUT_OF_MEMORY, Feasibility.ZERO_RATE],
            Feasibility.OK,
        ).astype(np.uint8)
        return Prediction(
            rate=np.where(
                feasible == Feasibility.OK, gpus / 8, 99.0
            ),  # the 99 must not be taken for a rate
            log_sd=np.full(len(gpus), 0.5),
            feasible=feasible,
            source=np.full(len(gpus), Source.PRIOR, np.uint8),
        )

    def observe(self, observations: Observations) -> set[int]:
        return set()


def constant_rate(pool: str, gpus: int, nodes: int) -> float | Drop:
    """What `ConstantModel` says, for the reference."""
    return {3: Drop.OUT_OF_MEMORY, 5: Drop.ZERO_RATE}.get(gpus, gpus / 8)
