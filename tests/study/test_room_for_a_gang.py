"""Room for a gang: against all migrations, non-preemptible jobs, what is shown, and the command."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

import optsched
from optsched.cli.main import main
from optsched.errors import UsageError

seeds = st.integers(0, 2**32 - 1)


def document(
    sizes: list[int],
    running: list[tuple[int, int, float, bool]],
    gang: int,
    span: int = 1,
    **more: Any,
) -> dict[str, Any]:
    """Nodes of these sizes; running jobs as (node, GPUs, restart cost, preemptible); a job `new` that waits."""
    free = [list(range(size)) for size in sizes]
    jobs = []
    for number, (node, gpus, cost, preemptible) in enumerate(running):
        held = [f"n{node}/{free[node].pop(0)}" for _ in range(gpus)]
        jobs.append(
            {
                "id": f"r{number}",
                "gpus": gpus,
                "steps": 1e6,
                "throughput": {"p": {str(gpus): 1.0}},
                "restart_cost": cost,
                "preemptible": preemptible,
                "running": {"pool": "p", "gpus": held},
            }
        )
    new = {"id": "new", "gpus": gang, "throughput": {"p": {str(gang): {str(span): 1.0}}}}
    nodes = [{"name": f"n{node}", "gpus": size} for node, size in enumerate(sizes)]
    pool = {"name": "p", "nodes": nodes}
    return {
        "format": "optsched-instance/1",
        "cluster": {"pools": [pool]},
        "jobs": [*jobs, new | more],
    }


def least(
    sizes: list[int], running: list[tuple[int, int, float, bool]], gang: int, span: int
) -> tuple[int, float] | None:
    """Fewest migrations and their cost, by trying all places of all jobs."""
    best: tuple[int, float] | None = None
    choices = [range(len(sizes)) if may else [node] for node, _, _, may in running]
    for where in product(*choices):
        free = np.array(sizes)
        for (_, gpus, _, _), node in zip(running, where, strict=True):
            free[node] -= gpus
        if (free < 0).any() or np.sort(free)[::-1][:span].sum() < gang:
            continue
        moved = [job for job, node in zip(running, where, strict=True) if job[0] != node]
        found = (len(moved), sum(cost for _, _, cost, _ in moved))
        best = found if best is None else min(best, found)
    return best


def check(room: optsched.Room, given: dict[str, Any]) -> None:
    """Carry the migrations out one after the other: nobody gets a GPU that is held."""
    holder: dict[str, str] = {}
    for job in given["jobs"][:-1]:
        holder |= dict.fromkeys(job["running"]["gpus"], job["id"])
    table = room.to_columns()
    steps = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    for step in sorted({row["step"] for row in steps}):
        together = [row for row in steps if row["step"] == step]
        for row in together:
            assert {holder.pop(gpu) for gpu in row["from"]} == {row["job"]}
        for row in together:
            assert not set(row["to"]) & holder.keys() and len(row["to"]) == len(row["from"])
            holder |= dict.fromkeys(row["to"], row["job"])
    assert not set(room.gpus) & holder.keys()


@given(seed=seeds)
@settings(max_examples=100, deadline=None)
def test_fewest_then_cheapest_of_all_migrations(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 5, int(random.integers(2, 5))).tolist()
    free, running = list(sizes), []
    for _ in range(int(random.integers(1, 6))):
        node = int(random.integers(len(sizes)))
        if free[node]:
            gpus = int(random.integers(1, free[node] + 1))
            free[node] -= gpus
            cost = float(random.integers(0, 20))
            running.append((node, gpus, cost, bool(random.random() < 0.8)))
    gang, span = int(random.integers(1, 6)), int(random.integers(1, 3))
    span = min(span, gang)
    given_ = document(sizes, running, gang, span)
    expected = least(sizes, running, gang, span)
    room = optsched.make_room(given_, "new")
    if expected is None:
        assert room.possible is False
        assert "no migration makes room" in room.words or "it can run nowhere" in room.words
        return
    assert room.possible and room.optimal
    assert (len(room.migrations), room.seconds) == expected
    assert len(room.gpus) == gang and len({gpu.split("/")[0] for gpu in room.gpus}) <= span
    stays = {f"r{number}" for number, job in enumerate(running) if not job[3]}
    assert not stays & set(room.to_columns()["job"])
    check(room, given_)


def test_a_job_that_cannot_be_preempted_stays() -> None:
    given_ = document([4, 4], [(0, 2, 1.0, True), (1, 2, 0.0, False)], 4)
    room = optsched.make_room(given_, "new")
    assert room.to_columns()["job"] == ["r0"] and room.gpus == tuple(
        f"n0/{gpu}" for gpu in range(4)
    )
    given_["jobs"][0]["preemptible"] = False
    room = optsched.make_room(given_, "new")
    assert room.possible is False and room.migrations == ()


def test_a_job_with_options_that_stays_keeps_its_share() -> None:
    """Job b stays on half of a GPU: the new job gets the other GPU."""
    option = {"pool": "p", "gpus": 1, "share": 0.5, "throughput": 1.0}
    running = {"pool": "p", "gpus": ["p-0/0"]}
    given = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "p", "nodes": 1, "gpus_per_node": 2}]},
        "jobs": [
            {"id": "a", "throughput": {"p": 1.0}},
            {"id": "b", "preemptible": False, "running": running, "options": [option]},
            {"id": "new", "throughput": {"p": 1.0}},
        ],
    }
    room = optsched.make_room(given, "new")
    assert room.possible and room.gpus == ("p-0/1",)


def test_the_cheaper_of_two_migrations_is_taken() -> None:
    given_ = document([4, 4, 4], [(0, 2, 9.0, True), (1, 2, 5.0, True), (2, 2, 7.0, True)], 4)
    room = optsched.make_room(given_, "new")
    assert (room.seconds, room.to_columns()["job"]) == (5.0, ["r1"])
    assert room.after is not None and room.after.gpus < room.before.gpus


def test_cpus_are_part_of_the_room() -> None:
    given_ = document([4, 4], [(0, 2, 1.0, True)], 4)
    for node, cpus in zip(given_["cluster"]["pools"][0]["nodes"], (8, 2), strict=True):
        node["cpus"] = cpus
    given_["workloads"] = {"w": {"demand": {"cpu": 2}, "throughput": {"p": {"4": 1.0}}}}
    given_["jobs"][-1] = {"id": "new", "gpus": 4, "workload": "w"}
    room = optsched.make_room(given_, "new")
    # Node n1 is empty and has too few CPUs
    assert room.gpus[0].startswith("n0") and len(room.migrations) == 1


def test_anti_affinity_holds() -> None:
    given_ = document([4, 2, 2], [(0, 2, 1.0, True), (1, 1, 0.0, False)], 4)
    room = optsched.make_room(given_, "new")
    assert room.to_columns()["to"][0][0].startswith("n2")
    given_["constraints"] = [{"kind": "anti-affinity", "jobs": ["r0", "r1"]}]
    given_["cluster"]["pools"][0]["nodes"].pop()
    assert optsched.make_room(given_, "new").possible is False


def test_pairs_on_shared_gpus_stay() -> None:
    given_ = document([4, 4], [(0, 2, 1.0, True)], 4)
    twin = given_["jobs"][0] | {"id": "twin"}
    given_["jobs"].insert(1, twin)
    given_["jobs"].insert(0, document([4, 4], [(1, 1, 0.0, False)], 4)["jobs"][0] | {"id": "x"})
    assert optsched.make_room(given_, "new").possible is False


def test_large_clusters_are_searched_in_part() -> None:
    """Half-full nodes of 8 GPUs: one migration is enough, and shown to be the fewest."""
    nodes = 300
    running = [(node, 2, float(1 + node % 7), True) for node in range(nodes) for _ in range(3)]
    given_ = document([8] * nodes, running, 8)
    room = optsched.make_room(given_, "new")
    assert room.possible and room.fewest == 3 and len(room.migrations) == 3
    check(room, given_)


def test_refused_questions() -> None:
    given_ = document([4, 4], [(0, 2, 1.0, True)], 4)
    with pytest.raises(UsageError, match=r"job r0 runs already"):
        optsched.make_room(given_, "r0")
    with refuses('job: found "nex", expected the id of a job of the instance', UsageError):
        optsched.make_room(given_, "nex")
    later = document([4, 4], [], 4)
    later["jobs"][-1]["arrival"] = 60.0
    with pytest.raises(UsageError, match=r"job new: arrives at 60 s"):
        optsched.make_room(later, "new")
    with pytest.raises(UsageError, match=r"make_room has no parameter 'colour'"):
        optsched.make_room(given_, "new", colour=1)  # type: ignore[call-arg]


def test_a_job_that_can_run_nowhere_is_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "i.json"
    path.write_text(json.dumps(document([2, 2], [(0, 1, 1.0, True)], 4)))
    room = optsched.make_room(path, "new")
    assert room.possible is False and not room.migrations and room.pool is None
    assert room.words.startswith("it can run nowhere: ")
    assert main(["whatif", str(path), "--make-room", "new"]) == 4
    assert "it can run nowhere" in capsys.readouterr().out
    alone = optsched.make_room(document([2, 2], [], 4), "new")
    assert alone.possible is False and alone.before.total == 4


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "i.json"
    path.write_text(json.dumps(document([4, 4], [(0, 2, 60.0, True), (1, 1, 0.0, False)], 4)))
    assert main(["whatif", str(path), "--make-room", "new"]) == 0
    shown = capsys.readouterr().out
    assert "1 migration makes room, the fewest" in shown and "r0" in shown
    assert main(["whatif", str(path), "--make-room", "new", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["format"], told["possible"], told["optimal"]) == ("optsched-room/1", True, True)
    path.write_text(json.dumps(document([4, 4], [(0, 2, 0.0, False), (1, 1, 0.0, False)], 4)))
    assert main(["whatif", str(path), "--make-room", "new"]) == 4
    assert "no migration makes room" in capsys.readouterr().out
    assert main(["whatif", str(path), "--make-room", "new", "--ranging"]) == 2


# --- fragmentation --------------------------------------------------------------------------------


def test_fragmentation_is_that_of_the_paper() -> None:
    """By the definition, written down a second time: shares, gangs, CPUs and pools."""
    given_ = {
        "format": "optsched-instance/1",
        "cluster": {
            "pools": [
                {
                    "name": "p",
                    "nodes": [{"name": "a", "gpus": 4, "cpus": 4}, {"name": "b", "gpus": 2}],
                },
                {"name": "q", "nodes": [{"name": "c", "gpus": 1}]},
            ]
        },
        "workloads": {"w": {"demand": {"cpu": 2}, "throughput": {"p": {"2": 1.0}}}},
        "jobs": [
            {
                "id": "half",
                "options": [{"pool": "p", "gpus": 1, "share": 0.6, "throughput": 1.0}],
                "running": {"pool": "p", "gpus": ["a/0"]},
            },
            {"id": "one", "gpus": 2, "workload": "w"},
            {"id": "two", "gpus": 2, "workload": "w"},
            {"id": "whole", "gpus": 1, "throughput": {"q": 1.0}},
        ],
    }
    found = optsched.fragmentation(given_)
    assert found.nodes == ("a", "b", "c")
    assert found.free.tolist() == pytest.approx([3.4, 2.0, 1.0])
    # half (1/4): 0.4 of a/0 is too little; gangs (1/2) of 2 GPUs and 4 CPUs fit on a and b, where 0.4 is lost
    # on a; the last one (1/4) runs on c alone
    expected = [0.4 / 4 + 0.4 / 2 + 3.4 / 4, 2.0 / 4, 1.0 / 4 + 1.0 / 2]
    assert found.fragments.tolist() == pytest.approx(expected)
    assert found.gpus == pytest.approx(sum(expected))
    assert found.share == pytest.approx(sum(expected) / 6.4)


def test_an_empty_cluster_for_jobs_that_fit_everywhere_has_no_fragments() -> None:
    given_ = document([4, 4], [], 4)
    assert optsched.fragmentation(given_).gpus == 0
    assert (
        optsched.fragmentation(document([4, 4], [(0, 4, 0, True), (1, 4, 0, True)], 4)).share == 0
    )
    assert optsched.fragmentation(document([4], [(0, 2, 0, True)], 4)).gpus == pytest.approx(1.0)


@pytest.mark.parametrize(("profile", "possible"), [("3g.20gb", True), ("4g.20gb", False)])
def test_a_slice_needs_a_layout_beside_what_is_on_its_gpu(profile: str, possible: bool) -> None:
    """One start of an A100 is for 4g: half of the GPU is free, but not for a second one."""

    def half(name: str) -> dict[str, Any]:
        option = {"pool": "p", "gpus": 1, "share": 0.5, "throughput": 1.0}
        return option | {"attributes": {"mig": name}}

    pool = {"name": "p", "gpu": "A100-SXM4-40GB", "nodes": 2, "gpus_per_node": 1}
    held = {"pool": "p", "gpus": ["p-0/0"]}
    whole = {"throughput": {"p": 2.0}, "running": {"pool": "p", "gpus": ["p-1/0"]}}
    jobs = [
        {"id": "a", "options": [half("4g.20gb")], "running": held},
        {"id": "b", "steps": 1e6, **whole},
        {"id": "new", "options": [half(profile)]},
    ]
    for job in jobs:
        job.setdefault("steps", 1e6)
    given = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [pool]},
        "jobs": jobs,
    }
    room = optsched.make_room(given, "new")
    assert room.possible is possible
    assert room.gpus == (("p-0/0",) if possible else ())
