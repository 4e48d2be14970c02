"""Rows as files, and best known objectives, against tables worked out by hand."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from refusals import refuses

from optsched.benchmarking import from_names, with_best_known
from optsched.benchmarking.best_known import BestKnown, best_of, problem_of, read_best
from optsched.benchmarking.sources import generated, seeds_of

# Private names: statistics, rows and their files are checked without a sweep
from optsched.benchmarking.table import LAST, ORDER, csv_text, read_rows, write_table
from optsched.errors import UsageError


def row(
    instance: str, solver: str, status: str, objective: float | None, **more: Any
) -> dict[str, Any]:
    given = {
        "instance": instance,
        "formulation": "f",
        "solver": solver,
        "status": status,
        "objective": objective,
    }
    return {**given, "sense": "max", "proof": "claimed", **more}


FORMULAS = ["=1+1", "+x", "-x", "@x", "\tx", "\rx", "'=x", "''-y"]


def test_no_cell_is_a_formula_and_all_are_read_back(tmp_path: Path) -> None:
    """Spreadsheets run what begins so; numbers stay numbers."""
    rows = [
        row(text, "-s", "feasible", -1.5, **{text: "+z"}, plain="-1.5", note="'x")
        for text in FORMULAS
    ]
    path = tmp_path / "rows.csv"
    write_table(rows, path)
    cells = [
        cell
        for line in csv.reader(io.StringIO(path.read_bytes().decode(), newline=""))
        for cell in line
    ]
    assert {cell for cell in cells if cell[:1] in tuple("=+-@\t\r")} == {"-1.5"}
    found, _ = read_rows(path)
    wanted = [{name: item.get(name) for name in found[0]} for item in rows]
    assert found == [{**item, "plain": -1.5} for item in wanted]


# --- best known ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "best"),
    [
        ([row("a", "s", "feasible", 3.0), row("a", "t", "feasible", 5.0)], (5.0, "found")),
        ([row("a", "s", "optimal", 3.0), row("a", "t", "feasible", 2.0)], (3.0, "claimed")),
        ([row("a", "s", "optimal", 3.0), row("a", "t", "feasible", 4.0)], (4.0, "found")),  # the claim was wrong
        ([row("a", "s", "optimal", 3.0, proof="dual"), row("a", "t", "optimal", 3.0 + 1e-9)], (3.0, "proven")),
        ([row("a", "s", "feasible", 3.0, sense="min"), row("a", "t", "feasible", 5.0, sense="min")], (3.0, "found")),
    ],
)  # fmt: skip
def test_the_best_of_a_sweep(rows: list[dict[str, Any]], best: tuple[float, str]) -> None:
    found = best_of(rows)[problem_of(rows[0])]
    assert (found.objective, found.source) == best


def test_gaps_to_the_best() -> None:
    rows = [row("a", "s", "feasible", 4.0), row("a", "t", "feasible", 5.0), row("a", "u", "limit", None),
            row("b", "s", "infeasible", None), row("c", "s", "feasible", 4.0, sense="min"),
            row("a", "v", "error", 4.9), row("d", "s", "optimal", 7.0, sense="rule"),
            row("a", "s", "feasible", 9.0, options='{"x":1}')]  # fmt: skip
    told = [
        (item["best_known"], item["gap_to_best"])
        for item in with_best_known(rows, {("c", "f"): BestKnown(5.0, "table")})
    ]
    assert told == [
        (5.0, pytest.approx(0.2)), (5.0, 0.0), (5.0, None), (None, None),
        (5.0, pytest.approx(-0.2)),  # better than the table says
        (5.0, None),  # its certificate failed
        (None, None), (9.0, 0.0),  # another option, another problem
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "best.csv: found an empty file, expected a first line with the columns..."),
        ("instance,formulation\na,b\n", "best.csv:1: found no column objective..."),
        (
            "instance,formulation,objective\na,b,nan\n",
            'best.csv:2:objective: found "nan", expected a number',
        ),
        (
            "instance,formulation,objective\n,b,1\n",
            "best.csv:2:instance: found nothing, expected a text",
        ),
        (
            "instance,formulation,objective\na,b,1\na,b,2\n",
            "best.csv:3: found a b again with another objective...",
        ),
    ],
)
def test_tables_of_best_that_are_wrong(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "best.csv").write_text(text)
    with refuses(words):
        read_best(tmp_path / "best.csv")


# --- files ---------------------------------------------------------------------------------------------------------

ROWS = [
    {"key": "ab", "instance": "1e5", "status": "optimal", "objective": 0.1 + 0.2, "n": 12, "solver_version": "1.10",
     "error": None, "x": -3},
    {"key": "cd", "instance": 'é, "b"', "status": "error", "objective": None, "n": None, "solver_version": None,
     "error": "line\nbreak", "x": 1e-300},
]  # fmt: skip


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_table_comes_back_as_it_was(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"table.{kind}"
    write_table(ROWS, path)
    rows, notices = read_rows(path)
    assert rows == ROWS and notices == []
    assert list(rows[0]) == [
        "instance",
        "n",
        "solver_version",
        "status",
        "objective",
        "error",
        "x",
        "key",
    ]


def test_the_columns_are_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "benchmarking.md").read_text()
    rows = text[
        text.index("| column | meaning |") : text.index("**Best known objectives**")
    ].splitlines()[2:]
    told = [name for line in rows if line for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert sorted(told) == sorted(
        {*ORDER, *LAST} - {"trace", "policy"}
    )  # which benchmarks have not


def test_csv_has_nothing_where_there_is_nothing() -> None:
    assert (
        csv_text([{"a": None, "b": 1.0}, {"b": [1, 2], "c": True}])
        == 'a,b,c\n,1.0,\n,"[1, 2]",true\n'
    )


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("r.csv", "a,b\n1\n", "r.csv:2: found 1 cells, expected 2, as in the first line"),
        ("r.csv", "a,a\n1,2\n", "r.csv:1: found a column twice"),
        ("r.csv", "a,b\n", "found no rows, expected the rows of a sweep"),
        ("r.csv", "", "found no rows"),
        ("r.json", '{"format": "optsched-solution/1"}', "r.json: found another document"),
        ("r.jsonl", '{"format": "optsched-results/1"}\n', "found no rows"),
        ("r.jsonl", "hello\n", r"line 1: found 'hello'"),
    ],
)
def test_results_that_cannot_be_read(name: str, text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with refuses(words):
        read_rows(tmp_path / name)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"objective": "x"}, r'row 2, objective: found "x", expected a number, or nothing'),
        ({"objective": True}, "r.json: row 2, objective: found true, expected a number..."),
        (
            {"objective": 10**400},
            "r.json: row 2, objective: found 10000000000..., expected a number between...",
        ),
        ({"total_s": -1.0}, "r.json: row 2, total_s: found -1.0, expected a time..."),
        ({"sense": "up"}, 'row 2, sense: found "up", expected max, min or rule'),
        ({"solver": ["highs"]}, 'r.json: row 2, solver: found ["highs"], expected text'),
        ({"status": None}, "r.json: row 2, status: found nothing, expected the outcome..."),
        ({"instance": None}, "row 2: found neither instance nor trace"),
    ],
)
def test_rows_that_no_sweep_writes(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    row = {
        "instance": "i",
        "solver": "highs",
        "status": "optimal",
        "objective": 1.0,
        "sense": "max",
        "total_s": 0.1,
    }
    (tmp_path / "r.json").write_text(
        json.dumps({"format": "optsched-results/1", "rows": [row, row | change]})
    )
    with refuses(words):
        read_rows(tmp_path / "r.json")


def test_of_json_lines_the_last_row_of_a_task_counts(tmp_path: Path) -> None:
    rows = [
        {"key": key, "x": x, "instance": "i", "status": "ok"}
        for key, x in (("a", 1), ("b", 2), ("a", 3))
    ]
    lines = ['{"format": "optsched-results/1"}', *map(json.dumps, rows)]
    (tmp_path / "r.jsonl").write_text("\n".join(lines) + '\n{"key": "c", "x"')
    rows, notices = read_rows(tmp_path / "r.jsonl")
    assert [item["x"] for item in rows] == [3, 2]
    assert notices == [f"{tmp_path / 'r.jsonl'}: an incomplete last line is left out"]


# --- sources -------------------------------------------------------------------------------------------------------


def test_sources(tmp_path: Path) -> None:
    for name in ("b.json", "a.mps", "c.yaml", "notes.md", "r.csv", ".d.lp"):
        (tmp_path / name).write_text(name)
    inside = [tmp_path / name for name in ("a.mps", "b.json", "c.yaml")]
    assert [(source.name, source.program) for source in from_names([str(tmp_path)])] == [
        (path.as_posix(), path.suffix == ".mps") for path in inside
    ]
    assert len(from_names([f"{tmp_path}/*.json", f"{tmp_path}/b.json"])) == 1  # each once
    before = from_names(["b.json"], tmp_path)[0].content
    (tmp_path / "b.json").write_text("changed")
    assert from_names(["b.json"], tmp_path)[0].content["sha256"] != before["sha256"]
    assert [source.content["options"] for source in generated("gap", {"jobs": 9}, 2)] == [
        {"jobs": 9, "seed": 1}, {"jobs": 9, "seed": 2},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "seeds"), [(3, [0, 1, 2]), ("4..6", [4, 5, 6]), ([7, 1], [7, 1])]
)
def test_seeds(given: Any, seeds: list[int]) -> None:
    assert seeds_of(given, 0, "seeds") == seeds


@pytest.mark.parametrize(
    "given", [0, True, "6..4", "many", [1, -1], [1.5], [], None, "0..999999999"]
)
def test_seeds_that_make_no_sense(given: Any) -> None:
    with refuses(f"seeds: found {given!r}", UsageError):
        seeds_of(given, 0, "seeds")


@pytest.mark.parametrize(
    ("kind", "options", "formulation"),
    [
        ("gap", {}, "gap"),
        ("gap", {"objective": "value"}, "multiple-choice"),
        ("knapsack", {}, "multiple-choice"),
        ("unrelated", {}, "makespan-unrelated"),
        ("leases", {}, "lease"),
        ("cluster", {}, "max-min-fairness"),
        ("gap", {"jobs": -1}, "max-min-fairness"),  # the row of its task says what is wrong
    ],
)
def test_a_generated_instance_has_the_formulation_of_its_generator(
    kind: str, options: dict[str, Any], formulation: str
) -> None:
    (source,) = generated(kind, options)
    assert source.formulation == formulation
