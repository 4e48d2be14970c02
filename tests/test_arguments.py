"""Arguments of the wrong type: every public function refuses them by name, before it does anything."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from inspect import isclass, signature
from typing import Any

import pytest
from refusals import refuses

import optsched
from optsched.errors import UsageError
from optsched.instance.arguments import alternatives, checks_of

SIGNATURES = {
    name: signature(getattr(optsched, name))
    for name in optsched.__all__
    if callable(getattr(optsched, name)) and not isclass(getattr(optsched, name))
}
BY_TYPE = {
    (function, parameter.name): checks_of(parameter)
    for function, declared in SIGNATURES.items()
    for parameter in declared.parameters.values()
    if checks_of(parameter)
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
        (
            lambda: optsched.pareto("@quickstart", 3),
            "objectives",
            "3",
            'the name of a formulation, (name, options) or {"formulation": name}',
        ),
        (
            lambda: optsched.solve("@quickstart", start=3),
            "start",
            "3",
            "a Solution, a mapping, text, a path, an array or a list",
        ),
        (
            lambda: optsched.solve("@leases", "deadline-elastic", start=[1]),
            "start",
            "[1]",
            "a solution, its file, or an array",
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


@pytest.mark.parametrize("function", [optsched.pareto, optsched.compare])
def test_formulations_one_by_one_are_told_to_be_a_list(function: Any) -> None:
    with pytest.raises(
        UsageError, match=r"by position, found 3 arguments: several values .* a list"
    ):
        function("@quickstart", "makespan", "cost")


def test_the_types_of_an_annotation() -> None:
    assert alternatives("Mapping[str, int | None] | str | None") == ["Mapping", "str", "None"]


# --- mappings and lists of the wrong shape ---------------------------------------------------------


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("profiles") / "steps.csv"
    rows = [f"w,v100,{gpus},1,32,{0.1 + 0.02 * gpus}" for gpus in (1, 2, 4, 8)]
    path.write_text("workload,gpu,gpus,nodes,samples,seconds\n" + "\n".join(rows) + "\n")
    return optsched.read_profiles(path)


WRONG_MODELS = [
    (3, "models: found 3, expected the name of a model..."),
    ({}, "models.model: found nothing, expected the name of a model"),
    ({"model": 3, "of": {}}, "models.model: found 3, expected the name of a model"),
    (["usl", None], "models[1]: found null"),
    ([{"models": 3}, "usl"], "models[0].model: found nothing"),
]


@pytest.mark.parametrize(("models", "refusal"), WRONG_MODELS)
def test_models_that_name_none(models: Any, refusal: str, profiles: Any) -> None:
    with refuses(refusal, optsched.InvalidArgument):
        optsched.fit_model(profiles, models)
    with refuses(refusal, optsched.InvalidArgument):
        optsched.evaluate_models(profiles, models)


def test_a_model_may_be_a_mapping(profiles: Any) -> None:
    by_name = optsched.fit_model(profiles, "usl")
    assert optsched.fit_model(profiles, {"model": "usl"}) == by_name
    assert optsched.fit_model(profiles, ("usl", {})) == by_name
    with pytest.raises(optsched.OptschedError):
        optsched.fit_model(profiles, {"model": "conformal", "covrage": 0.8})


@pytest.mark.parametrize(
    ("call", "refusal"),
    [
        (lambda p: optsched.evaluate_models(p, "usl", [1]), "splits[0]: found 1"),
        (lambda p: optsched.evaluate_models(p, "usl", ("jobs", {})), 'splits[0]: found "jobs"'),
        (lambda _: optsched.pareto("@quickstart", (1, 2)), "objectives[0]: found 1"),
        (
            lambda _: optsched.pareto("@quickstart", {"a": 1, "b": 2}),
            "objectives.formulation: found nothing",
        ),
        (lambda _: optsched.read_profiles([1]), "sources[0]: found 1, expected text or a path"),
        (lambda _: optsched.read_pairs("a.csv", alone=[None]), "alone[0]: found null"),
        (lambda _: optsched.solve("@quickstart", start=[]), "start: found []"),
        (lambda _: optsched.solve("@quickstart", options={1: 2}), "option of max-min-fairness..."),
        (lambda _: optsched.solve("@quickstart", tolerance=10**400), "tolerance"),
        (lambda _: optsched.solve("@quickstart", solver_options={1: 2}), "solver_options"),
    ],
)
def test_the_inside_of_an_argument_is_refused_by_name(
    call: Callable[[Any], Any], refusal: str, profiles: Any
) -> None:
    with refuses(refusal, optsched.InvalidArgument):
        call(profiles)


@pytest.mark.parametrize("path", ["\0", "\ud800", "a" * 5000])
def test_paths_that_no_file_can_have(path: str) -> None:
    with pytest.raises(optsched.UsageError):
        optsched.write_model({"model": "table"}, path)
    with pytest.raises(optsched.InvalidInput):
        optsched.read_profiles(path)


JUNK: list[Any] = [
    None, True, 0, -1, 1.5, float("nan"), 1e308, 10**400, "", "x", "\0", "\ud800", b"x", [], [[]], [None], {}, {1: 2},
    {"a": None}, {"x"}, {"model": "chain", "models": 3}, {"model": "noisy", "of": {}}, {"model": []}, {"kind": []},
    {"kind": "budget", "limit": "x"}, [{"kind": "quota"}], ("usl", None), {"formulation": 3}, {"ranking": "srtf"},
]  # fmt: skip
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "fit_model": lambda p, value: optsched.fit_model(p, value),
    "splits": lambda p, value: optsched.evaluate_models(p, "usl", value or [value]),
    "performance": lambda _, value: optsched.load("@quickstart", performance=value),
    "instance": lambda _, value: optsched.load(value),
    "constraints": lambda _, value: optsched.solve("@quickstart", constraints=value),
    "options": lambda _, value: optsched.solve("@quickstart", options=value),
    "start": lambda _, value: optsched.solve("@quickstart", start=value),
    "policy": lambda _, value: optsched.Scheduler("@quickstart", value),
    "simulated": lambda _, value: optsched.simulate("@infeasible", [value]),
    "state": lambda _, value: optsched.solve_round(value),
    "document": lambda p, value: optsched.predict_times(value, p.ways),
    "solution": lambda _, value: optsched.verify("@quickstart", value),
    "constraint": lambda _, value: optsched.InstanceBuilder().add_constraint(value),
}


@pytest.mark.parametrize("call", CALLS)
def test_junk_never_ends_in_another_error(call: str, profiles: Any) -> None:
    for value in JUNK:
        with contextlib.suppress(optsched.OptschedError):
            CALLS[call](profiles, value)
