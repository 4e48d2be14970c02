"""The shipped instance of jobs with workers and parameter servers:
speed laws from published facts.
"""

from __future__ import annotations

import math

import numpy as np

from optsched.generate.profiles import NOISE, Document, Site, instance_document, rounded
from optsched.generate.rates import LINK_EFFICIENCY, in_half, step
from optsched.generate.workloads import WORKLOADS, TrainedModel
from optsched.instance import Instance
from optsched.performance.parameter_server_documents import read_parameter_servers

HOUR = 3600
# AWS p3.16xlarge: 8 V100, 64 vCPUs, 488 GiB, 25 Gbit/s.
NODES, GPUS_PER_NODE, CPUS_PER_NODE, MEMORY_PER_NODE = 6, 8, 64, 488
# GB/s.
NODE_BANDWIDTH = 3.125
CPUS_PER_WORKER, CPUS_PER_SERVER = 6, 2
# GB of a worker: input pipeline and framework (our choice).
WORKER_MEMORY = 24
# Bytes of a parameter on a server: the value, a gradient, two moments of Adam, 4 bytes each.
SERVER_COPIES = 4
# Seconds per step for each worker and server: synchronisation (our estimate).
PEER = 4e-4

JOBS = (
    # model, batches of one GPU that make a step, hours at best, GPUs of the limit, servers of the
    # limit, value, jobs
    ("ResNet-50", 16, 6.0, 12, 8, 60, 2),
    ("ResNet-18", 8, 2.0, 8, 6, 25, 2),
    ("VGG-16", 16, 5.0, 12, 12, 50, 1),
    ("ViT-B16", 16, 8.0, 16, 10, 90, 1),
    ("BERT-base", 16, 5.0, 12, 10, 70, 2),
    ("BERT-large", 24, 10.0, 16, 14, 95, 1),
    ("GPT-2-small", 16, 7.0, 12, 10, 80, 1),
    ("GPT-2-medium", 24, 12.0, 16, 14, 100, 1),
    ("Transformer", 8, 3.0, 8, 6, 40, 2),
    ("LSTM", 8, 2.0, 6, 4, 15, 1),
    ("Mult-VAE", 8, 1.0, 6, 4, 20, 1),
    ("DCGAN", 16, 3.0, 10, 6, 30, 1),
)
# Time at which half of the value is gone, over the shortest run time.
PATIENCE = (1.1, 1.8)
# g_2 g_3 of the sigmoid: the value falls from 99 % to 1 % between 0.2 and 1.8 of that time.
STEEPNESS = 6.0


def law(workload: TrainedModel, batches: int, site: Site, noise: float) -> Document:
    """Coefficients of  t = a B / w + b + c w / p + d w + e p  with B in samples.

    ::

        a = max(compute + memory, host) of one batch / batch     (`optsched.generate.rates.step`)
        b = host                                                 launching the operators once
        c = 2 * bytes / (0.8 * bandwidth of a node)              a server sends and takes 1 / p of the model, w times
        d = e = 0.4 ms

    The form is that of Peng et al. 2018, Optimus, section 3.2; every worker and server has its own
    network card.
    """
    time = step(workload, site.type)
    size = workload.parameters * (2 if in_half(workload, site.type) else 4)
    return {
        "a": rounded(noise * time.seconds / workload.batch),
        "b": rounded(time.host),
        "c": rounded(noise * 2 * size / (LINK_EFFICIENCY * site.node_bandwidth * 1e9)),
        "d": PEER,
        "e": PEER,
    }


def smd(seed: int = 6) -> Document:
    """Sixteen jobs of twelve workloads that train with parameter servers
    and would reserve three times the cluster.

    The value of a job falls with its duration, half of it being gone at 1.1 to 1.8 times the
    shortest.
    """
    random = np.random.default_rng(seed)
    site = Site("v100", "V100-SXM2-16GB", NODES, GPUS_PER_NODE, NODE_BANDWIDTH)
    workloads: Document = {}
    jobs: list[Document] = []
    for model, batches, hours, gpus, servers, value, count in JOBS:
        training = WORKLOADS[model]
        noise = math.exp(NOISE * float(random.standard_normal()))
        memory = 1 + math.ceil(SERVER_COPIES * 4 * training.parameters / 1e9)
        patience = rounded(hours * HOUR * random.uniform(*PATIENCE))
        workloads[training.name] = {
            "gpu_memory": training.gpu_memory,
            "parameters": {
                "parameter_server": {
                    "law": "ps-sync",
                    "coefficients": law(training, batches, site, noise),
                    "batch": batches * training.batch,
                    "worker": {
                        "v100": 1,
                        "v100.cpu": CPUS_PER_WORKER,
                        "v100.memory": WORKER_MEMORY,
                    },
                    "server": {"v100.cpu": CPUS_PER_SERVER, "v100.memory": memory},
                    "limit": {
                        "v100": gpus,
                        "v100.cpu": CPUS_PER_WORKER * gpus + CPUS_PER_SERVER * servers,
                        "v100.memory": WORKER_MEMORY * gpus + memory * servers,
                    },
                    "value": {"sigmoid": [value, rounded(STEEPNESS / patience), patience]},
                },
                "source": training.source,
            },
        }
        jobs += [
            {"id": f"{model.lower()}-{number}", "workload": training.name, "steps": hours * HOUR}
            for number in range(1, count + 1)
        ]
    document = instance_document("smd", 0, [site], workloads, jobs)
    document["cluster"]["pools"][0] |= {
        "cpus_per_node": CPUS_PER_NODE,
        "memory_per_node": MEMORY_PER_NODE,
    }
    # Steps follow from the hours at best, which need the laws of the finished document
    _, _, shortest = read_parameter_servers(Instance.from_document(document)).fastest()
    seconds = dict(zip(workloads, shortest.tolist(), strict=True))
    for job in jobs:
        job["steps"] = round(job["steps"] / seconds[job["workload"]])
    return document
