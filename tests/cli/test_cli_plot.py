"""``optsched plot``: every kind, from files and after solving; what makes no sense, and missing parts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import optsched
from optsched import api

# Private names: parts of a command are checked without a command line
from optsched.cli.plot import KINDS

pytest.importorskip("matplotlib")

PNG = b"\x89PNG\r\n\x1a\n"
Write = Callable[..., Path]


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A solution file of the quickstart with a schedule, rounds and a placement."""
    document = optsched.solve("@quickstart").to_document()
    document["schedule"] = [
        {"job": "lstm-11", "pool": "k80", "gpus": 1, "nodes": 1, "start": 0.0, "end": 700.0}
    ]
    document["rounds"] = {
        "method": "patterns",
        "window": 360.0,
        "scale": 1.0,
        "bound": 1.0,
        "finished": True,
        "slices": [{"duration": 360.0, "run": [0, 1]}],
    }
    document["placement"] = [{"row": 0, "job": "lstm-11", "gpus": ["k80-0/1"]}]
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def titles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Titles of the pictures that are written."""
    from optsched import report

    found: list[str] = []
    save = report.save_picture

    def record(ax: Any, path: Any) -> None:
        found.append(ax.get_title(loc="left").partition(": ")[2])
        save(ax, path)

    monkeypatch.setattr(report, "save_picture", record)
    return found


TITLES = {
    "allocation": "fraction of time on each pool",
    "topology": "placement on the cluster",
    "gantt": "what runs when",
    "rounds": "rounds of the allocation",
    "prices": "what one more GPU is worth",
}


@pytest.mark.property
@pytest.mark.parametrize("kind", TITLES)
def test_every_kind_of_a_solution_file(
    run: Any, plan: Path, titles: list[str], kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "p.png"
    result = run("plot", "@quickstart", plan, "--kind", kind, "-o", path)
    assert (result.code, result.out, result.err) == (0, f"picture written to {path}\n", "")
    assert titles == [TITLES[kind]]
    assert path.read_bytes().startswith(PNG)


@pytest.mark.picture
def test_the_default_is_the_schedule_else_the_allocation(
    run: Any, plan: Path, titles: list[str], tmp_path: Path
) -> None:
    assert run("plot", "@quickstart", plan, "-o", tmp_path / "p.png").code == 0
    document = json.loads(plan.read_text())
    document["schedule"] = None
    plan.write_text(json.dumps(document))
    assert run("plot", "@quickstart", plan, "-o", tmp_path / "p.png").code == 0
    assert run("plot", "@quickstart", "-o", tmp_path / "p.png").code == 0
    assert titles == [TITLES["gantt"], TITLES["allocation"], TITLES["allocation"]]


@pytest.mark.picture
def test_without_a_solution_the_instance_is_solved(
    run: Any, titles: list[str], tmp_path: Path, plan: Path
) -> None:
    for kind, suffix in (("allocation", "png"), ("prices", "svg"), ("progress", "pdf")):
        path = tmp_path / f"{kind}.{suffix}"
        assert run("plot", "@quickstart", "-f", "makespan", "-k", kind, "-o", path).code == 0
        assert path.stat().st_size > 5000
    assert titles == [TITLES["allocation"], TITLES["prices"], "progress of highs"]
    drawn = [tmp_path / "a.png", tmp_path / "b.png"]
    assert run("plot", "@quickstart", "-o", drawn[0]).code == 0
    assert run("plot", "@quickstart", plan, "-k", "allocation", "-o", drawn[1], "-q").out == ""
    assert drawn[0].read_bytes() == drawn[1].read_bytes()


def test_the_topology_of_an_instance_alone(run: Any, titles: list[str], tmp_path: Path) -> None:
    assert run("plot", "@quickstart", "--kind", "topology", "-o", tmp_path / "p.svg").code == 0
    assert titles == ["cluster and what runs now"]


def test_standard_input_is_the_instance_or_the_solution(
    run: Any, plan: Path, tmp_path: Path, document: Any
) -> None:
    path = tmp_path / "p.png"
    assert (
        run("plot", "-", "-k", "topology", "-o", path, stdin=json.dumps(document).encode()).code
        == 0
    )
    assert run("plot", "@quickstart", "-", "-o", path, stdin=plan.read_bytes()).code == 0
    assert run("plot", "-", plan, "-o", path, stdin=json.dumps(document).encode()).code == 0


def test_options_of_the_problem_and_of_the_solver_reach_the_library(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}
    original = api.solve

    def solve(*arguments: Any, **options: Any) -> Any:
        seen.update(options, formulation=arguments[1])
        return original(*arguments, **options)

    monkeypatch.setattr(api, "solve", solve)
    given = [
        "-f",
        "makespan",
        "-O",
        "agnostic=true",
        "-O",
        "reference-pool=p100",
        "-C",
        "deadlines:soft=true",
    ]
    given += ["--no-classes", "--solver", "clarabel"]
    given += ["--time-limit", "1m", "--seed", "7"]
    assert run("plot", "@quickstart", *given, "-o", tmp_path / "p.png").code == 0
    wanted = {
        "formulation": "makespan",
        "options": {"agnostic": True, "reference_pool": "p100"},
        "classes": False,
        "solver": "clarabel",
        "seed": 7,
    }
    assert {key: seen[key] for key in wanted} == wanted
    assert (seen["time_limit"].seconds, seen["constraints"]) == (
        60.0,
        [{"kind": "deadlines", "soft": True}],
    )
    assert run("plot", "@quickstart", "--kind", "progress", "-o", tmp_path / "p.png").code == 0
    assert seen["formulation"] == "max-min-fairness"


def test_a_search_that_a_limit_ends_is_drawn(
    run: Any, hard: Path, tmp_path: Path, titles: list[str]
) -> None:
    given = [
        "-f",
        "max-throughput",
        "-O",
        "integral=true",
        "--time-limit",
        "0.6s",
        "--kind",
        "progress",
    ]
    assert run("plot", hard, *given, "-o", tmp_path / "p.png").code == 0
    assert titles == ["progress of highs"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["-k", "pie"], "--kind: found 'pie', expected one of allocation, topology, gantt, rounds, prices, ..."),
        (["-o", "p.docx"], "found p.docx, expected a name that ends in .png, .svg or .pdf"),
        (["-o", "-"], "found -, expected a name that ends in .png, .svg or .pdf"),
        (["-o", "nowhere/p.png"], "nowhere/p.png: found there is no folder nowhere"),
        (["-f", "fair"], "formulation: found 'fair'"),
        (["-O", "integral"], "-O: found 'integral', expected key=value"),
        (["-C", "wish"], "constraint: found 'wish'"),
        (["--time-limit", "soon"], "--time-limit: found 'soon'"),
        (["--work-limit", "x"], "--work-limit: found 'x'"),
        (["--gap", "x"], "--gap: found 'x'"),
        (["--tolerance", "x"], "--tolerance: found 'x'"),
        (["--threads", "x"], "--threads: found 'x'"),
        (["--seed", "x"], "--seed: found 'x'"),
        (["--solver-option", "x"], "--solver-option: found 'x'"),
        (["-k", "gantt"], "the solution of max-min-fairness has no schedule: there is nothing to draw"),
        (["-k", "rounds", "-f", "makespan-unrelated"], "the solution of makespan-unrelated has no rounds: there is"),
        (["-k", "topology", "--seed", "3"], "--kind topology draws the instance as it is; name a formulation with -f"),
        (["-k", "prices", "-f", "isolated"], "isolated has no prices: integer programs and rules have none"),
        (["-k", "prices", "-f", "max-throughput", "-O", "integral=true"], "max-throughput has no prices"),
        (["plan.json", "-k", "progress"], "a solution file holds no progress: leave SOLUTION out"),
        (["plan.json", "-f", "makespan"], "options of the problem and of the solver make no sense where SOLUTION is"),
        (["plan.json", "--no-classes"], "options of the problem and of the solver make no sense where SOLUTION is"),
        (["plan.json", "--gap", "0.1"], "options of the problem and of the solver make no sense where SOLUTION is"),
    ],
)  # fmt: skip
def test_what_makes_no_sense(
    run: Any,
    plan: Path,
    given: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    output = [] if "-o" in given else ["-o", "p.png"]
    assert run("plot", "@quickstart", *given, *output).refused(told)
    assert list(tmp_path.iterdir()) == [plan]


def test_a_trace_names_the_command_that_runs_it(run: Any, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    assert run("generate", "trace", "--jobs", 5, "-o", trace).code == 0
    told = "jobs arrive later, as in a trace: `optsched simulate` runs it"
    assert run("plot", trace, "-o", tmp_path / "p.png").refused(told)


def test_both_from_standard_input(run: Any, tmp_path: Path) -> None:
    result = run("plot", "-", "-", "-o", tmp_path / "p.png", stdin=b"{}")
    assert result.code == 2
    assert "the instance and the solution cannot both come from standard input" in result.err


def test_other_outcomes_have_the_exit_codes_of_solve(run: Any, plan: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    result = run("plot", "@infeasible", "-o", path)
    assert (result.code, result.err) == (
        4,
        "optsched: error: the solution is infeasible: there is nothing to draw\n",
    )
    stopped = ["-C", "minimum-service:fraction=0.3", "--solver", "highs", "--work-limit", "1"]
    result = run("plot", "@large", *stopped, "-f", "max-throughput", "-o", path)
    assert (result.code, result.err) == (
        5,
        "optsched: error: nothing was found within the limits: there is nothing to draw\n",
    )
    assert run("plot", "@packing", plan, "-o", path).refused("instance.sha256", 3)
    assert run("plot", "@quickstart", tmp_path / "missing.json", "-o", path).code == 3
    assert run("plot", tmp_path / "missing.json", "-o", path).code == 3
    assert run("plot", "@quickstart", "--solver", "gurobbi", "-o", path).code == 7
    assert not path.exists()


def test_a_failed_certificate_is_no_picture(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    good = optsched.solve("@quickstart")
    bad = replace(good.certificate, ok=False, problems=("row time[3] is violated",))
    monkeypatch.setattr(api, "solve", lambda *_, **__: replace(good, certificate=bad))
    result = run("plot", "@quickstart", "-o", tmp_path / "p.png")
    assert result.code == 6 and "row time[3] is violated" in result.err
    assert list(tmp_path.iterdir()) == []


def test_missing_arguments_are_told(run: Any) -> None:
    assert "missing option '--output' / '-o'" in run("plot", "@quickstart").err
    assert "missing argument 'INSTANCE'" in run("plot").err


def test_a_missing_matplotlib_is_told_before_anything_is_read(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("plot", "missing.json", "-o", tmp_path / "p.png")
    assert result.refused("pictures need matplotlib", 7) and "pip install matplotlib" in result.err


def test_every_kind_is_told_in_the_help(run: Any) -> None:
    words = " ".join(run("plot", "--help").out.split())
    assert ", ".join(KINDS) in words
