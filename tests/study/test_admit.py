"""Admission: what is admitted has a plan, what is refused with a proof has none, and advice holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from blocks import first_of
from refusals import refuses

import optsched
from optsched import AdmissionDecision, Instance, admit
from optsched.errors import UsageError
from optsched.study import Refusal, admission

# Private names: advice in sentences, and the deletion filter with a condition of the test's own
from optsched.study.admission import advice
from optsched.study.conflicts import Shortfall, StoppedEarly, irreducible

Document = dict[str, Any]
SLOWS = {"1": 1.0, "2": 1.5, "4": 2.0}


def job(name: str, deadline: float, steps: float = 100.0, **more: Any) -> Document:
    gpus = {"min": 1, "max": 4, "levels": [1, 2, 4]}
    return {"id": name, "steps": steps, "workload": "w", "gpus": gpus, "deadline": deadline, **more}


def cluster(jobs: Sequence[Document], **more: Any) -> Instance:
    """A node of four GPUs, and one of two that are half as fast and cost a third."""
    return Instance.from_document(
        {
            "format": "optsched-instance/1",
            "name": "two nodes",
            "cluster": {
                "pools": [
                    {"name": "p", "nodes": 1, "gpus_per_node": 4, "cost_per_gpu_hour": 3.0},
                    {"name": "q", "nodes": 1, "gpus_per_node": 2, "cost_per_gpu_hour": 1.0},
                ]
            },
            "workloads": {"w": {"throughput": {"p": SLOWS, "q": {"1": 0.5, "2": 0.8}}}},
            "jobs": list(jobs),
            **more,
        }
    )


OLD = (job("a", 120.0), job("b", 120.0), job("c", 70.0))


def only(decision: AdmissionDecision) -> Refusal:
    (refusal,) = decision.refused
    assert (decision.admitted, decision.all_admitted) == ((), False)
    return refusal


def test_a_job_is_admitted_with_a_plan_that_keeps_all_deadlines() -> None:
    """Only a change of pool makes room: a and b begin on the slow node."""
    decision = admit(cluster(OLD), job("d", 70.0))
    assert (decision.admitted, decision.refused) == (("d",), ())
    assert {"a", "b"} <= set(decision.changed)
    assert decision.plan is not None and decision.plan.certificate.ok
    schedule = decision.plan.schedule
    assert schedule is not None
    due = {"a": 120.0, "b": 120.0, "c": 70.0, "d": 70.0}
    ends = {record["job"]: record["end"] for record in schedule.to_records()}
    assert all(ends[name] <= due[name] for name in due)
    assert decision.to_columns()["ends"] == [pytest.approx(ends["d"])]


def test_nobody_is_planned_anew_where_there_is_room_beside_the_plan() -> None:
    """Planned from nothing d would come first, as it has less slack."""
    decision = admit(cluster([job("a", 400.0, gpus=4)]), job("d", 300.0, gpus=4), advise=False)
    assert (decision.admitted, decision.changed) == (("d",), ())


def test_a_later_deadline_is_found_beside_a_plan_that_one_order_does_not_find(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of many jobs one order is tried for advice: it does not keep these three, though a plan is known."""
    monkeypatch.setattr("optsched.study.admission.MOST_PROGRAMMED", 0)
    kept = [(30.0, 50.0, 0.0, 20.0), (60.0, 70.0, 10.0, 0.0), (70.0, 90.0, 0.0, 0.0)]
    rates = {"throughput": {"v100": {"1": 1.0, "2": 1.5}}}
    jobs = [
        {"id": str(n), "gpus": {"min": 1, "max": 2}, "steps": steps, "deadline": due, **rates}
        | {"restart_cost": restart, "arrival": arrival}
        for n, (steps, due, restart, arrival) in enumerate(kept)
    ]
    pools = [{"name": "v100", "nodes": 1, "gpus_per_node": 2}]
    document = {"format": "optsched-instance/1", "cluster": {"pools": pools}, "jobs": jobs}
    given = Instance.from_document(document)
    assert optsched.solve(given, "deadline-elastic", program=False, orders=1).schedule is None
    new = {"id": "new", "gpus": 1, "steps": 20.0, "deadline": 30.0, **rates}
    advice = only(admit(given, new)).earliest_deadline
    assert advice is not None and advice <= 120.0
    assert admit(given, {**new, "deadline": advice}).all_admitted


def test_jobs_of_the_instance_are_asked_about_by_their_ids() -> None:
    named = admit(cluster([*OLD, job("d", 70.0)]), ["d"])
    joining = admit(cluster(OLD), [job("d", 70.0)])
    assert named.to_document()["jobs"] == joining.to_document()["jobs"]


def test_jobs_are_decided_in_their_order() -> None:
    decision = admit(cluster(OLD), [job("d", 70.0), job("e", 70.0)], advise=False)
    assert decision.admitted == ("d",)
    assert [one.job for one in decision.refused] == ["e"]


def test_a_proven_refusal_names_a_smallest_conflict() -> None:
    refusal = only(admit(cluster(OLD), job("d", 55.0), advise=False))
    assert (refusal.reason, refusal.proven, refusal.conflict) == ("conflict", True, ("c",))
    alone = cluster([OLD[2], job("d", 55.0)])
    assert optsched.solve(alone, "deadline-fluid").status == "infeasible"
    for left in ([OLD[2]], [job("d", 55.0)]):
        assert optsched.solve(cluster(left), "deadline-fluid").status == "optimal"
    assert (refusal.earliest_deadline, refusal.extra_gpus, refusal.cheapest) == (None, None, None)


def test_a_conflict_that_may_be_larger_than_needed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*given: object) -> None:
        raise StoppedEarly

    monkeypatch.setattr(Shortfall, "__call__", stopped)
    refusal = only(admit(cluster(OLD), job("d", 55.0), advise=False))
    assert (refusal.reason, refusal.smallest) == ("conflict", False)
    assert refusal.conflict == ("a", "b", "c")
    assert "perhaps" in refusal.words
    assert not refusal.to_document()["smallest"]


def test_a_job_that_cannot_alone_is_told_so() -> None:
    """50 s on four GPUs are the least that it needs: no number of GPUs is enough."""
    refusal = only(admit(cluster(OLD), job("d", 45.0)))
    assert (refusal.reason, refusal.proven, refusal.conflict) == ("alone", True, ())
    assert refusal.extra_gpus == {"p": None, "q": None}
    assert refusal.cheapest is None
    assert refusal.earliest_deadline is not None


def test_what_is_not_proven_is_not_said_to_be() -> None:
    """A wants all four GPUs half of the time, B one of them all the time: only time sharing fits."""
    wide = {"id": "A", "steps": 10.0, "gpus": 4, "throughput": {"p": 1.0}, "deadline": 20.0}
    long = {"id": "B", "steps": 20.0, "gpus": 1, "throughput": {"p": 1.0}, "deadline": 20.0}
    refusal = only(admit(cluster([wide]), long))
    assert (refusal.reason, refusal.proven, refusal.conflict) == ("not proven", False, ())
    assert refusal.earliest_deadline == pytest.approx(30.0, rel=2e-3)
    assert refusal.extra_gpus == {"p": 1, "q": None}


def test_nobody_joins_jobs_of_which_no_plan_is_known() -> None:
    """Of the two only time sharing keeps the deadlines, which is no plan and no refutation."""
    wide = {"id": "A", "steps": 10.0, "gpus": 4, "throughput": {"p": 1.0}, "deadline": 20.0}
    long = {"id": "B", "steps": 20.0, "gpus": 1, "throughput": {"p": 1.0}, "deadline": 20.0}
    refusal = only(admit(cluster([wide, long]), job("late", 1e4)))
    assert (refusal.reason, refusal.earliest_deadline) == ("not proven", None)
    assert "the jobs admitted before, without it" in refusal.words
    assert refusal.extra_gpus is not None and refusal.extra_gpus["p"] == 1


@pytest.mark.property
def test_advice_holds_and_less_is_not_enough() -> None:
    refusal = only(admit(cluster(OLD), job("d", 55.0)))
    assert refusal.earliest_deadline == pytest.approx(200.0 / 3.0, rel=2e-3)
    assert admit(cluster(OLD), job("d", refusal.earliest_deadline)).all_admitted
    assert not admit(cluster(OLD), job("d", 0.99 * refusal.earliest_deadline)).all_admitted
    assert refusal.extra_gpus == {"p": 2, "q": None}
    for gpus, admitted in ((2, True), (1, False)):
        larger = optsched.Instance.from_document(
            cluster(OLD).to_document()
            | {"cluster": {"pools": [
                {"name": "p", "nodes": [{"name": "n", "gpus": 4}, {"name": "m", "gpus": gpus}], "gpus_per_node": 4},
                {"name": "q", "nodes": 1, "gpus_per_node": 2}]}}
        )  # fmt: skip
        assert admit(larger, job("d", 55.0), advise=False).all_admitted is admitted


def test_the_cheapest_mixture_is_found() -> None:
    """Each job runs on one GPU of its own pool: one more of both is the only way."""
    pools = {"p": {"1": 1.0}, "q": {"1": 1.0}}
    fixed = [
        {"id": f"{pool}{n}", "steps": 10.0, "throughput": {pool: rates}, "deadline": 10.0}
        for pool, rates in pools.items()
        for n in range(2 if pool == "q" else 4)
    ]
    either = {"id": "x", "steps": 10.0, "throughput": {"p": 1.0, "q": 1.0}, "deadline": 10.0}
    refusal = only(admit(cluster(fixed), either))
    assert refusal.extra_gpus == {"p": 1, "q": 1}
    assert refusal.cheapest == {"q": 1}  # at a third of the price


@pytest.mark.parametrize("seed", range(20))
def test_no_job_can_be_left_out_of_a_conflict(seed: int) -> None:
    """Sets are impossible that hold one of two random sets."""
    random = np.random.default_rng([29, seed])
    causes = [
        np.isin(np.arange(13), [0, *random.choice(np.arange(1, 13), size, replace=False)])
        for size in random.integers(1, 5, 2)
    ]

    def proof(asked: np.ndarray) -> np.ndarray | None:
        held = [cause for cause in causes if asked[cause].all()]
        return asked & np.logical_or.reduce(held) if held else None

    found, tried = irreducible(proof, np.arange(13) == 0)
    assert tried and proof(found) is not None
    for job in np.flatnonzero(found[1:]) + 1:
        assert proof(np.where(np.arange(13) == job, False, found)) is None


@pytest.mark.property
@pytest.mark.parametrize("seed", range(4))
def test_a_conflict_of_many_jobs_is_irreducible(seed: int) -> None:
    """40 jobs of one GPU on four, due one after the other, with more work than there is time."""
    random = np.random.default_rng([31, seed])
    due = np.sort(random.uniform(50, 500, 40))
    kept = [
        {"id": f"k{n}", "steps": float(random.uniform(5, 40)), "throughput": {"p": 1.0}, "deadline": float(d)}
        for n, d in enumerate(due)
    ]  # fmt: skip
    table = {one["id"]: one for one in kept}
    new = {"id": "new", "steps": 300.0, "gpus": 4, "throughput": {"p": 1.0}, "deadline": 390.0}
    refusal = only(admit(cluster(kept), new, advise=False))
    assert (refusal.reason, refusal.smallest) == ("conflict", True)
    all_of_them = [table[name] for name in refusal.conflict]
    fewer = [[one for one in all_of_them if one is not left] for left in all_of_them]
    for some in ([*all_of_them, new], *([*others, new] for others in fewer)):
        bound = optsched.solve(cluster(some), "deadline-fluid", options={"schedule": False}).bound
        assert bound is not None and (bound > 1e-6) == (len(some) > len(all_of_them))
    assert len(all_of_them) > 8


@pytest.mark.parametrize(
    ("jobs", "refusal"),
    [
        ([], "jobs: found none, expected at least one job"),
        (["a", "a"], 'jobs[1]: found "a" a second time'),
    ],
)
def test_wrong_questions(jobs: list[Any], refusal: str) -> None:
    with pytest.raises(UsageError, match=refusal.replace("[", r"\[")):
        admit(cluster(OLD), jobs)


@pytest.mark.parametrize(
    ("more", "refusal"),
    [
        ({"steps": -1}, "jobs[1].steps: found -1, expected a number of at least 0"),
        ({"after": ["y"]}, 'jobs[1].after[0]: found "y", expected the id of another job'),
        ({"id": "a"}, 'jobs[1].id: found "a" a second time, expected ids that differ'),
        ({"steps": -1, "weight": 0}, "jobs[1].weight: found 0, expected a number above 0"),
    ],
)
def test_ids_before_a_wrong_job_count_in_its_path(more: Document, refusal: str) -> None:
    with pytest.raises(optsched.InvalidInput, match=re.escape(refusal)):
        admit(cluster(OLD), ["b", job("d", 90.0) | more])


def test_a_job_without_a_deadline_is_refused_as_input() -> None:
    endless = job("d", 1.0)
    del endless["deadline"]
    with refuses('jobs[0].deadline: found none (job "d"), expected a deadline, s'):
        admit(cluster(OLD), endless)
    for wrong in (None, [None]):
        with refuses("jobs[0]: found null, expected the id of a job, or a job", UsageError):
            admit(cluster(OLD), wrong)  # type: ignore[arg-type]
    with refuses("jobs[0]: found 3, expected the id of a job, or a job", UsageError):
        admit(cluster(OLD), 3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match='two nodes has no job "z"'):
        admit(cluster(OLD), "z")


@pytest.mark.parametrize(
    ("holder", "deadline", "admitted"),
    [
        ({"preemptible": True}, 55.0, True),
        ({}, 80.0, True),  # 50 s on the slow node, then 30 s on all four GPUs
        ({}, 79.0, False),
        ({"deadline": 1.0, "deadline_kind": "soft"}, 79.0, False),
        ({"deadline": 50.0}, 80.0, True),
        ({"steps": 1e9}, 124.0, False),
        ({"steps": 1e9}, 125.0, True),  # all of it on the slow node
    ],
)
def test_who_runs_and_cannot_be_preempted_holds_its_gpus_to_its_end(
    holder: Document, deadline: float, admitted: bool
) -> None:
    running = {"pool": "p", "gpus": ["p-0/0", "p-0/1", "p-0/2", "p-0/3"]}
    busy = job("r", 1.0) | {"running": running, "preemptible": False}
    del busy["deadline"]
    decision = admit(cluster([busy | holder]), job("d", deadline), advise=False)
    assert decision.all_admitted is admitted
    assert all(refusal.proven for refusal in decision.refused)


def test_the_plan_names_who_runs_beside_it_without_a_deadline() -> None:
    running = {"pool": "q", "gpus": ["q-0/0"]}
    busy = job("r", 1.0) | {"running": running, "preemptible": False}
    del busy["deadline"]
    decision = admit(cluster([busy]), [job("d", 500.0), job("e", 600.0)], advise=False)
    assert decision.all_admitted
    assert decision.plan is not None
    assert [name for name, _ in decision.plan.unplaced] == ["r"]
    assert optsched.verify(decision.plan.instance, decision.plan.to_document()).ok


def test_jobs_that_count_as_admitted_must_be_possible() -> None:
    with pytest.raises(optsched.InvalidInput, match="deadlines that cannot all be met"):
        admit(cluster([*OLD, job("e", 20.0)]), job("d", 500.0))


def single(name: str, steps: float, deadline: float, **more: Any) -> Document:
    return {"id": name, "steps": steps, "throughput": {"p": 1.0}, "deadline": deadline, **more}


@pytest.mark.parametrize("far", [2e10, 253402300799.0, 1e15])
def test_a_far_deadline_loses_no_job(far: float) -> None:
    """A takes the whole pool for half of the time in which B needs a GPU."""
    kept = [single("far", 1.0, far), single("A", 10.0, 20.0, gpus=4)]
    assert not admit(cluster(kept), single("B", 20.0, 20.0), advise=False).all_admitted
    decision = admit(cluster(kept), single("B", 10.0, 20.0), advise=False)
    assert (
        decision.all_admitted and decision.plan is not None and decision.plan.schedule is not None
    )
    assert {row["job"] for row in decision.plan.schedule.to_records()} == {"far", "A", "B"}


@pytest.mark.property
def test_no_advice_rests_on_a_plan_that_loses_jobs() -> None:
    """The jobs that count as admitted cannot all be kept, whatever the new one asks for."""
    kept = [
        single("j1", 60.0, 60.0, gpus=3),
        single("j2", 10.0, 30.0, gpus=4, arrival=10, throughput={"p": 3.0}),
    ]
    assert only(admit(cluster(kept), single("new", 60.0, 40.0))).earliest_deadline is None


@pytest.mark.property
def test_a_plan_whose_certificate_failed_admits_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def uncertified(*args: Any, **how: Any) -> optsched.Solution:
        found = optsched.solve(*args, **how)
        return replace(found, certificate=replace(found.certificate, ok=False))

    monkeypatch.setattr("optsched.study.admission.solve", uncertified)
    decision = admit(cluster(OLD), job("d", 70.0))
    assert (decision.plan, only(decision).earliest_deadline) == (None, None)


@pytest.mark.parametrize("beyond", [1e-8, 1e-7, 1e-6])
@pytest.mark.parametrize("formulation", ["deadline-fluid", "deadline-elastic"])
def test_a_miss_that_no_tolerance_can_tell_is_refused(beyond: float, formulation: str) -> None:
    """A program that is infeasible by so little is feasible within the tolerance."""
    slow = {"throughput": {"q": {"2": 1.0}}, "gpus": 2}
    kept, new = single("k", 10.0, 12.0, **slow), single("x", 2.0 + 12.0 * beyond, 12.0, **slow)
    only(admit(cluster([kept]), new, advise=False))
    assert optsched.solve(cluster([kept, new]), formulation).status in ("limit", "infeasible")


def test_a_job_without_work_left_is_admitted() -> None:
    decision = admit(cluster([single("z", 0.0, 10.0)]), "z")
    assert decision.to_document()["jobs"] == [{"job": "z", "admitted": True, "ends": None}]


def test_nobody_is_held_to_a_deadline_that_has_passed() -> None:
    late = single("late", 1.0, 12.0)
    assert admit(cluster([*OLD, late], now=20.0), job("d", 500.0)).all_admitted


def test_who_can_run_nowhere_is_refused_with_a_proof() -> None:
    wide = single("wide", 1.0, 50.0, gpus=8)
    refusal = only(admit(cluster(OLD), wide, advise=False))
    assert (refusal.reason, refusal.conflict) == ("alone", ())
    assert refusal.words.startswith("job wide has a deadline, but can run nowhere: p: ")
    with pytest.raises(optsched.InvalidInput, match="job wide has a deadline, but can run nowhere"):
        admit(cluster([*OLD, wide]), job("d", 500.0))


def test_what_cannot_be_explained_in_time_is_said_without_an_explanation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unexplained(*args: Any, **how: Any) -> optsched.Solution:
        return replace(optsched.solve(*args, **how), conflicts=())

    monkeypatch.setattr("optsched.study.admission.solve", unexplained)
    refusal = only(admit(cluster(OLD), job("d", 45.0), advise=False))
    assert refusal.words == "it cannot meet its deadline even alone"
    with refuses("jobs: found deadlines that cannot all be met, expected jobs that were ..."):
        admit(cluster([*OLD, job("e", 20.0)]), job("d", 500.0))


@pytest.mark.parametrize(
    ("now", "steps", "due"),
    [(0.0, 456.219, 152.0), (1.7e9, 1.3, 1.0), (0.0, 0.5, 0.1)],
)
def test_the_deadline_of_the_advice_lets_the_job_in_as_it_is_written(
    now: float, steps: float, due: float
) -> None:
    asked = single("x", steps, now + due)
    refusal = only(admit(cluster([], now=now), asked))
    assert refusal.earliest_deadline == pytest.approx(now + steps, rel=1e-15, abs=2e-3 * steps)
    written = advice(refusal, now)[0].removeprefix("a deadline of ").partition(" s")[0]
    assert admit(cluster([], now=now), asked | {"deadline": float(written)}).all_admitted


def test_the_advice_was_tried_where_later_deadlines_have_no_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planner finds no plan for deadlines just after the end of the job in the plans it does find."""
    real, kept = admission._DeadlinePlanner.for_advice, []

    def planned(probes: Any, rows: Any) -> Any:
        due = float(probes.instance.jobs_table.deadline[-1])
        plan = None if due < 80.0 else real(probes, rows)
        kept.extend([] if plan is None else [due])
        return plan

    monkeypatch.setattr(admission._DeadlinePlanner, "for_advice", planned)
    earliest = only(admit(cluster(OLD), job("d", 55.0))).earliest_deadline
    assert earliest in kept
    assert earliest == pytest.approx(80.0, rel=2e-3)
    assert len(kept) < 12


def test_who_has_the_time_alone_is_told_what_takes_it() -> None:
    busy = {"id": "r", "steps": 9.0, "throughput": {"q": 1.0}, "gpus": 2, "preemptible": False}
    busy["running"] = {"pool": "q", "gpus": ["q-0/0", "q-0/1"]}
    asked = single("x", 10.0, 15.0, throughput={"q": 1.0})
    refusal = only(admit(cluster([busy]), asked, advise=False))
    assert refusal.reason == "alone"
    assert refusal.words == (
        "job x needs at least 10 s, on 1 GPU of q, and has 15 s before its deadline, 15 s; "
        "running jobs, nodes that open later or a restart leave it too little of that"
    )


@pytest.mark.property
def test_a_decision_shows_itself() -> None:
    decision = admit(cluster(OLD), [job("d", 70.0), job("e", 55.0)])
    assert repr(decision) == "<AdmissionDecision of two nodes: 1 of 2 jobs admitted>"
    document = decision.to_document()
    assert document["format"] == "optsched-admission/1"
    assert [one["admitted"] for one in document["jobs"]] == [True, False]
    assert decision.to_columns()["admitted"] == [True, False]


@pytest.mark.property
@pytest.mark.parametrize("seed", first_of(25, blocks=10))
def test_random_decisions(seed: int) -> None:
    """Who is admitted meets its deadline by a certified plan; a proven conflict is infeasible, and
    without any one of its jobs it is not.
    """
    random = np.random.default_rng([31, seed])
    jobs = [
        job(f"j{n}", float(random.integers(40, 160)), float(random.integers(20, 120)))
        for n in range(8)
    ]
    decision = admit(cluster([]), jobs, advise=False)
    if decision.plan is not None:
        table, schedule = decision.plan.instance.jobs_table, decision.plan.schedule
        assert decision.plan.certificate.ok and schedule is not None
        ends = [row["ends"] for row in decision.to_document()["jobs"] if row["admitted"]]
        assert sorted(ends) == sorted(
            float(schedule.end[schedule.job == job].max()) for job in range(len(table))
        )
        assert (schedule.end <= table.deadline[schedule.job] + 1e-6).all()
        assert {table.names[row] for row in schedule.job.tolist()} == set(decision.admitted)
    by_name = {one["id"]: one for one in jobs}
    for refusal in decision.refused:
        if refusal.proven:
            rows = [refusal.job, *refusal.conflict]
            whole = cluster([by_name[name] for name in rows])
            assert optsched.solve(whole, "deadline-fluid").status == "infeasible"
            for name in refusal.conflict:
                less = cluster([by_name[other] for other in rows if other != name])
                assert optsched.solve(less, "deadline-fluid").status != "infeasible"
