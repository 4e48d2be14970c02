"""Arguments of public functions, checked by their annotations before anything is done.

Annotations are read as text: many name classes of layers above this one, which the modules of the
functions import for type checkers alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from inspect import Parameter, signature
from numbers import Integral, Real
from typing import ParamSpec, TypeVar

import numpy as np

from optsched.display.text import enumerated
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


def _instance_of(name: str, article: str) -> Kind:
    """A class by its name: most are defined in layers above this one."""
    return lambda value: any(
        owner.__name__ == name for owner in type(value).__mro__
    ), f"{article} {name}"


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
    "Candidates": _instance_of("Candidates", "a"),
    "Instance": _instance_of("Instance", "an"),
    "LinearArrays": _instance_of("LinearArrays", "a"),
    "LinearProgram": _instance_of("LinearProgram", "a"),
    "PairProfiles": _instance_of("PairProfiles", "a"),
    "Profiles": _instance_of("Profiles", "a"),
    "ReadProgram": _instance_of("ReadProgram", "a"),
    "RoundPolicy": _instance_of("RoundPolicy", "a"),
    "Solution": _instance_of("Solution", "a"),
    "Trace": _instance_of("Trace", "a"),
}
"""Kinds by the names that annotations have for them."""
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

    @cache  # at the first call: most functions of the library are imported and never called
    def kinds() -> dict[str, list[Kind]]:
        return {item.name: kinds_of(item) for item in signature(function).parameters.values()}

    @wraps(function)
    def checked(*positional: Given.args, **named: Given.kwargs) -> Result:
        known = kinds()
        for name, value in (*zip(known, positional, strict=False), *named.items()):
            allowed = known.get(name)
            if allowed and not any(holds(value) for holds, _ in allowed):
                words = [words for _, words in allowed if words]
                raise InvalidArgument(name, show(value), enumerated(words, "or"))
        return function(*positional, **named)

    return checked


def kinds_of(parameter: Parameter) -> list[Kind]:
    """The kinds that a parameter takes; none where they are not known here."""
    annotation = parameter.annotation
    variadic = parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    if variadic or parameter.name in CHECKED_LATER or not isinstance(annotation, str):
        return []
    spelled = " | ".join(ALIASES.get(name, name) for name in alternatives(annotation))
    found = [KINDS.get(name) for name in alternatives(spelled)]
    return [kind for kind in found if kind] if all(found) else []


def alternatives(annotation: str) -> list[str]:
    """Names of the types in ``A | B[C | D]``, without what stands in brackets."""
    while "[" in annotation:  # the innermost brackets first
        annotation = re.sub(r"\[[^\[\]]*\]", "", annotation)
    return [name.strip() for name in annotation.split("|")]
