"""``optsched pareto``: tables that fit, files, pictures, exit codes, wrong words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import optsched

Write = Callable[..., Path]
WIDTHS = (60, 80, 100, 200)
TWO = ("-f", "makespan", "-f", "cost", "--points", "4")


@pytest.mark.parametrize(
    "pair",
    [
        ("max-min-fairness", "max-throughput"),
        ("makespan", "cost"),
        ("alpha-fairness:alpha=0", "max-throughput:integral=false"),
        ("proportional-fairness", "max-throughput"),
    ],
)
def test_every_front_fits(run: Any, pair: tuple[str, str]) -> None:
    for columns in WIDTHS:
        result = run(
            "pareto", "@quickstart", "-f", pair[0], "-f", pair[1], "--points", "4", columns=columns
        )
        assert (result.code, result.err) == (0, "")
        result.check_width(columns)


def test_the_whole_of_a_small_front(run: Any, small: dict[str, Any], write: Write) -> None:
    out = run(
        "pareto", write(small), "-f", "max-throughput", "-f", "cost", "--points", "4", columns=80
    ).out
    assert out.splitlines() == [
        "small: max-throughput against cost",
        "6 usable GPUs in 2 pools: fast 2, slow 4",
        "",
        "1st  max-throughput: total throughput, steps/s (more is better)",
        "2nd  cost: cost, USD/h (less is better)",
        "",
        "        status      1st   2nd   exchange   gap",
        "──────────────────────────────────────────────",
        "1       optimal       4   4.5              0 %",
        "2       optimal   2.875     3       0.75   0 %",
        "3       optimal    1.75   1.5       0.75   0 %",
        "4       optimal       0     0              0 %",
        "ideal                 4     0",
        "nadir                 0   4.5",
        "",
        "- exchange: what the next unit of improvement of the 2nd costs of the 1st, from",
        "  the duals",
        "- 7 runs of two sessions, changed in place",
    ]


def test_the_document_is_that_of_the_library(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "front.json"
    result = run("pareto", "@quickstart", *TWO, "-o", path)
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith(f"\nfront written to {path}\n")
    document = json.loads(path.read_text())
    assert document == optsched.pareto("@quickstart", ("makespan", "cost"), points=4).to_document()
    assert run("pareto", "@quickstart", *TWO, "--json").json == document
    assert run("pareto", "@quickstart", *TWO, "-o", "-").json == document
    assert run("pareto", "@quickstart", *TWO, "-q").out == ""


@pytest.mark.picture
@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_pictures(run: Any, tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"front.{suffix}"
    result = run("pareto", "@quickstart", *TWO, "--plot", path)
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith(f"\npicture written to {path}\n")
    first = path.read_bytes()
    assert run("pareto", "@quickstart", *TWO, "--plot", path, "-q").out == ""
    assert path.read_bytes() == first


def test_side_constraints_hold_for_all_points(run: Any) -> None:
    document = run("pareto", "@quickstart", *TWO, "-C", "deadlines", "--json").json
    assert [item["kind"] for item in document["constraints"]] == ["deadlines"]
    assert document["points"][-1]["objectives"][1] > 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "-f: found 0 objectives, expected two: -f NAME -f NAME"),
        (["-f", "makespan"], "-f: found 1 objectives"),
        (
            ["-f", "makespan", "-f", "makespan"],
            "objectives: found 2, expected two objectives that differ",
        ),
        (["-f", "makespan", "-f", "costs"], "formulation: found 'costs'"),
        (
            ["-f", "makespan:agnostic=maybe", "-f", "cost"],
            'option of makespan: agnostic: found "maybe"',
        ),
        (["-f", "makespan", "-f", "lease"], "formulation: found lease"),
        (
            ["-f", "max-throughput", "-f", "proportional-fairness"],
            "-f: found proportional-fairness",
        ),
        ([*TWO, "--points", "few"], "--points: found 'few', expected a whole number"),
        ([*TWO, "--points", "1"], "--points: found 1, expected a number from 2 to 10,000"),
        ([*TWO, "--plot", "front.txt"], "found front.txt"),
        ([*TWO, "-o", "no/such/file.json"], "no/such/file.json"),
        ([*TWO, "-C", "wish"], "constraint: found 'wish'"),
    ],
)
def test_wrong_words(run: Any, given: list[str], words: str) -> None:
    assert run("pareto", "@quickstart", *given).refused(words)


def test_exit_codes(run: Any, write: Write, small: dict[str, Any], tmp_path: Path) -> None:
    infeasible = run(
        "pareto", "@infeasible", "-f", "makespan", "-f", "cost", "--plot", tmp_path / "none.png"
    )
    assert infeasible.code == 4 and not (tmp_path / "none.png").exists()
    assert "- pool a100 has 4 usable GPUs" in infeasible.out
    assert run("pareto", write(b"{}"), *TWO).code == 3
    del small["cluster"]["pools"][0]["cost_per_gpu_hour"]
    assert run("pareto", write(small), *TWO).refused(
        "cluster.pools[0].cost_per_gpu_hour: found nothing", 3
    )
    assert run("pareto", "@quickstart", *TWO, "--solver", "gurobi9").code == 7


def test_a_certificate_that_fails_is_an_error(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from optsched import sensitivity

    front = optsched.pareto("@quickstart", ("makespan", "cost"), points=3)
    point = front.points[1]
    broken = replace(point.solution.certificate, ok=False, problems=("a row is violated",))
    bad = replace(point, solution=replace(point.solution, certificate=broken))
    monkeypatch.setattr(sensitivity, "pareto", lambda *_, **__: replace(front, points=(bad,)))
    result = run("pareto", "@quickstart", *TWO)
    assert (result.code, result.out) == (6, "")
    assert "a row is violated" in result.err
