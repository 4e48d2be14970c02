"""Policy, side constraints, tenants and workloads that change while the scheduler runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from refusals import refuses
from test_recovery import parts

import optsched
from optsched.errors import JournalError, OptschedError, UsageError
from optsched.rounds import Scheduler
from optsched.rounds.journal import Journal, read_latest, records

Document = dict[str, Any]
ROUND = 360.0


def document(*jobs: Document, **more: Any) -> Document:
    pools = [
        {"name": "v100", "nodes": 2, "gpus_per_node": 2, "cpus_per_node": 8},
        {"name": "k80", "nodes": 1, "gpus_per_node": 2},
    ]
    return instance_document(
        pools,
        list(jobs) or [job(f"j{row}", row) for row in range(9)],
        round=ROUND,
        workloads={
            "S": {"throughput": {"v100": 4.0, "k80": 1.0}},
            "L": {"throughput": {"v100": 3.0}},
        },
        tenants=[{"name": "red"}, {"name": "blue"}],
        **more,
    )


def job(name: str, row: int = 0, **more: Any) -> Document:
    tenant = ("red", "blue")[row % 2]
    return {"id": name, "workload": "SL"[row % 2], "steps": 1e6, "tenant": tenant, **more}


def made(source: Document | None = None, policy: Any = None, **options: Any) -> Scheduler:
    return Scheduler(source or document(), policy, isolate=False, **options)


def rounds(scheduler: Scheduler, count: int) -> list[optsched.rounds.Plan]:
    """So many rounds, one after the other."""
    state = scheduler.state
    first = state.now + (0.0 if state.round == 0 else ROUND)
    return [scheduler.solve(now=first + ROUND * number) for number in range(count)]


CHANGES: dict[str, Callable[[Scheduler], None]] = {
    "policy": lambda s: s.set_policy({"ranking": "srtf", "max_moves": 1}),
    "another formulation": lambda s: s.set_policy({"formulation": "max-throughput"}),
    "constraints": lambda s: s.set_constraints([{"kind": "quota", "tenant": "red", "gpus": 1}]),
    "tenants": lambda s: s.set_tenants(
        [{"name": "red", "weight": 5.0}, {"name": "green", "policy": "fifo"}]
    ),
    "workloads": lambda s: s.set_workloads(
        {"S": {"throughput": {"k80": 9.0}}, "new": {"throughput": {"v100": 1.0}}}
    ),
}


# --- what they do ---------------------------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES)
def test_the_next_round_is_that_of_the_changed_state(change: str) -> None:
    """The plan is the one of a state in which only that is different."""
    scheduler = made()
    rounds(scheduler, 3)
    CHANGES[change](scheduler)
    plan = scheduler.solve(now=scheduler.state.now + ROUND, dry_run=True)
    given = scheduler.state.to_document()
    again = Scheduler(optsched.RoundState.from_document(given), isolate=False)
    assert again.solve(now=again.state.now + ROUND).id == plan.id


def test_a_ranking_takes_over() -> None:
    scheduler = made(document(*(job(f"j{row}", 0, steps=1e6 - row) for row in range(8))))
    rounds(scheduler, 3)
    scheduler.set_policy({"ranking": "srtf", "options": {"moves": "published"}})
    (plan,) = rounds(scheduler, 1)
    assert plan.order is not None and plan.solution is None


def test_one_field_of_the_policy() -> None:
    scheduler = made(policy={"formulation": "max-throughput", "hysteresis": 1.0})
    scheduler.set_policy(scheduler.state.policy.model_copy(update={"max_moves": 2}))
    policy = scheduler.state.policy
    assert (policy.formulation, policy.hysteresis, policy.max_moves) == ("max-throughput", 1.0, 2)


def test_debts_go_from_formulation_to_formulation() -> None:
    scheduler = made()
    rounds(scheduler, 4)
    before = scheduler.state
    assert before.ledger.deficit.any() and before.warm is not None
    scheduler.set_policy({"formulation": "max-throughput"})
    after = scheduler.state
    assert after.ledger is before.ledger and after.warm is None
    assert np.array_equal(after.service.executed, before.service.executed)


def test_other_rules_of_one_formulation_keep_everything() -> None:
    scheduler = made()
    rounds(scheduler, 4)
    before = scheduler.state
    scheduler.set_policy({"hysteresis": 0.0, "max_moves": 1})
    after = scheduler.state
    assert (after.ledger, after.service, after.warm) == (before.ledger, before.service, before.warm)


def test_a_ranking_leaves_no_debts() -> None:
    """Who ran most often under a ranking is not starved by the formulation after it."""
    scheduler = made(
        document(*(job(f"j{row}", 0) for row in range(12))), {"ranking": "las", "hysteresis": 0.0}
    )
    rounds(scheduler, 10)
    assert scheduler.state.ledger.carried.any()
    scheduler.set_policy({"formulation": "max-min-fairness", "hysteresis": 0.0})
    ledger = scheduler.state.ledger
    assert not ledger.carried.any() and not ledger.deficit.any()
    assert ledger.runs.all() and len(ledger) == 6
    ran = {item.job for plan in rounds(scheduler, 4) for item in (*plan.start, *plan.keep)}
    assert len(ran) == 12


def test_isolated_time_counts_under_its_formulation_alone() -> None:
    scheduler = made(policy={"formulation": "finish-time-fairness"})
    rounds(scheduler, 3)
    assert scheduler.state.service.isolated.any()
    counted = scheduler.instance.jobs_table.isolated_time
    assert counted.any()
    scheduler.set_policy({"formulation": "max-min-fairness"})
    rounds(scheduler, 3)
    assert np.array_equal(scheduler.instance.jobs_table.isolated_time, counted)


def test_rates_of_a_workload_are_those_of_its_jobs() -> None:
    scheduler = made(document(job("a")))
    (plan,) = rounds(scheduler, 1)
    assert plan.start[0].pool == "v100" and plan.speed.tolist() == [4.0]
    scheduler.set_workloads({"S": {"throughput": {"k80": 9.0}}})
    (plan,) = rounds(scheduler, 1)
    assert plan.move[0].pool == "k80" and plan.speed.tolist() == [9.0]


def test_needs_that_no_longer_fit_evict() -> None:
    scheduler = made(document(*(job(f"j{row}", 1) for row in range(4))))
    rounds(scheduler, 1)
    scheduler.set_workloads({"L": {"throughput": {"v100": 3.0}, "demand": {"cpu": 5.0}}})
    (plan,) = rounds(scheduler, 1)
    assert len(plan.keep) + len(plan.move) == 2 and len(plan.preempt) == 2


def test_new_tenants_and_workloads_have_jobs() -> None:
    scheduler = made()
    with refuses('event submit: jobs[0].workload: found "new"...'):
        scheduler.submit({"id": "n", "workload": "new"})
    scheduler.set_workloads({"new": {"throughput": {"v100": 1.0}}})
    scheduler.set_tenants([{"name": "green"}])
    scheduler.submit({"id": "n", "workload": "new", "tenant": "green"})
    with refuses('remove[0]: found workload "new", which job "n" needs...'):
        scheduler.set_workloads(remove=["new"])
    scheduler.complete("n")
    scheduler.set_workloads(remove=["new"])
    scheduler.set_tenants(remove=["green"])
    assert [one.name for one in scheduler.instance.workloads] == ["S", "L"]
    assert [one.name for one in scheduler.instance.tenants] == ["red", "blue"]


def test_what_cannot_all_be_kept_is_no_reason_to_refuse() -> None:
    """The event is taken; rounds say who is not admitted, until the constraints are others."""
    scheduler = made()
    rounds(scheduler, 1)
    scheduler.set_constraints([{"kind": "minimum-service", "fraction": 0.9}])
    (plan,) = rounds(scheduler, 1)
    assert any("is not admitted" in notice for notice in plan.notices)
    scheduler.set_constraints([])
    assert not rounds(scheduler, 1)[0].notices


def test_a_learning_model_goes_on() -> None:
    learning = {"performance": {"model": "online", "of": {"model": "table"}}}
    scheduler = made(document(job("a"), job("b", 1), **learning))
    rounds(scheduler, 1)
    scheduler.observe("b", throughput=1.5)
    learnt = scheduler.state.instance.performance
    scheduler.set_workloads({"S": {"throughput": {"v100": 2.0}}})
    (plan,) = rounds(scheduler, 1)
    assert scheduler.state.instance.performance == learnt
    assert plan.speed[0] == 2.0


# --- what is refused ------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[Scheduler], None], str]] = {
    "no policy": (lambda s: s.set_policy(4), "policy: found 4, expected an object such as..."),
    "policy field": (lambda s: s.set_policy({"max_moves": -1}), "policy.max_moves: found -1"),
    "no list": (lambda s: s.set_constraints("x"), 'constraints: found "x", expected a list'),
    "kind": (lambda s: s.set_constraints([{"kind": "quot"}]), "constraints[0]: found {..."),
    "tenant of a constraint": (
        lambda s: s.set_constraints([{"kind": "quota", "tenant": "white", "gpus": 1}]),
        'constraints[0].tenant: found "white", expected one of the tenants red, blue',
    ),
    "weight": (
        lambda s: s.set_tenants([{"name": "red", "weight": -1.0}]),
        "tenants[0].weight: found -1.0, expected a number above 0",
    ),
    "tenant twice": (
        lambda s: s.set_tenants([{"name": "a"}, {"name": "a"}]),
        'tenants[1].name: found "a" a second time, expected names that differ',
    ),
    "tenant with jobs": (
        lambda s: s.set_tenants(remove=["red"]),
        'remove[0]: found tenant "red", which job "j0" needs, expected one that no job needs',
    ),
    "no tenants": (lambda s: s.set_tenants(), "found nothing to change, expected something new..."),
    "pool of a rate": (
        lambda s: s.set_workloads({"S": {"throughput": {"t4": 1.0}}}),
        "workloads.S.throughput.t4: found no pool or GPU type of the cluster...",
    ),
    "workload null": (
        lambda s: s.set_workloads({"S": None}),
        "workloads.S: found null, expected an object",
    ),
    "no workload": (
        lambda s: s.set_workloads(remove=["none"]),
        'remove[0]: found "none", expected one of the workloads S, L',
    ),
    "no workloads": (lambda s: s.set_workloads(), "found nothing to change..."),
}  # fmt: skip


@pytest.mark.parametrize("call", REFUSED)
def test_what_makes_no_sense_is_refused(call: str, tmp_path: Path) -> None:
    scheduler = made(journal=tmp_path / "j", fsync=False)
    rounds(scheduler, 1)
    before, (act, words) = scheduler.state, REFUSED[call]
    written = len(list(records(tmp_path / "j")))
    with refuses(words):
        act(scheduler)
    assert scheduler.state is before and len(list(records(tmp_path / "j"))) == written
    rounds(scheduler, 1)


def test_what_no_round_could_be_planned_with_is_refused() -> None:
    scheduler = made()
    before = scheduler.state
    for policy, words in (
        ({"solver": "hihgs"}, "solver: found 'hihgs'"),
        ({"formulation": "cost"}, "cluster.pools[0].cost_per_gpu_hour"),
        ({"ranking": "none"}, "ranking: found 'none'"),
    ):
        with refuses(words, OptschedError):
            scheduler.set_policy(policy)
    quota = {"kind": "quota", "tenant": "blue", "gpus": 1}
    with refuses("constraints: found rows, expected none for fifo", UsageError):
        scheduler.set_policy({"formulation": "fifo", "constraints": [quota]})
    assert scheduler.state is before


@pytest.mark.parametrize("constraint", [
    {"kind": "quota", "gpus": 1}, {"kind": "cells", "owns": {"1": 1}, "reserved": True},
])  # fmt: skip
def test_a_tenant_that_a_constraint_names_stays(constraint: dict[str, Any]) -> None:
    scheduler = made(document(job("a")))
    scheduler.set_constraints([{**constraint, "tenant": "blue"}])
    scheduler.set_tenants([{"name": "red", "weight": 2.0}])  # others do not change
    with refuses('constraints[0].tenant: found "blue", expected one of the tenants red'):
        scheduler.set_tenants(remove=["blue"])
    assert len(scheduler.instance.tenants) == 2
    cells = scheduler.solve().to_document().get("cells", [])
    assert [cell["tenant"] for cell in cells] == ["blue"] * (constraint["kind"] == "cells")
    scheduler.set_constraints([])
    scheduler.set_tenants(remove=["blue"])
    assert "cells" not in scheduler.solve().to_document()


# --- journals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES)
def test_a_recovered_scheduler_goes_on_as_if_nothing_was(change: str, tmp_path: Path) -> None:
    """Events before and after it, and measurements between two rounds, are in their order."""
    scheduler = made(journal=tmp_path / "j", fsync=False, snapshot_every=1000)
    rounds(scheduler, 3)
    now = scheduler.state.now
    scheduler.complete("j0", now=now + 10.0)
    scheduler.observe("j2", steps=10.0, now=now + 20.0)
    CHANGES[change](scheduler)
    scheduler.submit(job("late", 1), now=now + 30.0)
    scheduler.node_down("v100-0", now=now + 40.0)
    rounds(scheduler, 2)
    expected = parts(scheduler)
    plan = scheduler.solve(now=scheduler.state.now + ROUND, dry_run=True).id
    scheduler.close()
    with Scheduler.recover(tmp_path / "j", isolate=False, fsync=False) as again:
        assert parts(again) == expected
        assert again.solve(now=again.state.now + ROUND).id == plan
    for number in range(6):
        assert optsched.replay(tmp_path / "j", number).plan.round == number


def test_older_code_names_an_event_that_it_does_not_know(tmp_path: Path) -> None:
    scheduler = made(journal=tmp_path / "j", fsync=False)
    rounds(scheduler, 1)
    scheduler.close()
    assert read_latest(tmp_path / "j")[0] is not None
    with Journal.open(tmp_path / "j", fsync=False) as journal:
        journal.append({"event": "weather", "now": 10.0})
    with pytest.raises(JournalError, match=r"record 1 .*event: found \"weather\", expected one of"):
        Scheduler.recover(tmp_path / "j", isolate=False)


def test_whoever_watches_sees_the_policy_in_force(tmp_path: Path) -> None:
    scheduler = made(journal=tmp_path / "j", fsync=False)
    with optsched.rounds.Watcher(tmp_path / "j") as watcher:
        scheduler.set_policy({"ranking": "srtf"})
        assert watcher.poll() and watcher.policy["ranking"] == "srtf"


def test_the_solver_has_the_memory_of_the_policy() -> None:
    with Scheduler(document(), isolate=True) as scheduler:
        half = scheduler._process.memory
        scheduler.set_policy({"memory_limit": 2e9})
        assert scheduler._process.memory == 2e9
        assert rounds(scheduler, 1)[0].fallback is None
        scheduler.set_policy({})
        assert scheduler._process.memory == half


# --- nodes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("more", [-1, -2, 1])
def test_racks_remain_when_nodes_come_and_go(stated: bool, more: int) -> None:
    """Two racks of two nodes, which links join; two nodes fewer leave one rack, which all are in."""
    racks = {"rack": {"r0": ["n0", "n1"], "r1": ["n2", "n3"]}}
    ends = [("n0", "s0"), ("n1", "s0"), ("n2", "s1"), ("n3", "s1"), ("s0", "s1")]
    links = [
        {"source": end, "target": switch, "bandwidth": 5.0 if end == "s0" else 50.0}
        for end, switch in ends
    ]
    names = ("n0", "n1", "n2", "n3", "s0", "s1")
    topology = {"nodes": [{"id": name} for name in names], "edges": links}
    nodes = [{"name": f"n{row}", "gpus": 1} for row in range(4)]
    rates = {"v100": {"2": {"rack": 2.0, "cluster": 1.0}}}
    jobs = [{"id": name, "gpus": 2, "throughput": rates, "steps": 1e9} for name in "ab"]
    given = instance_document([{"name": "v100", "nodes": nodes, "gpus_per_node": 1}], jobs[:1])
    given["cluster"] |= {"topology": topology, "levels": racks if stated else "topology"}
    with Scheduler(given, {"ranking": "fcfs"}, isolate=False) as scheduler:
        scheduler.solve(0.0)
        scheduler.resize({"v100": more}, now=1.0)
        scheduler.submit(jobs[1:])
        plan = scheduler.solve(ROUND)
        assert [item.gpus for item in plan.keep] == [("n0/0", "n1/0")]
        assert [len(item.nodes) for item in plan.start] == [2] * (more > 0)
        state = scheduler.state
        assert optsched.Instance.from_document(state.instance.to_document()).sha256 == (
            state.instance.sha256
        )
        assert [level.name for level in state.instance.cluster.levels] == ["rack"]
