"""What is told of events and plans: words, JSON lines, figures from records alone."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from documents import instance_document

import optsched
from optsched.cli.main import main
from optsched.rounds.journal import records
from optsched.rounds.telling import JsonLines, words

# Private names: single rules and files of a round, without a scheduler
from optsched.rounds.transitions import KINDS
from optsched.rounds.watching import Metrics, last_round

INSTANCE = instance_document({"v100": (2, 2)}, round=60)
JOB = {"id": "a", "gpus": 4, "steps": 1e6, "throughput": {"v100": 2.0}}
TOLD = [
    ({"event": "submit", "jobs": [{"id": "a"}, {"id": "b"}]}, "submit 2 jobs: a, b"),
    ({"event": "complete", "jobs": ["a"]}, "complete a"),
    ({"event": "cancel", "jobs": ["a", "b"]}, "cancel 2 jobs: a, b"),
    ({"event": "stopped", "jobs": ["a"]}, "stopped a"),
    ({"event": "observe", "jobs": {"a": {"steps": 3}}}, "observe a"),
    ({"event": "nodes", "states": {"x": "down", "y": "drain", "z": "down"}}, "nodes x, z down; node y drain"),
    ({"event": "reserve", "name": "disks", "nodes": ["x"], "start": 10.0, "end": 20.5},
     "reserve node x from 10 s to 20.5 s: disks"),
    ({"event": "release", "name": "disks"}, "release disks"),
    ({"event": "resize", "add": {"v100": 8.0, "budget": -2.5}}, "resize v100 +8, budget -2.5"),
    ({"event": "update", "now": 3.0, "job": "a", "weight": 2.0}, "update a: weight 2.0"),
    ({"event": "policy", "policy": {}}, "policy max-min-fairness"),
    ({"event": "policy", "policy": {"ranking": "srtf", "options": {"moves": "paying"}, "max_moves": 2}},
     "policy srtf, moves paying, max_moves 2"),
    ({"event": "constraints", "constraints": []}, "constraints none"),
    ({"event": "constraints", "constraints": [{"kind": "quota", "gpus": 2}, {"kind": "budget"}]},
     "constraints quota, budget"),
    ({"event": "tenants", "tenants": [{"name": "red"}], "remove": ["blue"]}, "tenants red, without blue"),
    ({"event": "workloads", "workloads": {}, "remove": ["a", "b"]}, "workloads without a, b"),
]  # fmt: skip


@pytest.mark.parametrize(("record", "told"), TOLD)
def test_words_of_events(record: dict[str, Any], told: str) -> None:
    assert words(record) == told


def test_every_event_has_words() -> None:
    assert {record["event"] for record, _ in TOLD} == set(KINDS)


def scheduler(**more: Any) -> optsched.Scheduler:
    return optsched.Scheduler(
        optsched.Instance.from_document(INSTANCE), clock=lambda: 0.0, isolate=False, **more
    )


def test_a_logger_hears_events_and_plans(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "optsched.rounds")
    with scheduler() as made:
        made.submit(JOB)
        made.solve()
    heard = [entry for entry in caplog.records if entry.name == "optsched.rounds"]
    assert [entry.getMessage() for entry in heard] == ["submit a", "round 0: 1 start"]
    event, plan = (json.loads(JsonLines().format(entry)) for entry in heard)
    assert (event["event"], event["jobs"][0]["id"], event["level"]) == ("submit", "a", "INFO")
    assert (plan["event"], plan["gpus_in_use"], plan["fallback"]) == ("plan", 4, None)
    assert "time" in plan and "allocation" not in plan


def test_nobody_listens_and_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    from optsched.rounds import scheduler as module

    monkeypatch.setattr(module, "plan_record", None)
    logging.getLogger("optsched.rounds").setLevel(logging.WARNING)
    try:
        with scheduler() as made:
            made.submit(JOB)
            assert len(made.solve().start) == 1
    finally:
        logging.getLogger("optsched.rounds").setLevel(logging.NOTSET)


def test_errors_in_json_lines() -> None:
    try:
        raise ValueError("torn")
    except ValueError as error:
        entry = logging.LogRecord(
            "optsched", logging.ERROR, __file__, 1, "broken", (), (ValueError, error, None)
        )
    assert json.loads(JsonLines().format(entry))["error"] == "ValueError: torn"


def test_a_log_file_of_json_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rounds.jsonl"
    assert main(["round", "@quickstart", "-q", "--log", str(file)]) == 0
    assert all(json.loads(line)["message"] for line in file.read_text().splitlines())
    assert capsys.readouterr().out == ""


def test_figures_from_records_are_those_of_the_scheduler(tmp_path: Path) -> None:
    path = tmp_path / "told.journal"
    with scheduler(journal=path) as made:
        made.submit([JOB, JOB | {"id": "b"}], now=0)
        for number in range(4):
            made.solve(now=60 * number)
        made.complete("a", now=240)
        made.cancel("b", now=240)
        wanted = made.metrics
    found = Metrics()
    entries = [record for _, record in records(path)]
    for record in entries:
        found.record(record)
    assert found == wanted and found.prometheus() == wanted.prometheus()
    assert (found.submitted, found.completed, found.cancelled, found.rounds) == (2, 1, 1, 4)
    assert repr(found).endswith("2 jobs submitted, 1 completed>")
    assert "2 submitted, 1 completed, 1 cancelled" in found.summary()
    plans = [record for record in entries if record["event"] == "plan"]
    assert plans[1]["waiting"] == [["b", 60.0]] and plans[0]["waiting"] == []
    assert last_round(path) == 3
    assert optsched.replay(path).plan.round == 3


def test_a_replayed_state_has_what_its_model_had_learnt(tmp_path: Path) -> None:
    """Planned again elsewhere, it gives the plan that was followed."""
    path = tmp_path / "learnt.journal"
    learning = {**INSTANCE, "performance": {"model": "online", "of": {"model": "table"}}}
    made = optsched.Scheduler(
        optsched.Instance.from_document(learning),
        journal=path,
        clock=lambda: 0.0,
        isolate=False,
        snapshot_every=2,
    )
    with made:
        made.submit(
            [JOB | {"gpus": 1 + row, "id": f"job-{row}", "workload": "w"} for row in range(4)],
            now=0,
        )
        for number in range(5):
            plan = made.solve(now=60 * number)
            for item in (*plan.start, *plan.keep):
                made.observe(item.job, throughput=1.3, now=60 * number + 30)
    found = optsched.replay(path, 4)
    document = json.loads(json.dumps(found.state.to_document()))
    assert document["instance"]["performance"] != learning["performance"]
    again = optsched.solve_round(optsched.RoundState.from_document(document))
    assert again.to_document()["id"] == found.plan.to_document()["id"]


def test_a_record_names_the_five_jobs_that_wait_longest(tmp_path: Path) -> None:
    path = tmp_path / "waits.journal"
    with scheduler(journal=path, policy={"ranking": "fcfs"}) as made:
        for number in range(3):
            made.submit([JOB | {"id": f"{number}{name}"} for name in "abcd"], now=60 * number)
            made.solve(now=60 * number)
    waiting = [record["waiting"] for _, record in records(path) if record["event"] == "plan"]
    # Equal times in the order of the jobs; who came with the last plan has not waited.
    assert waiting == [
        [],
        [["0b", 60.0], ["0c", 60.0], ["0d", 60.0]],
        [["0b", 120.0], ["0c", 120.0], ["0d", 120.0], ["1a", 60.0], ["1b", 60.0]],
    ]
