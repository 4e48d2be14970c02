"""Jobs that run and cannot be preempted keep exactly their GPUs in a placement, which rounds begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from documents import instance_document

import optsched
from optsched import Instance, Solution
from optsched.cli.main import main
from optsched.instance import instance_bytes

HELD = {"x": ["a-0/1"], "y": ["a-1/0"]}


def cluster(
    sizes: Mapping[str, int],
    held: Mapping[str, Sequence[str]],
    firm: Sequence[str],
    nodes: int = 2,
    per_node: int = 2,
) -> Instance:
    """Gangs on one pool, of which some run."""
    jobs: list[dict[str, Any]] = [
        {"id": name, "workload": "w", "gpus": gpus, "steps": 1000, "preemptible": name not in firm}
        | ({"running": {"pool": "a", "gpus": list(held[name])}} if name in held else {})
        for name, gpus in sizes.items()
    ]
    rates = {str(size): float(size) for size in range(1, 5)}
    pool = {"name": "a", "nodes": nodes, "gpus_per_node": per_node}
    return Instance.from_document(
        instance_document([pool], jobs, workloads={"w": {"throughput": {"a": rates}}})
    )


def placed(
    instance: Instance, constraints: Sequence[Any] = ("uninterrupted",), **options: Any
) -> Solution:
    solution = optsched.solve(instance, "max-throughput", integral=True, constraints=constraints)
    return optsched.place(optsched.realise(solution, **options) if options else solution)


def gpus(solution: Solution) -> dict[str, list[str]]:
    return {entry["job"]: entry["gpus"] for entry in solution.to_document()["placement"]}


def fields(solution: Solution, document: dict[str, Any]) -> list[str]:
    return [finding.field for finding in optsched.verify(solution.instance, document).findings]


def test_nobody_is_moved_who_cannot_be_preempted() -> None:
    """With x and y moved together there would be room for z."""
    sizes = {"x": 1, "y": 1, "z": 2}
    movable = placed(cluster(sizes, HELD, firm=()))
    assert movable.placement is not None and movable.placement.figures["rows_placed"] == 3
    kept = placed(cluster(sizes, HELD, firm=("x", "y")))
    assert gpus(kept) == {**HELD, "z": []}
    assert kept.placement is not None and kept.placement.contradicted == ()
    figures = {
        "rows_wanted": 3,
        "rows_placed": 2,
        "rows_bound": 2,
        "nodes_spanned": 2,
        "gpus_moved": 0,
        "exact": 1,
    }
    assert figures.items() <= dict(kept.placement.figures).items()
    assert fields(kept, kept.to_document()) == []
    assert gpus(placed(cluster(sizes, HELD, firm=("y",))))["y"] == HELD["y"]


def test_a_file_that_moves_one_is_refused() -> None:
    sizes = {"x": 1, "y": 1, "z": 2}
    document = placed(cluster(sizes, HELD, firm=())).to_document()
    kept = placed(cluster(sizes, HELD, firm=("x", "y")))
    moved = kept.to_document() | {key: document[key] for key in ("placement", "placement_figures")}
    assert {"placement[1].gpus", "placement[2].gpus"} <= set(fields(kept, moved))


def test_an_allocation_that_contradicts_it_is_told() -> None:
    """x is to get two GPUs where it runs on one, and y none."""
    solution = placed(cluster({"x": 2, "y": 1, "z": 2}, HELD, firm=("x", "y")), constraints=())
    document = solution.to_document()
    assert [item["job"] for item in document["placement_contradicts"]] == ["x", "y"]
    assert all(not set(mine) & {"a-0/1", "a-1/0"} for mine in gpus(solution).values())
    assert fields(solution, document) == []
    del document["placement_contradicts"]
    assert fields(solution, document) == ["placement_contradicts"]


def test_no_advice_goes_round_in_a_circle(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """x runs on two nodes, and its table has one: asking for it to run on would change nothing."""
    file = tmp_path / "spread.json"
    spread = cluster({"x": 2}, {"x": ["a-0/1", "a-1/0"]}, firm=("x",))
    file.write_bytes(instance_bytes(spread, "json"))
    for asked in ([], ["-C", "uninterrupted"]):
        command = ["solve", str(file), "-f", "max-throughput", "-O", "integral=true", "--place"]
        assert main([*command, *asked]) == 0
        told = " ".join(capsys.readouterr().out.split())
        assert "its table has no configuration of 2 GPUs of a on 2 nodes" in told
        assert "Solve with -C uninterrupted" not in told


def test_two_that_share_a_gpu_stay_together() -> None:
    options = [{"pool": "a", "gpus": 1, "share": 0.5, "throughput": 1.0}]
    jobs = [
        {"id": name, "steps": 100, "preemptible": False, "options": options,
         "running": {"pool": "a", "gpus": ["a-1/1"]}} for name in ("x", "y")
    ]  # fmt: skip
    jobs.append({"id": "z", "steps": 100, "options": options})
    pools = [{"name": "a", "nodes": 2, "gpus_per_node": 2}]
    solution = placed(Instance.from_document(instance_document(pools, jobs)))
    found = gpus(solution)
    assert found["x"] == found["y"] == ["a-1/1"] and found["z"] not in ([], ["a-1/1"])
    assert fields(solution, solution.to_document()) == []


def test_rounds_begin_with_those_that_run_on() -> None:
    """Half of the time is for x, which runs: its slice is the first, and it is told that it stops."""
    instance = cluster({"w": 2, "x": 2}, {"x": ["a-0/0", "a-0/1"]}, firm=("x",), nodes=1)
    solution = optsched.realise(optsched.solve(instance))
    assert solution.rounds is not None
    x = instance.jobs_table.names.index("x")
    assert solution.rounds.rows.job[solution.rounds.running(0)].tolist() == [x]
    assert solution.rounds.stopped(np.array([False, True])).tolist() == [x]
    assert gpus(optsched.place(solution))["x"] == ["a-0/0", "a-0/1"]


@pytest.mark.parametrize("seed", range(8))
def test_random_gangs_stay_where_they_are(seed: int) -> None:
    random = np.random.default_rng(seed)
    free = [f"a-{node}/{gpu}" for node in range(4) for gpu in range(4)]
    sizes, held = {}, {}
    for number in range(10):
        sizes[name := f"j{number}"] = size = int(random.integers(1, 4))
        where = f"a-{random.integers(4)}/"
        node = [gpu for gpu in free if gpu.startswith(where)]
        if random.random() < 0.6 and len(node) >= size:
            held[name] = sorted(random.choice(node, size, replace=False).tolist())
            free = [gpu for gpu in free if gpu not in held[name]]
    firm = [name for name in held if random.random() < 0.6]
    solution = placed(cluster(sizes, held, firm, nodes=4, per_node=4))
    found = gpus(solution)
    assert {name: found[name] for name in firm} == {name: held[name] for name in firm}
    assert fields(solution, solution.to_document()) == []


def test_the_command_line_tells_it(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cluster.json"
    file.write_bytes(
        instance_bytes(cluster({"x": 2, "y": 1, "z": 2}, HELD, firm=("x", "y")), "json")
    )
    assert main(["solve", str(file), "-f", "max-throughput", "-O", "integral=true", "--place"]) == 0
    told = capsys.readouterr().out
    assert (
        "Not preemptible, but stopped or moved by the allocation: 2 jobs" in told
        and "-C uninterrupted" in told
    )
