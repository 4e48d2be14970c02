"""Events that happen together come to the state that they come to one by one."""

from __future__ import annotations

import itertools
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from hypothesis import given, settings
from hypothesis import strategies as st

import optsched
from optsched.errors import InvalidInput, UsageError
from optsched.rounds import RoundState
from optsched.rounds.changes import Changes
from optsched.rounds.live import LiveState
from optsched.rounds.state import state_of
from optsched.rounds.transitions import Event, after_event, read_event

Document = dict[str, Any]

FIRST = 5
"""Jobs that are there at first; as many names are used again and again."""


def job(number: int, kind: int) -> Document:
    """A job; of each kind there are several, which share rates, labels and lists."""
    ways: list[Document] = [
        {"workload": "S"},
        {"workload": "L"},
        {"throughput": {"v": 2.0, "k": 1.0}, "gpus": 2, "restart_cost": 5.0},
        {"workload": f"label {number % 2}", "throughput": {"v": 1.0 + number % 3}},
        {
            "gpus": {"min": 1, "max": 4, "levels": [1, 2, 4]},
            "throughput": {"v": {"1": 1.0, "4": 3.0}},
        },
        {"options": [{"pool": "v", "gpus": 2, "throughput": 3.0 + number % 2}]},
        {"throughput": {"k": 1.5}, "after": [f"q{number - 1}"], "deadline": 1e5},
        {"workload": "S", "tenant": "red", "preemptible": False},
    ]
    return {"id": f"q{number}", "steps": 1e4, **ways[kind]}


def instance(colocation: bool) -> optsched.Instance:
    pairs = [
        {"workloads": ["S", "L"], "pool": "v", "gpus": 1, "throughput": [3.5, 2.8]},
        {"workloads": ["L", "L"], "pool": "k", "gpus": 1, "throughput": [2.4, 2.4]},
        {"workloads": ["S", "S"], "pool": "v", "gpus": 1, "throughput": [3.6, 3.6]},
    ]
    document = instance_document(
        [
            {"name": "v", "nodes": 1, "gpus_per_node": 4},
            {"name": "k", "nodes": 1, "gpus_per_node": 2},
        ],
        [job(number, number % 3) for number in range(FIRST)],
        round=60.0,
        workloads={
            "S": {"throughput": {"v": 4.0, "k": 1.0}},
            "L": {"throughput": {"v": 3.0, "k": 2.5}},
        },
        tenants=[{"name": "red"}],
        colocation=pairs if colocation else [],
    )
    return optsched.Instance.from_document(document)


NUMBERS = st.integers(0, 2 * FIRST)
NAMES = NUMBERS.map("q{}".format)
EVENTS = st.one_of(
    st.builds(
        lambda numbers, kind: {
            "event": "submit",
            "jobs": [job(number, (kind + at) % 8) for at, number in enumerate(numbers)],
        },
        st.lists(NUMBERS, min_size=1, max_size=3, unique=True),
        st.integers(0, 7),
    ),
    st.builds(
        lambda kind, names: {"event": kind, "jobs": names},
        st.sampled_from(["complete", "cancel", "complete", "stopped"]),
        st.lists(NAMES, min_size=1, max_size=2),
    ),
    st.builds(
        lambda found: {"event": "observe", "jobs": found},
        st.dictionaries(
            NAMES,
            st.one_of(
                st.builds(lambda steps: {"steps": float(steps)}, st.integers(0, 500)),
                st.just({"throughput": 2.0}),
            ),
            min_size=1,
            max_size=3,
        ),
    ),
    st.sampled_from(
        [
            {"event": "nodes", "states": {"v-0": "down"}},
            {"event": "nodes", "states": {"v-0": "up"}},
            {"event": "update", "job": "q1", "weight": 3.0},
            {"event": "policy", "policy": {"formulation": "max-throughput"}},
            {"event": "constraints", "constraints": [{"kind": "deadlines"}]},
            {"event": "tenants", "tenants": [{"name": "red", "weight": 3.0}, {"name": "white"}]},
            {"event": "workloads", "workloads": {"S": {"throughput": {"k": 2.0}}}},
            {"event": "workloads", "workloads": {"label 1": {"throughput": {"v": 2.0}}}},
            {"event": "workloads", "remove": ["label 1"]},
        ]
    ),
)


@cache
def after_two_rounds(formulation: str, pairs: bool) -> RoundState:
    live = LiveState(state_of(instance(pairs), {"formulation": formulation}))
    for now in (0.0, 60.0):
        state, plan = live.planned(now)
        live.follow(state, plan)
    return live.state


def planned(formulation: str, *, pairs: bool = False) -> LiveState:
    """A live state after two rounds."""
    return LiveState(after_two_rounds(formulation, pairs))


def happen(live: LiveState, event: Event) -> str | None:
    """Let an event happen; the refusal, if it is refused."""
    try:
        live.accept(live.after(event))
    except (InvalidInput, UsageError) as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("formulation", "pairs"),
    [("max-min-fairness", False), ("proportional-fairness", True), ("finish-time-fairness", False)],
)
@given(st.lists(EVENTS, min_size=1, max_size=12))
@settings(max_examples=30, deadline=None)
def test_together_or_one_by_one(formulation: str, pairs: bool, events: list[Document]) -> None:
    together, alone = (planned(formulation, pairs=pairs) for _ in range(2))
    for document in events:
        event = read_event({**document, "now": 100.0})
        refused = happen(together, event)
        assert happen(alone, event) == refused
        alone.settle()
    first, second = (
        json.dumps(live.state.to_document(), allow_nan=False) for live in (together, alone)
    )
    assert first == second
    plans = [live.planned(120.0)[1].id for live in (together, alone)]
    assert plans[0] == plans[1]


@given(st.lists(st.tuples(EVENTS, st.sampled_from([0.0, 0.1, 7.3])), min_size=1, max_size=12))
@settings(max_examples=30, deadline=None)
def test_time_passes_in_one_step_or_in_many(events: list[tuple[Document, float]]) -> None:
    """The sums are the same up to rounding, whoever is asked for the state in between."""
    together, alone = (planned("proportional-fairness", pairs=True) for _ in range(2))
    now = 60.0
    for document, seconds in events:
        now += seconds
        event = read_event({**document, "now": now})
        assert happen(together, event) == happen(alone, event)
        alone.settle()
    first, second = (live.state for live in (together, alone))
    assert first.instance.jobs_table.names.written() == second.instance.jobs_table.names.written()
    for name in ("executed", "attained", "waiting_since", "first_run"):
        assert getattr(first.service, name) == pytest.approx(getattr(second.service, name))
    for name in ("owed", "received", "carried"):
        assert getattr(first.ledger, name) == pytest.approx(getattr(second.ledger, name), abs=1e-9)
    done = [state.instance.jobs_table.steps_done for state in (first, second)]
    assert done[0] == pytest.approx(done[1])


def test_a_refused_event_changes_nothing() -> None:
    live = planned("max-min-fairness")
    for document in (
        {"event": "submit", "jobs": [job(8, 3), {**job(9, 0), "tenant": "nobody"}]},
        {"event": "submit", "jobs": [{**job(8, 0), "deadline": 99.0}]},
        {"event": "submit", "jobs": [{**job(8, 4), "throughput": {"v": 2.0}}]},
        {"event": "submit", "jobs": [job(9, 6)]},
        {"event": "complete", "jobs": ["q1", "q9"]},
        {"event": "complete", "jobs": ["q1", "q1"]},
        {"event": "observe", "jobs": {"q1": {"steps": 5.0}, "q9": {"steps": 5.0}}},
        {"event": "observe", "jobs": {"q1": {"steps": 5.0}, "q2": {"steps": 1e9}}},
    ):
        before = live.state
        assert happen(live, read_event({**document, "now": 100.0})) is not None
        assert live.state is before and live.now == 60.0
    assert happen(live, read_event({"event": "submit", "jobs": [job(8, 3)], "now": 100.0})) is None
    # A job that was refused has left no trace.
    assert [workload.name for workload in live.state.instance.workloads] == ["S", "L", "label 0"]


def test_no_event_looks_at_all_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only who asks for the state pays for one: once, whatever has happened."""
    made = []
    passed = Changes._exchanged  # the pass over all jobs is no part of the interface
    monkeypatch.setattr(
        Changes, "_exchanged", lambda self, *given: made.append(1) or passed(self, *given)
    )
    live = planned("max-min-fairness")
    made.clear()
    for number, kind in itertools.product(range(20, 30), range(3)):
        at = 10 * number + kind
        live.accept(
            live.after(read_event({"event": "submit", "jobs": [job(at, kind)], "now": 100.0 + at}))
        )
        observed = {"event": "observe", "jobs": {f"q{at}": {"steps": 5.0}}, "now": 100.0 + at}
        live.accept(live.after(read_event(observed)))
    live.accept(live.after(read_event({"event": "complete", "jobs": ["q1", "q200"], "now": 500.0})))
    assert not made
    state, plan = live.planned(600.0)
    assert len(made) == 1 and len(state.instance.jobs_table) == FIRST + 30 - 2
    live.follow(state, plan)
    assert live.state.now == 600.0


def test_who_comes_back_is_another_job() -> None:
    """A job that waits for one which left does not wait for the next one of the same name."""
    live = planned("max-min-fairness")
    for document in (
        {"event": "submit", "jobs": [{**job(7, 0), "after": ["q1"]}]},
        {"event": "complete", "jobs": ["q1"]},
        {"event": "submit", "jobs": [job(1, 2)]},
    ):
        assert happen(live, read_event({**document, "now": 61.0})) is None
    table = live.state.instance.jobs_table
    assert table.names.written()[-2:] == ("q7", "q1") and not table.after


def test_what_a_pair_is_owed_stays_with_the_partner() -> None:
    """Up to the time at which the other job leaves, not up to the next plan."""
    live = planned("proportional-fairness", pairs=True)
    ledger = live.state.ledger
    shared = np.flatnonzero(ledger.partner >= 0)
    assert len(shared)
    names = live.state.instance.jobs_table.names
    gone, stays = names[int(ledger.job[shared[0]])], names[int(ledger.partner[shared[0]])]
    events = [
        {"event": "complete", "jobs": [gone], "now": 75.0},
        {"event": "observe", "jobs": {stays: {"steps": 1.0}}, "now": 110.0},
    ]
    changes = Changes(live.state)
    for document in events:
        changes = after_event(changes, read_event(document)).happen()
    alone = planned("proportional-fairness", pairs=True)
    for document in events:
        alone.accept(alone.after(read_event(document)))
        alone.settle()
    assert changes.state.ledger.carried == pytest.approx(alone.state.ledger.carried)
    assert changes.state.ledger.carried.any()


def test_recovery_is_where_the_scheduler_was(tmp_path: Path) -> None:
    """Also between two plans, at times that differ, and if somebody looked at the state."""
    options = {"snapshot_every": 4, "isolate": False}
    made = optsched.Scheduler(instance(True), journal=tmp_path / "j", **options)
    now = 0.0
    for number in range(20, 30):
        made.solve(now=now)
        now += 13.7
        made.submit(job(number, number % 4), now=now)
        made.observe([{"job": f"q{number % FIRST}", "steps": 7.0 * number}], now=now + 0.3)
        assert made.state.now == now + 0.3
        if number % 3 == 0:
            made.complete([f"q{number}"], now=now + 1.1)
        now += 20.3
    made.close()
    with optsched.Scheduler.recover(tmp_path / "j", isolate=False) as again:
        assert again.state.to_document() == made.state.to_document()
