"""Arguments of public functions, checked by their annotations before anything is done."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, signature
from numbers import Integral, Real
from typing import ParamSpec, TypeVar

import numpy as np

from optsched.errors import InvalidArgument
from optsched.instance.reading import show

Given = ParamSpec("Given")
Result = TypeVar("Result")
Kind = tuple[Callable[[object], bool], str]
"""Whether a value is of a kind, and what the kind is called."""


def _is(kind: type | tuple[type, ...]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kind)


def _is_number(kind: type) -> Callable[[object], bool]:
    """A number; true and false are none, though Python counts them among the whole numbers."""
    return lambda value: isinstance(value, kind) and not isinstance(value, bool)


KINDS: Mapping[str, Kind] = {
    "None": (lambda value: value is None, ""),
    "bool": (_is((bool, np.bool_)), "true or false"),
    "int": (_is_number(Integral), "a whole number"),
    "float": (_is_number(Real), "a number"),
    "str": (_is(str), "text"),
    "Path": (_is(os.PathLike), "a path"),
    "Mapping": (_is(Mapping), "a mapping"),
    "Sequence": (
        lambda value: isinstance(value, Iterable) and not _is((str, Mapping))(value),
        "a list",
    ),
    "Callable": (callable, "a function"),
    "Extend": (callable, "a function"),
    "PerformanceModel": (lambda value: hasattr(value, "predict"), "a performance model"),
    "FloatArray": (_is(np.ndarray), "an array"),
}
"""Kinds by the names that annotations have for them."""
CLASSES = (
    "Candidates", "Instance", "LinearArrays", "LinearProgram", "PairProfiles", "Profiles", "ReadProgram",
    "RoundPolicy", "Solution", "Trace",
)  # fmt: skip
"""Classes by name: most are defined in layers above this one."""
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

    What an annotation means is looked up in `KINDS`; parameters with other annotations are left to
    the function itself.
    """
    parameters = list(signature(function).parameters.values())
    names = [parameter.name for parameter in parameters]
    kinds = {item.name: kinds_of(item) for item in parameters if kinds_of(item)}

    @wraps(function)
    def checked(*positional: Given.args, **named: Given.kwargs) -> Result:
        for name, value in (*zip(names, positional, strict=False), *named.items()):
            allowed = kinds.get(name)
            if allowed and not any(holds(value) for holds, _ in allowed):
                words = [words for _, words in allowed if words]
                raise InvalidArgument(name, show(value), listed(words))
        return function(*positional, **named)

    return checked


def kinds_of(parameter: Parameter) -> list[Kind]:
    """The kinds that a parameter takes; none where they are not known here."""
    annotation = parameter.annotation
    variadic = parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    if variadic or parameter.name in CHECKED_LATER or not isinstance(annotation, str):
        return []
    parts = [
        name for part in alternatives(annotation) for name in alternatives(ALIASES.get(part, part))
    ]
    found = [KINDS.get(name) or _class_kind(name) for name in parts]
    return [kind for kind in found if kind] if all(found) else []


def _class_kind(name: str) -> Kind | None:
    if name not in CLASSES:
        return None
    article = "an" if name[0] in "AEIOU" else "a"
    return lambda value: any(
        owner.__name__ == name for owner in type(value).__mro__
    ), f"{article} {name}"


def alternatives(annotation: str) -> list[str]:
    """Names of the types in ``A | B[C | D]``, without what stands in brackets."""
    depth, plain = 0, ""
    for character in annotation:
        depth += character == "["
        plain += character if depth == 0 else ""
        depth -= character == "]"
    return [part.strip() for part in plain.split("|")]


def listed(words: list[str]) -> str:
    """``a``, ``a or b``, ``a, b or c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
