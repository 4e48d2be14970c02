"""``round``, ``replay`` and ``top``: what they print and write, and every way in which they refuse."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from documents import instance_document

import optsched
from optsched.registry import load_solver
from optsched.rounds import Watcher
from optsched.rounds.journal import Journal
from optsched.solvers.isolated import SolverProcess

ROUND = 600.0
DAY = instance_document(
    [{"name": name, "nodes": 2, "gpus_per_node": 4} for name in ("v100", "k80")],
    name="day",
    round=ROUND,
)


def job(name: str, gpus: int = 1) -> dict[str, Any]:
    return {"id": name, "gpus": gpus, "steps": 90000, "throughput": {"v100": 1.0, "k80": 0.25}}


@pytest.fixture(scope="module")
def shared() -> Iterator[SolverProcess]:
    with SolverProcess(load_solver) as process:
        yield process


@pytest.fixture(autouse=True)
def one_process(shared: SolverProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The solver's process of one round serves the next one as well; to start it takes longer than a round."""
    monkeypatch.setattr(
        "optsched.solvers.isolated.SolverProcess", lambda load, memory: nullcontext(shared)
    )


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal of eight rounds, with a node that fails, a fallback in round 5, and snapshots."""
    path = tmp_path_factory.mktemp("rounds") / "day.journal"
    instance = optsched.Instance.from_document(DAY)
    with optsched.Scheduler(
        instance, journal=path, clock=lambda: 0.0, snapshot_every=3, isolate=False
    ) as scheduler:
        for number in range(8):
            now = number * ROUND
            scheduler.submit([job(f"job-{number}-{row}", 1 + row % 4) for row in range(3)], now=now)
            if number == 4:
                scheduler.node_down("v100-1", now=now)
                scheduler.reserve("disks", ["k80-0"], now + ROUND, now + 2 * ROUND, now=now)
                scheduler.update("job-0-0", weight=2.0, now=now)
            if number == 5:
                scheduler.submit({**job("rusher"), "deadline": now + 60, "steps": 1e6}, now=now)
            scheduler.solve(now)
        scheduler.complete("job-0-0", "job-0-1", now=now)
    return path


@pytest.fixture
def journal(kept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept, tmp_path / "day.journal"))


# --- round ---------------------------------------------------------------------------------------------------------


def test_rounds_follow_each_other_through_files(run: Any, tmp_path: Path) -> None:
    state, plan = tmp_path / "state.json", tmp_path / "plan.json"
    first = run("round", "@quickstart", "-o", plan, "--next", state, columns=80)
    assert (first.code, first.err) == (0, "")
    assert max(map(len, first.out.splitlines())) <= 80 + len(str(tmp_path))
    assert "quickstart: round 0 of max-min-fairness\n" in first.out
    assert "starts   resnet-50-1" in first.out and "\nWaits: 2 jobs\n" in first.out
    assert first.out.endswith(f"\nplan written to {plan}\nnext state written to {state}\n")
    told = json.loads(plan.read_text())
    assert told["format"] == "optsched-plan/1" and told["round"] == 0 and len(told["start"]) == 10
    second = run("round", state, "--now", "+6m", "--next", state)
    assert (
        "round 1 of max-min-fairness" in second.out
        and "basis mapped: 44 of 44 columns known" in second.out
    )
    assert "runs on  " in second.out
    wanted = optsched.RoundState.from_document(json.loads(state.read_text()))
    assert wanted.round == 2 and wanted.now == 7200 + 360
    third = run("round", state, "--now", "8000", "--json")
    assert third.json["now"] == 8000 and third.json["round"] == 2


def test_one_job_of_a_round(run: Any, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    run("round", "@quickstart", "--next", state)
    told = run("round", state, "--now", "+6m", "--job", "bert-base-2")
    assert told.out.startswith("bert-base-2 waits in this round: its turn comes later: 27.3 %")
    # Of the allocation that the round follows, the whole explanation
    assert "What it uses and pays" in told.out and "Best alternative: " in told.out
    ranked = run("round", state, "--job", "resnet-50-1", "--ranking", "srtf", "--json").json
    assert ranked["verdict"] == "keep" and ranked["explanation"] is None
    followed = run("round", state, "--job", "resnet-50-1", "--json").json
    assert followed["gpus"] == ["p100-0/3"] and followed["explanation"]["job"] == "resnet-50-1"
    refused = run("round", state, "--job", "resnet-50")
    assert (refused.code, refused.error.path) == (2, "job")
    assert run("round", state, "--job", "resnet-50-1", "-o", "-").code == 2


@pytest.mark.process
def test_the_shell_plans_what_python_plans(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "optsched.solvers.isolated.SolverProcess", SolverProcess
    )  # one of its own for each round
    wanted = optsched.solve_round("@quickstart", {"formulation": "makespan", "max_moves": 0}).id
    result = run("round", "@quickstart", "-f", "makespan", "--max-moves", 0, "--json")
    assert (result.code, result.json["id"]) == (0, wanted)
    assert (
        run("round", "@quickstart", "-f", "makespan", "--max-moves", 0, "-o", "-").json["id"]
        == wanted
    )
    following = run("round", "@quickstart", "--next", "-")
    assert following.json["format"] == "optsched-round/1"
    again = run("round", "-", "--json", stdin=following.out.encode())
    assert again.json["round"] == 1


def test_a_policy_from_a_file_and_options_on_top(run: Any, write: Callable[..., Path]) -> None:
    policy = write({"formulation": "makespan", "hysteresis": 2.0}, "policy.json")
    state = run("round", "@quickstart", "--policy-file", policy, "--patience", 4, "-C", "quota:tenant=vision,gpus=3",
                "--next", "-").json  # fmt: skip
    assert state["policy"] == {
        "formulation": "makespan", "hysteresis": 2.0, "patience": 4,
        "constraints": [{"kind": "quota", "tenant": "vision", "gpus": 3}],
    }  # fmt: skip
    document = write(state, "state.json")
    ranked = run("round", document, "--ranking", "srtf", "--next", "-").json["policy"]
    assert (
        "formulation" not in ranked and ranked["ranking"] == "srtf" and ranked["hysteresis"] == 2.0
    )
    yaml = write(b"ranking: fcfs\n", "policy.yaml")
    told = run("round", document, "--policy-file", yaml)
    assert "round 1 of ranking fcfs" in told.out and "status" not in told.out


def test_another_performance_model(run: Any, write: Callable[..., Path]) -> None:
    model = write(
        {"format": "optsched-model/1", "model": "online", "of": {"model": "table"}}, "model.json"
    )
    state = run("round", "@quickstart", "--model", model, "--next", "-").json
    assert state["instance"]["performance"]["model"] == "online"
    bad = run("round", "@quickstart", "--model", write({"model": "online"}, "model.json"))
    assert bad.refused('model.json: format: found null, expected "optsched-model/1"', 3)


def test_a_fallback_is_told_and_costs_the_proof(run: Any) -> None:
    share = ("-C", "minimum-share:tenant=vision,gpus=3", "-C", "quota:tenant=vision,gpus=1")
    given = ("round", "@quickstart", *share)
    result = run(*given)
    assert result.code == 0
    assert result.err.count("max-min-fairness is infeasible") == 1
    assert result.err.startswith("optsched: round 0: ")
    assert "; jobs follow the last allocation\n" in result.err
    assert "\nfallback" in result.out
    assert run(*given, "--require-optimal", "-q").code == 5
    assert run("round", "@quickstart", "--require-optimal", "-q").code == 0
    assert run("round", "@quickstart", "--ranking", "fcfs", "--require-optimal", "-q").code == 5


@pytest.mark.parametrize("what", ["state", "plan"])
def test_schemas(run: Any, what: str) -> None:
    schema = run("round", "--schema", what).json
    assert schema["$schema"].endswith("2020-12/schema")
    assert ("ledger" in schema["properties"]) == (what == "state")


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        ([], 2, "missing argument STATE"),
        (["nothing.json"], 3, "found no readable file at nothing.json..."),
        (
            ["@quickstart", "--now", "3"],
            2,
            "--now: found 3, expected at least 7200, the time of the state",
        ),
        (["@quickstart", "--now", "1e300"], 2, "--now: found 1e+300, expected at most 1e+100 s"),
        (["@quickstart", "--now", "+x"], 2, "--now: found 'x'"),
        (["@quickstart", "--now", "noon"], 2, "--now: found 'noon', expected a number"),
        (
            ["@quickstart", "-f", "makespan", "--ranking", "fcfs"],
            2,
            "a formulation or a ranking, not both",
        ),
        (["@quickstart", "--ranking", "nope"], 2, "ranking: found 'nope'"),
        (["@quickstart", "-f", "makespann"], 2, "formulation: found 'makespann'"),
        (["@quickstart", "-O", "x=1"], 2, "option of max-min-fairness: found 'x'"),
        (
            ["@quickstart", "--hysteresis=-1"],
            3,
            "policy.hysteresis: found -1.0, expected a number of at least 0",
        ),
        (
            ["@quickstart", "--patience", "0"],
            3,
            "policy.patience: found 0, expected a number of at least 1",
        ),
        (["@quickstart", "--time-limit", "soon"], 2, "--time-limit: found 'soon'"),
        (["@quickstart", "--solver", "nope"], 7, "solver: found 'nope'"),
        (["@quickstart", "--schema", "x"], 2, "--schema: found 'x', expected state or plan"),
        (["@quickstart", "--json", "--next", "-"], 2, "cannot both go to standard output"),
        (["@quickstart", "-o", "none/plan.json"], 2, "none/plan.json"),
        (["-", "--policy-file", "-"], 2, "cannot both come from standard input"),
    ],
)
def test_what_round_refuses(run: Any, given: list[str], code: int, message: str) -> None:
    assert run("round", *given).refused(message, code)


def test_files_that_round_refuses(run: Any, write: Callable[..., Path]) -> None:
    for content, message in (
        (
            {"format": "optsched-round/7"},
            'format: found "optsched-round/7", expected "optsched-round/1"',
        ),
        (
            {"format": "optsched-plan/1"},
            'format: found "optsched-plan/1", expected "optsched-instance/1"...',
        ),
        (
            {"format": "optsched-round/1", "instance": DAY, "policy": {"hysteresys": 1}},
            "policy.hysteresys",
        ),
        (
            {"format": "optsched-round/1", "instance": {**DAY, "round": -1}},
            "instance.round: found -1",
        ),
    ):
        assert run("round", write(content, "state.json")).refused(f"state.json: {message}", 3)
    for policy, message in (
        (
            {"formulatoin": "makespan"},
            "policy.json: formulatoin: found an unknown key 'formulatoin'",
        ),
        (
            {"ranking": "fcfs", "formulation": "makespan"},
            'policy.json: found {"ranking": "fcfs"...',
        ),
        ([1], "policy.json: found [1], expected an object with the keys of a policy"),
    ):
        assert run("round", "@quickstart", "--policy-file", write(policy, "policy.json")).refused(
            message, 3
        )


def test_moves_and_stops_have_reasons(run: Any, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    assert run("round", "@packing", "-q", "--next", state).code == 0
    out = run("round", state, "--now", "+2h", "--hysteresis", 0, columns=80).out
    moves, stops = out.split("\nReasons for moves: ")[1].split("\nStops: ")
    assert re.search(
        r"^- .+: (its turn on \w+: [\d.]+ % of the time is its there|it goes on )",
        moves,
        re.MULTILINE,
    )
    assert "its turn comes later: " in stops and " rounds ahead" in stops
    assert max(map(len, out.splitlines())) <= 80


# --- replay --------------------------------------------------------------------------------------------------------


def test_replay_gives_plan_instance_and_state(run: Any, journal: Path, tmp_path: Path) -> None:
    plan, state, instance = (
        tmp_path / name for name in ("plan.json", "state.json", "instance.yaml")
    )
    result = run(
        "replay",
        journal,
        "--round",
        4,
        "-o",
        plan,
        "--state",
        state,
        "--instance",
        instance,
        columns=80,
    )
    assert (result.code, result.err) == (0, "")
    assert "day: round 4 of max-min-fairness" in result.out
    for path, what in ((plan, "plan"), (state, "state"), (instance, "instance")):
        assert f"{what} written to {path}\n" in result.out
    listed = {
        record["round"]: record
        for record in run("replay", journal, "--list", "--json").json["rounds"]
    }
    assert list(listed) == list(range(8))
    assert json.loads(plan.read_text())["id"] == listed[4]["digest"]
    assert run("round", state, "--json").json["id"] == listed[4]["digest"]
    assert run("validate", instance).code == 0
    assert run("replay", journal, "--json").json["round"] == 7


def test_the_list_of_rounds(run: Any, journal: Path) -> None:
    result = run("replay", journal, "--list", columns=80)
    assert (result.code, result.err) == (0, "")
    assert ": 8 rounds\nno fallbacks\n" in result.out
    assert max(map(len, result.out.splitlines()[1:])) <= 80
    assert len([line for line in result.out.splitlines() if line.endswith("optimal")]) == 8
    assert " %" in result.out and not re.search(r"\d%", result.out)
    assert run("replay", journal, "--list", "-q").out == ""


def test_the_list_names_what_changed_the_rules(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "changed.journal"
    instance = optsched.Instance.from_document(DAY)
    with optsched.Scheduler(instance, journal=path, isolate=False) as made:
        made.submit(job("a"), now=0)
        made.solve(now=0)
        made.set_policy({"ranking": "srtf", "max_moves": 2}, now=500)
        made.set_tenants([{"name": "red"}], now=510)
        made.solve(now=600)
    out = run("replay", path, "--list", columns=80).out
    assert (
        "\nChanges\n- 500 s: policy srtf, moves paying, max_moves 2\n- 510 s: tenants red\n" in out
    )
    found = run("replay", path, "--list", "--json").json
    assert [record["event"] for record in found["changes"]] == ["policy", "tenants"]
    assert found["changes"][0]["policy"]["max_moves"] == 2
    assert "srtf" in run("top", path, "--once", columns=80).out.splitlines()[0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--round", "8"], "has no round 8: its last one is 7"),
        (["--round=-1"], "--round: found -1, expected 0 or more"),
        (["--round", "x"], "--round: found 'x', expected a whole number"),
        (["--list", "--round", "3"], "--list only lists: give no round and no file with it"),
        (["-o", "-"], "expected a file to write; --json prints the plan"),
        (["--instance", "x.txt"], "found x.txt"),
    ],
)
def test_what_replay_refuses(run: Any, journal: Path, given: list[str], message: str) -> None:
    assert run("replay", journal, *given).refused(message)


def test_a_plan_that_is_another_one_here(
    run: Any, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optsched.rounds.plan.Plan.id", "0123")
    result = run("replay", journal, "--round", 4)
    assert (result.code, result.out) == (6, "")
    assert (
        "round 3 comes out as another plan: other jobs, GPUs, rates or counts of time in the same numbers"
        in result.err
    )
    assert "(digest 0123, expected " in result.err
    assert f"optsched replay {journal} --state state.json" in result.err
    monkeypatch.setattr("optsched.rounds.plan.Plan.metrics", {"jobs": {"start": 99}})
    assert "another plan: start 99 jobs, not " in run("replay", journal, "--round", 4).err


@pytest.mark.parametrize(
    "command", [["replay"], ["replay", "--list"], ["top"], ["top", "--prometheus"]]
)
def test_journals_that_are_none(run: Any, tmp_path: Path, command: list[str]) -> None:
    def tried(path: Path) -> Any:
        result = run(command[0], path, *command[1:])
        assert result.out == "" and len(result.err.splitlines()) == 1
        return result.code, result.err

    missing = tmp_path / "missing.journal"
    assert tried(missing) == (2, f"optsched: error: no journal at {missing}: no such folder\n")
    (tmp_path / "file").write_text("x")
    assert tried(tmp_path / "file")[1].endswith("that is a file, a journal is a folder\n")
    other = tmp_path / "other"
    other.mkdir()
    (other / "journal.json").write_text('{"format": "optsched-journal/9"}\n')
    code, error = tried(other)
    assert (
        code == 2 and 'has the format "optsched-journal/9", expected "optsched-journal/1"' in error
    )


@pytest.mark.parametrize("command", [["replay", "--round", "7"], ["replay", "--list"], ["top"]])
def test_a_damaged_journal(run: Any, journal: Path, command: list[str]) -> None:
    segment = sorted(journal.glob("events-*.jsonl"))[-1]
    first, *others = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(first.replace(b"0", b"1", 1) + b"".join(others))
    result = run(command[0], journal, *command[1:])
    assert result.refused(f"{journal}: {segment.name}, line 1", 3)


def test_a_scheduler_that_never_planned(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "young.journal"
    optsched.Scheduler(optsched.Instance.from_document(DAY), journal=path, isolate=False).close()
    result = run("replay", path)
    assert (result.code, result.err) == (
        2,
        f"optsched: error: journal {path}: no round was planned yet\n",
    )
    assert ": 0 rounds\n" in run("replay", path, "--list").out
    assert ": no round yet of max-min-fairness\n" in run("top", path).out
    empty = tmp_path / "empty.journal"
    Journal.create(empty, fsync=False).close()
    assert "has no snapshot to begin from: the scheduler never started" in run("top", empty).err


@pytest.mark.parametrize("command", ["replay", "top"])
def test_a_journal_that_lost_its_snapshot_is_damaged(
    run: Any, tmp_path: Path, command: str
) -> None:
    path = tmp_path / "day.journal"
    with optsched.Scheduler(
        optsched.Instance.from_document(DAY), journal=path, isolate=False
    ) as scheduler:
        scheduler.solve(now=0)
    (path / "snapshot-000000000000.npz").unlink()
    result = run(command, path)
    assert result.code == 3
    assert f"journal {path} is damaged: snapshot-000000000000.npz: found no such file" in result.err


# --- top -----------------------------------------------------------------------------------------------------------


def test_top_fits_a_small_terminal(run: Any, journal: Path) -> None:
    result = run("top", journal, columns=80)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert lines[0].endswith("round 7 of max-min-fairness") or lines[0].endswith("…")
    assert any(line.startswith("v100  █") for line in lines)
    assert "complete 2 jobs: job-0-0, job-0-1" in result.out
    assert "25 submitted, 2 complete, 0 cancelled" in result.out
    assert run("top", journal, "--once").out.splitlines()[2:] == lines[2:]
    assert run("top", journal, "-q").out == ""


def test_a_scheduler_in_trouble(run: Any, tmp_path: Path) -> None:
    """Fallbacks are told with their reason, and long names and many pools leave the view on its screen."""
    path = tmp_path / f"{'long-' * 12}.journal"
    pools = [{"name": f"pool-{row}-{'x' * 40}", "nodes": 1, "gpus_per_node": 1} for row in range(9)]
    jobs = [
        {
            "id": f"{'job' * 30}-{row}",
            "steps": 1e6,
            "tenant": "t",
            "throughput": {pools[0]["name"]: 1.0},
        }
        for row in range(9)
    ]
    instance = optsched.Instance.from_document(
        DAY | {"cluster": {"pools": pools}, "jobs": jobs, "tenants": [{"name": "t"}]}
    )
    policy = {
        "constraints": [
            {"kind": "minimum-share", "tenant": "t", "gpus": 1},
            {"kind": "quota", "tenant": "t", "gpus": 0.5},
        ]
    }
    with optsched.Scheduler(
        instance, policy, journal=path, clock=lambda: 0.0, isolate=False
    ) as scheduler:
        for number in range(30):
            scheduler.update(jobs[0]["id"], weight=float(number + 1), now=number * ROUND)
        for number in range(2):
            scheduler.solve(number * ROUND)
    result = run("top", path, columns=80)
    lines = result.out.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert "fallbacks  2 of 2 rounds; round 1: max-min-fairness is infeasible: " in result.out
    assert "\n... and 3 more pools (--json)\n" in result.out
    listing = run("replay", path, "--list", columns=80).out
    assert "2 fallbacks among them" in listing and listing.count("fallback\n") == 2


@pytest.mark.process
def test_top_in_ascii(journal: Path) -> None:
    command = [sys.executable, "-m", "optsched.cli.main", "top", str(journal)]
    done = subprocess.run(
        command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=True
    )
    assert b"v100  ####" in done.stdout and b"\\u" not in done.stdout


def test_top_for_machines(run: Any, journal: Path) -> None:
    told = run("top", journal, "--json").json
    assert told["plan"]["round"] == 7 and told["rounds"] == 8 and told["submitted"] == 25
    assert told["events"][-1]["event"] == "complete"
    text = run("top", journal, "--prometheus").out
    assert "optsched_rounds_total 8\n" in text and 'optsched_utilisation{pool="v100"}' in text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--interval", "x"], "--interval: found 'x'"),
        (["--interval", "0"], "--interval: found 0, expected at least 0.05 s"),
        (["--json", "--prometheus"], "--json and --prometheus: one of them"),
    ],
)
def test_what_top_refuses(run: Any, journal: Path, given: list[str], message: str) -> None:
    assert run("top", journal, *given).refused(message)


@pytest.mark.process
def test_a_live_view_ends_at_ctrl_c(journal: Path) -> None:
    """On a terminal of 80 columns and 24 lines, while somebody else writes the journal."""
    import pty
    import termios

    parent, child = pty.openpty()
    termios.tcsetwinsize(child, (24, 80))
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    environment.pop("COLUMNS", None)
    view = subprocess.Popen(
        [sys.executable, "-m", "optsched.cli.main", "top", str(journal), "--interval", "0.05"],
        stdin=child, stdout=child, stderr=child, env=environment,
    )  # fmt: skip
    os.close(child)
    late = threading.Timer(60.0, view.kill)  # what hangs fails here
    late.start()
    with Journal.open(journal, fsync=False) as writer:
        seen = _until(parent, b"round 7")
        writer.append({"event": "cancel", "now": 9000.0, "jobs": ["one-more"]})
        seen += _until(parent, b"one-more")
    view.send_signal(signal.SIGINT)
    seen += b"".join(_read(parent))
    assert view.wait(timeout=20) == 0
    late.cancel()
    assert b"Traceback" not in seen
    os.close(parent)


def _read(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(descriptor, 65536)
        except OSError:  # the other end is closed
            return
        if not data:
            return
        yield data


def _until(descriptor: int, wanted: bytes) -> bytes:
    seen, started = b"", time.monotonic()
    for data in _read(descriptor):
        seen += data
        if wanted in seen:
            return seen
        assert time.monotonic() - started < 30, seen[-500:]
    raise AssertionError(seen[-500:])


# --- following -----------------------------------------------------------------------------------------------------


def test_a_watcher_survives_rotation(tmp_path: Path) -> None:
    path = tmp_path / "turning.journal"
    instance = optsched.Instance.from_document({**DAY, "jobs": [job("a")]})
    with optsched.Scheduler(
        instance, journal=path, clock=lambda: 0.0, snapshot_every=1, keep=1, isolate=False
    ) as made:
        made.solve(0.0)
        with Watcher(path) as watcher:
            assert watcher.plans[-1]["round"] == 0
            for number in range(1, 7):  # the segments that it would read next are deleted meanwhile
                made.submit(job(f"job-{number}"), now=number * ROUND)
                made.solve(number * ROUND)
            assert watcher.poll() and watcher.plans[-1]["round"] == 6
            assert watcher.metrics == made.metrics
            assert not watcher.poll()
            assert watcher.metrics.prometheus() == made.metrics.prometheus()


@pytest.mark.process
def test_the_memory_of_the_solver_is_limited(run: Any, shared: SolverProcess) -> None:
    try:
        assert run("round", "@quickstart", "--memory-limit", "3GB").code == 0
        assert shared.memory == 3_000_000_000
    finally:
        shared.limit_memory(None)
