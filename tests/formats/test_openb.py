"""Node and pod lists of openb: every rule and message on small lists, then the real node list with gangs on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from beside import SHARED, needs
from refusals import refuses

import optsched
from optsched import Instance
from optsched.errors import UsageError
from optsched.formats import import_openb
from optsched.traces import Trace, describe

NODES = """sn,cpu_milli,memory_mib,gpu,model
n0,64000,262144,2,P100
n1,96500,393216,8,G2
n2,32000,262144,0,
n3,64000,262144,1,P100
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p0,12000,16384,1,1000,,LS,Running,0,100,10
p1,6000,12288,1,460,P100|T4,LS,Running,50,200,
p2,1000,1024,0,0,,BE,Running,0,100,0
p3,8000,1024,4,1000,G2,BE,Pending,150,,
"""
REAL = SHARED / "data" / "traces" / "alibaba_gpu_v2023"


def document(nodes: str = NODES, pods: str | None = PODS, **options: Any) -> dict[str, Any]:
    made = import_openb(nodes.encode(), None if pods is None else pods.encode(), **options)
    Instance.from_document(made)
    return made


def test_pools_are_models_and_nodes_without_gpus_are_left_out() -> None:
    assert document(pods=None)["cluster"]["pools"] == [
        {"name": "P100", "gpu": "P100", "nodes": [
            {"name": "n0", "gpus": 2, "cpus": 64.0, "memory": 262144 * 2**20 / 1e9},
            {"name": "n3", "gpus": 1, "cpus": 64.0, "memory": 262144 * 2**20 / 1e9},
        ]},
        {"name": "G2", "gpu": "G2", "nodes": [{"name": "n1", "gpus": 8, "cpus": 96.5, "memory": 393216 * 2**20 / 1e9}]},
    ]  # fmt: skip
    assert document(pods=None)["jobs"] == []


def test_pods_are_jobs_on_one_node_with_their_share() -> None:
    jobs = document()["jobs"]
    assert [(job["id"], job["steps"], job["arrival"]) for job in jobs] == [
        ("p0", 90, 0),
        ("p1", 150, 0),
        ("p3", 1, 0),
    ]
    assert [[option["pool"] for option in job["options"]] for job in jobs] == [
        ["P100", "G2"],
        ["P100"],
        ["G2"],
    ]
    shared = jobs[1]["options"][0]
    assert (shared["gpus"], shared["nodes"], shared["share"]) == (1, 1, 0.46)
    assert shared["uses"] == {"cpu": 6.0, "memory": 12288 * 2**20 / 1e9}


def test_pods_of_a_time() -> None:
    made = document(at=100)
    assert (made["now"], [(job["id"], job["arrival"]) for job in made["jobs"]]) == (
        100,
        [("p1", 50)],
    )
    assert [job["id"] for job in document(at=50)["jobs"]] == ["p0", "p1"]


def test_pods_over_time() -> None:
    pods = PODS.replace(
        "p1,6000,12288,1,460,P100|T4,LS,Running,50,200,",
        "p1,6000,12288,1,460,P100|T4,LS,Running,50,200,70",
    )
    made = document(pods=pods, over_time=True)
    assert [(job["id"], job["arrival"], job["steps"]) for job in made["jobs"]] == [
        ("p0", 0, 90),
        ("p1", 50, 130),
    ]
    found = describe(Trace(Instance.from_document(made)))
    assert [part.name for part in found.gangs] == ["0.46", "1"]
    assert [(pool.runnable, pool.only) for pool in found.pools] == [(2, 1), (1, 0)]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "Running,0,100,10",
            "Running,60,100,70",
            "pods:3:creation_time: found 50.0, expected a time from 60 on",
        ),
        (
            "Running,0,100,10",
            "Running,20,100,10",
            "pods:2:scheduled_time: found 10.0, expected a time from 20 on",
        ),
        (
            "Running,0,100,10",
            "Running,0,5,10",
            "pods:2:deletion_time: found 5.0, expected a time from 10 on",
        ),
    ],
)
def test_times_that_go_back(before: str, after: str, message: str) -> None:
    with refuses(message):
        document(pods=PODS.replace(before, after).replace("50,200,", "50,200,70"), over_time=True)


TIMELESS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\nx,1,1,1,5\n"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"pods": None, "over_time": True}, "give a pod list too"),
        ({"pods": None, "at": 3}, "give a pod list too"),
        ({"at": 3, "over_time": True}, "found both at and over_time"),
        ({"pods": TIMELESS, "over_time": True}, "a trace needs creation_time, deletion_time"),
        ({"pods": TIMELESS, "at": 3}, "the pod list has no times"),
    ],
)
def test_times_need_pods_that_state_them(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        document(**given)


@pytest.mark.oracle
@needs(REAL)
def test_the_real_pods_over_time() -> None:
    lists = ("openb_node_list_gpu_node.csv", "openb_pod_list_gpuspec33.csv")
    made = import_openb(*((REAL / name).read_bytes() for name in lists), over_time=True)
    found = describe(Trace(Instance.from_document(made)))
    assert (found.jobs, found.gpus, len(found.pools)) == (6203, 6212, 7)
    assert found.demand.runs.all()
    assert sum(pool.only for pool in found.pools) > 1500


def test_columns_in_another_order_and_a_list_without_times() -> None:
    (job,) = document(pods="gpu_milli,num_gpu,memory_mib,cpu_milli,name\n500,1,1024,2000,x\n\n")[
        "jobs"
    ]
    assert (job["id"], job["steps"], job["options"][0]["share"]) == ("x", 1, 0.5)


@pytest.mark.parametrize(
    ("nodes", "pods", "message"),
    [
        ("", PODS, "nodes: found an empty file, expected a first line with the columns..."),
        (
            "sn,cpu_milli,memory_mib,gpu\n",
            PODS,
            "nodes: found no node with a GPU, expected at least one",
        ),
        (
            NODES + "n0,1,1,1,G2\n",
            PODS,
            'nodes:6:sn: found "n0" a second time, after line 2, expected names that differ',
        ),
        (NODES + "n9,1,1,1,\n", PODS, "nodes:6:model: found nothing, expected a text"),
        (
            NODES + "n9,1,1,-1,G2\n",
            PODS,
            'nodes:6:gpu: found "-1", expected a whole number, at least 0',
        ),
        (NODES + "n9,1,1\n", PODS, "nodes:6: found 3 cells, expected 5, as in the first line"),
        ("sn,cpu_milli,memory_mib,gpu,model\nn,1,1,0,\n", PODS, "nodes: found no node with a GPU"),
        (NODES, PODS + PODS.splitlines()[1], 'pods:6:name: found "p0" a second time, after line 2'),
        (
            NODES,
            PODS.replace("460", "0"),
            "pods:3:gpu_milli: found 0, expected thousandths of a GPU from 1 to...",
        ),
        (
            NODES,
            PODS.replace("4,1000", "4,500"),
            "pods:5:gpu_milli: found 500, expected 1000, as the pod has 4 GPUs",
        ),
        (
            NODES,
            PODS.replace("P100|T4", "T4"),
            'pods:3:gpu_spec: found "T4", expected one of the models of the nodes: P100, G2',
        ),
        (
            NODES,
            PODS.replace(",50,", ",soon,"),
            'pods:3:creation_time: found "soon", expected a number',
        ),
    ],
)
def test_what_is_wrong_is_told(nodes: str, pods: str, message: str) -> None:
    with refuses(message):
        document(nodes, pods)


def test_bytes_that_are_no_text() -> None:
    with refuses("nodes:2: found the byte 0xff"):
        import_openb(b"sn\n\xff")


@needs(REAL)
def test_gangs_on_the_real_nodes() -> None:
    made = import_openb((REAL / "openb_node_list_gpu_node.csv").read_bytes())
    sizes = {
        pool["name"]: sum(node["gpus"] for node in pool["nodes"])
        for pool in made["cluster"]["pools"]
    }
    assert sizes == {
        "P100": 265,
        "V100M16": 195,
        "V100M32": 204,
        "G2": 4392,
        "G3": 312,
        "T4": 842,
        "A10": 2,
    }
    random = np.random.default_rng(0)
    for number in range(900):
        pool = str(random.choice(["G2", "T4", "V100M16", "P100"], p=[0.7, 0.2, 0.05, 0.05]))
        gpus = int(random.choice([1, 2, 4, 8, 16], p=[0.4, 0.2, 0.2, 0.15, 0.05]))
        option = {
            "pool": pool,
            "gpus": gpus,
            "throughput": 1.0,
            "uses": {"cpu": 6.0 * gpus, "memory": 20.0 * gpus},
        }
        made["jobs"].append({"id": f"g{number}", "options": [option]})
    instance = Instance.from_document(made)
    placed = optsched.place(optsched.solve(instance, "max-throughput", integral=True))
    assert placed.placement is not None
    figures = placed.placement.figures
    assert figures["rows_placed"] >= 0.99 * figures["rows_bound"] > 800
    assert figures["nodes_spanned"] <= 1.02 * figures["nodes_bound"]
    assert optsched.verify(instance, placed.to_document()).ok


@needs(REAL)
def test_the_real_pods_of_a_day() -> None:
    lists = ("openb_node_list_gpu_node.csv", "openb_pod_list_gpuspec33.csv")
    instance = Instance.from_document(
        import_openb(*((REAL / name).read_bytes() for name in lists), at=140 * 86400)
    )
    placed = optsched.place(optsched.solve(instance, "max-throughput", integral=True))
    assert placed.placement is not None and not placed.placement.refused
    assert placed.placement.figures["exact"] == 1.0
    assert optsched.verify(instance, placed.to_document()).ok
