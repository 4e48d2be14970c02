"""Inference services on slices of GPUs (MIG): replicas, rates by the roofline, and demands."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optsched.generate.profiles import Document, Site, instance_document, rounded
from optsched.instance import Layouts
from optsched.performance.analytic.hardware import find

REACHED = 0.4
"""Part of the peak that kernels of inference reach."""
LAUNCH = 0.002
"""Seconds of a batch that no slice shortens: launches of kernels, and the host."""
OF_MEMORY = 0.9
"""Part of a slice's memory that a model may fill."""


class InferenceService(NamedTuple):
    """A model that serves requests.

    Attributes
    ----------
    name : str
    flop : float
        TFLOP of a request.
    read : float
        GB that a batch reads: the weights, once for each token of an answer.
    batch : int
        Requests of a batch.
    memory : float
        GB of the weights and of what a batch needs beside them.
    demand : float
        Requests per second.
    replicas : int
    """

    name: str
    flop: float
    read: float
    batch: int
    memory: float
    demand: float
    replicas: int


SERVICES = (
    InferenceService(
        "resnet-50", 0.0082, 0.05, 8, 1.5, 9000.0, 16
    ),  # 4.1 GMAC of an image of 224 x 224
    InferenceService(
        "bert-large", 0.087, 0.68, 4, 2.5, 900.0, 16
    ),  # 2 x 340 M parameters x 128 tokens
    InferenceService("gpt-2-xl", 0.192, 198.0, 8, 8.5, 60.0, 12),  # 1.5 G parameters, 64 tokens
    InferenceService("opt-13b", 1.66, 1664.0, 4, 30.0, 6.0, 4),  # 13 G parameters, 64 tokens
)


def services(seed: int = 10) -> Document:
    """Four services on two nodes of four A100, each with a demand, replicas and rates by slice.

    The seed varies the demands by up to a tenth.
    """
    random = np.random.default_rng(seed)
    site = Site("a100", "A100-SXM4-40GB", nodes=2, gpus_per_node=4)
    board = find("A100-SXM4-40GB")
    whole = Layouts(board.mig).memory_slices
    jobs = []
    for service in SERVICES:
        options = []
        for part in board.mig:
            if service.memory > OF_MEMORY * board.memory * part.memory_slices / whole:
                continue
            compute = REACHED * board.peak("fp16") / 1e12 * part.compute_slices / 7
            memory = board.bandwidth * part.memory_slices / whole
            seconds = max(service.batch * service.flop / compute, service.read / memory) + LAUNCH
            options.append(
                {
                    "pool": site.name,
                    "gpus": 1,
                    "share": part.memory_slices / whole,
                    "throughput": rounded(service.batch / seconds),
                    "attributes": {"mig": part.profile},
                }
            )
        jobs += [
            {"id": f"{service.name}-{number}", "workload": service.name, "options": options}
            for number in range(service.replicas)
        ]
    document = instance_document("services", 0, [site], {}, jobs)
    document["constraints"] = [
        {
            "kind": "minimum-throughput",
            "workload": service.name,
            "rate": rounded(service.demand * random.uniform(0.9, 1.1)),
        }
        for service in SERVICES
    ]
    return document
