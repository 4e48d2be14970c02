"""Arguments of public functions, checked by their annotations before anything is done.

Annotations are read as text: many name classes of layers above this one, which the modules of the
functions import for type checkers alone. To resolve them would import those layers, and a validator
of pydantic per parameter takes longer to build than a small instance takes to solve.
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
"""Whether a value is of a type, and what the type is called."""


def _is(kind: type | tuple[type, ...]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kind)


def _is_number(kind: type) -> Callable[[object], bool]:
    """A number; true and false are none, though Python counts them among the whole numbers."""
    return lambda value: isinstance(value, kind) and not isinstance(value, bool)


def _is_list(value: object) -> bool:
    """Anything with items in order; text and mappings can be iterated over, but are no lists."""
    return isinstance(value, Iterable) and not isinstance(value, str | Mapping)


def _has_class(name: str) -> Callable[[object], bool]:
    """Whether a value is of a class, or of one derived from it, by the name of the class."""
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
"""Classes of the project, most of which are defined in layers above this one."""
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
"""By the names that annotations have for the types."""
BY_NAME = (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD)
ALIASES = {
    "Performance": "Mapping | str | Path",
    "PointSource": "Mapping | FloatArray | Sequence | str | Path",
    "SolutionSource": "Solution | Mapping | str | Path",
    "Sources": "str | Path | Sequence",
    "StartSource": "Solution | Mapping | str | Path | FloatArray | Sequence",
    "TraceSource": "Trace | Instance | Mapping | str | Path",
}
"""What the unions with a name of their own are made of."""
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
"""Parameters that are checked where they are used, with more to say than their type."""


def checks_arguments(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Let a function refuse arguments of the wrong type by an `InvalidArgument` that names them.

    What an annotation means is looked up in `CHECKS`; parameters with other annotations are left to
    the function itself.
    """

    @cache  # at the first call: most functions of the library are imported and never called
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
                f"{len(positional)} arguments: several values of one are a list, all else goes by name"
            )
        for name, value in (*zip(known, positional, strict=False), *named.items()):
            allowed = known.get(name)
            if allowed and not any(holds(value) for holds, _ in allowed):
                words = [words for _, words in allowed if words]
                raise InvalidArgument(name, show(value), enumerated(words, "or"))
        return function(*positional, **named)

    return checked


def checks_of(parameter: Parameter) -> list[TypeCheck]:
    """The types that a parameter takes; none where they are not known here."""
    annotation = parameter.annotation
    variadic = parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    if variadic or parameter.name in CHECKED_LATER or not isinstance(annotation, str):
        return []
    spelled = " | ".join(ALIASES.get(name, name) for name in alternatives(annotation))
    found = [CHECKS.get(name) for name in alternatives(spelled)]
    return [check for check in found if check] if all(found) else []


def alternatives(annotation: str) -> list[str]:
    """Names of the types in ``A | B[C | D]``, without what is in brackets."""
    while "[" in annotation:  # the innermost brackets first
        annotation = re.sub(r"\[[^\[\]]*\]", "", annotation)
    return [name.strip() for name in annotation.split("|")]


def check_positive(**given: ArrayLike) -> None:
    """Refuse numbers, or columns of them, that are not finite and above 0, by their names."""
    for name, values in given.items():
        column = np.atleast_1d(np.asarray(values, np.float64))
        wrong = np.flatnonzero(~((column > 0) & np.isfinite(column)))
        if len(wrong):
            where = f"{name}[{wrong[0]}]" if np.ndim(values) else name
            raise InvalidInput(where, show(float(column[wrong[0]])), "a finite number above 0")


def names_and_options(given: object, path: str, kind: str) -> list[tuple[str, Mapping[str, Any]]]:
    """What is asked for by name, with its options.

    Each is a name, ``(name, options)`` or ``{kind: name, **options}``, such as ``{"model": "usl"}``.

    Parameters
    ----------
    given : object
        One of these, or a list of them.
    path, kind : str
        For messages: the argument, and what the names are of.

    Raises
    ------
    InvalidArgument
        For what is no name.
    """
    one = _name_and_options(given, path, kind)
    if one is not None:
        return [one]
    expected = f'the name of a {kind}, (name, options) or {{"{kind}": name}}'
    if not isinstance(given, list | tuple):
        raise InvalidArgument(path, show(given), expected)
    found = []
    for row, item in enumerate(given):
        one = _name_and_options(item, f"{path}[{row}]", kind)
        if one is None:
            raise InvalidArgument(f"{path}[{row}]", show(item), expected)
        found.append(one)
    return found


def _name_and_options(given: object, path: str, kind: str) -> tuple[str, Mapping[str, Any]] | None:
    """One name with its options; None for what may be a list of them."""
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
        # A name beside a mapping that names another one is two
        if isinstance(name, str) and isinstance(options, Mapping) and kind not in options:
            return name, options
    return None
