"""``optsched bench``: tables, files, sweep files, limits, resuming, wrong words."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import optsched

# Private names: parts of a command are checked without a command line
from optsched.benchmarking.results_file import parse_lines
from optsched.cli.bench import Swept, benchmark_of
from optsched.cli.sweep_view import bench_view

pytestmark = pytest.mark.process

Write = Callable[..., Path]
VOLATILE = ("peak_memory_mb", "date")
TWO = ("-f", "makespan", "-f", "max-throughput")
SCRIPT = [sys.executable, "-m", "optsched.cli.main", "bench"]


def stable(path: Path) -> list[dict[str, str]]:
    """A table without times, memory and dates."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        {
            key: value
            for key, value in row.items()
            if key not in VOLATILE and (key[-2:] != "_s" or "limit" in key)
        }
        for row in rows
    ]


def test_the_table(run: Any, tmp_path: Path) -> None:
    output = tmp_path / "results.csv"
    result = run("bench", "@quickstart", "@infeasible", *TWO, "--solver", "highs", "--solver", "clarabel", "--jobs", 2,
                 "-o", output, "--time-limit", "60s")  # fmt: skip
    assert result.code == 0
    notes = [line for line in result.err.splitlines() if "does not read these fields" in line]
    # one of each formulation, of all solvers
    assert [line.split()[2] for line in notes] == ["makespan", "max-throughput"]
    lines = result.out.splitlines()
    assert lines[0] == "8 tasks: 4 optimal, 4 infeasible"
    assert lines[-1] == f"results written to {output}"
    rows = stable(output)
    assert [(row["instance"], row["formulation"], row["solver"]) for row in rows] == [
        (name, formulation, solver)
        for name in (
            "'@quickstart",
            "'@infeasible",
        )  # a spreadsheet takes a cell that begins with @ for a formula
        for formulation in ("makespan", "max-throughput")
        for solver in ("highs", "clarabel")
    ]
    known = optsched.solve("@quickstart", "makespan", solver="highs")
    first = rows[0]
    assert (
        float(first["objective"]) == known.objective
        and float(first["best_known"]) == known.objective
    )
    assert first["sha256"] == known.instance.sha256 and first["best_known_from"] == "proven"
    assert (first["n"], first["m"], first["classes"], first["columns"]) == ("12", "3", "12", "44")
    assert (first["status"], first["proof"], first["sense"], first["gap_to_best"]) == (
        "optimal",
        "dual",
        "min",
        "0.0",
    )
    assert (
        first["solver_version"] == known.solver.version
        and int(first["iterations"]) == known.solver.iterations
    )
    assert (first["threads"], first["seed"], first["time_limit_s"], first["error"]) == (
        "1",
        "0",
        "60.0",
        "",
    )
    assert first["optsched"] == optsched.__version__ and int(first["cores"]) >= 1 and first["cpu"]
    with output.open() as file:
        timed = next(csv.DictReader(file))
    stages = [
        float(timed[f"{stage}_s"]) for stage in ("load", "compile", "build", "solve", "certify")
    ]
    assert all(value > 0 for value in stages) and sum(stages) <= float(timed["total_s"]) <= float(
        timed["wall_s"]
    )
    assert float(timed["peak_memory_mb"]) > 30


def test_the_same_again_does_nothing_again(run: Any, tmp_path: Path) -> None:
    output = tmp_path / "results.csv"
    given = ("bench", "@quickstart", *TWO, "-o", output)
    first = run(*given)
    content = output.read_bytes()
    output.unlink()
    again = run(*given)
    lines = tmp_path / "results.jsonl"
    assert (
        again.err
        == f"optsched: 2 of 2 tasks have a row in {lines}: they are not done again\n{first.err}"
    )
    assert again.out == first.out and output.read_bytes() == content
    other = run("bench", "@quickstart", "-f", "makespan", "-o", output)
    assert (
        other.code == 2
        and f"{lines} is of another sweep (1 of its rows are of tasks of this one)" in other.err
    )
    more = run("bench", "@quickstart", "-f", "makespan", "-f", "isolated", "-o", output, "--append")
    assert more.code == 0 and len(parse_lines(lines.read_bytes(), lines).rows) == 3
    assert run("bench", "@quickstart", "-f", "makespan", "-o", output, "--restart").code == 0
    assert len(parse_lines(lines.read_bytes(), lines).rows) == 1
    document = run(
        "bench", "@quickstart", "-f", "makespan", "-o", tmp_path / "results.json", "--json"
    ).json
    assert document == json.loads((tmp_path / "results.json").read_text())
    assert [row["formulation"] for row in document["rows"]] == ["makespan"]


def test_it_fits(run: Any, tmp_path: Path) -> None:
    given = (
        "bench",
        "@packing",
        *TWO,
        "-f",
        "lease",
        "--solver",
        "clarabel",
        "-o",
        tmp_path / "r.jsonl",
    )
    for columns in (60, 80, 100, 200):
        told = run(*given, columns=columns).out.split("\nresults written")[0].splitlines()
        assert max(map(len, told)) <= columns and not any(line != line.rstrip() for line in told)


@pytest.mark.unit
def test_rows_as_tables() -> None:
    solved = {"instance": "a", "formulation": "makespan", "solver": "auto", "solver_used": "highs", "seed": 1,
              "status": "optimal", "objective": 12.5, "gap": 0.0, "gap_to_best": -0.02, "total_s": 0.25}  # fmt: skip
    failed = {"instance": "b", "formulation": None, "solver": "scip", "seed": 0, "status": "error", "wall_s": 3.0,
              "error": "it broke"}  # fmt: skip
    console = Console(width=100)
    with console.capture() as written:
        console.print(*bench_view([solved, failed]), sep="\n")
    title, *table, heading, told = [
        " ".join(line.split()) for line in written.get().splitlines() if line.strip()
    ]
    assert (title, heading, told) == (
        "2 tasks: 1 optimal, 1 error",
        "Without an answer:",
        "- b scip: it broke",
    )
    assert table[2:] == [
        "a makespan highs seed 1 optimal 12.5 0 % -2 % 250 ms",
        "b - scip error 3 s",
    ]


def test_what_fails_is_a_row(run: Any, tmp_path: Path, write: Write) -> None:
    broken = write(b"{", "broken.json")
    result = run(
        "bench",
        "@quickstart",
        broken,
        "-f",
        "max-throughput",
        "-O",
        "integral=true",
        "--solver",
        "clarabel",
    )
    assert result.code == 7 and result.out.startswith("2 tasks: 2 error\n")
    flat = " ".join(result.out.split())
    assert (
        "max-throughput clarabel: solver clarabel lacks 'integer', which an integer program needs"
        in flat
    )
    assert "text that is not JSON" in flat
    quiet = run("bench", broken, "-q")
    assert (quiet.code, quiet.out, quiet.err) == (3, "", "")


def test_programs_seeds_and_generated_instances(run: Any, tmp_path: Path) -> None:
    program = tmp_path / "model.mps"
    assert run("export", "@knapsack", "-f", "multiple-choice", "-o", program).code == 0
    made = f"{tmp_path}/*.mps"
    given = ("bench", made, "generate:knapsack:jobs=12,seeds=3..4", "-f", "multiple-choice")
    rows = run(*given, "--solver", "highs", "--seeds", "2", "--repeat", "2", "--json").json["rows"]
    assert [(row["formulation"], row["seed"], row["repeat"]) for row in rows[:4]] == [
        (None, seed, turn) for seed in (0, 1) for turn in (0, 1)
    ]
    assert {row["status"] for row in rows} == {"optimal"} and len(rows) == 12
    assert rows[0]["objective"] == pytest.approx(
        optsched.solve("@knapsack", "multiple-choice").objective
    )
    assert list(dict.fromkeys(row["instance"] for row in rows)) == [
        program.as_posix(), "generate:knapsack:jobs=12,seed=3", "generate:knapsack:jobs=12,seed=4",
    ]  # fmt: skip


SWEEP = {
    "toml": """
instances = ["small.json", {generate = "cluster", options = {jobs = 8}, seeds = [5]}]
formulations = ["makespan", {name = "max-throughput", options = {integral = true}}]
solvers = ["highs"]
time_limit = "1m"
memory_limit = "2GB"
""",
    "yaml": """
format: optsched-sweep/1
instances: [small.json, {generate: cluster, options: {jobs: 8}, seeds: [5]}]
formulations: [makespan, {name: max-throughput, options: {integral: true}}]
solvers: [highs]
time_limit: 60
memory_limit: 2.0e+9
""",
}


def test_sweep_files(
    run: Any, tmp_path: Path, small: dict[str, Any], write: Write, monkeypatch: Any
) -> None:
    write(small, "small.json")
    monkeypatch.chdir(tmp_path)
    tasks = []
    for kind, text in SWEEP.items():
        Path(f"sweep.{kind}").write_text(text)
        tasks.append(benchmark_of(Swept([f"sweep.{kind}"]), {}).tasks())
    names = ["small.json", "generate:cluster:jobs=8,seed=5"]
    entries = [("makespan", {}), ("max-throughput", {})]
    given = Swept(names, entries, ["max-throughput:integral=true"])
    tasks.append(
        benchmark_of(given, {"solvers": ["highs"], "time_limit": 60.0, "memory_limit": 2e9}).tasks()
    )
    assert tasks[0] == tasks[1] == tasks[2]
    rows = run("bench", tmp_path / "sweep.toml", "-f", "makespan", "--json").json["rows"]
    assert [(row["instance"], row["status"]) for row in rows] == [
        ((tmp_path / "small.json").as_posix(), "optimal"), (names[1], "optimal"),
    ]  # fmt: skip


def test_best_known_objectives(run: Any, tmp_path: Path) -> None:
    best = tmp_path / "best.csv"
    optimum = optsched.solve("@quickstart", "max-throughput").objective
    assert optimum is not None
    best.write_text(f"instance,formulation,objective\n@quickstart,max-throughput,{2 * optimum}\n")
    rows = run("bench", "@quickstart", *TWO, "--best", best, "--json").json["rows"]
    assert [(row["best_known_from"], row["gap_to_best"]) for row in rows] == [
        ("proven", 0.0), ("table", pytest.approx(0.5)),
    ]  # fmt: skip


@pytest.mark.clock
def test_limits(run: Any, hard: Path, tmp_path: Path) -> None:
    given = ("bench", hard, "-f", "max-throughput:integral=true", "--solver", "highs", "--json")
    (row,) = run(*given, "--time-limit", "0.5s").json["rows"]
    assert (row["status"], row["termination"]) == ("feasible", "time_limit") and row["gap"] > 0
    assert row["best_known_from"] == "found" and 0.3 < row["total_s"] < 3
    result = run(*given, "--memory-limit", "60MB")
    (row,) = result.json["rows"]
    assert (
        row["status"] == "memory" and "MB in use, more than 60 MB, and was killed" in row["error"]
    )
    assert result.code == 0


WRONG = [
    (["nothing.json"], 3, "found no readable file at nothing.json..."),
    (["*.nothing"], 2, "*.nothing: no file matches"),
    (["@nothing"], 2, "instance: found '@nothing'"),
    (
        ["generate:nothing:jobs=3"],
        2,
        "generator: found 'nothing', expected one of cluster, unrelated...",
    ),
    (
        ["generate:cluster:jobs=3,seeds=0"],
        2,
        "generate cluster: seeds: found 0, expected a number of seeds above 0...",
    ),
    (["generate:cluster:seed=3,seeds=2"], 2, "generate cluster: give seed or seeds, not both"),
    (["@quickstart", "-f", "nothing"], 2, "formulation: found 'nothing'"),
    (
        ["@quickstart", "-f", "makespan", "-f", "makespan"],
        2,
        'formulation: found ["makespan",{}] twice',
    ),
    (["@quickstart", "-f", "makespan", "-O", "x=1"], 2, "option of makespan: found 'x'"),
    (
        ["@quickstart", "-O", "lease:x=1"],
        2,
        "-O lease: it is not in the sweep, expected one of max-min-fairness",
    ),
    (["@quickstart", "--solver", "nothing"], 7, "solver: found 'nothing'"),
    (["@quickstart", "-C", "nothing"], 2, "constraint: found 'nothing'"),
    (
        ["@quickstart", "--seeds", "-1"],
        2,
        "--seeds: found -1, expected a number of seeds above 0...",
    ),
    (
        ["@quickstart", "--seeds", "[1,1]"],
        2,
        "--seeds: found seed 1 twice, expected each seed once",
    ),
    (["@quickstart", "--jobs", "0"], 2, "--jobs: found 0, expected a number from 1 to 1024"),
    (["@quickstart", "--repeat", "0"], 2, "--repeat: found 0, expected 1 or more"),
    (
        ["@quickstart", "--memory-limit", "4XB"],
        2,
        "--memory-limit: found '4XB', expected a size such as 500MB...",
    ),
    (["@quickstart", "--time-limit", "0"], 2, "--time-limit: found 0, expected a number above 0"),
    (
        ["@quickstart", "-o", "results.txt"],
        2,
        "found results.txt, expected a name that ends in .csv, .json or .jsonl",
    ),
    (["@quickstart", "-o", "no/r.csv"], 2, "no/r.csv"),
    (
        ["@quickstart", "--best", "best.csv"],
        3,
        'best.csv:3:objective: found "many", expected a number',
    ),
    (
        ["wrong.toml"],
        3,
        "wrong.toml: solver: found an unknown key 'solver', expected one of the format's keys...",
    ),
    (["empty"], 2, "empty: no instance or program is in this folder"),
    (
        ["model.lp", "-f", "makespan"],
        2,
        "-f: the set has programs alone, which no formulation makes",
    ),
    (
        ["wrong.toml", "@quickstart"],
        2,
        "wrong.toml is a sweep file, which takes no other instances",
    ),
]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("arguments", "code", "words"), WRONG, ids=[" ".join(item[0]) for item in WRONG]
)
def test_wrong_words(
    run: Any,
    arguments: list[str],
    code: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("best.csv").write_text("instance,formulation,objective\na,b,1\na,c,many\n")
    Path("wrong.toml").write_text('instances = ["@quickstart"]\nsolver = ["highs"]\n')
    Path("model.lp").write_text("max\n obj: x\nst\n c: x <= 1\nend\n")
    Path("empty").mkdir()
    assert run("bench", *arguments).refused(words, code)
    assert not list(tmp_path.glob("*.jsonl"))


# --- ended from outside --------------------------------------------------------------------------------------------

SLOW_SET = ("@quickstart", "@packing", "@large", "-f", "makespan", "-f", "max-throughput:integral=true", "--repeat",
            "2", "--jobs", "2", "--solver", "highs", "-q")  # fmt: skip


def command(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*SCRIPT, *SLOW_SET, "-o", "r.csv"], cwd=folder, stderr=subprocess.PIPE)


def rows_in(path: Path) -> int:
    return path.read_bytes().count(b"\n") - 1 if path.exists() else -1


def wait_for_rows(path: Path, count: int) -> None:
    until = time.monotonic() + 60
    while rows_in(path) < count and time.monotonic() < until:
        time.sleep(0.01)


def test_ctrl_c(tmp_path: Path) -> None:
    process = command(tmp_path)
    wait_for_rows(tmp_path / "r.jsonl", 3)
    process.send_signal(signal.SIGINT)
    told = process.communicate()[1].decode()
    kept = len(stable(tmp_path / "r.csv"))
    assert process.returncode == 130 and 3 <= kept < 12
    assert (
        told
        == f"optsched: interrupted after {kept} of 12 tasks; the same command goes on from there\n"
    )


@pytest.mark.study
def test_killed_ten_times_and_resumed_the_table_is_the_same(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    assert command(whole).wait() == 0
    killed, chance = tmp_path / "killed", random.Random(3)
    killed.mkdir()
    cut = 0
    for _ in range(10):
        process = command(killed)
        time.sleep(chance.uniform(0.2, 1.6))
        cut += process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    process = command(killed)
    assert process.communicate()[1] == b"" and process.returncode == 0
    assert cut >= 3 and stable(killed / "r.csv") == stable(whole / "r.csv")
