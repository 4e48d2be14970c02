"""Putting the parts together by name: instance files, performance models, formulations with their constraints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optsched.candidates import Candidates
from optsched.candidates import compile as compile_candidates
from optsched.errors import InvalidInput, UsageError
from optsched.formulation import Extend, Formulation, SideConstraint, options_from
from optsched.instance import Instance, read_instance
from optsched.instance.reading import show
from optsched.performance import PerformanceModel
from optsched.registry import load_constraint, load_formulation, load_model, names
from optsched.shipped import shipped_path


def load(source: str | Path) -> Instance:
    """Read an instance: a JSON, YAML or npz file, ``-`` for standard input, ``@name`` for one that ships.

    Raises
    ------
    InvalidInput
        With the path of the field, what was found and what was expected.
    """
    if isinstance(source, str) and source.startswith("@"):
        return read_instance(shipped_path(source[1:]))
    return read_instance(source)


def model_of(instance: Instance) -> PerformanceModel:
    """The performance model that an instance asks for."""
    options = dict(instance.performance)
    name = options.pop("model")
    if name not in names("performance model"):
        raise InvalidInput("performance.model", show(name), f"one of {', '.join(names('performance model'))}")
    return load_model(name).from_instance(instance, options)


def compile(
    instance: Instance, model: PerformanceModel | None = None, future: bool = False, later_nodes: bool = False
) -> Candidates:
    """Every way in which the jobs of an instance can run, with throughputs from a model (default: the instance's).

    ``future`` includes the jobs that have not arrived yet, and ``later_nodes`` the nodes that are not available yet,
    for formulations that plan ahead.
    """
    return compile_candidates(instance, model_of(instance) if model is None else model, future, later_nodes)


def compile_for(formulation: Formulation, instance: Instance, model: PerformanceModel | None = None) -> Candidates:
    """The candidates that a formulation plans with."""
    return compile(instance, model, formulation.plans_ahead, formulation.awaits_nodes)


def make_formulation(
    name: str,
    options: Mapping[str, Any] | None = None,
    constraints: Sequence[Any] = (),
    extend: Extend | None = None,
) -> Formulation:
    """A formulation by name with its options and side constraints; raises `UsageError`."""
    owner = load_formulation(name)
    return owner(options_from(owner, options or {}), [make_constraint(item) for item in constraints], extend)


def own_constraints(instance: Instance) -> list[SideConstraint]:
    """The side constraints that an instance asks for; raises `InvalidInput` with the number of one that cannot be."""
    made = []
    for index, item in enumerate(instance.constraints):
        try:
            constraint = make_constraint(item)
            constraint.check(instance)
            made.append(constraint)
        except UsageError as error:
            if isinstance(told := error.__cause__, InvalidInput):  # a value of one of its options
                where = f"constraints[{index}]" + (f".{told.path}" if told.path else "")
                raise InvalidInput(where, told.found, told.expected) from None
            raise InvalidInput(
                f"constraints[{index}]", show(item), f"a side constraint that can be ({error})"
            ) from None
    return made


def constraints_in_force(instance: Instance, given: Sequence[Any]) -> list[SideConstraint]:
    """The side constraints of an instance, and those that a caller gives beside them.

    Where one of its kind is enough (`SideConstraint.single`), the caller's stand in place of the instance's own: so a
    hard deadline of the file gives way to ``-C deadlines:give_way=count``.
    """
    callers = [make_constraint(item) for item in given]
    replaced = {constraint.kind for constraint in callers if constraint.single}
    return [*(own for own in own_constraints(instance) if own.kind not in replaced), *callers]


def make_constraint(item: Any) -> SideConstraint:
    """A side constraint from its kind, a document ``{"kind": ..., ...}``, or itself."""
    if isinstance(item, SideConstraint):
        return item
    if isinstance(item, str):
        item = {"kind": item}
    if not isinstance(item, Mapping) or not isinstance(item.get("kind"), str):
        raise UsageError(f'a side constraint is a kind or an object with "kind", found {show(item)}')
    owner = load_constraint(item["kind"])
    return owner(options_from(owner, {key: value for key, value in item.items() if key != "kind"}))
