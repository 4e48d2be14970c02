"""Cells that are reserved for tenants (`cells` with ``reserved``) in rounds of programs and rankings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import optsched
from optsched.arrays.values import replace
from optsched.errors import UsageError
from optsched.placement.bound_cells import BoundCells
from optsched.program.space import CellOnGpus

# The check of a plan, on plans that break a rule.
from optsched.rounds.checking import broken_rules
from optsched.rounds.view import View

POLICIES: tuple[dict[str, Any], ...] = (
    {"formulation": "max-min-fairness"},
    {"formulation": "max-throughput", "patience": 2},
    {"formulation": "max-min-fairness", "max_moves": 1},
    {"ranking": "fifo"},
    {"ranking": "srtf"},
    {"ranking": "las"},
)


def reserved(owns: Mapping[str, int], tenant: str = "A") -> dict[str, Any]:
    return {"kind": "cells", "tenant": tenant, "owns": dict(owns), "reserved": True}


def job(name: str, gpus: int, tenant: str = "", **more: Any) -> dict[str, Any]:
    rates = {"p": {str(gpus): {"1": float(gpus)}}}
    return {
        "id": name,
        "gpus": gpus,
        "throughput": rates,
        "steps": 1e6,
        **({"tenant": tenant} if tenant else {}),
        **more,
    }


def cluster(nodes: Sequence[int]) -> dict[str, Any]:
    named = [{"name": f"n{row}", "gpus": gpus} for row, gpus in enumerate(nodes)]
    return {"pools": [{"name": "p", "nodes": named}]}


def document(
    nodes: Sequence[int], jobs: Sequence[Mapping[str, Any]], cells: Sequence[Any] = ()
) -> dict[str, Any]:
    return {
        "format": "optsched-instance/1",
        "cluster": cluster(nodes),
        "tenants": [{"name": "A"}, {"name": "B"}],
        "jobs": list(jobs),
        "constraints": list(cells),
    }


# --- any events, any policy -------------------------------------------------------------------


class World(NamedTuple):
    """What a storm knows of its cluster, by name."""

    nodes: tuple[int, ...]
    owns: Mapping[str, Mapping[str, int]]
    tenant: dict[str, str]
    gpus: dict[str, int]
    firm: set[str]

    def random_job(self, random: np.random.Generator) -> dict[str, Any]:
        name = f"j{len(self.tenant)}"
        self.tenant[name] = str(random.choice(["A", "B", "", "", ""]))
        self.gpus[name] = int(random.choice([1, 1, 2, 2, 3, 4]))
        made = job(name, self.gpus[name], self.tenant[name])
        rates = made["throughput"]["p"][str(made["gpus"])]
        if made["gpus"] > 1 and random.random() < 0.5:
            rates["2"] = 0.7 * rates["1"]
        if random.random() < 0.2:
            made["preemptible"] = False
            self.firm.add(name)
        return made


def check_plan(world: World, plan: optsched.Plan, up: set[str]) -> None:
    """By the names in the plan's document alone."""
    written = plan.to_document()
    owner: dict[str, str] = {}
    counts = Counter[tuple[str, int]]()
    for cell in written["cells"]:
        gpus = [gpu.split("/") for gpu in cell["gpus"]]
        (node,) = {node for node, _ in gpus}
        first = int(gpus[0][1])
        assert [int(index) for _, index in gpus] == list(range(first, first + len(gpus)))
        assert first % len(gpus) == 0 and first + len(gpus) <= world.nodes[int(node[1:])]
        assert not owner.keys() & set(cell["gpus"])
        owner |= dict.fromkeys(cell["gpus"], cell["tenant"])
        counts[cell["tenant"], len(gpus)] += 1
    running = [*written["start"], *written["keep"], *written["move"]]
    for each in running:
        tenant = world.tenant[each["job"]]
        allowed = {tenant if tenant in world.owns else ""}
        if each["job"] in world.firm:
            allowed |= {
                ""
            }  # it may have started before the cells were there, or on a node that drains
        assert {owner.get(gpu, "") for gpu in each["gpus"]} <= allowed, each
    busy = {gpu for each in running for gpu in each["gpus"]}
    firm = {gpu for each in running if each["job"] in world.firm for gpu in each["gpus"]}
    for tenant, owns in world.owns.items():
        for size, many in owns.items():
            assert counts[tenant, int(size)] <= many
            blocks = [
                [f"n{node}/{index}" for index in range(first, first + int(size))]
                for node, gpus in enumerate(world.nodes)
                for first in range(0, gpus - int(size) + 1, int(size))
                if f"n{node}" in up
            ]
            if counts[tenant, int(size)] < many:
                assert all(owner.keys() & set(block) or firm & set(block) for block in blocks)
        # A job that fits into a cell which its tenant does not use runs.
        free = [
            len(cell["gpus"])
            for cell in written["cells"]
            if cell["tenant"] == tenant
            and not busy & set(cell["gpus"])
            and cell["gpus"][0].split("/")[0] in up
        ]
        for each in written["hold"]:
            if world.tenant[each["job"]] == tenant:
                assert world.gpus[each["job"]] > max(free, default=0), each


@pytest.mark.property
@pytest.mark.parametrize("seed", range(18))
def test_cells_hold_their_tenants_jobs_whatever_happens(seed: int) -> None:
    random = np.random.default_rng(seed)
    nodes = tuple(random.choice([2, 3, 4, 4, 8], int(random.integers(2, 5))).tolist())
    sizes = ([1, 2], [2], [2, 4], [1, 4])
    owns = {
        tenant: {str(s): int(random.integers(0, 3)) for s in sizes[int(random.integers(4))]}
        for tenant in ("A", "B")[: int(random.integers(1, 3))]
    }
    world = World(nodes, owns, {}, {}, set())
    cells = [reserved(each, tenant) for tenant, each in owns.items()]
    late = random.random() < 0.3
    given = document(nodes, [world.random_job(random) for _ in range(5)], [] if late else cells)
    up = {f"n{row}" for row in range(len(nodes))}
    with optsched.Scheduler(given, POLICIES[seed % len(POLICIES)]) as scheduler:
        for turn in range(7):
            if late and turn == 2:
                scheduler.set_constraints(cells)
            plan = scheduler.solve(now=360.0 * turn)
            assert plan.fallback is None
            if not late or turn >= 2:
                check_plan(world, plan, up)
            for name in scheduler.state.instance.jobs_table.names:
                if random.random() < 0.15:
                    scheduler.complete(name)
            scheduler.submit([world.random_job(random) for _ in range(int(random.integers(3)))])
            node, draw = f"n{int(random.integers(len(nodes)))}", random.random()
            if draw < 0.15:
                scheduler.node_down(node)
                up.discard(node)
            elif draw < 0.25:
                scheduler.node_drain(node)
                up.discard(node)
            elif draw < 0.6:
                scheduler.node_up(node)
                up.add(node)


# --- small cases ------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_a_tenant_gets_its_cell_whole_as_soon_as_it_asks(policy: Mapping[str, Any]) -> None:
    others = [job(f"o{n}", 1) for n in range(8)]
    given = document((4, 4), others, [reserved({"4": 1})])
    with optsched.Scheduler(given, policy) as scheduler:
        assert len(scheduler.solve(now=0).start) == 4
        scheduler.submit([job("a", 4, "A")])
        assert [each.job for each in scheduler.solve(now=360).start].count("a") == 1


def test_without_cells_the_same_tenant_waits() -> None:
    """The test above is not empty: jobs that cannot be preempted fill the nodes."""
    others = [job(f"o{n}", 1, preemptible=False) for n in range(8)]
    with optsched.Scheduler(document((4, 4), others), {"ranking": "fifo"}) as scheduler:
        scheduler.solve(now=0)
        scheduler.submit([job("a", 4, "A")])
        assert [each.job for each in scheduler.solve(now=360).hold] == ["a"]


def test_cells_of_a_node_that_fails_go_where_fewest_jobs_have_to_leave() -> None:
    jobs = [job("o", 4), job("s", 1), job("a", 4, "A")]
    given = document((4, 4, 4), jobs, [reserved({"4": 1})])
    with optsched.Scheduler(given, {"ranking": "fifo"}) as scheduler:
        nodes = {each.job: set(each.nodes) for each in scheduler.solve(now=0).start}
        scheduler.node_down(*nodes["a"])
        plan = scheduler.solve(now=360)
        (left,) = plan.preempt  # there are two nodes for three
        assert left.job == "s" and "reserved cells of others" in left.reason
        assert set(plan.decision("a").nodes) == nodes["s"] and not plan.notices[1:]
        scheduler.node_down(*nodes["o"], *nodes["s"])
        plan = scheduler.solve(now=720)
        assert plan.fallback is None and "1 cell of 4 GPUs of tenant A" in plan.notices[-1]


def test_jobs_that_came_before_the_cells() -> None:
    """Preemptible ones leave; one that cannot be preempted stays, and the tenant has a cell less."""
    jobs = [job("firm", 1, preemptible=False), job("loose", 4)]
    with optsched.Scheduler(document((4, 4), jobs), {"ranking": "fifo"}) as scheduler:
        scheduler.solve(now=0)
        scheduler.set_constraints([reserved({"4": 2})])
        plan = scheduler.solve(now=360)
        assert plan.decision("firm").verdict == optsched.rounds.Verdict.KEEP
        assert [each.job for each in plan.preempt] == ["loose"]
        assert len(plan.to_document()["cells"]) == 1
        assert any("1 cell of 4 GPUs" in notice for notice in plan.notices)


def test_a_cell_is_around_the_gpus_of_a_job_that_stays() -> None:
    held = {"running": {"pool": "p", "gpus": ["n1/1"]}, "preemptible": False}
    jobs = [job("s", 1, "A", **held), *(job(f"o{n}", 1) for n in range(8))]
    plan = optsched.solve_round(
        optsched.RoundState.first(
            optsched.load(document((4, 4), jobs, [reserved({"2": 2})])), {"ranking": "fifo"}
        )
    )
    assert ["n1/0", "n1/1"] in [cell["gpus"] for cell in plan.to_document()["cells"]]
    assert len(plan.start) == 4


def test_room_is_made_in_the_cells_of_a_tenant_alone() -> None:
    """The second pair needs a job of its tenant to move; others' jobs stay where they are."""
    jobs = [job("a", 1, "A"), job("b", 1, "A"), job("c", 1, "A"), job("o", 1)]
    given = document((2, 2, 2), jobs, [reserved({"2": 2})])
    with optsched.Scheduler(given, {"ranking": "fifo"}) as scheduler:
        first = scheduler.solve(now=0)
        nodes = {each.job: next(iter(each.nodes)) for each in first.start}
        alone = next(name for name in "abc" if list(nodes.values()).count(nodes[name]) == 1)
        scheduler.complete(next(name for name in "abc" if name != alone))
        scheduler.submit([job("d", 2, "A")])
        plan = scheduler.solve(now=360)
        assert plan.fallback is None and plan.decision("d").verdict == optsched.rounds.Verdict.START
        assert [each.job for each in plan.move] != ["o"] and len(plan.move) == 1


def test_what_cells_leave_goes_to_others_in_their_order() -> None:
    """Six GPUs are left for others: the last job, of two, must not be chosen beside those of 1 and 4
    before it, and placed in the way of the second.
    """
    gpus = [1, 1, 4, 2, 8, 8, 8, 1, 4, 4, 1, 2]
    tenants = ["", "B", "A", "A", "B", "B", "A", "B", "A", "", "B", ""]
    jobs = [job(f"j{row}", *each) for row, each in enumerate(zip(gpus, tenants, strict=True))]
    cells = [reserved({"1": 1, "2": 1, "4": 1}, tenant) for tenant in "AB"]
    instance = optsched.load(document((8, 4, 8), jobs, cells))
    plan = optsched.solve_round(optsched.RoundState.first(instance, {"ranking": "fifo"}))
    others = [each.job for each in plan.start if not tenants[int(each.job[1:])]]
    assert others == ["j0", "j9"]


# --- the check of a plan ----------------------------------------------------------------------


def checked(cells: Sequence[CellOnGpus], owns: Mapping[str, int]) -> list[str]:
    """What the check says of a plan with these cells, beside a job of others on GPU 0 of node 0."""
    held = {"running": {"pool": "p", "gpus": ["n0/0"]}}
    instance = optsched.load(document((4, 4), [job("o", 1, **held)], [reserved(owns)]))
    state = optsched.RoundState.first(instance, {"ranking": "fifo"})
    view, plan = View.of(state), optsched.solve_round(state)
    assert view.cells is not None and not broken_rules(view, plan)
    bound = BoundCells(view.cells.instance, view.cells.tenants, tuple(cells))
    return [*broken_rules(view, replace(plan, cells=bound))]


@pytest.mark.parametrize(
    ("cells", "owns", "words"),
    [
        ([(0, 4, 4)], {"4": 1}, ""),
        ([(0, 4, 0)], {"4": 1}, "job o has GPUs that are not those of its tenant's cells"),
        ([], {"4": 1}, "tenant A lacks a cell of 4 GPUs for which there is room"),
        ([(0, 2, 3)], {"2": 1}, "where it cannot be"),  # not aligned
        ([(0, 2, 4), (0, 2, 4)], {"2": 2}, "is in another cell"),
        ([(0, 2, 4), (0, 2, 6)], {"2": 1}, "tenant A has 2 cells of 2 GPUs, expected 1"),
        ([(0, 4, 4)], {"2": 1}, "where it cannot be"),  # of a size that nobody owns
    ],
)
def test_broken_cells_are_found(
    cells: Sequence[tuple[int, int, int]], owns: Mapping[str, int], words: str
) -> None:
    found = checked([CellOnGpus(t, size, slice(at, at + size)) for t, size, at in cells], owns)
    assert (words in " ".join(found)) if words else not found


# --- where cells are bound --------------------------------------------------------------------


def sizes_bound(scheduler: optsched.Scheduler) -> Counter[tuple[str, int]]:
    """How many cells of each tenant and size have GPUs in the first round."""
    plan = scheduler.solve(now=0)
    assert not plan.fallback
    return Counter((one["tenant"], len(one["gpus"])) for one in plan.to_document()["cells"])


@pytest.mark.parametrize("count", [4, 7])
def test_large_cells_are_bound_around_small_jobs_where_all_other_blocks_are_taken(
    count: int,
) -> None:
    """Smallest first, each of the tenant's jobs would have a cell of one GPU in the middle of the
    only blocks of four."""

    def firm(name: str, node: int, gpu: int, tenant: str = "") -> dict[str, Any]:
        running = {"pool": "p", "gpus": [f"n{node}/{gpu}"]}
        return job(name, 1, tenant, preemptible=False, running=running)

    own = [firm(f"a{row}", row, 2, "A") for row in range(count)]
    others = [firm(f"o{row}{gpu}", count + row, gpu) for row in range(count) for gpu in range(3)]
    cells = [reserved({"4": count, "1": count})]
    given = document([4] * (2 * count), [*own, *others], cells)
    with optsched.Scheduler(given, {"ranking": "fifo"}) as scheduler:
        assert sizes_bound(scheduler) == {("A", 4): count, ("A", 1): count}


@pytest.mark.parametrize("owns", [{"4": 1}, {"2": 2}])
def test_a_tenant_of_one_pool_finds_room_beside_one_of_all_pools(owns: dict[str, int]) -> None:
    given = document([4], [], [reserved({"4": 1}, "B"), {**reserved(owns), "pools": ["p"]}])
    given["cluster"]["pools"].append({"name": "q", "nodes": [{"name": "m", "gpus": 4}]})
    ((size, number),) = owns.items()
    with optsched.Scheduler(given, {"ranking": "fifo"}) as scheduler:
        assert sizes_bound(scheduler) == {("B", 4): 1, ("A", int(size)): number}


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (reserved({"4": 1}), "cells of tenant A are reserved twice in one pool"),
        (reserved({"3": 1}, "B"), "found sizes 3 and 4 in one pool"),
    ],
)
def test_cells_that_no_round_could_bind_are_refused_at_once(
    second: dict[str, Any], words: str
) -> None:
    given = document((4, 4), [job("o", 4)], [reserved({"4": 1}), second])
    with pytest.raises(UsageError, match=words):
        optsched.Scheduler(given, {"ranking": "fifo"})
