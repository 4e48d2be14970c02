"""``optsched profile``: tables that fit, pages and pictures, wrong words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

HEAD = "instance,formulation,solver,status,objective,sense,proof,total_s,jct\n"
CSV = HEAD + "".join(
    f"i{k},f,{solver},{'limit' if (k, solver) == (5, 'b') else 'optimal'},{k},max,dual,"
    f"{seconds * (k + 1)},{k * seconds}\n"
    for k in range(6)
    for solver, seconds in (("a", 0.5), ("b", 0.25))
)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("results.csv").write_text(CSV)
    return Path("results.csv")


def test_the_tables(run: Any, results: Path) -> None:
    result = run("profile", results)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == "12 rows: 6 problems, 2 methods by solver"
    cells = [line.split() for line in lines]
    assert ["a", "6", "0", "0"] in cells and [
        "b",
        "5",
        "1",
        "0",
    ] in cells  # optimal, limit, not run
    assert next(line for line in cells if line[:1] == ["a"] and "%" in line)[:5] == [
        "a",
        "16.7",
        "%",
        "16.7",
        "%",
    ]
    pair = next(line for line in cells if line[:3] == ["a", "b", "5"])
    assert pair[3:8] == ["2", "2", "2", "0", "5"]  # ratio and its interval, faster, slower


@pytest.mark.property
def test_every_width(run: Any, results: Path) -> None:
    for columns in (60, 80, 100, 200):
        told = run("profile", results, columns=columns).out.splitlines()
        assert max(map(len, told)) <= columns and not any(line != line.rstrip() for line in told)


def test_the_document(run: Any, results: Path) -> None:
    told = run("profile", results, "--json", "--metric", "jct", "--interval", "t").json
    assert told["by"] == ["solver"]
    assert told["outcomes"] == [
        {"solver": "a", "optimal": 6, "limit": 0, "not run": 0},
        {"solver": "b", "optimal": 5, "limit": 1, "not run": 0},
    ]  # fmt: skip
    assert told["time_pairs"][0]["both"] == 5 and told["time_pairs"][0]["ratio"] == pytest.approx(
        2.0
    )
    assert [line["mean"] for line in told["jct"]] == [
        1.25,
        0.5,
    ]  # a task that hit its limit has none
    assert run("profile", results, "--json", "--by", "formulation").json["by"] == ["formulation"]


@pytest.mark.picture
def test_pages_and_pictures(run: Any, results: Path) -> None:
    result = run("profile", results, "-o", "page.html")
    assert result.out.endswith("\n\npage written to page.html\n")
    assert Path("page.html").read_text().startswith("<!DOCTYPE html>")
    assert run("profile", results, "-o", "profile.svg", "-q").out == ""
    assert "<svg" in Path("profile.svg").read_text()
    assert run("profile", results, "--picture", "gap", "-o", "gaps.png").out.endswith(
        "picture written to gaps.png\n"
    )
    assert Path("gaps.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.process
def test_rows_of_a_bench(run: Any, tmp_path: Path) -> None:
    lines = tmp_path / "r.jsonl"
    assert (
        run(
            "bench",
            "@quickstart",
            "-f",
            "makespan",
            "--solver",
            "highs",
            "--solver",
            "clarabel",
            "-o",
            lines,
        ).code
        == 0
    )
    told = run("profile", lines, "--json").json
    assert [line["settled"] for line in told["times"]] == [1, 1]
    assert [line["at best"] for line in told["gaps"]] == [1, 1]
    assert set(told) == {"by", "outcomes", "times", "time_pairs", "gaps"}
    with lines.open("a") as file:
        file.write('{"key": "torn')
    assert run("profile", lines).err == f"optsched: {lines}: an incomplete last line is left out\n"


WRONG = [
    (["nothing.csv"], 3, "found no readable file at nothing.csv..."),
    (["results.txt"], 2, "found results.txt"),
    (
        ["results.csv", "-o", "page.htm"],
        2,
        "found page.htm, expected a name that ends in .html, .svg, .png or .pdf",
    ),
    (["results.csv", "-o", "no/page.html"], 2, "no/page.html"),
    (
        ["results.csv", "--by", "colour"],
        2,
        "by: found 'colour'",
    ),
    (["results.csv", "--metric", "colour"], 2, "--metric: no row has a column 'colour'"),
    (["results.csv", "--metric", "objectiv"], 2, "; did you mean objective?"),
    (["jobs.csv"], 3, "jobs.csv: found another table, expected the results of a sweep..."),
    (["results.csv", "--picture", "cake"], 2, "--picture: found 'cake', expected time or gap"),
    (["results.csv", "--interval", "z"], 2, "--interval: found 'z', expected one of bootstrap, t"),
    (
        ["one.csv", "-o", "p.svg"],
        2,
        "there is no profile of times to draw: it needs two methods and a task that was",
    ),
    (["empty.csv"], 3, "empty.csv: found no rows, expected the rows of a sweep"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "words"), WRONG, ids=[" ".join(item[0]) for item in WRONG]
)
def test_wrong_words(run: Any, results: Path, arguments: list[str], code: int, words: str) -> None:
    Path("results.txt").write_text(CSV)
    Path("empty.csv").write_text("")
    Path("jobs.csv").write_text("id,workload\na,net\n")
    Path("one.csv").write_text(HEAD + "i,f,a,optimal,1,max,dual,1,1\n")
    assert run("profile", *arguments).refused(words, code)
