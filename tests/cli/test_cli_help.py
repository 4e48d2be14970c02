"""Help, versions, ``doctor``: fast, in plain text, with examples that work."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from typing import Any

import pytest

from optsched import __version__

# Private names: parts of a command are checked without a command line
from optsched.cli import doctor as checks
from optsched.cli.imports import FORMATS
from optsched.cli.main import COMMANDS as ORDER
from optsched.registry import load_solver

GROUPS = {
    "import": ["import", "gavel"],
    "generate": ["generate", "cluster"],
    "model": ["model", "fit"],
    "trace": ["trace", "describe"],
}
COMMANDS = [
    *(["import", name] for name in FORMATS if name != "gavel"),
    ["model", "list"],
    ["model", "predict"],
    ["model", "evaluate"],
    *(GROUPS.get(name, [name]) for name in ORDER),
]
SCRIPT = [sys.executable, "-m", "optsched.cli.main"]


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
@pytest.mark.parametrize("command", [[], ["import"], ["generate"], ["model"], ["trace"], *COMMANDS])
def test_help(run: Any, command: list[str], columns: int) -> None:
    result = run(*command, "--help", columns=columns)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"Usage: {' '.join(['optsched', *command])} ")
    assert run(*command, "-h", columns=columns).out == result.out
    text = result.out.split("Examples:")[0]
    assert max(map(len, text.splitlines())) <= min(columns, 100)
    if command and command not in (["import"], ["generate"], ["model"], ["trace"]):
        assert "\nExamples:\n  optsched " in result.out
        assert "--debug" in result.out


def test_all_commands_are_listed_in_full(run: Any) -> None:
    out = run("--help").out
    listed = re.findall(r"^  (\w+) ", out.split("Commands:")[1], re.MULTILINE)
    assert listed == list(ORDER)
    assert "..." not in out.split("Commands:")[1]


def test_no_command_shows_the_help(run: Any) -> None:
    result = run()
    assert (result.code, result.err) == (2, "")
    assert result.out == run("--help").out


def test_version(run: Any) -> None:
    result = run("--version")
    assert (result.code, result.out) == (0, f"optsched {__version__}\n")


@pytest.mark.documentation
def test_examples_that_need_no_file_work(
    run: Any, document: dict[str, Any], monkeypatch: Any, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    tried = 0
    for command in COMMANDS:
        for line in run(*command, "--help").out.split("Examples:\n")[1].splitlines():
            words = line.split()
            given = line.split(" -o")[0]
            if (
                words[0] == "optsched"
                and not {"|", "<", ">", "\\"} & set(words)
                and not re.search(r"json|csv|toml|[*]|model.mps|journal|[.]txt", given)
            ):
                assert run(*words[1:]).code in (0, 4), line
                tried += 1
    assert tried >= 9


@pytest.mark.property
def test_quiet_commands_print_nothing(run: Any) -> None:
    for given in (
        ["formulations"],
        ["formulations", "makespan"],
        ["solvers"],
        ["instances"],
        ["validate", "@packing"],
    ):
        assert run(*given, "-q").out == ""
        assert run(*given).out != ""
        assert run(*given, "-q", "--json").json


@pytest.mark.clock
def test_help_loads_nothing_heavy_and_is_fast() -> None:
    code = (
        "import sys; from optsched.cli.main import main; main(['--help']); main(['solve', '--help'])\n"
        "main(['--version'])\n"
        "heavy = {'numpy', 'scipy', 'pydantic', 'networkx', 'rich', 'highspy'}\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & heavy))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out.splitlines()[-1] == "[]"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*SCRIPT, "--help"], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # 0.1 s of processor time; 0.7 s are promised
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.7


# --- doctor --------------------------------------------------------------------------------------------------------


@pytest.mark.process
def test_doctor(run: Any) -> None:
    result = run("doctor", "--json")
    assert result.code == 0
    told = result.json
    assert told["ok"] is True
    packages = "python optsched highspy numpy ortools clarabel cvxpy pulp typer matplotlib numba"
    assert set(packages.split()) <= set(told["versions"])
    (loaded,) = [check["words"] for check in told["checks"] if check["name"] == "solvers"]
    assert "gurobi" not in loaded  # the checks of each solver say which are here
    assert {
        "requirements",
        "solver highs",
        "import highspy, ortools",
        "import ortools, highspy",
    } <= {check["name"] for check in told["checks"]}


def test_doctor_tells_what_is_wrong(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from optsched.cli import doctor

    found = [
        checks.Check("requirements", True, "12 packages"), checks.Check("solver x", False, "not installed"),
        checks.Check("solver y", False, "not bought", needed=False),
    ]  # fmt: skip
    monkeypatch.setattr(doctor, "all_checks", lambda: iter(found))
    result = run("doctor")
    assert result.code == 7
    assert [line.split() for line in result.out.splitlines()[-3:]] == [
        ["requirements", "ok", "12", "packages"], ["solver", "x", "FAILED", "not", "installed"],
        ["solver", "y", "missing", "not", "bought"],
    ]  # fmt: skip
    assert result.err == "optsched: error: failed: solver x\n"
    assert run("doctor", "--quiet").err == "optsched: error: solver x: not installed\n"
    assert run("doctor", "--json").json["ok"] is False
    monkeypatch.setattr(doctor, "all_checks", lambda: iter(found[::2]))
    result = run("doctor", "--json")
    assert (result.code, result.err, result.json["ok"]) == (0, "", True)
    assert [(check["ok"], check["needed"]) for check in result.json["checks"]] == [
        (True, True),
        (False, False),
    ]


@pytest.mark.property
def test_doctor_sees_a_solver_that_is_missing_or_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from optsched.solvers import HighsSession

    monkeypatch.setitem(sys.modules, "clarabel", None)
    honest = HighsSession.run
    monkeypatch.setattr(
        HighsSession, "run", lambda self, limits: replace(v := honest(self, limits), x=v.x * 0.5)
    )
    told = {check.name: check for check in checks.check_solvers()}
    assert told["solver clarabel"].verdict == "FAILED"
    assert not any(check.ok for check in told.values() if "is not installed" in check.words)
    needed = {check.name for check in told.values() if check.needed}
    assert needed >= {name for name in told if not load_solver(name.split()[1]).optional}
    assert "cannot be loaded" in told["solver clarabel"].words
    assert not told["solver highs"].ok
    assert "a tiny program ends" in told["solver highs"].words
    monkeypatch.setattr(
        HighsSession, "run", lambda self, limits: replace(honest(self, limits), objective=4.0)
    )
    assert not {check.name: check for check in checks.check_solvers()}["solver highs"].ok


def test_doctor_sees_versions_outside_their_limits() -> None:
    limits = {
        "highspy": ">=1.12,<1.14", "numpy": "", "gone": ">=1", "pydantic": "<3", "ortools": ">=9.12",
    }  # fmt: skip
    versions = {"highspy": "1.15.1", "numpy": "2.0", "pydantic": "3.0.0rc1", "ortools": "9.15.6755"}
    check = checks.check_requirements(versions, limits)
    assert not check.ok
    assert check.words == (
        "highspy is 1.15.1, expected >=1.12,<1.14; gone is missing, expected >=1; "
        "pydantic is 3.0.0rc1, expected <3"
    )


def test_doctor_sees_packages_that_cannot_share_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        checks, "IMPORTS", "raise ImportError('libhighs.so.1: undefined symbol {first} {second}')"
    )
    process = checks._start_import("highspy", "ortools")
    check = checks._finish_import("import highspy, ortools", process)
    assert not check.ok
    assert "ImportError: libhighs.so.1: undefined symbol highspy ortools" in check.words


def test_help_tells_what_is_refused_and_what_a_name_means(run: Any) -> None:
    told = " ".join(run("pareto", "--help", columns=200).out.split())
    assert (
        "several stages (finish-time-fairness, water-filling, drf), ratios (throughput-per-cost)"
        in told
    )
    for name in ("finish-time-fairness", "water-filling", "drf", "throughput-per-cost"):
        refused = run("pareto", "@quickstart", "-f", "max-throughput", "-f", name)
        assert refused.refused(
            f"formulation: found {name}, expected one that is a single program..."
        )
    told = " ".join(run("whatif", "--help", columns=200).out.split())
    assert "budget:50 is of a resource called budget, not of the constraint -C budget" in told


def test_a_default_is_told_once(run: Any) -> None:
    told = " ".join(run("solve", "--help", columns=200).out.split())
    assert "[default: 1] [default: 1]" not in told
    assert "`deadlines`, `moves` and `placeable` replace" in told
