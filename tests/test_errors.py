"""Errors: what their sentences are made of, and the exit code of each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from refusals import Refusal, refuses, stated

import optsched
from optsched import errors
from optsched.benchmarking.table import check_results_name
from optsched.errors import InvalidArgument, InvalidInput, JournalDamaged
from optsched.generate import generate


def test_the_sentence_of_a_wrong_value() -> None:
    assert (
        str(InvalidArgument("--seed", "'x'", "a whole number"))
        == "--seed: found 'x', expected a whole number"
    )
    assert (
        str(InvalidInput("jobs[3].steps", "0", "a number"))
        == "jobs[3].steps: found 0, expected a number"
    )
    assert str(InvalidInput("", "[]", "an object")) == "found [], expected an object"
    assert (
        str(InvalidInput("steps", "x", "a number", "a.json"))
        == "a.json: steps: found x, expected a number"
    )


def test_the_sentence_of_a_damaged_journal() -> None:
    error = JournalDamaged("j", "0.log", 7, "a record", "the end")
    assert str(error) == "journal j is damaged: 0.log, line 7: found a record, expected the end"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: optsched.solve("@quickstat"),
            "no instance @quickstat ships, expected one of @assignment, @infeasible, @knapsack, @large, @leases, "
            "@packing, @quickstart, @services, @smd, @topology, @unrelated; did you mean @quickstart?",
        ),
        (
            lambda: optsched.RoundPolicy(ranking="tiresia"),
            "unknown ranking 'tiresia' (did you mean tiresias?), expected one of 2d-las, ",
        ),
        (
            lambda: optsched.solve("@quickstart", "srtf"),
            "unknown formulation 'srtf' (it is a ranking, for rounds and simulations), expected one of allox, ",
        ),
        (
            lambda: optsched.RoundPolicy(ranking="tiresias", options={"limit": [1]}),
            "tiresias has no option 'limit', expected one of gpus, moves, limits, knob, classes; did you mean limits?",
        ),
        (
            lambda: optsched.solve("@quickstart", "makespan", agnostic=True),
            "makespan: agnostic needs reference_pool, one of v100, p100, k80; found None",
        ),
        (
            lambda: optsched.solve("@quickstart", "makespan", agnostik=True),
            "solve has no parameter and makespan no option 'agnostik'; did you mean agnostic?",
        ),
        (
            lambda: optsched.solve("@quickstart", constraints=[7]),
            'a side constraint is a kind or an object with "kind", found 7',
        ),
        (
            lambda: optsched.solve("@quickstart", constraints=["quota:tenant=vision,gpus=1"]),
            'constraint: found "quota:tenant=vision,gpus=1", expected a kind, or a dict with its options: '
            '{"kind": "quota", ...}',
        ),
        (
            lambda: optsched.simulate("@quickstart", "srtf:weighted=true"),
            'policy: found "srtf:weighted=true", expected a name, or a dict with its options: {"ranking": "srtf", ...}',
        ),
        (
            lambda: optsched.whatif("@quickstart", add={"v10": 1}),
            "add: no pool or resource is called 'v10', expected one of v100, p100, k80; did you mean v100?",
        ),
        (
            lambda: optsched.pareto("@quickstart", ["makespan"]),
            "a front is between two objectives that differ, found 1 of them",
        ),
        (lambda: generate("gab"), "no generator 'gab', expected one of cluster, unrelated, gap, "),
        (
            lambda: check_results_name("a.txt"),
            "a.txt: expected a name that ends in .csv, .json or .jsonl",
        ),
    ],
)  # fmt: skip
def test_sentences_other_than_that_of_wrong_values(
    call: Callable[[], object], sentence: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        call()
    assert str(caught.value).startswith(sentence)


def test_a_message_stands_for_an_error_without_fields() -> None:
    with refuses("no trace...", errors.UsageError):
        raise errors.UsageError("no trace was given")
    with pytest.raises(AssertionError), refuses("no trace: found 3", errors.UsageError):
        raise errors.UsageError("no trace: found 3")


def test_exit_codes() -> None:
    codes = {
        name: owner.exit_code for name, owner in vars(errors).items() if isinstance(owner, type)
    }
    assert codes == {
        "OptschedError": 1, "WrongValue": 1, "UsageError": 2, "InvalidArgument": 2, "JournalError": 2,
        "InvalidInput": 3, "JournalDamaged": 3,
        "NoAllocation": 4, "ReplayDiffers": 6, "VerificationFailed": 6, "SolverUnavailable": 7, "UnsuitableSolver": 7,
        "SolverCrashed": 7, "Interrupted": 130,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("a[1].b: found 0, expected text", Refusal("a[1].b", "0", "text")),
        ("found [], expected an object", Refusal("", "[]", "an object")),
        ("a: found 0", Refusal("a", "0", None)),
        ("a.b", Refusal("a.b", None, None)),
        ("a.csv:4:steps: found x, expected y", Refusal("a.csv:4:steps", "x", "y")),
    ],
)
def test_a_stated_refusal_has_fields(text: str, fields: Refusal) -> None:
    assert stated(text) == fields


@pytest.mark.parametrize("text", ["a: found 0, expected numbers", "b: found 0", "a: found 1", "b"])
def test_other_fields_are_told_apart(text: str) -> None:
    with pytest.raises(AssertionError), refuses(text):
        raise InvalidInput("a", "0", "a number")


@pytest.mark.parametrize(
    "text", ["a: found 0, expected a number", "a: found 0", "a", "a: found 0, expected a..."]
)
def test_the_same_fields_are_recognised(text: str) -> None:
    with refuses(text):
        raise InvalidInput("a", "0", "a number")


@pytest.mark.parametrize(
    "text", ["jobs[0].steps", "a.json: jobs[0].steps", "/data/in/a.json: jobs[0].steps"]
)
def test_the_file_and_its_folders_can_be_left_out(text: str) -> None:
    with refuses(f"{text}: found b.csv, expected a number"):
        raise InvalidInput("jobs[0].steps", "/data/b.csv", "a number", "/data/in/a.json")


@pytest.mark.parametrize(
    "text", ["b.json: jobs[0].steps", "in/a.json: jobs[0].steps", "a.json: jobs[1].steps"]
)
def test_other_files_are_told_apart(text: str) -> None:
    with pytest.raises(AssertionError), refuses(text):
        raise InvalidInput("jobs[0].steps", "/data/b.csv", "a number", "/data/in/a.json")
