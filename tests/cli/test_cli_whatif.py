"""``optsched whatif``: tables that fit, documents, exit codes, wrong words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import optsched

Write = Callable[..., Path]
WIDTHS = (60, 100)
THREE = ("--add", "v100:4", "--add", "p100:4", "--add", "k80:-2")


@pytest.mark.parametrize(
    "formulation", ["max-min-fairness", "makespan", "max-throughput", "isolated"]
)
@pytest.mark.parametrize("more", [THREE, (*THREE, "--each")])
def test_every_answer_fits(run: Any, formulation: str, more: tuple[str, ...]) -> None:
    for columns in WIDTHS:
        result = run("whatif", "@quickstart", "-f", formulation, *more, columns=columns)
        assert (result.code, result.complaints) == (0, "")
        result.check_width(columns)


@pytest.mark.parametrize("more", [(), ("--each",)])
def test_every_answer_of_a_plan_fits(
    run: Any, small: dict[str, Any], write: Write, more: tuple[str, ...]
) -> None:
    for columns in WIDTHS:
        result = run(
            "whatif",
            write(small),
            "-f",
            "lease",
            "--add",
            "fast:2",
            "--add",
            "slow:-1",
            *more,
            columns=columns,
        )
        assert (result.code, result.complaints) == (0, "")
        result.check_width(columns)


def test_the_whole_of_a_small_answer(run: Any, small: dict[str, Any], write: Write) -> None:
    out = run("whatif", write(small), "-f", "max-throughput", "--add", "fast:1", columns=80).out
    assert out.splitlines() == [
        "small: max-throughput",
        "4 jobs, 2 classes, 4 columns",
        "6 usable GPUs in 2 pools: fast 2, slow 4",
        "",
        "total throughput, steps/s (more is better)",
        "",
        "          status    objective   change   held   by prices",
        "─────────────────────────────────────────────────────────",
        "now       optimal           4",
        "fast +1   optimal           5       +1     +1          +1",
        "",
        "resource   now   then   price now   price then",
        "──────────────────────────────────────────────",
        "fast         2      3           1            0",
        "slow         4      4           0            0",
        "prices: rise of the total throughput (steps/s) for one more, at the margin",
        "",
        "- change: of the objective, with the other cluster recompiled as a whole",
        "- held: with all coefficients and normalisers held (1 run of one session,",
        "  changed in place)",
        "- by prices: price x amount; no held change is better than that",
    ]


def test_jobs_that_enter_and_leave_are_told(run: Any, small: dict[str, Any], write: Write) -> None:
    path = write(small)
    grown = run("whatif", path, "-f", "max-throughput", "--add", "fast:7").out
    assert "- fast +7: wide can run then, and the objective sees it" in grown
    shrunk = run("whatif", path, "-f", "max-throughput", "--add", "fast:-2", "--add", "slow:-3").out
    assert "- fast -2, slow -3: b can run no longer, and the objective does not see it" in shrunk


def test_a_change_for_the_worse_is_explained(run: Any, write: Write) -> None:
    # Two jobs that already run on fast GPUs are measured by the mean over GPUs, which rises
    pools = [{"name": name, "nodes": 2, "gpus_per_node": 1} for name in ("fast", "slow")]
    jobs = [{"id": name, "throughput": {"fast": 4.0, "slow": 1.0}} for name in ("a", "b")]
    document = {"format": "optsched-instance/1", "cluster": {"pools": pools}, "jobs": jobs}
    worse = run("whatif", write(document), "--add", "fast:4").out
    assert "-0.3692" in worse and "yet a worse objective" in worse
    assert "yet a worse" not in run("whatif", "@quickstart", "--add", "v100:4").out


def test_the_document_is_that_of_the_library(run: Any) -> None:
    told = run("whatif", "@quickstart", "-f", "makespan", *THREE, "--each", "--json")
    assert told.code == 0
    amounts = {"v100": 4.0, "p100": 4.0, "k80": -2.0}
    assert (
        told.json
        == optsched.whatif("@quickstart", "makespan", add=amounts, each=True).to_document()
    )
    assert run("whatif", "@quickstart", *THREE, "-q").out == ""


def test_constraints_and_options_reach_the_program(run: Any) -> None:
    given = (
        "-f",
        "max-throughput",
        "-O",
        "integral=true",
        "-C",
        "deadlines",
        "--add",
        "v100:4",
        "--json",
    )
    document = run("whatif", "@quickstart", *given).json
    assert document["options"]["integral"] is True
    assert [item["kind"] for item in document["constraints"]] == ["deadlines"]
    assert document["changes"][0]["predicted"] is None and document["changes"][0]["difference"] > 0


def test_ranges(run: Any) -> None:
    for formulation in ("makespan", "max-throughput", "max-min-fairness"):
        for columns in WIDTHS:
            result = run("whatif", "@quickstart", "-f", formulation, "--ranging", columns=columns)
            assert (result.code, result.complaints) == (0, "")
            result.check_width(columns)
    out = run("whatif", "@quickstart", "-f", "max-throughput", "--ranging").out
    rows = [line.split() for line in out.splitlines() if line.startswith(("v100", "p100", "k80"))]
    assert [row[0] for row in rows] == ["v100", "p100", "k80"]
    expected = [
        (8, 15.52, 8, 9, 17.57, 15.49),
        (4, 2.531, 4, 6, 4.029, 2.386),
        (4, 0.3992, 3, 7, 0.664, 0.2677),
    ]
    for row, numbers in zip(rows, expected, strict=True):
        assert [float(text) for text in row[1:]] == pytest.approx(numbers, rel=1e-3)
    document = run("whatif", "@quickstart", "-f", "max-throughput", "--ranging", "--json").json
    assert document["format"] == "optsched-ranging/1"
    ranges = optsched.capacity_ranging(optsched.solve("@quickstart", "max-throughput"))
    assert [item["price"] for item in document["ranges"]] == [
        item.price for item in ranges.values()
    ]


def test_a_curve(run: Any) -> None:
    for columns in WIDTHS:
        result = run("whatif", "@quickstart", "-f", "makespan", "--curve", "k80", columns=columns)
        result.check_width(columns)
    document = run(
        "whatif", "@quickstart", "-f", "max-throughput", "--curve", "v100", "--json"
    ).json
    assert document["format"] == "optsched-curve/1" and document["finished"]
    assert document["capacity"][:3] == pytest.approx([0, 1, 2])
    assert run("whatif", "@quickstart", "-f", "makespan", "--curve", "v10").code == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "expected one of --add NAME:AMOUNT (once or more), --ranging, --curve RESOURCE"),
        (["--add", "v100:1", "--ranging"], "expected one of --add"),
        (["--each", "--ranging"], "--each needs --add"),
        (["--add", "v100"], "--add: found 'v100', expected name:amount, such as v100:8 or k80:-4"),
        (["--add", "v100:many"], "--add v100: found 'many', expected a number"),
        (["--add", "v100:1", "--add", "v100:2"], "--add: found v100 twice"),
        (
            ["--add", "v10:1"],
            "--add: found 'v10', expected one of v100, p100, k80",
        ),
        (
            ["--add", "k80:-9"],
            "add k80: found -9, expected at least -4, as there are 4 usable GPUs",
        ),
        (["--add", "v100:1", "-f", "makespam"], "formulation: found 'makespam'"),
        (["--ranging", "-f", "isolated"], "formulation: found isolated"),
    ],
)
def test_wrong_words(run: Any, given: list[str], words: str) -> None:
    assert run("whatif", "@quickstart", *given).refused(words)


def test_exit_codes(run: Any, write: Write) -> None:
    assert run("whatif", "@infeasible", "-f", "makespan", "--add", "a100:8").code == 0
    assert run("whatif", "@infeasible", "-f", "makespan", "--add", "v100:1").code == 4
    each = ("--add", "v100:1", "--add", "a100:8", "--each")
    assert run("whatif", "@infeasible", "-f", "makespan", *each).code == 0
    assert run("whatif", "@infeasible", "-f", "makespan", "--ranging").code == 4
    assert run("whatif", write(b"{}"), "--add", "v100:1").code == 3
    assert run("whatif", "@quickstart", "--add", "v100:1", "--solver", "gurobi9").code == 7
    assert run("whatif").code == 2


def test_a_certificate_that_fails_is_an_error(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from optsched import sensitivity

    found = optsched.whatif("@quickstart", "makespan", add={"v100": 1})
    bad = replace(
        found.base,
        certificate=replace(found.base.certificate, ok=False, problems=("a row is violated",)),
    )
    monkeypatch.setattr(sensitivity, "whatif", lambda *_, **__: replace(found, base=bad))
    result = run("whatif", "@quickstart", "--add", "v100:1")
    assert (result.code, result.out) == (6, "")
    assert "a row is violated" in result.err


def test_an_infeasible_instance_says_what_conflicts(run: Any) -> None:
    out = run("whatif", "@infeasible", "-f", "makespan", "--add", "a100:8").out
    assert "- now: at a constant rate from now on, these requirements cannot all hold" in " ".join(
        out.split()
    )


def test_tasks_at_a_time_are_those_of_each(run: Any) -> None:
    result = run("whatif", "@quickstart", "--add", "v100:4", "--jobs", "2")
    assert result.code == 2
    assert "--jobs and --executor need --each: all else is one task" in result.complaints


def test_make_room_refuses_a_formulation(run: Any) -> None:
    result = run("whatif", "@quickstart", "--make-room", "job-1", "-f", "makespan")
    assert result.code == 2
    assert result.err.startswith("optsched: error: --make-room solves no formulation: leave out -f")
