"""Room for rows that found none: others go elsewhere or make way, and no gang starves while GPUs are idle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from room_cases import LENGTH, random_state, rooms

import optsched
from optsched import solve_round
from optsched.rounds import Plan, RoundPolicy, RoundState, Verdict, advanced, followed

pytestmark = pytest.mark.property

Document = dict[str, Any]
WITH_CPUS = {"cpus_per_node": 40}, {"demand": {"cpu": 3}}


def scattered(
    pool: Document, workload: Document, nodes: int, per_node: int, where: list[str]
) -> Document:
    """Single jobs run where they are in the way of a gang of 4 that waits."""
    jobs: list[Document] = [
        {
            "id": f"s{k}",
            "workload": "W",
            "steps": 1e9,
            "running": {"pool": "b", "gpus": [gpu], "since": 0.0},
        }
        for k, gpu in enumerate(where)
    ]
    jobs.append({"id": "g", "workload": "W", "gpus": 4, "steps": 1e9, "weight": 100.0})
    jobs += [{"id": f"z{k}", "workload": "W", "steps": 1e9, "arrival": 1e8} for k in range(2)]
    rates = {"1": 1.0, "4": 3.0}
    return {
        "format": "optsched-instance/1", "round": LENGTH, "workloads": {"W": {"throughput": {"b": rates}, **workload}},
        "cluster": {"pools": [{"name": "b", "nodes": nodes, "gpus_per_node": per_node, **pool}]}, "jobs": jobs,
    }  # fmt: skip


def runs(document: Document, policy: Document, rounds: int = 10) -> tuple[int, list[Plan]]:
    """In how many rounds the gang runs, and the plans."""
    state, plans = (
        RoundState.first(optsched.Instance.from_document(document), RoundPolicy(**policy)),
        [],
    )
    for _ in range(rounds):
        plans.append(solve_round(state))
        assert plans[-1].fallback is None
        state = advanced(followed(state, plans[-1]), state.until)
    return sum(
        at(plan, "g") in (Verdict.START, Verdict.KEEP, Verdict.MOVE) for plan in plans
    ), plans


def at(plan: Plan, job: str) -> int:
    return int(plan.verdict[plan.instance.jobs_table.names.index(job)])


APART = [{"kind": "anti-affinity", "jobs": ["z0", "z1"]}]


@pytest.mark.parametrize(
    ("pool", "workload", "policy"),
    [
        ({}, {}, {}),
        (*WITH_CPUS, {}),
        (*WITH_CPUS, {"ranking": "priority", "patience": 3}),
        (*WITH_CPUS, {"ranking": "fcfs", "patience": 3}),
        ({}, {}, {"constraints": APART}),
        ({}, {}, {"max_moves": 1}),
        (*WITH_CPUS, {"max_moves": 1, "constraints": APART}),
    ],
)
def test_idle_gpus_are_brought_together(
    pool: Document, workload: Document, policy: Document
) -> None:
    ran, plans = runs(scattered(pool, workload, 2, 4, ["b-0/0", "b-1/0"]), policy)
    assert ran == 10
    assert [int((plan.verdict == Verdict.MOVE).sum()) for plan in plans] == [1] + [0] * 9
    assert not any((plan.verdict == Verdict.PREEMPT).any() for plan in plans)


def test_idle_gpus_are_brought_together_for_a_gang_of_several_nodes() -> None:
    document = scattered({}, {}, 3, 2, ["b-0/0", "b-1/0"])
    ran, plans = runs(document, {})
    assert ran == 10 and not plans[0].preempt
    assert [int((plan.verdict == Verdict.MOVE).sum()) for plan in plans] == [1] + [0] * 9


@pytest.mark.parametrize(("limit", "ran"), [(0, 0), (1, 10)])
def test_no_more_jobs_are_moved_than_may_be(limit: int, ran: int) -> None:
    document = scattered(*WITH_CPUS, 2, 4, ["b-0/0", "b-1/0"])
    assert runs(document, {"max_moves": limit})[0] == ran


def test_gangs_that_fit_nowhere_else_keep_nobody_from_looking_further() -> None:
    """Nine nodes lack one GPU each, but their gangs find no CPUs elsewhere; two jobs of the tenth do."""
    document = scattered({"cpus_per_node": 8}, {}, 10, 4, [])
    document["workloads"] = {
        name: {"throughput": {"b": {"1": 1.0, "2": 2.0, "3": 3.0}}, "demand": {"cpu": cpus}}
        for name, cpus in (("heavy", 3.0), ("light", 0.5))
    }
    places = [("heavy", 2, [f"b-{k}/0", f"b-{k}/1"]) for k in range(9)]
    places += [("light", 1, [f"b-9/{i}"]) for i in range(3)]
    document["jobs"] = [
        {"id": f"s{k}", "workload": workload, "gpus": gpus, "steps": 1e9}
        | {"running": {"pool": "b", "gpus": at, "since": 0.0}}
        for k, (workload, gpus, at) in enumerate(places)
    ] + [{"id": "g", "workload": "light", "gpus": 3, "steps": 1e9}]
    ran, plans = runs(document, {})
    assert ran == 10 and not any(plan.preempt for plan in plans)
    assert [len(plan.move) for plan in plans] == [2] + [0] * 9


def test_jobs_that_must_not_be_stopped_stay() -> None:
    document = scattered(*WITH_CPUS, 2, 4, ["b-0/0", "b-1/0"])
    for job in document["jobs"][:2]:
        job["preemptible"] = False
    assert runs(document, {"patience": 1})[0] == 0
    document["jobs"][1]["preemptible"] = True
    ran, plans = runs(document, {"patience": 1})
    assert ran >= 8 and all(at(plan, "s0") == Verdict.KEEP for plan in plans)


def test_what_is_due_later_makes_way_where_it_finds_no_other_room() -> None:
    # Two gangs of 3 on nodes of 4 leave a GPU on each; a gang of 2 gets its turn all the same.
    document = scattered(*WITH_CPUS, 2, 4, [])
    workload = {"throughput": {"b": {"2": 2.0, "3": 3.0}}, "demand": {"cpu": 3}}
    document["workloads"]["W"] = workload
    where = [[f"b-{k}/{i}" for i in range(3)] for k in range(2)]
    document["jobs"] = [
        {
            "id": f"s{k}",
            "workload": "W",
            "gpus": 3,
            "steps": 1e9,
            "running": {"pool": "b", "gpus": gpus, "since": 0.0},
        }
        for k, gpus in enumerate(where)
    ] + [{"id": "g", "workload": "W", "gpus": 2, "steps": 1e9}]
    _, plans = runs(document, {"hysteresis": 0.5}, 40)
    runs_now = (Verdict.START, Verdict.KEEP, Verdict.MOVE)
    for job in (
        "s0",
        "s1",
        "g",
    ):  # what each is given cannot be had on whole nodes: two of three run
        assert sum(at(plan, job) in runs_now for plan in plans) >= 20


@pytest.mark.parametrize(
    "policy", [{"ranking": "srtf"}, {"ranking": "fcfs"}, {}, {"formulation": "fifo"}]
)
@pytest.mark.parametrize("seed", range(25))
def test_who_has_starved_longest_runs_if_it_fits_beside_what_cannot_be_stopped(
    seed: int, policy: Document
) -> None:
    document = random_state(seed)
    state = RoundState.first(
        optsched.Instance.from_document(document),
        RoundPolicy(patience=1, max_moves=seed % 3, **policy),
    )
    plan = solve_round(state)
    assert plan.fallback is None
    stays = [job for job in document["jobs"] if "running" in job and not job["preemptible"]]
    waits = [job for job in document["jobs"] if "running" not in job]
    waits.sort(key=lambda job: job["arrival"])
    first = next((job["id"] for job in waits if rooms(document, job, stays)), None)
    if first is not None:
        assert at(plan, first) == Verdict.START
    assert np.all([at(plan, job["id"]) == Verdict.KEEP for job in stays])


def test_a_job_whose_claim_is_on_gpus_that_stay_taken_runs_elsewhere_in_the_end() -> None:
    rates = {"p0": 2.0, "p1": 1.0}
    document = {
        "format": "optsched-instance/1", "round": LENGTH, "now": 0.0,
        "cluster": {"pools": [{"name": name, "nodes": 1, "gpus_per_node": 1} for name in ("p0", "p1")]},
        "jobs": [
            {"id": "m", "steps": 1e9, "throughput": rates, "preemptible": False, "arrival": -30.0},
            {"id": "x", "steps": 1e9, "throughput": {"p1": 1.0}, "arrival": -90.0},
            {"id": "g", "steps": 1e9, "throughput": rates, "arrival": -60.0},
        ],
    }  # fmt: skip
    for row, pool in ((0, "p0"), (1, "p1")):
        document["jobs"][row]["running"] = {"pool": pool, "gpus": [f"{pool}-0/0"], "since": -20.0}  # type: ignore[index]
    plan = solve_round(
        RoundState.first(optsched.Instance.from_document(document), RoundPolicy(formulation="fifo"))
    )
    assert at(plan, "g") == Verdict.HOLD
    ran, _ = runs(document, {"formulation": "fifo", "patience": 2})
    assert ran >= 3


@pytest.mark.parametrize("gang_first", [True, False])
def test_a_gang_of_one_node_goes_to_two_where_it_may(*, gang_first: bool) -> None:
    """Two GPUs are free on different nodes: enough for the job that runs, not for the one that waits."""
    rates = {"h": {"2": {"2": 2.0}}, "g": {"2": {"1": 2.0}}, "f": {"1": 1.0}}
    jobs: list[Document] = [
        {"id": "h", "gpus": 2, "workload": "h", "arrival": -30.0},
        {"id": "g", "gpus": 2, "workload": "g", "arrival": -60.0 if gang_first else -20.0},
        *({"id": f"f{k}", "workload": "f", "preemptible": False} for k in (1, 2)),
    ]
    for row, gpus in ((0, ["p-0/0", "p-0/1"]), (2, ["p-1/0"]), (3, ["p-2/0"])):
        jobs[row]["running"] = {"pool": "p", "gpus": gpus, "since": -10.0}
    document = {
        "format": "optsched-instance/1", "round": LENGTH, "jobs": [{**job, "steps": 1e9} for job in jobs],
        "cluster": {"pools": [{"name": "p", "nodes": 3, "gpus_per_node": 2}]},
        "workloads": {name: {"throughput": {"p": each}} for name, each in rates.items()},
    }  # fmt: skip
    state = RoundState.first(optsched.Instance.from_document(document), RoundPolicy(ranking="fcfs"))
    plan = solve_round(state)
    assert at(plan, "g") == Verdict.START
    assert at(plan, "h") == Verdict.MOVE


def short_of_cpus(seed: int) -> Document:
    """More jobs than GPUs, on nodes that have CPUs for some of them alone."""
    random = np.random.default_rng(seed)
    jobs = [
        {"id": f"j{row}", "gpus": int(gpus), "steps": 1e9, "workload": f"W{cpus}", "weight": weight}
        for row, (gpus, cpus, weight) in enumerate(
            zip(
                random.choice([1, 2], 40),
                random.choice([3, 5, 8, 12], 40),
                random.uniform(0.5, 2.0, 40).tolist(),
                strict=True,
            )
        )
    ]
    rates = {"b": {"1": 1.0, "2": 2.0}}
    return {
        "format": "optsched-instance/1", "round": LENGTH, "jobs": jobs,
        "cluster": {"pools": [{"name": "b", "nodes": 3, "gpus_per_node": 8, "cpus_per_node": 48}]},
        "workloads": {f"W{c}": {"throughput": rates, "demand": {"cpu": c}} for c in (3, 5, 8, 12)},
    }  # fmt: skip


def test_rows_are_blocked_that_could_not_even_stay_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows of a round at once are judged as each by itself."""
    from optsched.placement.staying import StayRule
    from optsched.rounds.seating import Seating

    asked, seen = Seating._with_room, []

    def checked(self: Seating, queue: Any, refused: np.ndarray) -> Any:
        going = queue.order[queue.continues[queue.order] & (queue.rows.partner[queue.order] < 0)]
        rule = StayRule(self.classes, self._occupied(queue.rows), [])
        blocked = rule.blocked(queue.rows, going, *self._held_now(queue, going))
        for row, found in zip(going.tolist(), blocked.tolist(), strict=True):
            rule = StayRule(self.classes, self._occupied(queue.rows), [])
            one = np.array([row])
            held = self._held_now(queue, one)
            assert found != bool(rule.keep(queue.rows, one, *held, np.zeros(1, bool))[0])
            seen.append(found)
        return asked(self, queue, refused)

    monkeypatch.setattr(Seating, "_with_room", checked)
    for seed in range(40):
        document = short_of_cpus(seed) if seed % 2 else random_state(seed)
        instance = optsched.Instance.from_document(document)
        state = RoundState.first(instance, RoundPolicy(patience=1, hysteresis=0.0))
        for _ in range(4):
            plan = solve_round(state)
            assert plan.fallback is None
            state = advanced(followed(state, plan), state.until)
    assert seen.count(True) > 10 and seen.count(False) > 10, (seen.count(True), seen.count(False))
