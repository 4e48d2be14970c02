"""Calls of a scheduler and states that make no sense: one sentence each, and nothing has changed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from documents import instance_document
from refusals import refuses

import optsched
from optsched.errors import UsageError
from optsched.rounds import RoundState, advanced, followed

Document = dict[str, Any]


def job(name: str, gpus: int = 1, **more: Any) -> Document:
    return {"id": name, "gpus": gpus, "steps": 1e5, "throughput": {"v100": 40.0}, **more}


def instance(*jobs: Document) -> optsched.Instance:
    pools = [{"name": "v100", "nodes": 2, "gpus_per_node": 4}]
    document = instance_document(pools, list(jobs), round=360)
    return optsched.Instance.from_document(document)


def made(*jobs: Document, policy: Any = None, **options: Any) -> optsched.Scheduler:
    return optsched.Scheduler(instance(*jobs), policy, isolate=False, clock=lambda: 0.0, **options)


CALLS: dict[str, tuple[Callable[[Any], object], str]] = {
    "submit None": (
        lambda s: s.submit(None),
        "jobs: found null, expected a job, or a list of jobs",
    ),
    "submit 5": (lambda s: s.submit(5), "jobs: found 5, expected a job, or a list of jobs"),
    "submit text": (
        lambda s: s.submit("abc"),
        'jobs: found "abc", expected a job, or a list of jobs',
    ),
    "submit [5]": (lambda s: s.submit([5]), "jobs[0]: found 5"),
    "resize text": (lambda s: s.resize({"v100": "a"}), 'add.v100: found "a", expected a number'),
    "resize None": (lambda s: s.resize(None), "add: found null, expected amounts by the name..."),
    "resize null": (lambda s: s.resize({"v100": None}), "add.v100: found null, expected a number"),
    "observe null": (lambda s: s.observe_many({"a": None}), "jobs.a: found null"),
    "observe None": (
        lambda s: s.observe_many(None),
        "jobs: found null, expected what was measured, by job",
    ),
    "observe list": (
        lambda s: s.observe([5], steps=3),
        "job: found [5], expected the id of a job, or a list of observations",
    ),
    "observe number": (
        lambda s: s.observe(5),
        "job: found 5, expected the id of a job, or a list of observations",
    ),
    "observe numbers": (
        lambda s: s.observe([5]),
        "jobs[0]: found 5, expected an object with a job and what was measured",
    ),
    "observe nobody": (
        lambda s: s.observe([{"steps": 3}]),
        "jobs[0].job: found null, expected the id of a job",
    ),
    "observe twice": (
        lambda s: s.observe([{"job": "a", "steps": 3}, {"job": "a", "steps": 4}]),
        'jobs[1].job: found "a" a second time, expected each job once',
    ),
    "node list": (
        lambda s: s.node_down(["v100-0"]),
        'nodes[0]: found ["v100-0"], expected the name of a node',
    ),
    "drain number": (
        lambda s: s.node_drain("v100-0", 4),
        "nodes[1]: found 4, expected the name of a node",
    ),
    "cancel lists": (lambda s: s.cancel([["a"]]), 'jobs[0]: found ["a"]'),
    "cancel two lists": (lambda s: s.cancel(["a"], ["b"]), 'jobs[0]: found ["a"]'),
    "now": (lambda s: s.solve(1e101), "now: found 1e+101, expected seconds, at most 1e+100"),
}


def test_events_take_lists() -> None:
    one, many = (made(*map(job, "abcd")) for _ in range(2))
    one.observe_many({"a": {"steps": 5.0}, "b": {"throughput": 3.0}})
    one.stopped("a", "b")
    one.complete("c", "d")
    one.cancel("b")
    many.observe([{"job": "a", "steps": 5.0}, {"job": "b", "throughput": 3.0}])
    many.stopped(["a", "b"])
    many.complete(("c", "d"))
    many.cancel(["b"])
    assert many.state.to_document() == one.state.to_document()
    assert many.instance.jobs_table.steps_done.tolist() == [5.0]


@pytest.mark.parametrize("call", CALLS)
def test_an_event_that_makes_no_sense_is_refused(call: str) -> None:
    scheduler = made(job("a"))
    before, (act, words) = scheduler.state, CALLS[call]
    with refuses(words):
        act(scheduler)
    assert scheduler.state is before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"snapshot_every": "x"},
            'snapshot_every: found "x", expected a whole number of at least 1',
        ),
        ({"keep": "x"}, 'keep: found "x", expected 1 or more, or None for all'),
    ],
)
def test_options_that_make_no_sense_are_refused(
    options: Document, words: str, tmp_path: Path
) -> None:
    with refuses(words, UsageError):
        made(journal=tmp_path / "j", **options)


@pytest.mark.parametrize("policy", ["fifo", 5])
def test_what_is_no_policy_is_refused(policy: Any, tmp_path: Path) -> None:
    refusal = f"policy: found {json.dumps(policy)}, expected an object such as..."
    with refuses(refusal):
        made(journal=tmp_path / "j", policy=policy)
    with refuses(refusal):
        optsched.solve_round(instance(), policy)


def test_numbers_of_numpy_are_numbers() -> None:
    import numpy as np

    scheduler = made(job("a"))
    scheduler.resize({"v100": np.int64(4)})
    scheduler.observe("a", steps=float(np.float32(5)))
    assert scheduler.instance.cluster.gpus(0.0).tolist() == [12]


@pytest.fixture(scope="module")
def second() -> Document:
    state = RoundState.first(instance(job("a", 4), job("b", 8)))
    return json.loads(json.dumps(followed(state, optsched.solve_round(state)).to_document()))


WRONG: list[tuple[str, str, Any, str]] = [
    *(
        ("ledger", key, 10**20, f"ledger[0].{key}: found 1...")
        for key in ("nodes", "workers", "servers", "gpus", "option")
    ),
    *(("ledger", key, -3, f"ledger[0].{key}: found -3") for key in ("nodes", "workers", "servers")),
    *(
        ("service", key, value, f"service.a.{key}: found {json.dumps(value)}")
        for key in (
            "speed",
            "executed",
            "attained",
            "executed_before",
            "attained_before",
            "isolated",
            "counted",
        )
        for value in (None, -5)
    ),
    ("service", "starts", None, "service.a.starts: found null"),
    ("service", "resumes", None, "service.a.resumes: found null"),
]


@pytest.mark.parametrize(("part", "key", "value", "words"), WRONG)
def test_a_field_of_a_state_that_makes_no_sense_is_refused(
    second: Document, part: str, key: str, value: Any, words: str
) -> None:
    document = copy.deepcopy(second)
    (document[part][0] if part == "ledger" else document[part]["a"])[key] = value
    with refuses(words):
        RoundState.from_document(document)


def test_a_reservation_loses_nodes_that_go() -> None:
    scheduler = made(job("a", 4))
    scheduler.reserve("disks", ["v100-1"], 100, 200)
    scheduler.reserve("both", ["v100-0", "v100-1"], 100, 200)
    scheduler.resize({"v100": -4})
    assert [(item.name, item.nodes) for item in scheduler.state.reservations] == [
        ("both", ("v100-0",))
    ]
    document = scheduler.state.to_document()
    assert RoundState.from_document(document).to_document() == document


def test_what_a_reservation_loses_is_told(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = made(job("a", 4))
    scheduler.reserve("disks", ["v100-1"], 100, 200)
    scheduler.resize({"v100": -4})
    assert "reservation disks ends: v100-1 gone" in caplog.text


@pytest.mark.parametrize("now", [1e99, 1e100])
def test_a_state_after_a_very_long_time_can_be_read(now: float) -> None:
    state = RoundState.first(instance(job("a", 4)))
    later = advanced(followed(state, optsched.solve_round(state)), now)
    document = json.loads(json.dumps(later.to_document(), allow_nan=False))
    assert RoundState.from_document(document).to_document() == document


def test_use_of_a_pool_is_at_most_all_of_it() -> None:
    scheduler = made(job("a", 4, preemptible=False), job("b", 4, preemptible=False))
    scheduler.solve(0.0)
    scheduler.node_drain("v100-0", now=1)
    metrics = scheduler.solve(360.0).to_document()["metrics"]
    assert (metrics["gpus"], metrics["gpus_in_use"], metrics["utilisation"]) == (
        8,
        8,
        {"v100": 1.0},
    )
    scheduler.complete("a", "b", now=400)
    metrics = scheduler.solve(720.0).to_document()["metrics"]
    assert (metrics["gpus"], metrics["gpus_in_use"], metrics["utilisation"]) == (
        4,
        0,
        {"v100": 0.0},
    )


def test_a_round_that_was_not_kept_is_told(tmp_path: Path) -> None:
    with made(job("a"), journal=tmp_path / "j", keep=1, snapshot_every=2) as scheduler:
        for number in range(5):
            scheduler.solve(360.0 * number)
    with pytest.raises(UsageError) as refused:
        optsched.replay(tmp_path / "j", 3)
    told = "has no round 3 any more: it begins with round 4, as older snapshots were not kept"
    assert told in str(refused.value)
    assert optsched.replay(tmp_path / "j", 4).plan.round == 4


# --- a closed scheduler, and notices -----------------------------------------------------------


def test_a_closed_scheduler_refuses_all_calls(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = made(job("a"))
    scheduler.solve(0.0)
    scheduler.close()
    for call in (
        scheduler.solve,
        lambda: scheduler.solve(dry_run=True),
        lambda: scheduler.submit(job("b")),
    ):
        with refuses("the scheduler is closed: it takes no events and plans no rounds", UsageError):
            call()
    assert not caplog.records


def test_a_notice_is_logged_by_the_first_plan_that_has_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    policy = {"ranking": "fcfs", "constraints": [{"kind": "budget", "limit": 1.0}]}
    scheduler = made(job("a", deadline=30.5), job("b"), policy=policy)
    late = "job a is late: its deadline was at 30.5 s, and it is held to it no more"
    logged = []
    for now in (0.0, 360.0, 720.0, 1080.0):
        caplog.clear()
        plan = scheduler.solve(now)
        logged.append([record.getMessage() for record in caplog.records])
        assert (late in plan.notices) == (now > 0)
    (budget,) = logged[0]
    assert budget.endswith("does not keep the side constraints budget")
    assert logged[1:] == [[late], [], []]


def test_a_journal_is_a_path_and_a_round_a_number() -> None:
    with refuses("journal: found 5, expected text or a path", UsageError):
        optsched.Scheduler.recover(5)  # type: ignore[arg-type]
    with refuses('number: found "x", expected a whole number', UsageError):
        optsched.replay("journal", "x")  # type: ignore[arg-type]
