"""The instances that ship with the project. Each function returns a document;
the same seed gives the same document.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from optsched.generate.catalogue import generate
from optsched.generate.parameter_servers import smd
from optsched.generate.profiles import (
    Document,
    Site,
    best_rate,
    colocation_documents,
    instance_document,
    rounded,
    workload_document,
)
from optsched.generate.services import services
from optsched.generate.topologies import Host, network, pool_document
from optsched.generate.workloads import WORKLOADS

HOUR = 3600


def _workloads(
    models: Sequence[str],
    sites: Sequence[Site],
    gangs: Sequence[int],
    random: np.random.Generator,
) -> Document:
    chosen = [WORKLOADS[model] for model in dict.fromkeys(models)]
    return {workload.name: workload_document(workload, sites, gangs, random) for workload in chosen}


def _steps(workloads: Document, model: str, gpus: int, hours: float) -> int:
    """Steps that take so many hours in the fastest configuration."""
    return max(
        1, round(hours * HOUR * best_rate(workloads[WORKLOADS[model].name]["throughput"], gpus))
    )


def _job(number: int, model: str, steps: int, gpus: int) -> Document:
    return {
        "id": f"{model.lower()}-{number}",
        "workload": WORKLOADS[model].name,
        "gpus": gpus,
        "steps": steps,
    }


def _hours(random: np.random.Generator, least: float, most: float) -> float:
    """A log-uniform number of hours."""
    return math.exp(random.uniform(math.log(least), math.log(most)))


QUICKSTART_JOBS = (
    # model, GPUs, weight, tenant
    ("ResNet-50", 1, 1, "vision"),
    ("BERT-base", 4, 2, "language"),
    ("ResNet-18", 1, 1, "vision"),
    ("Transformer", 2, 2, "language"),
    ("VGG-16", 2, 1, "vision"),
    ("GPT-2-small", 4, 2, "language"),
    ("CycleGAN", 1, 1, "vision"),
    ("BERT-large", 4, 4, "language"),
    ("ResNet-50", 2, 1, "vision"),
    ("BERT-base", 1, 1, "language"),
    ("LSTM", 1, 1, "language"),
    ("ViT-B16", 1, 1, "vision"),
)
# Job number -> seconds to its deadline over its shortest run time.
QUICKSTART_DEADLINES = {4: 2.5, 9: 3.0}


def quickstart(seed: int = 1) -> Document:
    """Twelve jobs that want 24 GPUs on a cluster of 16, with weights, two tenants,
    arrivals and two deadlines.
    """
    random = np.random.default_rng(seed)
    sites = (
        Site("v100", "V100-SXM2-16GB", nodes=2, gpus_per_node=4),
        Site("p100", "P100-PCIe-16GB", nodes=1, gpus_per_node=4),
        Site("k80", "K80", nodes=2, gpus_per_node=2, node_bandwidth=1.25),
    )
    workloads = _workloads([model for model, *_ in QUICKSTART_JOBS], sites, (1, 2, 4), random)
    now = 2 * HOUR
    arrivals = np.sort(random.integers(0, now // 60, len(QUICKSTART_JOBS))) * 60
    jobs = []
    for number, (model, gpus, weight, tenant) in enumerate(QUICKSTART_JOBS):
        hours = _hours(random, 1, 8)
        steps = round(_steps(workloads, model, gpus, hours), -2)
        arrival = int(arrivals[number])
        job = _job(number + 1, model, steps, gpus)
        job |= {"weight": weight, "arrival": arrival, "tenant": tenant}
        if number in QUICKSTART_DEADLINES:
            job["deadline"] = now + 600 * math.ceil(
                QUICKSTART_DEADLINES[number] * hours * HOUR / 600
            )
        jobs.append(job)
    document = instance_document("quickstart", now, sites, workloads, jobs)
    document["tenants"] = [{"name": "vision", "weight": 1}, {"name": "language", "weight": 2}]
    return document


INFEASIBLE_JOBS = (
    # model, GPUs, hours in the fastest configuration, deadline in hours
    ("GPT-2-XL", 2, 6, 8),  # 12 GPU-hours of a100
    ("GPT-2-XL", 2, 6, 8),  # 12
    ("GPT-2-XL", 2, 5, 8),  # 10: 34 in all, and four GPUs have 32 until the deadline
    ("ResNet-50", 1, 2, 12),
    ("BERT-base", 2, 2, 12),
    ("ViT-B16", 1, 2, 24),
    ("LSTM", 1, 6, None),
)


def infeasible(seed: int = 2) -> Document:
    """Seven jobs, six hard deadlines:
    three jobs are too big for all but one pool, which has time for any two of them.

    Any two can run side by side and end in time; all three cannot. The seed changes the rates, but
    not the conflict.
    """
    random = np.random.default_rng(seed)
    sites = (
        Site("a100", "A100-SXM4-40GB", nodes=1, gpus_per_node=4),
        Site("v100", "V100-SXM2-16GB", nodes=1, gpus_per_node=4),
    )
    workloads = _workloads([model for model, *_ in INFEASIBLE_JOBS], sites, (1, 2, 4), random)
    jobs = []
    for number, (model, gpus, hours, deadline) in enumerate(INFEASIBLE_JOBS, 1):
        job = _job(number, model, _steps(workloads, model, gpus, hours), gpus)
        jobs.append(job if deadline is None else job | {"deadline": deadline * HOUR})
    document = instance_document("infeasible", 0, sites, workloads, jobs)
    document["constraints"] = [{"kind": "deadlines"}]
    return document


PACKING_MODELS = ("ResNet-18", "CycleGAN", "BERT-base", "GPT-2-small", "LSTM", "Mult-VAE")


def packing(seed: int = 3) -> Document:
    """Twenty-four one-GPU jobs of six workloads on eight GPUs,
    with the rates of all pairs that share a GPU.

    Two pairs of jobs have their own entries, which differ by a few per cent and override those
    of their workloads.
    """
    random = np.random.default_rng(seed)
    sites = (
        Site("v100", "V100-SXM2-16GB", nodes=1, gpus_per_node=4),
        Site("p100", "P100-PCIe-16GB", nodes=1, gpus_per_node=4),
    )
    workloads = _workloads(PACKING_MODELS, sites, (1,), random)
    jobs = []
    for number, model in enumerate(PACKING_MODELS * 4, 1):
        steps = round(_steps(workloads, model, 1, _hours(random, 0.5, 6)), -2)
        job = {"id": f"{model.lower()}-{number}", "workload": WORKLOADS[model].name, "steps": steps}
        jobs.append(job | {"weight": 2} if number % 8 == 0 else job)
    document = instance_document("packing", 0, sites, workloads, jobs)
    entries = colocation_documents(PACKING_MODELS, sites, workloads)
    for first, second in ((0, 4), (2, 3)):
        seen = next(
            entry
            for entry in entries
            if entry["workloads"] == [jobs[k]["workload"] for k in (first, second)]
        )
        # A little slower than the closed form says.
        factor = 0.9 + 0.05 * random.random()
        entries.append(
            {"jobs": [jobs[first]["id"], jobs[second]["id"]], "pool": seen["pool"], "gpus": 1}
            | {"throughput": [rounded(factor * rate) for rate in seen["throughput"]]}
        )
    document["colocation"] = entries
    return document


LARGE_GANGS = ((1, 2, 4, 8), (0.7, 0.1, 0.15, 0.05))
LARGE_WEIGHTS = ((1, 2, 4), (0.8, 0.15, 0.05))
# Leave out the workload that is equally fast on every GPU: it alone would determine the max-min
# level, whatever the capacity.
LARGE_MODELS = tuple(model for model in WORKLOADS if model != "LSTM")
# Longest job in hours. Longer ones are drawn again, because a single one would determine the
# makespan.
LARGE_LONGEST = 48.0


def large(seed: int = 4, jobs: int = 2000) -> Document:
    """Many jobs with heavy-tailed sizes (log-normal: median 4 h, sigma 1.2,
    at most 48 h) on four pools.

    All jobs have different numbers of steps. The pools have a sixth of the GPUs that the jobs want,
    shared out by a Dirichlet(5) draw and rounded to whole nodes.
    """
    random = np.random.default_rng(seed)
    types = (
        ("h100", "H100-SXM5-80GB", 8, 50.0),
        ("a100", "A100-SXM4-40GB", 8, 12.5),
        ("v100", "V100-SXM2-16GB", 8, 12.5),
        ("t4", "T4", 4, 12.5),
    )
    gangs = random.choice(LARGE_GANGS[0], jobs, p=LARGE_GANGS[1])
    weights = random.choice(LARGE_WEIGHTS[0], jobs, p=LARGE_WEIGHTS[1])
    shares = random.dirichlet([5.0] * 4) * gangs.sum() / 6
    sites = [
        Site(name, gpu, max(2, round(share / size)), size, bandwidth)
        for (name, gpu, size, bandwidth), share in zip(types, shares.tolist(), strict=True)
    ]
    workloads = _workloads(LARGE_MODELS, sites, LARGE_GANGS[0], random)
    now = 72 * HOUR
    arrivals = np.sort(random.integers(0, now, jobs))
    models = random.choice(LARGE_MODELS, jobs).tolist()
    hours = np.full(jobs, np.inf)
    # Drawn again, not cut off: a cut would pile jobs up at the limit
    while (again := hours > LARGE_LONGEST).any():
        hours[again] = 4 * np.exp(1.2 * random.standard_normal(int(again.sum())))
    rows = []
    used = set()
    for number in range(jobs):
        model = models[number]
        gpus = int(gangs[number])
        steps = _steps(workloads, model, gpus, float(hours[number]))
        # Equal jobs would merge into one class
        while steps in used:
            steps += 1
        used.add(steps)
        row = {
            "id": f"j{number + 1:04d}",
            "workload": WORKLOADS[model].name,
            "gpus": gpus,
            "steps": steps,
        }
        rows.append(row | {"weight": int(weights[number]), "arrival": int(arrivals[number])})
    return instance_document("large", now, sites, workloads, rows)


RACK = 4

TOPOLOGY_HOSTS = (
    # pool, GPUs, state; three racks of four nodes
    ("a100", 8, "up"),
    ("a100", 8, "up"),
    ("v100", 4, "up"),
    ("v100", 4, "up"),
    ("a100", 8, "drain"),
    ("a100", 4, "up"),
    ("v100", 4, "up"),
    ("v100", 4, "up"),
    ("a100", 4, "up"),
    ("v100", 2, "up"),
    ("v100", 2, "up"),
    ("v100", 2, "up"),
)
TOPOLOGY_JOBS = (
    # model, GPUs
    ("GPT-2-XL", 8),
    ("BERT-large", 8),
    ("ResNet-50", 8),
    ("GPT-2-medium", 4),
    ("BERT-base", 4),
    ("VGG-16", 4),
    ("ViT-B16", 4),
    ("Transformer", 2),
    ("ResNet-18", 2),
    ("GPT-2-small", 2),
    ("CycleGAN", 2),
    ("DCGAN", 2),
)


def topology(seed: int = 5) -> Document:
    """Twelve gangs that want 50 of 46 usable GPUs in three racks, on nodes of 8,
    4 and 2 GPUs; one node is drained.
    """
    random = np.random.default_rng(seed)
    sites = {
        "a100": Site("a100", "A100-SXM4-40GB", nodes=5, gpus_per_node=8, node_bandwidth=25.0),
        "v100": Site("v100", "V100-SXM2-16GB", nodes=7, gpus_per_node=4, node_bandwidth=12.5),
    }
    names = dict.fromkeys(sites, 0)
    hosts = []
    for pool, gpus, state in TOPOLOGY_HOSTS:
        # Nodes are numbered within their pool, though racks mix the pools.
        hosts.append(Host(pool, f"{pool}-{names[pool]}", gpus, state, sites[pool].node_bandwidth))
        names[pool] += 1
    models = [model for model, _ in TOPOLOGY_JOBS]
    workloads = _workloads(models, list(sites.values()), (1, 2, 4, 8), random)
    jobs = []
    for number, (model, gpus) in enumerate(TOPOLOGY_JOBS, 1):
        workload = workloads[WORKLOADS[model].name]
        steps = _hours(random, 1, 12) * HOUR * best_rate(workload["throughput"], gpus)
        jobs.append(_job(number, model, int(round(steps, -2)), gpus))
    document = instance_document("topology", 0, list(sites.values()), workloads, jobs)
    document["cluster"] = {
        "pools": [
            pool_document(site, [host for host in hosts if host.pool == name])
            for name, site in sites.items()
        ],
        "topology": network(hosts, "racks", RACK),
    }
    return document


def unrelated(seed: int = 6) -> Document:
    """R || Cmax with 15 jobs on 3 machines, durations from 10 to 100 s."""
    return generate(
        "unrelated",
        jobs=15,
        machines=3,
        seed=seed,
        name="unrelated",
    ).instance.to_document()


def leases(seed: int = 7) -> Document:
    """24 gangs with deadlines on 16 GPUs in leases of half an hour;
    a plan that keeps all deadlines exists.
    """
    return generate(
        "leases",
        jobs=24,
        nodes=2,
        tightness=0.95,
        seed=seed,
        name="leases",
    ).instance.to_document()


def knapsack(seed: int = 8) -> Document:
    """24 jobs with three options each on four resources that have half of what all jobs want."""
    options = {"jobs": 24, "resources": 4, "choices": 3, "tightness": 0.5}
    return generate("knapsack", seed=seed, name="knapsack", **options).instance.to_document()


def assignment(seed: int = 9) -> Document:
    """20 jobs, each to one of four agents, of the hard type d: cost is high where use is low."""
    options = {"jobs": 20, "agents": 4, "type": "d"}
    return generate("gap", seed=seed, name="assignment", **options).instance.to_document()


# What ships, by name: ``instances/<name>.json``.
INSTANCES: dict[str, Callable[[], Document]] = {
    "quickstart": quickstart,
    "infeasible": infeasible,
    "packing": packing,
    "large": large,
    "smd": smd,
    "topology": topology,
    "unrelated": unrelated,
    "leases": leases,
    "knapsack": knapsack,
    "assignment": assignment,
    "services": services,
}
