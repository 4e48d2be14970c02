"""``optsched solve``: every option does what it says, and every outcome has its exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import optsched
from optsched import api
from optsched.errors import Interrupted, SolverCrashed
from optsched.solution import Status

Write = Callable[..., Path]


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-6)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `optsched.api.solve` is called with."""
    calls: dict[str, Any] = {}
    original = api.solve

    def solve(*arguments: Any, **options: Any) -> Any:
        calls.update(options, instance=arguments[0], formulation=arguments[1])
        return original(*arguments, **options)

    monkeypatch.setattr(api, "solve", solve)
    return calls


# --- where the instance comes from, and where the answer goes ------------------------------------------------------


def test_shipped_file_and_standard_input_give_the_same(
    run: Any, document: Any, write: Write
) -> None:
    text = json.dumps(document).encode()
    results = [run("solve", "@quickstart", "--json"), run("solve", write(document), "--json")]
    results.append(run("solve", "-", "--json", stdin=text))
    assert {result.code for result in results} == {0}
    objectives = {result.json["objective"] for result in results}
    assert objectives == {optsched.solve("@quickstart").objective}
    assert len({result.json["instance"]["sha256"] for result in results}) == 1


@pytest.mark.parametrize("kind", ["json", "yaml", "npz"])
def test_every_file_format(run: Any, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"i.{kind}"
    path.write_bytes(optsched.instance.instance_bytes(optsched.load("@quickstart"), kind))
    assert run("solve", path, "--json").json["objective"] == close(0.9713535933787885)


def test_output_is_the_json_document(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    told = run("solve", "@quickstart", "-o", path)
    assert told.code == 0
    assert told.out.endswith(f"solution written to {path}\n")
    printed = run("solve", "@quickstart", "--json").json
    written = json.loads(path.read_text())
    assert written.pop("timings").keys() == printed.pop("timings").keys()
    assert written == printed
    assert written["format"] == "optsched-solution/1"


def test_output_dash_is_json_on_standard_output(run: Any) -> None:
    assert run("solve", "@quickstart", "-o", "-").json["status"] == "optimal"


def test_json_and_output_together(run: Any, tmp_path: Path) -> None:
    result = run("solve", "@quickstart", "--json", "-o", tmp_path / "o.json", "-q")
    assert result.json["status"] == "optimal"
    assert json.loads((tmp_path / "o.json").read_text())["objective"] == result.json["objective"]


def test_two_runs_write_the_same_bytes_but_timings(run: Any) -> None:
    first, second = (run("solve", "@packing", "--json").out for _ in range(2))
    cut = first.index('"timings"')
    assert first[:cut] == second[: second.index('"timings"')]
    assert first[cut:].count("\n") == 2  # timings stand last, on one line


def test_quiet_prints_nothing(run: Any, tmp_path: Path) -> None:
    result = run("solve", "@quickstart", "-q", "-o", tmp_path / "o.json")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert (tmp_path / "o.json").is_file()


def test_output_replaces_an_older_file_as_a_whole(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "o.json"
    path.write_text("x" * 1_000_000)
    run("solve", "@quickstart", "-o", path)
    assert json.loads(path.read_text())["status"] == "optimal"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("target", ["missing/out.json", "."])
def test_output_that_cannot_be_written_is_refused_before_solving(
    run: Any, tmp_path: Path, target: str, seen: dict[str, Any]
) -> None:
    result = run("solve", "@quickstart", "-o", tmp_path / target)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith(f"optsched: error: cannot write {tmp_path / target}: ")
    assert seen == {}
    assert list(tmp_path.iterdir()) == []


# --- the problem ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["max-min-fairness", "makespan", "max-throughput", "isolated"])
def test_formulation(run: Any, name: str) -> None:
    told = run("solve", "@quickstart", "-f", name, "--json").json
    assert (told["formulation"], told["objective"]) == (
        name,
        optsched.solve("@quickstart", name).objective,
    )


def test_options(run: Any) -> None:
    told = run(
        "solve",
        "@quickstart",
        "-f",
        "makespan",
        "-O",
        "agnostic=true",
        "-O",
        "reference-pool=p100",
        "--json",
    )
    assert told.json["options"] == {"agnostic": True, "reference_pool": "p100"}
    assert (
        told.json["objective"]
        == optsched.solve("@quickstart", "makespan", agnostic=True, reference_pool="p100").objective
    )


def test_integral_option_gives_whole_jobs(run: Any) -> None:
    told = run(
        "solve", "@quickstart", "-f", "max-throughput", "--option", "integral=true", "--json"
    ).json
    assert {row["fraction"] for row in told["allocation"]} == {1.0}
    assert told["objective"] == close(264.1311)


def test_constraints(run: Any) -> None:
    told = run("solve", "@quickstart", "-C", "deadlines:soft=true", "--json").json
    assert told["constraints"] == [{"kind": "deadlines", "soft": True, "give_way": "none"}]
    assert told["objective"] == close(0.9511939)
    assert (
        run("solve", "@quickstart", "-C", '{"kind": "deadlines"}', "--json").json["objective"]
        == told["objective"]
    )


def test_no_classes(run: Any, seen: dict[str, Any]) -> None:
    with_classes = run("solve", "@packing", "--json").json
    assert with_classes["classes"] is True
    without = run("solve", "@packing", "--no-classes", "--json").json
    assert without["classes"] is False
    assert seen["classes"] is False
    assert without["objective"] == close(with_classes["objective"])


# --- solver and limits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["highs", "highs-ipm", "clarabel"])
def test_solver(run: Any, name: str) -> None:
    told = run("solve", "@quickstart", "--solver", name, "--json").json
    assert told["solver"]["name"] == name
    assert told["objective"] == close(0.9713535933787885)


def test_limits_reach_the_library(run: Any, seen: dict[str, Any]) -> None:
    given = [
        "--time-limit",
        "2m",
        "--work-limit",
        "1000",
        "--gap",
        "0.01",
        "--tolerance",
        "1e-7",
        "--threads",
        "2",
    ]
    given += [
        "--seed",
        "7",
        "--solver-option",
        "mip_abs_gap=0.5",
        "--solver-option",
        "presolve=off",
    ]
    result = run(
        "solve", "@quickstart", "-f", "max-throughput", "-O", "integral=true", *given, "--json"
    )
    assert result.code == 0
    expected = {
        "work_limit": 1000,
        "gap": 0.01,
        "tolerance": 1e-7,
        "threads": 2,
        "seed": 7,
    }
    assert {key: seen[key] for key in expected} == expected
    assert seen["time_limit"].seconds == 120.0
    assert result.json["solver"]["options"] == {"mip_abs_gap": 0.5, "presolve": "off"}
    assert result.json["solver"]["seed"] == 7


def test_gap_ends_a_search_early(run: Any, hard: Path) -> None:
    result = run(
        "solve", hard, "-f", "max-throughput", "-O", "integral=true", "--gap", "0.05", "--json"
    )
    assert result.code == 0
    assert result.json["gap"] <= 0.05


@pytest.mark.clock
def test_time_limit_returns_the_incumbent(run: Any, hard: Path) -> None:
    given = ("solve", hard, "-f", "max-throughput", "-O", "integral=true", "--time-limit", "0.4s")
    result = run(*given, "--json")
    assert (result.code, result.json["status"], result.json["termination"]) == (
        0,
        "feasible",
        "time_limit",
    )
    assert result.json["reproducible"] is False
    told = run(*given, "--require-optimal")
    assert told.code == 5
    assert "feasible  the time limit was reached" in told.out


def test_nothing_found_within_the_limit(run: Any) -> None:
    result = run(
        "solve", "@quickstart", "--work-limit", "1", "-C", "deadlines", "--solver", "highs"
    )
    assert result.code == 5
    assert "limit  the work limit was reached, no feasible allocation was found" in result.out


def test_a_point_that_is_known_is_returned_at_a_limit(run: Any) -> None:
    given = ("@large", "--work-limit", "1", "--solver", "highs-ipm")
    result = run("solve", *given)
    assert result.code == 0
    assert "feasible  the work limit was reached" in result.out
    assert "known point: feasible" in result.out
    document = run("solve", *given, "--json").json
    assert document["objective"] > 0
    assert [attempt["name"] for attempt in document["solver"]["attempts"]] == [
        "highs-ipm",
        "known point",
    ]


# --- outcomes ------------------------------------------------------------------------------------------------------


def test_infeasible(run: Any, tmp_path: Path) -> None:
    result = run("solve", "@infeasible", "-o", tmp_path / "o.json")
    assert result.code == 4
    assert (
        "from now on, these requirements cannot all hold:\n- pool a100 has 4 usable GPUs\n- job gpt-2-xl-1"
        in result.out
    )
    assert json.loads((tmp_path / "o.json").read_text())["status"] == "infeasible"
    assert len(run("solve", "@infeasible", "--json").json["conflicts"]) == 3


@pytest.mark.parametrize(
    ("status", "code"),
    [(Status.UNBOUNDED, 4), (Status.LIMIT, 5), (Status.ERROR, 7), (Status.OPTIMAL, 0)],
)
def test_exit_code_of_each_status(
    run: Any, monkeypatch: pytest.MonkeyPatch, status: Status, code: int
) -> None:
    made = replace(
        optsched.solve("@quickstart"), status=status, allocation=None, objective=None, bound=None
    )
    monkeypatch.setattr(api, "solve", lambda *_, **__: made)
    assert run("solve", "@quickstart").code == code


def test_a_failed_certificate_is_no_answer(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    good = optsched.solve("@quickstart")
    bad = replace(
        good.certificate,
        ok=False,
        problems=("row time[3] is violated by 0.2 (relative)", "and more"),
    )
    monkeypatch.setattr(api, "solve", lambda *_, **__: replace(good, certificate=bad))
    result = run("solve", "@quickstart", "--json", "-o", tmp_path / "o.json")
    assert (result.code, result.out) == (6, "")
    assert result.err == (
        "optsched: error: the certificate failed: row time[3] is violated by 0.2 (relative)\n"
        "optsched: error: the certificate failed: and more\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_lying_solver_is_caught(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from optsched.solvers import HighsSession

    honest = HighsSession.run
    monkeypatch.setattr(
        HighsSession,
        "run",
        lambda self, limits: replace(v := honest(self, limits), objective=2 * v.objective),
    )
    result = run("solve", "@quickstart", "--solver", "highs")
    assert result.code == 6
    assert "the solver states the objective" in result.err

    second = run(
        "solve", "@quickstart", "-v"
    )  # auto asks a solver of another kind instead, and says so
    assert second.code == 0
    assert "the solver states the objective" in second.err


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (
            SolverCrashed("HiGHS stopped with 'Solve error'"),
            7,
            "optsched: error: HiGHS stopped with 'Solve error'\n",
        ),
        (
            Interrupted("interrupted before any feasible point was found"),
            130,
            "optsched: interrupted before any ",
        ),
        (KeyboardInterrupt(), 130, "optsched: interrupted before any feasible point was found\n"),
        (MemoryError(), 1, "optsched: internal error: MemoryError"),
    ],
)
def test_errors_and_their_codes(
    run: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    error: BaseException,
    code: int,
    told: str,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(api, "solve", fail)
    result = run("solve", "@quickstart", "-o", tmp_path / "o.json")
    assert result.code == code
    assert result.out == ""
    assert result.err.startswith(told)
    assert list(tmp_path.iterdir()) == []


def test_internal_error_hints_at_debug_and_debug_shows_it(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(api, "solve", fail)
    result = run("solve", "@quickstart")
    assert result.code == 1
    assert result.err.splitlines() == [
        "optsched: internal error: RuntimeError: two lines",
        "optsched: this is a bug in optsched or in a package that extends it; "
        "--debug after the command shows where it happened",
    ]
    shown = run("solve", "@quickstart", "--debug")
    assert shown.code == 1
    assert "Traceback" in shown.err
    assert "in fail" in shown.err


def test_debug_shows_where_a_refusal_comes_from(run: Any) -> None:
    result = run("solve", "@nothing", "--debug")
    assert result.code == 2
    assert "Traceback" in result.err
    assert result.err.splitlines()[-1].startswith("optsched: error: no instance @nothing ships")


@pytest.mark.parametrize(
    "words",
    [
        ("--debug", "solve", "@nothing"),
        ("-v", "--log", "{log}", "--debug", "solve", "@nothing"),
        ("--debug", "import", "csv", "none.csv", "none.csv", "--pool", "p=1", "-o", "-"),
    ],
)
def test_messages_options_may_stand_before_the_command(
    run: Any, tmp_path: Path, words: tuple[str, ...]
) -> None:
    result = run(*(word.format(log=tmp_path / "log") for word in words))
    assert result.code in (2, 3)
    assert "Traceback" in result.err and "no such option" not in result.err


@pytest.mark.parametrize("words", [("--debug",), ("-q", "--version"), ("-v", "import", "--help")])
def test_messages_options_without_a_command_change_nothing(
    run: Any, words: tuple[str, ...]
) -> None:
    assert run(*words).out == run(*words[1:]).out != ""


# --- usage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        (["@nothing"], 2, "instance: found '@nothing', expected one of @assignment, @infeasible..."),
        (["-f", "fair"], 2, "formulation: found 'fair', expected one of allox, alpha-fairness..."),
        (["-f", "makespam"], 2, "formulation: found 'makespam'"),
        (["-f", ""], 2, "--formulation: found '', expected a name"),
        (["-f", "srtf"], 2, "formulation: found 'srtf', expected one of allox, alpha-fairness..."),
        (["-O", "integral"], 2, "-O: found 'integral', expected key=value"),
        (["-O", "agnostic=true", "-O", "agnostic=false"], 2, "-O: found agnostic twice"),
        (["-O", "seed=3"], 2, "option of max-min-fairness: found 'seed', expected one of agnostic, quantile..."),
        (["-O", "agnostic=perhaps"], 2, "option of max-min-fairness: agnostic..."),
        (["-f", "max-throughput", "-O", "integral=5"], 2, "option of max-throughput: integral: found 5"),
        (["-C", "budgets:limit=3"], 2, "constraint: found 'budgets'"),
        (["-C", "deadlines:hard=true"], 2, "option of deadlines: found 'hard', expected one of soft, give_way"),
        (["-C", "soft=true"], 2, "-C: found 'soft=true', expected kind or kind:key=value,key=value"),
        (["-f", "isolated", "-C", "deadlines"], 2, "constraints: found rows, expected none for isolated"),
        (["--solver", "gurobbi"], 7, "solver: found 'gurobbi', expected one of cbc..."),
        (["--solver", "clarabel", "-f", "max-throughput", "-O", "integral=true"], 7,
         "solver: found clarabel, expected one with integer"),
        (["--solver-option", "nonsense=1"], 2, "HiGHS has no option 'nonsense'"),
        (["--solver-option", "nonsense"], 2, "--solver-option: found 'nonsense', expected key=value"),
        (["--time-limit", "soon"], 2, "--time-limit: found 'soon'"),
        (["--time-limit", "0"], 2, "--time-limit: found 0, expected a number above 0"),
        (["--work-limit", "0"], 2, "--work-limit: found 0, expected a number above 0"),
        (["--work-limit", "1e3"], 2, "--work-limit: found '1e3', expected a whole number"),
        (["--gap", "-0.1"], 2, "--gap: found -0.1, expected 0 or more"),
        (["--gap", "nan"], 2, "--gap: found 'nan', expected a number"),
        (["--tolerance", "0"], 2, "--tolerance: found 0, expected a number above 0, at most 0.01"),
        (["--threads", "-2"], 2, "--threads: found -2, expected 0 (all) or more"),
        (["--seed", "x"], 2, "--seed: found 'x', expected a whole number"),
        (["--seed", "9" * 26], 2, "--seed: found one of 26 digits, expected a whole number of at most 18 digits"),
        (["--seed", "9" * 12], 2, "--seed: found 999999999999, expected a whole number from 0 to 2147483647"),
        (["--seed", "-1"], 2, "--seed: found -1, expected a whole number from 0 to 2147483647"),
        (["--log", "missing/folder/log"], 2, "missing/folder/log: found No such file or directory"),
    ],
)  # fmt: skip
def test_what_makes_no_sense(run: Any, given: list[str], code: int, told: str) -> None:
    instance = [] if given[0].startswith("@") else ["@quickstart"]
    assert run("solve", *instance, *given).refused(told, code)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["solve"], "missing argument 'INSTANCE'"),
        (["solve", "a", "b"], "got unexpected extra argument"),
        (["solve", "@quickstart", "--treads", "3"], "no such option: --treads"),
        (["solve", "@quickstart", "--seed"], "option '--seed' requires an argument"),
        (["sole", "@quickstart"], "no such command 'sole'. Did you mean 'solve'"),
        (["--nothing"], "no such option: --nothing"),
        (["import"], "missing command"),
    ],
)
def test_what_typer_refuses_is_told_in_two_lines(run: Any, given: list[str], told: str) -> None:
    result = run(*given)
    assert (result.code, result.out) == (2, "")
    first, second = result.err.splitlines()
    assert first.startswith(f"optsched: error: {told}")
    assert second.startswith("optsched: try 'optsched")
    assert second.endswith("--help'")


# --- the log -------------------------------------------------------------------------------------------------------


def test_verbose_logs_on_standard_error(run: Any) -> None:
    result = run("solve", "@quickstart", "-v", "--json")
    assert result.json["status"] == "optimal"
    assert result.err.startswith("optsched: solver highs: linear program of 27 rows\n")
    assert (
        run("solve", "@quickstart", "--json").err == ""
    )  # nothing is left of the last command's log


def test_log_file_is_appended_to(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    for _ in range(2):
        assert run("solve", "@quickstart", "-q", "--log", path).err == ""
    assert path.read_text().count("INFO solver highs: linear program of 27 rows") == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
def test_a_log_that_cannot_be_written_costs_no_answer(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "solution.json"
    result = run("solve", "@quickstart", "-o", path, "--log", "/dev/full")
    assert result.code == 2
    assert result.err.endswith("cannot write /dev/full: No space left on device\n")
    assert "Traceback" not in result.err
    assert run("verify", "@quickstart", path).code == 0


def test_a_solution_is_not_written_over_its_instance(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "instance.json"
    document = optsched.load("@quickstart").to_document()
    path.write_text(json.dumps(document))
    result = run("solve", path, "-o", path.parent / "." / path.name)
    assert result.code == 2 and "which is read, expected another file" in result.err
    assert json.loads(path.read_text()) == document


def test_more_verbose_logs_debug_messages(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import logging

    original = api.solve

    def solve(*arguments: Any, **options: Any) -> Any:
        logging.getLogger("optsched").debug("a detail")
        return original(*arguments, **options)

    monkeypatch.setattr(api, "solve", solve)
    assert "a detail" in run("solve", "@quickstart", "-vv").err
    assert "a detail" not in run("solve", "@quickstart", "-v").err
