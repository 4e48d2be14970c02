"""``optsched compare`` and ``optsched explain --job``: tables that fit, exit codes, documents, wrong words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import optsched

Write = Callable[..., Path]
WIDTHS = (60, 80, 100, 200)
THREE = ("-f", "makespan", "-f", "max-min-fairness", "-f", "isolated")


# --- compare ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["@quickstart", "@infeasible", "@packing"])
@pytest.mark.property
def test_every_comparison_fits(run: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from optsched.study import comparison

    known = comparison.compare(name, work_limit=10)
    monkeypatch.setattr(comparison, "compare", lambda *_, **__: known)
    for columns in WIDTHS:
        result = run("compare", name, columns=columns)
        assert result.code in (0, 2, 4), result.err  # that of the first, which may refuse
        result.check_width(columns)
    at_80 = run("compare", name, columns=80).out
    for row in known.rows:
        assert any(
            line.split()[:1] == [row.formulation] for line in at_80.splitlines()
        )  # no name is broken


def test_the_whole_of_a_small_comparison(run: Any, small: dict[str, Any], write: Write) -> None:
    small["jobs"][0]["deadline"] = 3600
    out = run("compare", write(small), "-f", "max-throughput", "-f", "isolated", "-f", "lease").out
    shown = out.splitlines()
    assert shown[:5] == [
        "small: 4 jobs, 3 formulations",
        "6 usable GPUs in 2 pools: fast 2, slow 4",
        "",
        "formulation      status          objective   gap     proof   min share   mean share   fairness     GPUs"
        "   USD/h   makespan   deadlines   idle   solved in",
        "─" * len(shown[3]),
    ]
    rows = [
        " ".join(line.split()[:-2]) for line in shown[5:8]
    ]  # the last two are the time that it took
    assert rows == [
        "max-throughput optimal 4 steps/s 0 % dual 50.0 % 75.0 % 0.900 50.0 % 4.50 60 min 1 of 1",
        "isolated optimal 2.66667 steps/s rule 44.4 % 55.6 % 0.962 50.0 % 3.00 90 min 1 of 1",
        "lease optimal 1 0 % claimed 0 % 50.0 % 0.500 16.7 % 2.00 never 1 of 1 1",
    ]
    assert "Jobs that are in no program: max-throughput 2, isolated 2, lease 3." in out


def test_the_document(run: Any) -> None:
    told = run("compare", "@quickstart", *THREE, "--json")
    assert told.code == 0
    python = optsched.compare(
        "@quickstart", ["makespan", "max-min-fairness", "isolated"]
    ).to_document()
    for document in (told.json, python):
        for row in document["rows"]:
            del row["seconds"]
    assert told.json != {} and python["rows"] == _without_seconds(told.json)["rows"]


def _without_seconds(document: dict[str, Any]) -> dict[str, Any]:
    for row in document["rows"]:
        row.pop("seconds", None)
    return document


def test_a_file_is_written_beside_the_tables(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "comparison.json"
    result = run("compare", "@quickstart", *THREE, "-o", path)
    assert (result.code, result.complaints) == (0, "")
    assert result.out.endswith(f"\ncomparison written to {path}\n")
    document = json.loads(path.read_text())
    assert document["format"] == "optsched-comparison/1"
    assert (
        run("compare", "@quickstart", *THREE, "-o", "-").json["format"] == "optsched-comparison/1"
    )
    assert run("compare", "@quickstart", *THREE, "-q").out == ""
    before = path.read_bytes()
    assert run("compare", "@quickstart", "-f", "makespam", "-o", path).code == 2
    assert path.read_bytes() == before
    assert run("compare", "@quickstart", "-o", tmp_path / "none" / "file").code == 2


def test_options_by_formulation(run: Any) -> None:
    given = ("-f", "alpha-fairness:alpha=4", "-f", "alpha-fairness", "-f", "max-throughput")
    options = ("-O", "alpha-fairness:normalise=none", "-O", "max-throughput:integral=true")
    rows = run("compare", "@quickstart", *given, *options, "--json").json["rows"]
    assert [row["options"] for row in rows] == [
        {"normalise": "none", "alpha": 4}, {"normalise": "none"}, {"integral": True}]  # fmt: skip
    assert rows[2]["certificate"]["proof"] == "claimed"
    out = run("compare", "@quickstart", *given, *options).out
    assert "alpha-fairness:normalise=none,alpha=4" in out


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["-f", "makespam"], "formulation: found 'makespam'"),
        (["-f", "makespan", "-f", "makespan"], "formulation: found makespan with the same options twice"),
        (["-f", "makespan:agnostic=maybe"], 'option of makespan: agnostic: found "maybe"'),
        (["-f", "makespan:=3"], "-f makespan: found '=3', expected key=value"),
        (["-f", "agnostic=true"], "-f: found 'agnostic=true', expected name or name:key=value,key=value"),
        (["-O", "integral=true"], "-O: found 'integral=true', expected name or name:key=value,key=value"),
        (["-O", "makespan"], "-O: found 'makespan', expected name:key=value"),
        (["-f", "isolated", "-O", "makespan:agnostic=true"],
         "-O makespan: makespan is not compared, expected one of isolated"),
        (["-O", "max-throughput:integral=true", "-O", "max-throughput:integral=false"],
         "-O max-throughput: found integral twice"),
        (["-C", "wish"], "constraint: found 'wish'"),
        (["--time-limit", "soon"], "--time-limit: found 'soon'"),
    ],
)  # fmt: skip
def test_wrong_words(run: Any, given: list[str], words: str) -> None:
    assert run("compare", "@quickstart", *given).refused(words)


def test_exit_codes(run: Any, hard: Path, write: Write) -> None:
    assert run("compare", "@infeasible", "-f", "makespan", "-f", "isolated").code == 4
    assert run("compare", "@infeasible", "-f", "isolated", "-f", "makespan").code == 2
    assert (
        run("compare", "@quickstart", "-f", "makespan", "-f", "isolated", "-C", "deadlines").code
        == 0
    )
    assert run("compare", "@quickstart", "-f", "makespan", "--solver", "gurobi9").code == 7
    assert run("compare", write(b"{}"), "-f", "makespan").code == 3
    assert run("compare").code == 2


@pytest.mark.clock
def test_limits_are_those_of_each_formulation(run: Any, hard: Path) -> None:
    given = ("-f", "max-throughput", "-f", "max-throughput:integral=true", "--time-limit", "1s")
    rows = run("compare", hard, *given, "--json").json["rows"]
    assert [row["status"] for row in rows] == ["optimal", "feasible"]
    assert rows[1]["termination"] == "time_limit" and rows[1]["reproducible"] is False
    assert rows[1]["measures"]["jobs"] == 120


def test_refusals_and_conflicts_are_told_once(run: Any) -> None:
    out = run(
        "compare", "@infeasible", "-f", "makespan", "-f", "max-throughput", "-f", "isolated"
    ).out
    assert (
        "- makespan, max-throughput: at a constant rate from now on, these requirements cannot all hold"
        in out
    )
    assert "- isolated: isolated is a rule: it takes no side constraints and no extra rows" in out
    assert "min share" not in out


# --- explain --job ---------------------------------------------------------------------------------------------------

JOB = ("@quickstart", "--job", "resnet-50-1")


@pytest.mark.property
@pytest.mark.parametrize(
    "formulation", ["max-min-fairness", "max-throughput", "isolated", "lease", "makespan-unrelated"]
)
def test_every_explanation_of_a_job_fits(run: Any, formulation: str) -> None:
    for columns in WIDTHS:
        result = run("explain", *JOB, "-f", formulation, columns=columns)
        assert (result.code, result.complaints) == (0, "")
        result.check_width(columns)
    assert result.out.startswith(f"quickstart: {formulation}: job resnet-50-1\n")


def test_the_whole_of_a_small_explanation(run: Any, small: dict[str, Any], write: Write) -> None:
    out = run("explain", write(small), "-f", "max-throughput", "--job", "a", columns=80).out
    assert out.splitlines() == [
        "small: max-throughput: job a",
        "",
        "status     optimal",
        "objective  4 steps/s  total throughput",
        "job        3,600 steps left",
        "gets       1 steps/s: at this rate it ends in 60 min",
        "",
        "What it uses and pays",
        "resource   holds   price of one   pays",
        "──────────────────────────────────────",
        "slow           1              0      0",
        "prices: rise of the total throughput (steps/s) for one more, at the margin",
        "",
        "Binding rows",
        "- a runs all the time: as much time again would be worth 1",
        "- fast is full (2): one more is worth 1",
        "",
        "Configurations",
        "column          steps/s    time   reduced cost   needs steps/s",
        "──────────────────────────────────────────────────────────────",
        "1 GPU of slow         1   100 %              0",
        "1 GPU of fast         2                      0",
        "reduced cost: change of the objective if the job spent all its time there; 0",
        "where that costs nothing",
        "",
        "Best alternative: 1 GPU of fast, which is as good as what it has.",
    ]


def test_the_document_of_a_job(run: Any) -> None:
    told = run("explain", *JOB, "-f", "max-throughput", "--json").json
    assert set(told) == {
        "format", "instance", "formulation", "status", "sense", "objective", "job", "like", "unplaced", "gets",
        "throughput", "pays", "paid", "binding", "columns", "best_alternative", "dropped", "no_prices", "conflicts",
        "why_nothing",
    }  # fmt: skip
    assert told["format"] == "optsched-job-explanation/1"
    assert set(told["columns"][0]) >= {
        "pool", "gpus", "nodes", "rate", "fraction", "gain", "worth_taking_at_prices",
        "worth_taking_from_rate"}  # fmt: skip
    python = optsched.explain_job(optsched.solve("@quickstart", "max-throughput"), "resnet-50-1")
    assert told == json.loads(json.dumps(python.to_document()))
    best = told["columns"][told["best_alternative"]]
    assert best["fraction"] == 0 and best["gain"] == max(
        c["gain"] for c in told["columns"] if c["fraction"] == 0
    )


def test_the_best_alternative_in_words(run: Any) -> None:
    out = run("explain", "@quickstart", "-f", "makespan", "--job", "gpt-2-small-6").out
    assert (
        "Best alternative: 4 GPUs of p100, not worth taking unless the price of p100 fell below 684.7, or it"
        in out
    )
    told = run("explain", "@quickstart", "-f", "makespan", "--job", "gpt-2-small-6", "--json").json
    best = told["columns"][told["best_alternative"]]
    assert best["worth_taking_at_prices"]["p100"] == pytest.approx(684.65, abs=0.1)


def test_no_such_job(run: Any) -> None:
    result = run("explain", "@quickstart", "--job", "resnet-5O-1")
    assert (result.code, result.out) == (2, "")
    assert (
        result.err
        == 'optsched: error: quickstart has no job "resnet-5O-1"; did you mean resnet-50-1?\n'
    )


def test_jobs_that_are_not_placed_or_not_optimal(
    run: Any, small: dict[str, Any], write: Write
) -> None:
    path = write(small)
    out = run("explain", path, "--job", "wide").out
    assert "It is not placed: can run nowhere: fast: needs 9 GPUs, but only 2 are usable" in out
    assert "It is not placed: no step left to do.\n" in run("explain", path, "--job", "done").out
    out = run("explain", "@infeasible", "--job", "gpt-2-xl-3")
    assert out.code == 4
    assert "At a constant rate from now on, these requirements cannot all hold:" in out.out
    whole = run(
        "explain",
        "@quickstart",
        "-f",
        "max-throughput",
        "-O",
        "integral=true",
        "--job",
        "vit-b16-12",
    ).out
    assert "gets       nothing: there is no room for it beside the other jobs" in whole
    assert "0 of v100, needs 1" in whole
    assert "An integer program or a rule has no prices.\n" in whole


def test_names_of_jobs_cannot_write_on_the_terminal(
    run: Any, small: dict[str, Any], write: Write
) -> None:
    small["jobs"][0]["id"] = "\x1b]0;title\x07a"
    out = run("explain", write(small), "--job", "\x1b]0;title\x07a").out
    assert "\\x1b]0;title\\x07a" in out
    assert all(char.isprintable() or char == "\n" for char in out)
