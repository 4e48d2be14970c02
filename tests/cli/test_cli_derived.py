"""Options that are read off functions and models: names, types, defaults and the first sentences of their help."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from optsched.cli.derived import described, errors_name, opening
from optsched.cli.imports import FORMATS
from optsched.cli.values import TYPES
from optsched.errors import InvalidArgument, InvalidInput
from optsched.rounds.policy import RoundPolicy
from optsched.simulation import SimulationOptions

Hours = float


def sample(trace: str, *, wait: Hours | None = None, most: int = 3) -> None:
    """Do something.

    A second paragraph with ``code``.

    A third one, for those who read code.

    Parameters
    ----------
    trace : path
        A table of jobs,
        in CSV. It is read.
    wait, most : float, optional
        See `optsched solvers`. Ignored.

    Raises
    ------
    most : of the time
        Nothing.
    """


def test_a_function() -> None:
    trace, wait, most = described(sample).values()
    assert (trace.name, trace.type, trace.required) == ("trace", "str", True)
    assert trace.help == "A table of jobs, in CSV."
    assert (wait.type, wait.required, wait.default) == ("Hours", False, None)
    assert (most.type, most.default) == ("int", 3)
    assert wait.help == most.help == "See `optsched solvers`."
    assert opening(sample) == "Do something.\n\nA second paragraph with code."


@pytest.mark.parametrize("model", [RoundPolicy, SimulationOptions])
def test_every_field_of_a_model_says_what_it_is(model: Any) -> None:
    fields = described(model)
    assert list(fields) == list(model.model_fields)
    assert all(field.help.endswith(".") for field in fields.values())
    assert not any(field.required for field in fields.values())


@pytest.mark.parametrize("name", FORMATS)
def test_every_parameter_of_an_importer_says_what_it_is(name: str) -> None:
    from optsched import formats

    importer = getattr(formats, f"import_{name}")
    parameters = described(importer)
    assert list(parameters) == list(inspect.signature(importer).parameters)
    assert all(parameter.help.endswith(".") for parameter in parameters.values()), parameters
    assert parameters["name"].default == (None if name == "csv" else name)  # csv: of its file
    assert set(FORMATS[name].arguments) <= parameters.keys()


def test_errors_name_the_option() -> None:
    for kind in (InvalidArgument, InvalidInput):
        with (
            pytest.raises(kind, match=r"^--wait: found 1, expected 2$"),
            errors_name({"wait": "--wait"}),
        ):
            raise kind("options.wait", "1", "2")
    with pytest.raises(InvalidArgument, match=r"^its own words$"), errors_name({"wait": "--wait"}):
        raise InvalidArgument("wait", "1", "2", sentence="its own words")


def test_units_have_a_way_to_be_typed() -> None:
    for model, names in (
        (RoundPolicy, ("hysteresis", "memory_limit")),
        (SimulationOptions, ("failures", "until")),
    ):
        assert all(described(model)[name].type in TYPES for name in names)
