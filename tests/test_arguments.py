"""Arguments of the wrong type: every public function refuses them by name, before it does anything."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isclass, signature
from typing import Any

import pytest

import optsched
from optsched.instance.arguments import alternatives, kinds_of

SIGNATURES = {
    name: signature(getattr(optsched, name))
    for name in optsched.__all__
    if callable(getattr(optsched, name)) and not isclass(getattr(optsched, name))
}
BY_TYPE = {
    (function, parameter.name): kinds_of(parameter)
    for function, declared in SIGNATURES.items()
    for parameter in declared.parameters.values()
    if kinds_of(parameter)
}
"""Parameters of public functions that are checked by their annotation."""
UNCHECKED = frozenset(
    {"compile", "concave_envelope", "envelope_gap", "fit_loss_curve", "fit_parameter_server", "replay", "solve_round"}
)  # fmt: skip
"""Numerical helpers, and what takes documents of its own."""
LATER = {
    "formulation": "a name",
    "gap": object(),
    "instance": 3.5,
    "seed": "a",
    "solver_options": 3,
    "threads": 1.5,
    "time_limit": [5],
    "tolerance": "small",
    "work_limit": 1.5,
}


class Odd:
    """Of no type that any parameter takes."""


@pytest.mark.parametrize(
    ("function", "parameter"), [key for key in sorted(BY_TYPE) if key[0] not in UNCHECKED]
)
def test_a_value_of_no_type_is_refused_by_name(function: str, parameter: str) -> None:
    with pytest.raises(optsched.InvalidArgument) as caught:
        getattr(optsched, function)(**{parameter: Odd()})
    error = caught.value
    assert error.path == parameter
    assert error.found.startswith("<") and "Odd" in error.found
    assert error.expected == " or ".join(error.expected.split(" or ")) and error.expected


def test_most_parameters_are_checked_by_type() -> None:
    assert len(BY_TYPE) > 100
    for name in ("start", "extend", "model", "performance", "classes", "prove", "on_progress"):
        assert ("solve", name) in BY_TYPE


@pytest.mark.parametrize("parameter", sorted(set(LATER) - {"formulation"}))
@pytest.mark.parametrize("function", ["solve", "compare"])
def test_limits_and_names_are_refused_by_name(function: str, parameter: str) -> None:
    given = {"instance": "@quickstart", parameter: LATER[parameter]}
    with pytest.raises(optsched.InvalidArgument) as caught:
        getattr(optsched, function)(**given)
    assert caught.value.path == parameter


@pytest.mark.parametrize(
    ("call", "path", "found", "expected"),
    [
        (lambda: optsched.place(3), "solution", "3", "a Solution"),
        (lambda: optsched.solve("@quickstart", classes=1), "classes", "1", "true or false"),
        (lambda: optsched.whatif("@quickstart", add=[1]), "add", "[1]", "a mapping"),
        (
            lambda: optsched.whatif("@quickstart", add={"v100": 1}, options=3),
            "options",
            "3",
            "options of max-min-fairness by name",
        ),
        (lambda: optsched.pareto("@quickstart", 3), "objectives", "3", "two formulations"),
        (
            lambda: optsched.solve("@quickstart", start=3),
            "start",
            "3",
            "a Solution, a mapping, text, a path, an array or a list",
        ),
    ],
)
def test_the_fields_of_a_refusal(
    call: Callable[[], Any], path: str, found: str, expected: str
) -> None:
    with pytest.raises(optsched.InvalidArgument) as caught:
        call()
    assert (caught.value.path, caught.value.found, caught.value.expected) == (path, found, expected)


def test_a_wrong_option_is_named_without_the_branches_of_its_type() -> None:
    for formulation, option, value in (
        ("max-min-fairness", "agnostic", "perhaps"),
        ("max-throughput", "integral", [1]),
    ):
        with pytest.raises(optsched.InvalidArgument) as caught:
            optsched.solve("@quickstart", formulation, options={option: value})
        assert "true or false" in caught.value.expected
        assert caught.value.path == f"option of {formulation}: {option}"


def test_the_types_of_an_annotation() -> None:
    assert alternatives("Mapping[str, int | None] | str | None") == ["Mapping", "str", "None"]
