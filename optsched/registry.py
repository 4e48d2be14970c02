"""Finds formulations, side constraints, performance models and solvers through entry points.

An entry point names a catalogue: a mapping of name -> "module:Class" that is loaded on demand. The
project's own formulations are found in the same way as a third party's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, distributions
from typing import TYPE_CHECKING, Any, Literal

from optsched.errors import (
    InvalidArgument,
    OptschedError,
    SolverUnavailable,
    UnsuitableSolver,
    UsageError,
    did_you_mean,
    unknown_name,
)
from optsched.lazy import imported
from optsched.solvers import FAMILIES, Solver

if TYPE_CHECKING:  # code that loads a part by name need not load the other kinds of parts
    from optsched.formulation import Formulation, SideConstraint
    from optsched.performance import ModelFactory
    from optsched.ranking import Ranking

GROUPS = {
    "formulation": "optsched.formulations",
    "constraint": "optsched.constraints",
    "performance model": "optsched.models",
    "solver": "optsched.solvers",
    "ranking": "optsched.rankings",
}
KINDS = {
    "formulation": "formulation",
    "constraint": "side constraint",
    "ranking": "ranking, for rounds and simulations",
}
"""Kinds whose names users mix up, and what messages call them:
an unknown formulation may be a known ranking.
"""


@cache
def _installed() -> Mapping[str, Sequence[EntryPoint]]:
    """The entry points of our groups, found once.

    Only the packages that name one of the groups are parsed: `importlib.metadata.entry_points`
    parses them all, which takes twice as long.
    """
    packages = [
        package
        for package in distributions()
        if "[optsched." in (package.read_text("entry_points.txt") or "")
    ]
    if len(packages) > 1:
        # The first package of a name on the path is the one that is imported. A name is in the
        # metadata, which takes an e-mail parser to read.
        packages = list({package.name: package for package in reversed(packages)}.values())
    found: dict[str, list[EntryPoint]] = {group: [] for group in GROUPS.values()}
    for package in packages:
        for entry in package.entry_points:
            if entry.group in found:
                found[entry.group].append(entry)
    return found


@cache
def catalogue(what: str) -> Mapping[str, str]:
    """The import path of each name of one kind of thing.

    Raises `OptschedError` where two packages offer the same name for different things.
    """
    found: dict[str, str] = {}
    for entry in sorted(_installed()[GROUPS[what]], key=lambda entry: (entry.value, entry.name)):
        for name, target in entry.load().items():
            if found.setdefault(name, target) != target:
                raise OptschedError(
                    f"two packages offer the {what} {name!r}: {found[name]} and {target}"
                )
    return found


def names(what: str) -> list[str]:
    """All names of one kind of thing, sorted."""
    return sorted(catalogue(what))


def kinds_of(name: str, kinds: Sequence[str], what: str, *, also: str = "") -> list[str]:
    """Those of some kinds of things that have a name.

    Parameters
    ----------
    name : str
    kinds : sequence of str
        Keys of `GROUPS`.
    what, also : str
        What is asked for, and what else may be given, for the message.

    Raises
    ------
    UsageError
        None of them has it.
    """
    found = [kind for kind in kinds if name in catalogue(kind)]
    if not found:
        raise _unknown(name, what, {known for kind in kinds for known in catalogue(kind)}, also)
    return found


def policy_kind(name: str, *, also: str = "") -> Literal["formulation", "ranking"]:
    """Whether the policy of a name is a formulation or a ranking.

    Raises
    ------
    UsageError
        It is neither, or two packages offer one of each.
    """
    found = kinds_of(name, ("formulation", "ranking"), "policy", also=also)
    if len(found) > 1:
        raise UsageError(
            f"policy {name!r} is the name of a formulation and of a ranking: "
            "say which in a policy, "
            f'as {{"ranking": "{name}"}}'
        )
    return "ranking" if found == ["ranking"] else "formulation"


def _unknown(name: str, what: str, known: Collection[str], also: str = "") -> InvalidArgument:
    """The refusal of a name; what is meant comes before the long list of what there is."""
    hint = did_you_mean(name, sorted(known), aside=True)
    elsewhere = [
        words for kind, words in KINDS.items() if what in KINDS and name in catalogue(kind)
    ]
    if elsewhere:
        hint = f" (it is a {elsewhere[0]})"
    return unknown_name(what, name, sorted(known), f"unknown {what} {name!r}{hint}", also)


def _check_name(what: str, name: object) -> None:
    if not isinstance(name, str):
        raise InvalidArgument(what, repr(name), "the name of one")


def load(what: str, name: str) -> Any:
    """What a name of one kind of thing stands for; ``what`` is a key of `GROUPS`."""
    known = catalogue(what)
    _check_name(what, name)
    if name not in known:
        raise _unknown(name, what, known)
    return imported(known[name])


def load_formulation(name: str) -> type[Formulation]:
    """A formulation's class by name or alias."""
    return load("formulation", name)  # type: ignore[no-any-return]


MEANT_UNIT = 10
"""Characters of a unit at most:
it follows the last comma of a formulation's words for its objective.
"""


def objective_words(formulation: str) -> tuple[str, str]:
    """What the objective of a formulation is, and its unit (may be empty)."""
    words = load_formulation(formulation).objective_words
    objective, comma, unit = words.rpartition(", ")
    return (objective, unit) if comma and len(unit) <= MEANT_UNIT else (words, "")


def load_constraint(kind: str) -> type[SideConstraint]:
    """A side constraint's class by kind."""
    return load("constraint", kind)  # type: ignore[no-any-return]


def load_ranking(name: str) -> type[Ranking]:
    """A ranking's class by name or alias."""
    return load("ranking", name)  # type: ignore[no-any-return]


def load_model(name: str) -> type[ModelFactory]:
    """A performance model's class by name."""
    return load("performance model", name)  # type: ignore[no-any-return]


def load_solver(name: str) -> type[Solver]:
    """A solver's class by name;
    ``pulp:NAME`` and ``cvxpy:NAME`` are whatever these packages know.
    """
    _check_name("solver", name)
    family, colon, engine = name.partition(":")
    if colon and family in FAMILIES:
        return import_module(FAMILIES[family]).engine_solver(engine)  # type: ignore[no-any-return]
    if name not in catalogue("solver"):
        wrong = _unknown(name, "solver", catalogue("solver"))
        raise UnsuitableSolver(wrong.path, wrong.found, wrong.expected, sentence=str(wrong))
    return load("solver", name)  # type: ignore[no-any-return]


def solver_names() -> list[str]:
    """All names of solvers:
    those of the catalogue, then what PuLP and cvxpy find here beside them.
    """
    found = names("solver")
    for family in sorted(FAMILIES):
        try:
            found += [f"{family}:{engine}" for engine in import_module(FAMILIES[family]).engines()]
        except SolverUnavailable:  # the entries of the catalogue tell that the package is not here
            continue
    return found
