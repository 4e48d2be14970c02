"""The reference of the Python API: every public name is on a page, every parameter in a docstring."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import optsched
from optsched.solving import LimitOptions

pytestmark = pytest.mark.documentation

PAGES = Path(__file__).parent.parent / "docs" / "reference" / "api"
NAMES = [
    name
    for page in sorted(PAGES.glob("*.md"))
    for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
]
OPEN = {
    "optsched.InstanceBuilder.add_constraint",
    "optsched.fit_model",
    "optsched.fit_pairs",
    "optsched.generate.generate",
    "optsched.solve",
}
"""Functions with ``**options``: a kind, a model or a formulation says which there are."""


def found(name: str) -> Any:
    """What a page names: ``optsched.Solution``, ``optsched.report.price_bars``."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The functions, classes and public methods that the pages show."""
    for name in NAMES:
        shown = found(name)
        # Errors are raised by us; nobody has to know how they are made.
        if not (inspect.isclass(shown) and issubclass(shown, Exception)):
            yield name, shown
        if not inspect.isclass(shown):
            continue
        for method, value in list(vars(shown).items()):
            function = getattr(value, "__func__", value)
            # Classes that override a method say what is different; its parameters stand where it is first defined.
            overrides = any(method in vars(base) for base in shown.__mro__[1:])
            if not method.startswith("_") and inspect.isfunction(function) and not overrides:
                yield f"{name}.{method}", function


CALLABLES = dict(callables())


def documented(function: Callable[..., Any], *sections: str) -> list[str]:
    """The names in sections of a numpydoc docstring; a class's fields are parameters of its dataclass."""
    text = inspect.getdoc(function) or ""
    names = []
    for section in sections:
        body = re.search(
            rf"^{section}\n-+\n(.*?)(?=^[^\n]+\n---|\Z)", text, re.MULTILINE | re.DOTALL
        )
        heads = re.findall(r"^(\S.*)$", body[1], re.MULTILINE) if body else []
        names += [name.strip("* ") for head in heads for name in head.split(" : ")[0].split(",")]
    return names


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    every = inspect.signature(function).parameters.values()
    return [item for item in every if item.name not in ("self", "cls")]


def test_every_public_name_is_on_a_page() -> None:
    modules = {"optsched.verify"}  # the page shows the function in it
    shown = {name.rpartition(".")[2] for name in NAMES} | modules
    assert set(optsched.__all__) - {"__version__"} <= shown
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize("name", CALLABLES)
def test_every_parameter_is_documented(name: str) -> None:
    function = CALLABLES[name]
    if isinstance(function, type) and not documented(function, "Parameters", "Attributes"):
        assert function.__init__ is object.__init__  # type: ignore[misc]
        return
    known = set(documented(function, "Parameters"))
    if isinstance(function, type):
        known |= set(documented(function, "Attributes"))
    if "limits" in known:
        known |= set(LimitOptions.__annotations__)
    named = {item.name for item in parameters(function)}
    assert named <= known, named - known
    if not isinstance(function, type):
        surplus = known - named - {"limits"} - set(LimitOptions.__annotations__)
        assert not surplus


@pytest.mark.parametrize("name", CALLABLES)
def test_a_function_says_what_it_returns_and_raises(name: str) -> None:
    function = CALLABLES[name]
    text = inspect.getdoc(function) or ""
    assert text
    if isinstance(function, type):
        return
    returned = inspect.signature(function).return_annotation
    if parameters(function) and returned not in (None, "None"):
        assert "Returns\n---" in text
    source = inspect.getsource(inspect.unwrap(function))
    if re.search(r"^\s+raise (?!NotImplementedError)", source, re.MULTILINE):
        assert "Raises\n---" in text


@pytest.mark.parametrize("name", CALLABLES)
def test_signatures_are_explicit(name: str) -> None:
    kinds = {item.kind for item in parameters(CALLABLES[name])}
    assert name in OPEN or inspect.Parameter.VAR_KEYWORD not in kinds
