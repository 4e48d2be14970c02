"""``optsched simulate``: tables, resumed sweeps, wrong words."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from documents import instance_document

from optsched.simulation import read_simulation

TRACE = instance_document(
    {"p": 1},
    [
        {"id": f"j{row}", "steps": 150.0, "throughput": {"p": 1.0}, "arrival": 10.0 * row}
        for row in range(3)
    ],
    name="three",
    round=100.0,
)


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("trace.json").write_text(json.dumps(TRACE))
    return "trace.json"


def test_policies_side_by_side(run: Any, trace: str) -> None:
    command = f"simulate {trace} -p fifo -p srtf:hysteresis=0 --keep runs -o rows.csv".split()
    done = run(*command)
    assert done.code == 0
    assert "three: 3 jobs on 1 GPU" in done.out
    assert "fifo" in done.out and "srtf" in done.out
    rows = list(csv.DictReader(Path("rows.csv").read_text().splitlines()))
    assert [row["policy"] for row in rows] == ["fifo", "srtf [hysteresis=0]"]
    assert rows[0]["makespan"] == "550.0"
    kept = read_simulation("runs/fifo-0.npz")
    assert kept.jobs.finish.tolist() == [150.0, 350.0, 550.0]
    again = run(*command)
    assert "2 of 2 tasks have a row in rows.jsonl: they are not done again" in again.err


@pytest.mark.picture
def test_a_page_of_what_is_kept(run: Any, trace: str) -> None:
    for name in ("page.html", "pictures.svg"):  # the second is of what the first has kept
        done = run(
            "simulate", trace, "-p", "fifo", "--keep", "runs", "-o", "rows.csv", "--page", name
        )
        assert done.code == 0 and f"{name} written" in done.out
        assert "fifo" in Path(name).read_text()
    assert "1 of 1 tasks have a row in rows.jsonl" in done.err


@pytest.mark.process
def test_machine_readable_by_a_policy_file(run: Any, trace: str) -> None:
    Path("policy.json").write_text(json.dumps({"ranking": "srtf", "patience": 3}))
    done = run("simulate", trace, "-p", "policy.json", "--seeds", "2", "--noise", "0.2", "--json")
    document = json.loads(done.out)
    assert [(row["policy"], row["seed"]) for row in document["rows"]] == [
        ("srtf [patience=3]", seed) for seed in (0, 1)
    ]
    assert document["rows"][0]["mean_jct"] != document["rows"][1]["mean_jct"]


@pytest.mark.process
def test_a_simulation_that_fails_is_a_row_and_an_exit_code(run: Any, trace: str) -> None:
    whole = json.loads(Path(trace).read_text())
    whole["jobs"][1]["gpus"] = {"min": 1, "max": 1}
    whole["jobs"][2] |= {"gpus": 1, "after": ["j0"]}
    Path(trace).write_text(json.dumps(whole))
    done = run(
        "simulate",
        trace,
        "-p",
        "max-min-fairness",
        "-p",
        "fifo",
        "--mode",
        "gavel",
        "-o",
        "rows.json",
    )
    assert done.code == 2
    assert "mode gavel has neither predecessors nor explicit options" in " ".join(done.out.split())
    rows = json.loads(Path("rows.json").read_text())["rows"]
    assert [row["status"] for row in rows] == ["error", "error"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["-p", "nonesuch"], 2, "--policy: unknown policy 'nonesuch', expected one of "),
        (
            ["-p", "srft"],
            2,
            "--policy: unknown policy 'srft' (did you mean srtf?), expected one of ",
        ),
        (
            ["-p", "srtf:hysterisis=1"],
            2,
            "option of srtf: found 'hysterisis', expected one of gpus, moves, service, weighted, check...",
        ),
        (["-p", "fifo", "-p", "fifo"], 2, "policy: found fifo twice"),
        (["-p", "fifo:variant=7"], 2, "option of fifo: variant: found 7"),
        (["--mode", "magic"], 2, '--mode: found "magic"'),
        (["-p", "srtf", "--mode", "gavel"], 2, "mode gavel takes a formulation; srtf is a ranking"),
        (["--noise", "x"], 2, "--noise: found 'x', expected a number"),
        (["--seeds", "0"], 2, "--seeds: found 0"),
        (["--rho", "none"], 2, "--rho: found 'none', expected one of isolated, contention, static"),
        (["--warm-up", "2"], 2, "--warm-up: found 2.0"),
        (["-o", "rows.txt"], 2, "found rows.txt"),
        (["--keep", "trace.json"], 2, "--keep: trace.json: File exists"),
        (["--truth", "nofile.json"], 3, "found no readable file at nofile.json..."),
        (["--page", "page.html"], 2, "--page needs --keep FOLDER"),
        (
            ["--page", "page.txt", "--keep", "runs"],
            2,
            "found page.txt, expected a name that ends in .html, .svg, .png or .pdf",
        ),
    ],
)
def test_wrong_words(run: Any, trace: str, words: list[str], code: int, message: str) -> None:
    assert run("simulate", trace, *words).refused(message, code)
    assert not Path("rows.jsonl").exists()


def test_another_truth_is_another_task(trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are known by what their files hold, not by their names."""
    from optsched.benchmarking.simulations import Simulations
    from optsched.traces import load_trace

    monkeypatch.setattr("optsched.benchmarking.simulations.load", lambda instance, model: instance)
    keys = set()
    for content in ("one", "two"):
        Path("truth.json").write_text(content)
        sweep = Simulations(
            load_trace(trace), trace, [{"ranking": "fcfs"}], models={"truth": "truth.json"}
        )
        keys.add(sweep.tasks()[0].key)
    assert len(keys) == 2


def test_standard_input_is_refused(run: Any, trace: str) -> None:
    assert run("simulate", "-", stdin=Path(trace).read_bytes()).refused(
        "it cannot be standard input"
    )


def test_a_broken_trace(run: Any, trace: str) -> None:
    Path("broken.json").write_text('{"format": "optsched-trace/1", "instance": {}}')
    assert run("simulate", "broken.json").refused("broken.json: instance.format: found nothing", 3)
