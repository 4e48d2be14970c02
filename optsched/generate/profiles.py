"""Parts of instance documents: pools, workloads with their rates, co-location entries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from optsched.generate.hardware import GPUS, Gpu
from optsched.generate.rates import fits, rate, slowdown
from optsched.generate.workloads import WORKLOADS, TrainedModel
from optsched.instance import FORMAT

# Standard deviation of the log of a measured rate around its closed form: two measurements differ
# by some per cent.
NOISE = 0.05

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Site:
    """Description of a future pool: equal nodes with one GPU type.

    Attributes
    ----------
    name : str
    gpu : str
        Key of `GPUS`.
    nodes, gpus_per_node : int
    node_bandwidth : float
        Network card of a node, GB/s per direction.
    """

    name: str
    gpu: str
    nodes: int
    gpus_per_node: int
    node_bandwidth: float = 12.5

    @property
    def type(self) -> Gpu:
        """Facts of the GPU type."""
        return GPUS[self.gpu]

    @property
    def gpus(self) -> int:
        """GPUs of the pool."""
        return self.nodes * self.gpus_per_node

    def spreads(self, gpus: int) -> list[int]:
        """Numbers of nodes to spread a gang over:
        the fewest, and twice as many if the pool has them.
        """
        fewest = math.ceil(gpus / self.gpus_per_node)
        return [nodes for nodes in (fewest, 2 * fewest) if nodes <= min(gpus, self.nodes)]

    def document(self) -> Document:
        """Pool of an instance document."""
        gpu = self.type
        return {
            "name": self.name,
            "gpu": gpu.name,
            "nodes": self.nodes,
            "gpus_per_node": self.gpus_per_node,
            "gpu_memory": gpu.memory,
            "cost_per_gpu_hour": gpu.price,
            "watts_per_gpu": gpu.watts,
            "bandwidth": {"intra_node": gpu.link_bandwidth, "node": self.node_bandwidth},
        }


def rounded(value: float) -> float:
    """Round to four significant digits, like a measurement; it also keeps files short."""
    return float(f"{value:.4g}")


def workload_document(
    workload: TrainedModel,
    sites: Sequence[Site],
    gangs: Sequence[int],
    random: np.random.Generator,
) -> Document:
    """Workload of an instance document, with rates by pool, GPU count and nodes spanned.

    A pool whose GPUs are too small in memory is left out, as is a gang that is larger than the
    pool. One noise factor per pool, the same for all counts, so that noise does not change the
    scaling.
    """
    throughput: dict[str, Document] = {}
    for site in sites:
        # Drawn before pools are left out, so that the rates of the other pools do not depend on
        # that.
        noise = math.exp(NOISE * float(random.standard_normal()))
        if not fits(workload, site.type):
            continue
        by_count: Document = {}
        for gpus in gangs:
            rates = {
                str(nodes): rounded(
                    noise * rate(workload, site.type, gpus, nodes, site.node_bandwidth)
                )
                for nodes in site.spreads(gpus)
            }
            if rates:
                # A single GPU has only one spread, so a plain number is enough.
                by_count[str(gpus)] = rates["1"] if gpus == 1 else rates
        throughput[site.name] = by_count
    return {
        "throughput": throughput,
        "gpu_memory": workload.gpu_memory,
        "parameters": {
            "batch": workload.batch,
            "model_parameters": round(workload.parameters),
            "forward_flops": round(rounded(workload.forward_flops)),
            "precision": "mixed" if workload.mixed else "single",
            "source": workload.source,
        },
    }


def best_rate(throughput: Mapping[str, Any], gpus: int) -> float:
    """Highest rate of a gang over all pools and spreads, steps/s."""
    best = 0.0
    for by_count in throughput.values():
        entry = by_count.get(str(gpus), 0.0)
        best = max(best, *entry.values()) if isinstance(entry, dict) else max(best, entry)
    return best


def instance_document(
    name: str,
    now: int,
    sites: Sequence[Site],
    workloads: Document,
    jobs: list[Document],
) -> Document:
    """An instance document without tenants, constraints and co-location."""
    return {
        "format": FORMAT,
        "name": name,
        "round": 360,
        "now": now,
        "cluster": {"pools": [site.document() for site in sites]},
        "workloads": workloads,
        "jobs": jobs,
    }


def colocation_documents(
    models: Sequence[str], sites: Sequence[Site], workloads: Document
) -> list[Document]:
    """Entries for all pairs of workloads, equal ones too, on one GPU of each pool that holds both.

    Both rates are those in ``workloads``, divided by the pair's slowdown.
    """
    entries = []
    for site in sites:
        for pair in combinations_with_replacement([WORKLOADS[model] for model in models], 2):
            names = [workload.name for workload in pair]
            alone = [workloads[name]["throughput"].get(site.name) for name in names]
            first, second = pair
            if None in alone or not fits(first, site.type, second):
                continue
            factor = slowdown(first, second, site.type)
            rates = [rounded(by_count["1"] / factor) for by_count in alone if by_count is not None]
            entries.append({"workloads": names, "pool": site.name, "gpus": 1, "throughput": rates})
    return entries
