"""Checks arguments of public functions against their annotations before the call.

Annotations are read as text, because many name classes of higher layers, which are imported for
type checkers only. Resolving them would import those layers. pydantic validators are not used,
because building one per parameter takes longer than solving a small instance.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from inspect import Parameter, signature
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from optsched.display.text import enumerated
from optsched.errors import InvalidArgument, InvalidInput, UsageError
from optsched.instance.reading import show

Given = ParamSpec("Given")
Result = TypeVar("Result")
TypeCheck = tuple[Callable[[object], bool], str]
"""A test whether a value is of a type, and the name of the type."""


def _is(kind: type | tuple[type, ...]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kind)


def _is_number(kind: type) -> Callable[[object], bool]:
    """Test for a number. True and False are refused, although they are integers in Python."""
    return lambda value: isinstance(value, kind) and not isinstance(value, bool)


def _is_list(value: object) -> bool:
    """Whether a value is a sequence of items; text and mappings are not lists."""
    return isinstance(value, Iterable) and not isinstance(value, str | Mapping)


def _has_class(name: str) -> Callable[[object], bool]:
    """Test whether a value is an instance of a class with this name, or of a subclass."""
    return lambda value: name in [owner.__name__ for owner in type(value).__mro__]


CLASSES = (
    "Candidates",
    "Instance",
    "LinearArrays",
    "LinearProgram",
    "PairProfiles",
    "Profiles",
    "ReadProgram",
    "RoundPolicy",
    "Solution",
    "Trace",
)
"""Classes of the project; most are defined in higher layers."""
CHECKS: Mapping[str, TypeCheck] = {
    "None": (lambda value: value is None, ""),
    "bool": (_is((bool, np.bool_)), "true or false"),
    "int": (_is_number(Integral), "a whole number"),
    "float": (_is_number(Real), "a number"),
    "str": (_is(str), "text"),
    "Path": (_is(os.PathLike), "a path"),
    "Mapping": (_is(Mapping), "a mapping"),
    "Sequence": (_is_list, "a list"),
    "Callable": (callable, "a function"),
    "Extend": (callable, "a function"),
    "PerformanceModel": (lambda value: hasattr(value, "predict"), "a performance model"),
    "FloatArray": (_is(np.ndarray), "an array"),
} | {name: (_has_class(name), f"{'an' if name[0] in 'AEIOU' else 'a'} {name}") for name in CLASSES}
"""The check of each type name in annotations."""
BY_NAME = (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD)
ALIASES = {
    "Performance": "Mapping | str | Path",
    "PointSource": "Mapping | FloatArray | Sequence | str | Path",
    "SolutionSource": "Solution | Mapping | str | Path",
    "Sources": "str | Path | Sequence",
    "StartSource": "Solution | Mapping | str | Path | FloatArray | Sequence",
    "TraceSource": "Trace | Instance | Mapping | str | Path",
}
"""Definitions of named unions."""
CHECKED_LATER = frozenset(
    {
        "constraints",
        "formulation",
        "gap",
        "instance",
        "objectives",
        "options",
        "seed",
        "solver_options",
        "source",
        "threads",
        "time_limit",
        "tolerance",
        "work_limit",
    }
)
"""Parameters that are checked later, where the message can be more precise."""


def checks_arguments(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Decorator: refuse arguments of the wrong type with an `InvalidArgument` that names the
    parameter.

    Annotations are looked up in `CHECKS`; parameters with other annotations are not checked.
    """

    @cache  # cached at the first call, because most imported functions are never called
    def checks() -> dict[str, list[TypeCheck]]:
        return {item.name: checks_of(item) for item in signature(function).parameters.values()}

    @cache
    def by_position() -> list[str] | None:
        parameters = signature(function).parameters.values()
        if any(item.kind is Parameter.VAR_POSITIONAL for item in parameters):
            return None
        return [item.name for item in parameters if item.kind not in BY_NAME]

    @wraps(function)
    def checked(*positional: Given.args, **named: Given.kwargs) -> Result:
        known, places = checks(), by_position()
        if places is not None and len(positional) > len(places):
            raise UsageError(
                f"{function.__name__} takes {enumerated(places, 'and')} by position, found "
                f"{len(positional)} arguments: several values of one are a list, "
                "all else goes by name"
            )
        for name, value in (*zip(known, positional, strict=False), *named.items()):
            allowed = known.get(name)
            if allowed and not any(holds(value) for holds, _ in allowed):
                words = [words for _, words in allowed if words]
                raise InvalidArgument(name, show(value), enumerated(words, "or"))
        return function(*positional, **named)

    return checked


def checks_of(parameter: Parameter) -> list[TypeCheck]:
    """The types that a parameter takes; empty if they are not in `CHECKS`."""
    annotation = parameter.annotation
    variadic = parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    if variadic or parameter.name in CHECKED_LATER or not isinstance(annotation, str):
        return []
    spelled = " | ".join(ALIASES.get(name, name) for name in alternatives(annotation))
    found = [CHECKS.get(name) for name in alternatives(spelled)]
    return [check for check in found if check] if all(found) else []


def alternatives(annotation: str) -> list[str]:
    """Names of the types in ``A | B[C | D]``, without the brackets."""
    while "[" in annotation:  # the innermost brackets first
        annotation = re.sub(r"\[[^\[\]]*\]", "", annotation)
    return [name.strip() for name in annotation.split("|")]


def check_positive(**given: ArrayLike) -> None:
    """Refuse numbers or arrays, given by name, that are not finite and positive."""
    for name, values in given.items():
        column = np.atleast_1d(np.asarray(values, np.float64))
        wrong = np.flatnonzero(~((column > 0) & np.isfinite(column)))
        if len(wrong):
            where = f"{name}[{wrong[0]}]" if np.ndim(values) else name
            raise InvalidInput(where, show(float(column[wrong[0]])), "a finite number above 0")


def names_and_options(given: object, path: str, kind: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Pairs of a name and its options, from one of several notations.

    Each is a name, ``(name, options)`` or ``{kind: name, **options}``, such as ``{"model":
    "usl"}``.

    Parameters
    ----------
    given : object
        One of these, or a list of them.
    path, kind : str
        For messages: the argument, and the kind of thing that is named.

    Raises
    ------
    InvalidArgument
        For an item that has no name.
    """
    named = _name_and_options(given, path, kind)
    if named is not None:
        return [named]
    expected = f'the name of a {kind}, (name, options) or {{"{kind}": name}}'
    if not isinstance(given, list | tuple):
        raise InvalidArgument(path, show(given), expected)
    found = []
    for row, item in enumerate(given):
        named = _name_and_options(item, f"{path}[{row}]", kind)
        if named is None:
            raise InvalidArgument(f"{path}[{row}]", show(item), expected)
        found.append(named)
    return found


def _name_and_options(given: object, path: str, kind: str) -> tuple[str, Mapping[str, Any]] | None:
    """One name with its options; None if the value may be a list of names."""
    if isinstance(given, str):
        return given, {}
    if isinstance(given, Mapping):
        name = given.get(kind)
        if not isinstance(name, str):
            found = show(name) if kind in given else "nothing"
            raise InvalidArgument(f"{path}.{kind}", found, f"the name of a {kind}")
        return name, {key: value for key, value in given.items() if key != kind}
    if isinstance(given, list | tuple) and len(given) == 2:
        name, options = given
        # A name followed by a mapping with a name is a list of two, not a name with options
        if isinstance(name, str) and isinstance(options, Mapping) and kind not in options:
            return name, options
    return None
