"""Recovery applies what a journal has, and solves nothing; `replay` solves a round again and finds the same plan."""

from __future__ import annotations

import gc
import json
import shutil
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from documents import instance_document
from hypothesis import given
from hypothesis import strategies as st
from storm_world import Storm
from test_storm import POLICIES

import optsched
from optsched.arrays.packed import pack, unpack
from optsched.errors import JournalError, ReplayDiffers
from optsched.rounds import Scheduler, allocation
from optsched.rounds.decisions import combined, differences
from optsched.rounds.journal import Journal, read_latest, records
from optsched.rounds.recovery import state_parts

STORMS: dict[str, dict[str, Any]] = {
    **POLICIES,
    "tiresias": {"ranking": "tiresias", "max_moves": 2},
    "most": {"ranking": "fcfs", "options": {"gpus": "most"}},
}
ANY = st.floats(width=64)
LEARNING = {"performance": {"model": "online", "of": {"model": "table"}}}


def nothing_is_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on no round can be planned, and nothing compiled."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("a round is planned")

    monkeypatch.setattr("optsched.rounds.live.solve_round", refuse)


def parts(scheduler: Scheduler) -> tuple[Any, dict[str, bytes]]:
    """All that a scheduler knows, to the last bit."""
    live = scheduler._live
    document, arrays = state_parts(live.state, live.performance(), scheduler.metrics)
    return document, {name: array.tobytes() for name, array in arrays.items()}


def weathered(journal: Path, policy: str, rounds: int = 12, **given: Any) -> Storm:
    """A storm that has passed, with a journal of one snapshot."""
    named = [{"id": name, "steps": 1e6, "workload": "small"} for name in ("first", "second")]
    jobs = [*named, {"id": "third", "steps": 1e6, "workload": "small"}]
    options = {"journal": journal, "fsync": False, "snapshot_every": 1000}
    storm = Storm(3, STORMS[policy], 25, options=options, jobs=jobs, **given)
    storm.facts.jobs |= {job["id"]: job for job in jobs}
    if policy == "names":
        storm.facts.apart = (frozenset(("first", "second", "third")),)
        storm.facts.pinned = frozenset(("first", "second"))
    storm.rounds(rounds)
    storm.scheduler.close()
    return storm


@pytest.mark.property
@pytest.mark.parametrize("given", [{}, LEARNING], ids=["table", "online"])
@pytest.mark.parametrize("policy", STORMS)
def test_a_storm_is_recovered_to_the_last_bit_and_nothing_is_solved(
    policy: str, given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recovered(weathered(tmp_path / "j", policy, **given), tmp_path, monkeypatch)


@pytest.mark.property
@pytest.mark.parametrize("given", [{}, LEARNING], ids=["table", "online"])
@pytest.mark.parametrize("policy", ["max-min", "ranked srtf", "finish-time-fairness"])
def test_a_storm_in_which_the_rules_change_is_recovered(
    policy: str, given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = [STORMS[name] for name in ("max-min", "makespan", "tiresias", "most", "cost")]
    storm = weathered(tmp_path / "j", policy, 24, policies=some, **given)
    kinds = {entry.record["event"] for entry in records(tmp_path / "j")}
    assert kinds >= {"policy", "constraints", "tenants", "workloads"}
    recovered(storm, tmp_path, monkeypatch)


def recovered(storm: Storm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal of a storm leads to its last state and plan, and the next one is the same."""
    made = storm.scheduler
    with monkeypatch.context() as patched:
        nothing_is_solved(patched)
        again = Scheduler.recover(tmp_path / "j", isolate=False, fsync=False)
    with again:
        assert parts(again) == parts(made)
        assert made.plan is not None and again.plan is not None
        assert again.plan.diff() == made.plan.diff()
        jobs = range(len(again.plan.verdict))
        assert list(map(again.plan.decision, jobs)) == list(map(made.plan.decision, jobs))
        assert again.plan.notices == made.plan.notices
        later = made.state.until
        assert again.solve(later).id == made._live.planned(later)[1].id


def test_jobs_of_which_nobody_said_since_when_they_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round in which all stands keeps what is said of them; the first plan dates them."""
    job = {"gpus": 1, "steps": 1e5, "throughput": {"v100": 1.0}}
    document = instance_document(
        [{"name": "v100", "nodes": 1, "gpus_per_node": 2}],
        [{"id": f"j{i}", **job, "running": {"pool": "v100", "gpus": [f"v100-0/{i}"]}} for i in (0, 1)],
    )  # fmt: skip
    instance = optsched.Instance.from_document(document)
    with Scheduler(instance, journal=tmp_path / "j", isolate=False, fsync=False) as made:
        with monkeypatch.context() as patched:
            patched.setattr(type(made._live), "model", lambda *_: 1 / 0)
            assert made.solve(0.0).stands
        assert made.state.instance.jobs_table.running[0][2] is None
        with Scheduler.recover(copy(tmp_path / "j"), isolate=False) as again:
            assert again.plan is not None and again.plan.stands and parts(again) == parts(made)
        made.solve(60.0)
        assert made.state.instance.jobs_table.running[0][2] == 60.0
    with Scheduler.recover(tmp_path / "j", isolate=False, fsync=False) as again:
        assert parts(again) == parts(made)


def test_jobs_that_start_on_nodes_that_came_later_beside_jobs_that_stay(tmp_path: Path) -> None:
    job = {"steps": 1e5, "throughput": {"a": 1.0, "b": 0.1}}
    pools = [{"name": name, "nodes": 1, "gpus_per_node": 2} for name in "ab"]
    document = instance_document(pools, [{"id": name, **job} for name in "cdef"])
    instance = optsched.Instance.from_document(document)
    with Scheduler(instance, journal=tmp_path / "j", isolate=False, fsync=False) as made:
        made.solve(0.0)
        made.resize({"a": 1}, now=10.0)
        made.reserve("maintenance", ["a-0"], 20.0, 2000.0, now=20.0)
        plan = made.solve(360.0)
        assert ("a-1/0",) in [held.gpus for held in plan.move] and plan.keep
    with Scheduler.recover(tmp_path / "j", isolate=False, fsync=False) as again:
        assert parts(again) == parts(made)


def test_a_job_that_a_ranking_renewed_is_renewed_again(tmp_path: Path) -> None:
    policy = {"ranking": "tiresias", "options": {"limits": [2.0], "knob": 1.0}}
    job = {"steps": 99.0, "throughput": {"v100": 1.0}}
    document = instance_document(
        [{"name": "v100", "nodes": 1, "gpus_per_node": 1}],
        [{"id": name, **job} for name in "ab"],
        round=1,
    )
    instance = optsched.Instance.from_document(document)
    with Scheduler(instance, policy, journal=tmp_path / "j", isolate=False, fsync=False) as made:
        plans = [made.solve(float(now)) for now in range(5)]
    assert plans[-1].order is not None and plans[-1].order.renewed.tolist() == [True, False]
    with Scheduler.recover(tmp_path / "j", isolate=False, fsync=False) as again:
        assert again.state.service.executed_before.tolist() == [2.0, 0.0]
        assert parts(again) == parts(made)


def test_states_of_before_are_freed_at_once() -> None:
    """At 100,000 jobs a round's arrays take 60 MB, and the cycle collector counts objects."""
    job = {"steps": 99.0, "throughput": {"v100": 1.0}}
    document = instance_document([{"name": "v100", "nodes": 1, "gpus_per_node": 1}], [])
    with Scheduler(optsched.Instance.from_document(document), isolate=False) as made:
        made.solve(0.0)
        gc.collect()
        gc.disable()
        try:
            before = weakref.ref(made._live.state)
            made.submit({"id": "a", **job})
            made.solve(60.0)
            assert before() is None
        finally:
            gc.enable()


def copy(journal: Path) -> Path:
    return Path(shutil.copytree(journal, journal.with_name("copy")))


@pytest.mark.property
@pytest.mark.parametrize("policy", ["max-min", "gandiva", "tiresias"])
def test_any_round_is_solved_again_from_a_state_that_was_not(policy: str, tmp_path: Path) -> None:
    weathered(tmp_path / "j", policy, rounds=6)
    plans = [entry.record for entry in records(tmp_path / "j") if entry.record["event"] == "plan"]
    assert len(plans) == 6
    for record in plans:
        found = optsched.replay(tmp_path / "j", record["round"])
        assert found.plan.id == record["digest"]


def stopped_of(solved: Any) -> Any:
    """A certified optimum made into half of it that the clock stopped at."""
    solution, *rest = solved
    half = replace(solution.allocation, x=solution.allocation.x / 2)
    return replace(solution, allocation=half, reproducible=False), *rest


def test_what_the_clock_stopped_is_read_from_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Solving again would give the optimum, and another plan."""
    with monkeypatch.context() as patched:
        solved = allocation._solved
        patched.setattr(allocation, "_solved", lambda *given: stopped_of(solved(*given)))
        journal = two_rounds(tmp_path / "j")
    record = [entry.record for entry in records(journal)][-1]
    assert record["event"] == "plan" and not record["reproducible"]
    found = optsched.replay(journal, 1)
    assert found.plan.solution is None and found.plan.id == record["digest"]
    assert optsched.solve_round(found.state).id != record["digest"]


@given(st.lists(st.tuples(ANY, ANY), max_size=6), st.integers(0, 30))
def test_an_array_is_the_one_before_and_its_differences(
    pairs: list[tuple[float, float]], alike: int
) -> None:
    before, after = (
        np.array([*column, *[1.0] * alike]) for column in zip(*pairs, (0.0, -0.0), strict=True)
    )
    arrays = differences("x", before, after)
    assert combined("x", before, unpack(pack(arrays))).tobytes() == after.tobytes()
    assert (
        combined("x", np.zeros(0), unpack(pack(differences("x", np.zeros(0), after)))).tobytes()
        == after.tobytes()
    )
    assert differences("x", after, after.copy()) == {}


# --- records that are not what was written -------------------------------------------------------


def two_rounds(folder: Path) -> Path:
    document = instance_document(
        [{"name": "v100", "nodes": 1, "gpus_per_node": 2}],
        [{"id": f"j{i}", "gpus": 1, "steps": 1e5, "throughput": {"v100": 1.0 + i}} for i in range(4)],
        round=360,
    )  # fmt: skip
    policy = {"formulation": "max-min-fairness", "hysteresis": 0}
    instance = optsched.Instance.from_document(document)
    with Scheduler(instance, policy, journal=folder, isolate=False, fsync=False) as made:
        made.solve(0.0)
        assert made.solve(360.0).preempt
    return folder


def rewritten(folder: Path, target: Path, number: int, change: Any) -> Path:
    """A journal with valid checksums in which the plan of a round is another record."""
    snapshot, later = read_latest(folder)
    assert snapshot is not None
    with Journal.create(target, fsync=False) as journal:
        journal.snapshot(snapshot.document, snapshot.arrays)
        for entry in later:
            record = entry.record
            journal.append(change(record) if record.get("round") == number else record)
    return target


def test_decisions_that_are_none_are_refused(tmp_path: Path) -> None:
    journal = two_rounds(tmp_path / "j")
    for number, text in enumerate(("", "%", "AAAA", pack({"x": np.zeros(3)}))):
        bad = rewritten(
            journal,
            tmp_path / f"bad{number}",
            1,
            lambda record, text=text: {**record, "decisions": text},
        )
        with pytest.raises(JournalError, match="cannot happen again: decisions") as caught:
            Scheduler.recover(bad, isolate=False)
        assert "\n" not in str(caught.value)


def test_decisions_of_another_plan_are_refused(tmp_path: Path) -> None:
    journal = two_rounds(tmp_path / "j")

    def other(record: dict[str, Any]) -> dict[str, Any]:
        arrays = unpack(record["decisions"])
        arrays["held.gpu"] = arrays["held.gpu"][::-1]
        return {**record, "decisions": pack(arrays)}

    bad = rewritten(journal, tmp_path / "bad", 1, other)
    with pytest.raises(ReplayDiffers, match=r"round 1 .* other jobs, GPUs, rates"):
        Scheduler.recover(bad, isolate=False)


def test_a_journal_without_decisions_is_solved_again(tmp_path: Path) -> None:
    journal = two_rounds(tmp_path / "j")
    named = optsched.replay(journal, 1).plan.id_by_names()

    def older(record: dict[str, Any]) -> dict[str, Any]:
        kept = {
            key: value for key, value in record.items() if key not in ("decisions", "reproducible")
        }
        return {**kept, "digest": named}

    old = rewritten(journal, tmp_path / "old", 1, older)
    with Scheduler.recover(old, isolate=False, fsync=False) as again:
        assert again.plan is not None and again.plan.solution is not None
    wrong = rewritten(old, tmp_path / "wrong", 1, lambda record: {**record, "digest": "0" * 32})
    with pytest.raises(ReplayDiffers):
        Scheduler.recover(wrong, isolate=False)


def test_the_record_of_a_small_round_is_small(tmp_path: Path) -> None:
    journal = two_rounds(tmp_path / "j")
    plans = [entry.record for entry in records(journal)]
    assert all(len(json.dumps(record)) < 2500 for record in plans), [
        len(json.dumps(r)) for r in plans
    ]
