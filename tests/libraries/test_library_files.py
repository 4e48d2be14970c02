"""Files of benchmark libraries: tiny ones of each layout, as instances with known optima, and wrong ones."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from refusals import refuses

import optsched
from optsched.benchmarking import Benchmark, from_names
from optsched.cli.main import main
from optsched.libraries import (
    file_and_problem,
    formulation_of_file,
    may_be_library_file,
    problems_in,
    read_problem,
)

# Two agents, three jobs. By trying all: jobs 0 and 2 at agent 1, job 1 at agent 0.
GAP = """ 2 3
 4 1 9
 2 7 3
 5 6 4
 3 4 4
 6 8
"""
# Without the time of day: what is packed is part of the names of tests
PACKED = gzip.compress(GAP.encode(), mtime=0)
# The second one has two resources
MKP = """2
3 1 0
10 6 5
4 3 2
5
2 2 15
9 15
1 2
3 3
5 3
"""
# 9 needs a bin of its own; 5 + 5, and 4 + 4
PACKING = """2
 first
 10 5 3
5
4
9
5
4
 second
 3.5 1 1
3.5
"""
RCMAX = """4 2 1
7 seed
0 6 1 3
0 4 1 8
0 5 1 5
0 9 1 2
"""
RCPSP = """************************************************************************
file with basedata            : none
************************************************************************
projects                      :  1
jobs (incl. supersource/sink ):  5
horizon                       :  20
RESOURCES
  - renewable                 :  1   R
  - nonrenewable              :  1   N
  - doubly constrained        :  0   D
************************************************************************
PRECEDENCE RELATIONS:
jobnr.    #modes  #successors   successors
   1        1          2           2   3
   2        2          1           4
   3        1          1           5
   4        1          1           5
   5        1          0
************************************************************************
REQUESTS/DURATIONS:
jobnr. mode duration  R 1  N 1
------------------------------------------------------------------------
  1      1     0       0    0
  2      1     2       2    5
         2     4       1    0
  3      1     3       1    2
  4      1     1       2    0
  5      1     0       0    0
************************************************************************
RESOURCEAVAILABILITIES:
  R 1  N 1
    2    6
************************************************************************
"""
FILES = {
    "gap": GAP,
    "mkp.txt": MKP,
    "packing.txt": PACKING,
    "rcmax.txt": RCMAX,
    "project.mm": RCPSP,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def written(folder: Path, text: str | bytes, name: str = "file.txt") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("source", "formulation", "objective"),
    [
        ("gap", "gap", 6.0),  # 1 + 2 + 3
        ("mkp.txt#1", "multiple-choice", 11.0),
        ("mkp.txt#2", "multiple-choice", 15.0),
        ("packing.txt#1", "vector-bin-packing", 3.0),
        ("packing.txt#2", "vector-bin-packing", 1.0),
        ("rcmax.txt", "makespan-unrelated", 9.0),
        # In mode 1, job 2 uses 5 of 6, which leaves too little for job 3; so it takes 4 s, then job 4
        ("project.mm", "makespan-unrelated", 5.0),
    ],
)
def test_a_file_is_solved_with_its_formulation(
    folder: Path, source: str, formulation: str, objective: float
) -> None:
    solution = optsched.solve(folder / source)
    assert (solution.formulation, solution.objective) == (formulation, objective)
    assert solution.status == "optimal" and solution.certificate.ok
    assert optsched.verify(str(folder / source), solution.to_document()).ok
    assert solution.instance.name == source.removesuffix(".txt").removesuffix(".mm").replace(
        ".txt", ""
    )


def test_what_a_project_says(folder: Path) -> None:
    document = optsched.load(folder / "project.mm").to_document()
    assert document["cluster"]["resources"] == [
        {"name": "R1", "kind": "renewable", "capacity": 2.0},
        {"name": "N1", "kind": "consumable", "capacity": 6.0},
    ]
    jobs = {job["id"]: job for job in document["jobs"]}
    assert list(jobs) == ["a2", "a3", "a4"] and jobs["a4"]["after"] == ["a2"]
    assert [(option["duration"], option["uses"]) for option in jobs["a2"]["options"]] == [
        (2.0, {"R1": 2.0, "N1": 5.0}),
        (4.0, {"R1": 1.0}),
    ]


def test_on_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", str(folder / "gap"), "--json", "-o", str(folder / "gap.json")]) == 0
    assert '"formulation": "gap"' in capsys.readouterr().out
    assert main(["verify", str(folder / "gap"), str(folder / "gap.json")]) == 0
    assert main(["validate", str(folder / "mkp.txt#2")]) == 0
    assert main(["export", str(folder / "rcmax.txt"), "-o", str(folder / "rcmax.json")]) == 0
    solution = optsched.solve(folder / "rcmax.json", "makespan-unrelated")
    assert solution.objective == 9.0


def piped(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.mark.parametrize(
    ("data", "formulation", "objective"),
    [
        (GAP.encode(), "gap", 6.0),
        (PACKED, "gap", 6.0),
        (RCMAX.encode(), "makespan-unrelated", 9.0),
        (RCPSP.encode(), "makespan-unrelated", 5.0),
    ],
)
def test_standard_input_is_solved_with_its_formulation(
    data: bytes, formulation: str, objective: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped(monkeypatch, data)
    solution = optsched.solve("-")
    assert (solution.formulation, solution.objective) == (formulation, objective)
    piped(monkeypatch, data)
    assert optsched.load("-").sha256 == solution.instance.sha256
    piped(monkeypatch, data)
    assert main(["solve", "-"]) == 0


def test_wrong_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    piped(monkeypatch, GAP.replace(" 6 8", " 6").encode())
    with refuses("line 6: found the end of the file after 1, expected 2 numbers of ..."):
        optsched.load("-")
    piped(monkeypatch, MKP.encode())
    with refuses("found 2 problems, expected one; files may be read as FILE#2"):
        optsched.load("-")
    piped(monkeypatch, b"some words")
    with refuses(
        "found text that is not JSON (expected value at line 1 column 1), expected a JSON document"
    ):
        optsched.load("-")


@pytest.mark.process
def test_all_problems_of_files_are_benchmarked(folder: Path) -> None:
    written(folder, "Where these files come from\n", "README")
    sources = from_names([str(folder)])
    assert [source.name.rpartition("/")[2] for source in sources] == [
        "gap",
        "mkp.txt#1",
        "mkp.txt#2",
        "packing.txt#1",
        "packing.txt#2",
        "project.mm",
        "rcmax.txt",
    ]
    rows = Benchmark(sources).run(processes=1).rows
    assert [row["objective"] for row in rows] == [6.0, 11.0, 15.0, 3.0, 1.0, 5.0, 9.0]
    assert [row["formulation"] for row in rows][:2] == ["gap", "multiple-choice"]
    (task,) = Benchmark(from_names([str(folder / "mkp.txt#2")]), [("multiple-choice", {})]).tasks()
    assert task.labels["instance"].endswith("mkp.txt#2")


@pytest.mark.process
def test_best_known_values_of_files_and_tables(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = written(
        folder,
        "instance,formulation,objective,source\nmkp.txt#2,multiple-choice,16,A list of 2026\n",
        "best.csv",
    )
    given = [str(folder / name) for name in ("mkp.txt", "packing.txt#1", "gap")]
    assert main(["bench", *given, "--best", str(table), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["best_known"], row["best_known_from"]) for row in rows] == [
        (11.0, "claimed"),  # 0 in the file: not known
        (16.0, "A list of 2026"),
        (3.0, "file"),
        (6.0, "claimed"),
    ]
    assert rows[1]["gap_to_best"] == pytest.approx(1 / 16)
    assert main(["bench", given[1], "-f", "vector-bin-packing:program=assignment", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["best_known_from"] != "file"  # another option may be another problem


def test_a_wrong_file_is_a_row_of_a_benchmark(tmp_path: Path) -> None:
    (row,) = Benchmark(from_names([str(written(tmp_path, GAP + "7"))])).run(processes=1).rows
    assert row["status"] == "error" and "line 7" in row["error"] and row["exit_code"] == 3


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", ["gzip", "windows", "mark"])
def test_other_ways_to_write_the_same(name: str, change: str, tmp_path: Path) -> None:
    plain = FILES[name].encode()
    changed = {
        "gzip": gzip.compress(plain),
        "windows": plain.replace(b"\n", b"\r\n"),
        "mark": b"\xef\xbb\xbf" + plain,
    }[change]
    path = written(tmp_path, changed, name + (".gz" if change == "gzip" else ""))
    same = written(tmp_path, plain, "same")
    for one, other in zip(problems_in(path), problems_in(same), strict=True):
        found, wanted = (read_problem(each.source).instance.to_document() for each in (one, other))
        assert found["jobs"] == wanted["jobs"] and found["cluster"] == wanted["cluster"]


def test_several_assignments_and_one_knapsack(tmp_path: Path) -> None:
    several = written(tmp_path, f"2\n{GAP}{GAP.replace(' 4 1 9', ' 4 2 9')}", "several")
    assert [(each.formulation, each.best_known) for each in problems_in(several)] == [
        ("gap", None)
    ] * 2
    assert optsched.solve(f"{several}#2").objective == 7.0
    one = written(tmp_path, "3 1 11\n10 6 5\n4 3 2\n5\n", "one")
    assert problems_in(one) == [(str(one), "multiple-choice", 11.0)]
    assert optsched.solve(one).objective == 11.0
    assert optsched.solve(f"{one}#1").objective == 11.0


def without(text: str, line: int) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(lines[: line - 1] + lines[line:])


NUMBER = "expected a JSON document, or a file of project scheduling with modes, "


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", f"line 1: found an empty file, {NUMBER}..."),
        (b"\n \n", f"line 1: found an empty file, {NUMBER}..."),
        ("\nnothing known\n", f'line 2: found "nothing known", {NUMBER}...'),
        (b"5 \xff", "line 1: found the byte 0xff, expected text in UTF-8"),
        (PACKED[:-9], "found data that gzip cannot read (..."),
        # generalised assignment
        (GAP + "7", 'line 7: found "7" after the problem, expected the end of the file'),
        (GAP + "7 8 9", 'line 7: found "7" and 2 more after the problem'),
        (
            GAP.replace(" 6 8\n", " 6\n"),
            "line 6: found the end of the file after 1, expected 2 numbers of at least 0: "
            "capacities of the agents",
        ),
        (
            GAP.replace("2 7 3", "2 x 3"),
            'line 3: found "x", as number 5 of these, expected 6 numbers: costs of 3 jobs for each '
            "of 2 agents",
        ),
        (GAP.replace("5 6 4", "5 -6 4"), 'line 4: found "-6", as number 2 of these, expected 6...'),
        (GAP.replace("5 6 4", "5 nan 4"), 'line 4: found "nan", as number 2 of these'),
        (GAP.replace("5 6 4", "5 6_0 4"), 'line 4: found "6_0", as number 2 of these'),
        (GAP.replace("5 6 4", "5 6\0 4"), 'line 4: found "6\\u0000", as number 2 of these'),
        (
            GAP.replace("5 6 4", "5 1e16 4"),
            'line 4: found "1e16", as number 2 of these, expected a number of at most 1e+15',
        ),
        (
            GAP.replace("2 3", "0 3"),
            'line 1: found "0", expected the number of agents, a whole number of at least 1',
        ),
        (
            "2 3000000000\n1 2\n3\n",
            "line 3: found the end of the file after 3, expected 6000000000 numbers: ...",
        ),
        # knapsacks
        (
            MKP.replace("2\n", "3\n", 1),
            "line 10: found the end of the file, expected the number of items, ...",
        ),
        (MKP + "1", 'line 11: found "1" after the last problem'),
        (MKP.replace("10 6 5", "10 6 5.x"), 'line 3: found "5.x", as number 3 of these'),
        # bin packing
        (
            PACKING.replace(" second\n 3.5 1 1\n3.5\n", ""),
            "line 8: found the end of the file, expected the name of a problem",
        ),
        (PACKING.replace("10 5 3", "10 6 3"), 'line 9: found "second", as number 6 of these...'),
        (PACKING + "3.5", 'line 12: found "3.5" after the last problem'),
        # unrelated machines
        (
            RCMAX.replace("0 5 1 5", "0 5 2 5"),
            "line 5: found machine 2 as number 2 of job 2, expected machine 1",
        ),
        (
            RCMAX.replace("1 2\n", "1\n"),
            "line 6: found the end of the file after 15, expected 16 numbers of at least 0: for each "
            "of 4 jobs 2 machines with durations",
        ),
        (
            RCMAX.replace("1 8", "1 0"),
            "line 4: found 0, the duration of job 1 on machine 1, expected a duration above 0",
        ),
        (RCMAX + "0", 'line 7: found "0" after the durations of the last job'),
        # projects
        (
            without(RCPSP, 9),
            "line 32: found the end of the file, expected a line that states nonrenewable",
        ),
        (
            RCPSP.replace("  0   D", "  1   D"),
            'line 10: found "1", expected 0: no resource is doubly constrained',
        ),
        (
            RCPSP.replace("2           2   3", "3           2   3"),
            "line 14: found 2 successors, expected as many as stated, 3",
        ),
        (
            RCPSP.replace("1           4", "1           9"),
            "line 15: found successor 9, expected jobs from 1 to 5",
        ),
        (
            without(RCPSP, 16),
            "line 18: found the end of the table PRECEDENCE RELATIONS, expected job 5, ...",
        ),
        (
            without(RCPSP, 25),
            "line 25: found 5 numbers, expected 4: mode 2 of job 2: its duration and 2 uses",
        ),
        (
            RCPSP.replace("  3      1     3", "  4      1     3"),
            "line 26: found a row that begins with 4, expected mode 1 of job 3: ...",
        ),
        (
            RCPSP.replace("1     3       1", "1     0       1"),
            "line 26: found a duration of 0 of job 3, expected above 0",
        ),
        (
            RCPSP.replace("    2    6\n", f"    2    {'9' * 5000}\n"),
            'line 32: found "99999999999999...',
        ),
        (
            RCPSP.replace(
                "renewable                 :  1", "renewable                 :  1" + "0" * 20, 1
            ),
            'line 8: found "100000000000000000000", expected renewable: a number of at most 1e+15',
        ),
        (
            RCPSP.replace("    2    6\n", "    2    -6\n"),
            'line 32: found "-6", expected whole numbers: the capacities',
        ),
        (
            RCPSP.replace("    2    6\n", "    2    6    7\n"),
            "line 32: found 3 numbers, expected 2: the capacities",
        ),
        (
            RCPSP.replace("    2    6\n", "    2    x\n"),
            'line 32: found "x", expected whole numbers: the capacities',
        ),
        (
            RCPSP + "1 2\n",
            'line 34: found "1 2", expected the end of the table RESOURCE AVAILABILITIES',
        ),
        (RCPSP.replace("RESOURCEAV", "AV"), "line 33: found the end of the file"),
    ],
    ids=lambda value: ascii(value[-60:]),
)
def test_wrong_files(text: Any, error: str, tmp_path: Path) -> None:
    with refuses(error):
        optsched.load(written(tmp_path, text))


def test_which_problem(folder: Path) -> None:
    with refuses("found 2 problems, expected one of them, mkp.txt#1 to mkp.txt#2"):
        optsched.load(folder / "mkp.txt")
    with refuses("found 2 problems, expected at least 3, as number 3 is asked for"):
        optsched.load(f"{folder / 'mkp.txt'}#3")
    for name in ("mkp.txt", "gap"):
        with refuses("found problem #0, expected #1 for the first problem"):
            optsched.load(f"{folder / name}#0")
    with refuses("found 1 problem, expected at least 2, as number 2 is asked for"):
        optsched.load(f"{folder / 'gap'}#2")
    (folder / "gap#2").write_text(RCMAX)
    assert file_and_problem(folder / "gap#2") == (folder / "gap#2", None)
    assert formulation_of_file(f"{folder / 'gap'}#2") == "makespan-unrelated"


def test_what_is_no_library_file(folder: Path) -> None:
    assert not may_be_library_file("@quickstart") and not may_be_library_file("-")
    assert not may_be_library_file(folder / "nowhere")
    for name, text in (("a.json", "5 100"), ("b.csv", "5 100"), ("c.mps.gz", "5"), ("d", " [1]")):
        assert not may_be_library_file(written(folder, text, name)), name
    with refuses("found text that is not JSON (..."):
        optsched.load(written(folder, GAP, "gap.json"))
    document = optsched.load("@quickstart").to_document()
    plain = written(folder, json.dumps(document), "instance")
    assert optsched.solve(plain).formulation == "max-min-fairness"


def test_a_loaded_assignment_names_its_formulation(folder: Path) -> None:
    with refuses(
        "jobs[0].options: found no throughput or duration (job 'j0'), expected a rate, as fractions "
        "of time are asked for; -f gap needs no rates, but costs of options"
    ):
        optsched.solve(optsched.load(folder / "gap"))
