"""`optsched.place`: what is placed, what the file says of it, and that verify refuses every tampering by its field."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from documents import instance_document
from placement_cases import engine, instance_of, job, pool_of, rows_of

import optsched
from optsched import Instance
from optsched.errors import UsageError
from optsched.placement import check_placement, place_rows
from optsched.solution import Rounds

Document = dict[str, Any]


def document() -> Document:
    """Two pools; a gang over two nodes, jobs with CPUs, shares, a running one, a pair that is kept apart."""
    nodes = [{"name": f"n{i}", "gpus": 4, "cpus": 16} for i in range(3)]
    nodes.append({"name": "drained", "gpus": 4, "state": "drain"})
    small = {"pool": "b", "gpus": 1, "share": 0.5, "throughput": 1.0}
    return {
        "format": "optsched-instance/1",
        "name": "placed",
        "cluster": {
            "pools": [
                {"name": "a", "nodes": nodes, "bandwidth": {"intra_node": 300, "node": 25}},
                {"name": "b", "nodes": 1, "gpus_per_node": 2},
            ],
            "resources": [{"name": "rack", "capacity": 4, "nodes": ["n0", "n1"]}],
        },
        "constraints": [{"kind": "anti-affinity", "jobs": ["fat", "cpu"]}],
        "jobs": [
            {"id": "wide", "gpus": 6, "throughput": {"a": {"6": 5.0}}},
            {"id": "fat", "options": [{"pool": "a", "gpus": 2, "throughput": 3.0, "uses": {"cpu": 4, "rack": 2}}]},
            {"id": "cpu", "options": [{"pool": "a", "gpus": 1, "throughput": 1.0, "uses": {"cpu": 14}}],
             "running": {"pool": "a", "gpus": ["n2/3"]}},
            {"id": "s0", "options": [small]},
            {"id": "s1", "options": [small]},
            {"id": "s2", "options": [small]},
        ],
    }  # fmt: skip


@cache
def solution() -> optsched.Solution:
    return optsched.place(
        optsched.solve(Instance.from_document(document()), "max-throughput", integral=True)
    )


def test_what_runs_is_placed_and_verified() -> None:
    placed = solution()
    assert (
        placed.placement is not None and len(placed.placement) == 6 and not placed.placement.refused
    )
    assert placed.placement.figures == {
        "rows_wanted": 6, "rows_placed": 6, "rows_bound": 6, "nodes_spanned": 7, "nodes_bound": 7,
        "bandwidth": 325.0, "gpus_moved": 0, "exact": 1,
    }  # fmt: skip
    gpus = dict(zip(("wide", "fat", "cpu"), placed.placement.gpus, strict=False))
    assert gpus["cpu"] == ("n2/3",)
    assert not {gpu.split("/")[0] for gpu in gpus["fat"]} & {"n2"}
    assert list(placed.timings)[-2:] == ["place", "total"]
    assert optsched.verify(placed.instance, placed.to_document()).ok


def test_rows_can_be_chosen() -> None:
    rows = optsched.place(solution(), rows=[3, 1])
    assert rows.placement is not None and rows.placement.row.tolist() == [1, 3]
    assert optsched.verify(rows.instance, rows.to_document()).ok
    assert optsched.place(solution(), rows=[]).to_document()["placement"] == []


def test_the_first_slice_of_rounds_is_placed() -> None:
    from dataclasses import replace

    allocation = solution().allocation
    assert allocation is not None
    runs = sp.csr_matrix(np.array([[0, 1, 0, 1, 0, 0], [1, 0, 1, 0, 1, 1]], float))
    rounds = Rounds(allocation.classes, allocation.rows, np.array([0.5, 0.5]), runs, 1.0, 1.0)
    placed = optsched.place(replace(solution(), rounds=rounds))
    assert placed.placement is not None and placed.placement.row.tolist() == [1, 3]


def test_jobs_without_gpus_need_no_place() -> None:
    jobs = [
        {"id": "a", "options": [{"pool": None, "throughput": 1.0}]},
        {"id": "b", "options": [{"pool": "p", "gpus": 0, "throughput": 1.0}]},
    ]
    pools = [{"name": "p", "nodes": 1, "gpus_per_node": 1}]
    instance = Instance.from_document(instance_document(pools, jobs))
    placed = optsched.place(optsched.solve(instance, "max-throughput"))
    assert placed.placement is not None and placed.placement.figures["rows_wanted"] == 0
    assert optsched.verify(instance, placed.to_document()).ok


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: optsched.place(optsched.solve("@quickstart")),
            r"take turns and can't all be placed at once \(job resnet-18-3 has 3 rows\): realise it in rounds first "
            r"\(--rounds\), or say which rows run at the same time",
        ),
        (
            lambda: optsched.place(optsched.solve("@infeasible", constraints=["deadlines"])),
            "there is nothing to place: the solution is infeasible and has no allocation",
        ),
        (
            lambda: optsched.place(solution(), rows=[0, 6]),
            "rows: found 6, expected rows of the allocation, which has 6",
        ),
        (
            lambda: optsched.place(optsched.solve(turns(), "max-min-fairness")),
            r"\(they need 2 GPUs of p, of which there are 1\)",
        ),
    ],
)
def test_what_cannot_be_placed(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def turns() -> Instance:
    """Two jobs that take turns on one GPU."""
    return Instance.from_arrays(pools={"p": 1}, throughput=[[1.0], [1.0]])


def test_equal_fractions_of_one_gpu_are_no_rows_at_once() -> None:
    answer = optsched.solve(turns())
    assert (
        answer.allocation is not None
        and answer.allocation.rows.fraction.tolist() == pytest.approx([0.5, 0.5])
    )
    placed = optsched.place(answer, rows=[0])
    assert placed.placement is not None and placed.placement.gpus == (("p-0/0",),)


# --- tampering -------------------------------------------------------------------------------------------------------


def entry(file: Document, name: str) -> Document:
    return next(item for item in file["placement"] if item["job"] == name)


def swap(name: str, gpus: list[str]) -> Callable[[Document], None]:
    def tamper(file: Document) -> None:
        entry(file, name)["gpus"] = gpus

    return tamper


def put(key: str, value: Any, name: str = "fat") -> Callable[[Document], None]:
    return lambda file: entry(file, name).__setitem__(key, value)


def figure(name: str, value: Any) -> Callable[[Document], None]:
    return lambda file: file["placement_figures"].__setitem__(name, value)


TAMPERED = {
    "unknown GPU": (swap("cpu", ["n2/4"]), "placement[2].gpus[0]", "expected a GPU of pool"),
    "unknown node": (swap("cpu", ["n9/0"]), "placement[2].gpus[0]", "expected a GPU of pool"),
    "index not as written": (
        swap("cpu", ["n2/03"]),
        "placement[2].gpus[0]",
        "expected a GPU of pool",
    ),
    "other pool": (swap("cpu", ["b-0/0"]), "placement[2].gpus[0]", 'GPU of pool \\"a\\"'),
    "drained": (swap("cpu", ["drained/0"]), "placement[2].gpus[0]", "takes no work now"),
    "twice in a row": (swap("fat", ["n2/0", "n2/0"]), "placement[1].gpus[1]", "a second time"),
    "too few": (swap("fat", ["n2/0"]), "placement[1].gpus", "expected the 2 of the row"),
    "none": (swap("fat", []), "placement[1].gpus", "no reason"),
    "too wide": (swap("fat", ["n1/3", "n2/0"]), "placement[1].gpus", "expected at most 1"),
    "given twice": (
        lambda file: swap("fat", entry(file, "wide")["gpus"][:2])(file),
        "placement[0].gpus",
        "2 times",
    ),
    "shares": (swap("s2", ["b-0/0"]), "placement[5].gpus", "1.5 times"),
    "cpus": (
        swap("fat", ["n2/1", "n2/2"]),
        "placement[1].gpus",
        "18 of cpu of node n2, expected at most 16",
    ),
    "apart": (swap("fat", ["n2/1", "n2/2"]), "placement[2].gpus", "both on node n2"),
    "row": (put("row", 9), "placement[1].row", "which has 6"),
    "another row": (put("row", 0), "placement[1].job", 'expected "wide"'),
    "job": (put("job", "cpu"), "placement[1].job", 'expected "fat"'),
    "reason": (put("reason", "no room"), "placement[1].reason", "it has some"),
    "twice": (
        lambda file: file["placement"].append(file["placement"][1]),
        "placement[6].row",
        "a second time",
    ),
    "wanted": (figure("rows_wanted", 7), "placement_figures.rows_wanted", "expected 6"),
    "placed": (figure("rows_placed", 5), "placement_figures.rows_placed", "expected 6"),
    "spanned": (figure("nodes_spanned", 6), "placement_figures.nodes_spanned", "expected 7"),
    "bandwidth": (figure("bandwidth", 600.0), "placement_figures.bandwidth", "expected 325"),
    "moved": (figure("gpus_moved", 1), "placement_figures.gpus_moved", "expected 0"),
    "rows_bound": (figure("rows_bound", 5), "placement_figures.rows_bound", "from 6"),
    "nodes_bound": (figure("nodes_bound", 8), "placement_figures.nodes_bound", "to 7"),
    "exact": (figure("exact", 0.5), "placement_figures.exact", "expected 0, or 1"),
    "exact with a gap": (figure("nodes_bound", 6), "placement_figures.exact", "expected 0, or 1"),
    "no figure": (
        lambda file: file["placement_figures"].pop("exact"),
        "placement_figures.exact",
        "found nothing",
    ),
    "more figures": (figure("beauty", 1), "placement_figures.beauty", "no such entry"),
    "no figures": (lambda file: file.pop("placement_figures"), "placement_figures", "or neither"),
    "figures alone": (lambda file: file.pop("placement"), "placement", "or neither"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_placement_is_refused(name: str) -> None:
    tamper, field, words = TAMPERED[name]
    file = copy.deepcopy(json.loads(json.dumps(solution().to_document())))
    tamper(file)
    findings = optsched.verify(solution().instance, file).findings
    assert any(
        finding.field == field and words.replace("\\", "") in finding.message
        for finding in findings
    ), [str(finding) for finding in findings]


def test_a_resource_of_some_nodes_is_kept_and_checked() -> None:
    """Each job uses 2 of a rack that has 2 on node pa: one of them goes to the other node."""
    jobs = [job(name, 2, uses={"rack": 2}) for name in "xy"]
    resources = [{"name": "rack", "capacity": 2, "nodes": ["pa"]}]
    classes, rows = rows_of(instance_of(jobs, [pool_of(4, 2)], resources=resources))
    for columns in (0, 10**4):
        placement = place_rows(classes, rows, np.arange(2), engine(), columns=columns)
        assert sorted(gpus[0].split("/")[0] for gpus in placement.gpus) == ["pa", "pb"]
    both = [["pa/0", "pa/1"], ["pa/2", "pa/3"]]
    flaws = check_placement(classes, rows.job, rows.partner, rows.column, both)
    words = "the GPUs need 4 of rack, expected at most 2"
    assert [(flaw.entry, flaw.part, flaw.message) for flaw in flaws] == [
        (0, "gpus", words),
        (1, "gpus", words),
    ]


def test_refused_rows_stand_in_the_file_with_their_reason() -> None:
    pools = [
        {
            "name": "p",
            "nodes": [{"name": "x", "gpus": 1}, {"name": "y", "gpus": 2}, {"name": "z", "gpus": 1}],
        }
    ]
    jobs = [{"id": name, "gpus": 2, "throughput": {"p": 1.0}} for name in "ab"]
    instance = Instance.from_document(instance_document(pools, jobs))
    placed = optsched.place(optsched.solve(instance, "max-throughput", integral=True))
    file = placed.to_document()
    assert file["placement"] == [
        {"row": 0, "job": "a", "gpus": ["y/0", "y/1"]},
        {"row": 1, "job": "b", "gpus": [], "reason": "job b: needs 2 GPUs of p on at most 1 node; "
         "2 GPUs are free for it: 1 on x, 1 on z"},
    ]  # fmt: skip
    assert file["placement_figures"]["rows_bound"] == 1
    assert optsched.verify(instance, file).ok


def test_a_time_limit_ends_the_exact_search() -> None:
    """Without a limit this search takes some ten seconds."""
    sizes = np.random.default_rng(2).choice([3, 6, 12, 5], 30).tolist()
    jobs = [job(f"j{i}", size, nodes=3 if size > 8 else 1) for i, size in enumerate(sizes)]
    instance = instance_of(jobs, [pool_of(*[8] * 24, bandwidth={"intra_node": 100, "node": 10})])
    solved = optsched.solve(instance, "max-throughput", integral=True)
    placed = optsched.place(solved, time_limit=0.2)
    assert placed.timings["place"] < 5.0
    assert placed.placement is not None and placed.placement.figures["rows_placed"] > 0
    assert placed.placement.figures["exact"] == 0.0
    assert optsched.verify(instance, placed.to_document()).ok
