"""Rounds of a solution: the entry points, the file, what `verify` refuses, and the command line."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refuses
from rounds_cases import allocation, cut

import optsched
from optsched import Instance, Solution
from optsched.cli.main import main
from optsched.errors import UsageError

# Private names: single searches and bounds, without the choice among them
from optsched.instance.reading import validate
from optsched.placement import METHODS, check_rounds
from optsched.solution.document import SolutionDocument

pytestmark = pytest.mark.property

Document = dict[str, Any]


@cache
def solved(name: str) -> Solution:
    """One-GPU jobs (matchings), or the quickstart instance (gangs, of which not all can be realised)."""
    if name == "quickstart":
        return optsched.solve("@quickstart")
    rates = np.random.default_rng(0).lognormal(0, 1, (9, 2))
    return optsched.solve(
        Instance.from_arrays(pools={"a": 3, "b": 2}, throughput=rates, round=60.0)
    )


def written(name: str, method: str = "auto", **options: Any) -> Document:
    return optsched.realise(solved(name), method, **options).to_document()


def refused(name: str, document: Document, **options: Any) -> list[str]:
    """Fields that `verify` names."""
    return [
        finding.field
        for finding in optsched.verify(solved(name).instance, document, **options).findings
    ]


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["quickstart", "one-gpu"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_passes_verification(name: str, method: str) -> None:
    if (name, method) == ("quickstart", "open-shop"):
        with refuses("method: found open-shop, expected patterns", UsageError):
            optsched.realise(solved(name), method)
        return
    solution = optsched.realise(solved(name), method)
    assert solution.rounds is not None and solution.allocation is solved(name).allocation
    assert check_rounds(solution.rounds, solved(name).allocation.classes) == []  # type: ignore[union-attr]
    assert solution.timings["rounds"] > 0
    document = json.loads(json.dumps(solution.to_document()))
    assert refused(name, document, resolve=True) == []
    assert (
        validate(SolutionDocument, document).model_dump(mode="json", exclude_unset=True) == document
    )


def test_the_same_rounds_twice_are_the_same_text() -> None:
    for name in ("quickstart", "one-gpu"):
        assert json.dumps(written(name)["rounds"]) == json.dumps(written(name)["rounds"])


def test_the_window_lasts_whole_rounds() -> None:
    assert written("one-gpu", rounds=7)["rounds"]["window"] == 7 * 60
    rounds = written("one-gpu")["rounds"]
    assert rounds["window"] == 60 * len(rounds["slices"])
    assert sum(part["duration"] for part in rounds["slices"]) == pytest.approx(
        rounds["window"], rel=1e-9
    )
    assert len(written("one-gpu", "priority")["rounds"]["slices"]) == 100


def test_rows_that_fit_side_by_side_all_start_at_once() -> None:
    fractions = {("j0", "g"): 0.5, ("j1", "g"): 1.0, ("j2", "g"): 0.5}
    rounds = cut(allocation(fractions, pools={"g": 8}, throughput=np.ones((3, 1)), gpus=[4, 2, 2]))
    assert rounds.method == "at-once" and rounds.length.tolist() == [0.5, 0.5]
    assert rounds.running(0).tolist() == [0, 1, 2] and rounds.running(1).tolist() == [1]
    assert rounds.switches == 3 and len(rounds) == 2


def test_an_integral_allocation_is_one_slice() -> None:
    solution = optsched.realise(optsched.solve("@packing", "max-throughput", integral=True))
    assert solution.rounds is not None and len(solution.rounds) == 1 and solution.rounds.scale == 1


def test_an_allocation_of_nothing_is_no_slice() -> None:
    none = allocation({}, pools={"g": 1}, throughput=[[1.0]])
    for method in METHODS:
        assert len(cut(none, method, rounds=3)) in (0, 3)


def test_consecutive_slices_share_rows() -> None:
    rates = np.random.default_rng(0).lognormal(0, 1, (40, 3))
    instance = Instance.from_arrays(pools={"a": 5, "b": 4, "c": 3}, throughput=rates)
    made = optsched.solve(instance).allocation
    assert made is not None
    for method in ("open-shop", "patterns"):
        rounds = cut(made, method)
        shuffled = np.random.default_rng(1).permutation(len(rounds))
        assert (
            rounds.switches
            < 0.8 * replace(rounds, runs=sp.csr_matrix(rounds.runs[shuffled])).switches
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"method": "birkhoff"},
            "method: found 'birkhoff', expected one of auto, open-shop, patterns, priority",
        ),
        ({"rounds": 0}, "rounds: found 0, expected a number from 1 to 100,000"),
        ({"rounds": 10**9}, "rounds: found 1000000000, expected a number from 1 to 100,000"),
        ({"time_limit": 0}, "time_limit: found 0, expected a number above 0"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with refuses(message, UsageError):
        optsched.realise(solved("one-gpu"), **options)


def test_what_has_no_allocation_cannot_be_cut() -> None:
    with pytest.raises(
        UsageError, match="no allocation to cut into rounds: its status is infeasible"
    ):
        optsched.realise(optsched.solve("@infeasible"))


def test_what_has_a_schedule_cannot_be_cut() -> None:
    solution = replace(solved("one-gpu"), schedule=object())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="has a schedule, which says already what runs when"):
        optsched.realise(solution)


def test_importing_is_cheap() -> None:
    code = "import optsched, sys; optsched.realise; assert not {'cvxpy', 'ortools', 'networkx'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- files that were tampered with -----------------------------------------------------------------------------------


def _swap_a_row(rounds: Document) -> None:
    """A row runs in place of another one that is its like."""
    for part in rounds["slices"]:
        if 0 in part["run"] and 1 not in part["run"]:
            part["run"] = sorted({*part["run"], 1} - {0})
            return
    raise AssertionError


TAMPERINGS: dict[str, tuple[Any, str]] = {
    "scale": (lambda rounds: rounds.update(scale=rounds["scale"] * 0.9), "rounds.scale"),
    "scale above 1": (lambda rounds: rounds.update(scale=1.5), "rounds.scale"),
    "bound below the scale": (lambda rounds: rounds.update(bound=rounds["scale"] / 2), "rounds.bound"),
    "bound above 1": (lambda rounds: rounds.update(bound=2.0), "rounds.bound"),
    "window": (lambda rounds: rounds.update(window=rounds["window"] * 1.01), "rounds.window"),
    "no window": (lambda rounds: rounds.update(window=0.0), "rounds.window"),
    "a longer slice": (lambda rounds: rounds["slices"][0].update(duration=rounds["window"]), "rounds.slices"),
    "a negative duration": (lambda rounds: rounds["slices"][1].update(duration=-5.0), "rounds.slices[1].duration"),
    "a slice left out": (lambda rounds: rounds["slices"].pop(), "rounds.slices"),
    "no slices": (lambda rounds: rounds.update(slices=[]), "rounds.scale"),
    "another row": (_swap_a_row, "rounds.slices"),
    "a row that is not there": (lambda rounds: rounds["slices"][0]["run"].append(999), "rounds.slices[0].run"),
    "a negative row": (lambda rounds: rounds["slices"][0]["run"].append(-1), "rounds.slices[0].run"),
    "a row twice": (lambda rounds: rounds["slices"][0].update(run=[0, 0]), "rounds.slices[0].run"),
    "all rows at once": (lambda rounds: rounds["slices"][2].update(run=list(range(9))), "rounds.slices[2].run"),
    "an unknown method": (lambda rounds: rounds.update(method="magic"), "rounds.method"),
    "an unknown key": (lambda rounds: rounds.update(colour="red"), "rounds.colour"),
    "a word for a number": (lambda rounds: rounds.update(scale="all"), "rounds.scale"),
}  # fmt: skip


@pytest.mark.parametrize("tampering", TAMPERINGS)
@pytest.mark.parametrize("name", ["quickstart", "one-gpu"])
def test_tampered_rounds_are_refused(name: str, tampering: str) -> None:
    change, field = TAMPERINGS[tampering]
    document = copy.deepcopy(written(name))
    change(document["rounds"])
    assert field in refused(name, document)


def test_a_bound_that_is_not_reached_is_refused_where_the_search_is_finished() -> None:
    document = written("quickstart")
    assert document["rounds"]["scale"] < 0.99
    document["rounds"]["bound"] = 1.0
    assert refused("quickstart", document) == ["rounds.bound"]
    document["rounds"]["finished"] = False
    assert refused("quickstart", document) == []
    document["rounds"] |= {
        "bound": document["rounds"]["scale"] * 0.5,
        "scale": document["rounds"]["scale"] * 0.5,
    }
    for part in document["rounds"]["slices"]:
        part["duration"] *= 0.5
    assert refused("quickstart", document) == []  # slices of half of it are slices
    assert refused("quickstart", document, resolve=True) == ["rounds.bound"]
    document["rounds"]["finished"] = True
    assert refused("quickstart", document, resolve=True) == ["rounds.scale", "rounds.bound"]


def test_what_has_no_search_is_always_finished() -> None:
    document = copy.deepcopy(written("one-gpu"))
    document["rounds"]["finished"] = False
    assert document["rounds"]["method"] == "open-shop" and refused("one-gpu", document) == [
        "rounds.finished"
    ]


def test_the_share_of_the_priority_rule_is_the_smallest() -> None:
    document = written("quickstart", "priority")
    document["rounds"]["scale"] += 1e-3
    assert refused("quickstart", document) == ["rounds.scale"]


def test_a_job_runs_once_at_a_time() -> None:
    document = written("one-gpu")
    rows = [row.get("job") for row in document["allocation"]]
    twice = next(name for name in rows if rows.count(name) > 1)
    document["rounds"]["slices"][0]["run"] = [row for row, name in enumerate(rows) if name == twice]
    found = optsched.verify(solved("one-gpu").instance, document)
    assert any(f"job {twice} runs twice at a time" in str(finding) for finding in found.findings)


def test_rounds_without_an_allocation_are_refused() -> None:
    document = optsched.solve("@infeasible").to_document()
    document["rounds"] = written("one-gpu")["rounds"]
    found = optsched.verify("@infeasible", document)
    assert [finding.field for finding in found.findings] == ["rounds"]


# --- command line ----------------------------------------------------------------------------------------------------


@pytest.mark.unit
def test_the_command_line_cuts_writes_and_tells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    assert (
        main(["solve", "@quickstart", "--rounds", "auto", "--window", "50", "-o", str(path)]) == 0
    )
    told = capsys.readouterr().out
    assert (
        "Rounds" in told
        and "5 h: 50 rounds" in told
        and "of every fraction, the most that is possible" in told
    )
    assert json.loads(path.read_text())["rounds"]["window"] == 50 * 360
    assert main(["verify", "@quickstart", str(path)]) == 0
    assert main(["solve", "@quickstart", "--json"]) == 0
    assert "rounds" not in json.loads(capsys.readouterr().out.partition("\n")[2])


def test_an_infeasible_instance_keeps_its_exit_code() -> None:
    assert main(["solve", "@infeasible", "--rounds", "auto", "-q"]) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--rounds", "birkhoff"],
            "--rounds: found 'birkhoff', expected one of auto, open-shop, patterns, priority",
        ),
        (
            ["--rounds", "auto", "--window", "0"],
            "--window: found 0, expected a number from 1 to 100,000",
        ),
        (["--rounds", "auto", "--window", "few"], "--window: found 'few', expected a whole number"),
        (
            ["--window", "3"],
            "--window says how long the slices of --rounds last: give both, or none",
        ),
    ],
)
def test_wrong_options_of_the_command_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["solve", "@quickstart", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err and err.count("\n") == 1


def test_rounds_that_cannot_be_made_leave_the_solution(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["solve", "@quickstart", "--rounds", "open-shop"]) == 2
    out, err = capsys.readouterr()
    assert "status       optimal" in out and "Rounds" not in out
    assert "method: open-shop takes jobs that hold one GPU" in err
