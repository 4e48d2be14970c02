"""Shipped instances beside those of fractions of time: a network to place gangs in, and small classical problems."""

from __future__ import annotations

import math

import numpy as np

from optsched.generate.catalogue import generate
from optsched.generate.profiles import (
    Document,
    Site,
    best_rate,
    instance_document,
    workload_document,
)
from optsched.generate.topologies import Host, network, pool_document
from optsched.generate.workloads import WORKLOADS

HOUR = 3600
RACK = 4

TOPOLOGY_HOSTS = (
    # pool, GPUs, state; three racks of four nodes
    ("a100", 8, "up"), ("a100", 8, "up"), ("v100", 4, "up"), ("v100", 4, "up"),
    ("a100", 8, "drain"), ("a100", 4, "up"), ("v100", 4, "up"), ("v100", 4, "up"),
    ("a100", 4, "up"), ("v100", 2, "up"), ("v100", 2, "up"), ("v100", 2, "up"),
)  # fmt: skip
TOPOLOGY_JOBS = (
    # model, GPUs
    ("GPT-2-XL", 8), ("BERT-large", 8), ("ResNet-50", 8), ("GPT-2-medium", 4), ("BERT-base", 4), ("VGG-16", 4),
    ("ViT-B16", 4), ("Transformer", 2), ("ResNet-18", 2), ("GPT-2-small", 2), ("CycleGAN", 2), ("DCGAN", 2),
)  # fmt: skip


def topology(seed: int = 5) -> Document:
    """Twelve gangs that want 50 of 46 usable GPUs in three racks, on nodes of 8, 4 and 2 GPUs; one node is drained."""
    random = np.random.default_rng(seed)
    sites = {
        "a100": Site("a100", "A100-SXM4-40GB", nodes=5, gpus_per_node=8, node_bandwidth=25.0),
        "v100": Site("v100", "V100-SXM2-16GB", nodes=7, gpus_per_node=4, node_bandwidth=12.5),
    }
    names = dict.fromkeys(sites, 0)
    hosts = []
    for pool, gpus, state in TOPOLOGY_HOSTS:
        hosts.append(Host(pool, f"{pool}-{names[pool]}", gpus, state, sites[pool].node_bandwidth))
        names[pool] += 1
    chosen = [WORKLOADS[model] for model, _ in TOPOLOGY_JOBS]
    workloads = {
        workload.name: workload_document(workload, list(sites.values()), (1, 2, 4, 8), random)
        for workload in chosen
    }
    jobs = []
    for number, (model, gpus) in enumerate(TOPOLOGY_JOBS, 1):
        workload = WORKLOADS[model].name
        hours = math.exp(random.uniform(math.log(1), math.log(12)))
        steps = round(hours * HOUR * best_rate(workloads[workload]["throughput"], gpus), -2)
        jobs.append(
            {
                "id": f"{model.lower()}-{number}",
                "workload": workload,
                "gpus": gpus,
                "steps": int(steps),
            }
        )
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
        "unrelated", jobs=15, machines=3, seed=seed, name="unrelated"
    ).instance.to_document()


def leases(seed: int = 7) -> Document:
    """24 gangs with deadlines on 16 GPUs in leases of half an hour; a plan that keeps all deadlines exists."""
    return generate(
        "leases", jobs=24, nodes=2, tightness=0.95, seed=seed, name="leases"
    ).instance.to_document()


def knapsack(seed: int = 8) -> Document:
    """24 jobs with three options each on four resources that have half of what all jobs want."""
    options = {"jobs": 24, "resources": 4, "choices": 3, "tightness": 0.5}
    return generate("knapsack", seed=seed, name="knapsack", **options).instance.to_document()
