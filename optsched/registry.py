"""Finds formulations, side constraints, performance models and solvers through entry points.

An entry point names a catalogue: a mapping of name -> "module:Class" that is loaded on demand. The project's own
formulations are found in the same way as a third party's.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from optsched.errors import OptschedError, SolverUnavailable, UsageError
from optsched.formulation import Formulation, SideConstraint
from optsched.performance import ModelFactory
from optsched.ranking import Ranking
from optsched.solvers import FAMILIES, Solver

GROUPS = {
    "formulation": "optsched.formulations",
    "constraint": "optsched.constraints",
    "performance model": "optsched.models",
    "solver": "optsched.solvers",
    "ranking": "optsched.rankings",
}


@cache
def catalogue(what: str) -> Mapping[str, str]:
    """Names of one kind of thing -> where it is; two packages that offer one name are an error."""
    found: dict[str, str] = {}
    for entry in sorted(entry_points(group=GROUPS[what]), key=lambda entry: (entry.value, entry.name)):
        for name, target in entry.load().items():
            if found.setdefault(name, target) != target:
                raise OptschedError(f"two packages offer the {what} {name!r}: {found[name]} and {target}")
    return found


def names(what: str) -> list[str]:
    """All names of one kind of thing, sorted."""
    return sorted(catalogue(what))


def _load(what: str, name: str, error: type[OptschedError] = UsageError) -> Any:
    known = catalogue(what)
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise error(f"unknown {what} {name!r}, expected one of {', '.join(sorted(known))}{hint}")
    module, _, attribute = known[name].partition(":")
    return getattr(import_module(module), attribute)


def load_formulation(name: str) -> type[Formulation]:
    """A formulation's class by name or alias."""
    return _load("formulation", name)  # type: ignore[no-any-return]


MEANT_UNIT = 10
"""Characters of a unit at most: what stands behind the last comma of a formulation's words for its objective."""


def objective_words(formulation: str) -> tuple[str, str]:
    """What the objective of a formulation is, and its unit (may be empty)."""
    words = load_formulation(formulation).objective_words
    told, comma, unit = words.rpartition(", ")
    return (told, unit) if comma and len(unit) <= MEANT_UNIT else (words, "")


def load_constraint(kind: str) -> type[SideConstraint]:
    """A side constraint's class by kind."""
    return _load("constraint", kind)  # type: ignore[no-any-return]


def load_ranking(name: str) -> type[Ranking]:
    """A ranking's class by name or alias."""
    return _load("ranking", name)  # type: ignore[no-any-return]


def load_model(name: str) -> type[ModelFactory]:
    """A performance model's class by name."""
    return _load("performance model", name)  # type: ignore[no-any-return]


def load_solver(name: str) -> type[Solver]:
    """A solver's class by name; ``pulp:NAME`` and ``cvxpy:NAME`` are whatever these packages know."""
    family, colon, engine = name.partition(":")
    if colon and family in FAMILIES:
        return import_module(FAMILIES[family]).engine_solver(engine)  # type: ignore[no-any-return]
    return _load("solver", name, SolverUnavailable)  # type: ignore[no-any-return]


def solver_names() -> list[str]:
    """All names of solvers: those of the catalogue, then what PuLP and cvxpy find here beside them."""
    found = names("solver")
    for family in sorted(FAMILIES):
        try:
            found += [f"{family}:{engine}" for engine in import_module(FAMILIES[family]).engines()]
        except SolverUnavailable:  # the entries of the catalogue tell that the package is not here
            continue
    return found
