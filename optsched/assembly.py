"""Putting the parts together by name:
instance files, performance models, formulations with their constraints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from optsched.arrays.values import replace
from optsched.candidates import Candidates, Classes
from optsched.candidates import compile as compile_candidates
from optsched.errors import InvalidArgument, InvalidInput, UsageError, checks_keywords
from optsched.formulation import Extend, Formulation, SideConstraint, options_from
from optsched.instance import Instance, read_instance, shipped_path
from optsched.instance.arguments import checks_arguments
from optsched.instance.durations import UNLIMITED, Timer
from optsched.instance.files import instance_of_bytes
from optsched.instance.reading import named, read_stdin, show
from optsched.libraries import STDIN, begins_a_document, may_be_library_file
from optsched.performance import PerformanceModel, TableModel, reads_table, with_learnt
from optsched.performance.composed import MODELS, OF, ComposedModel
from optsched.performance.files import PERFORMANCE, below, check_performance, read_model
from optsched.registry import catalogue, load_constraint, load_formulation, load_model, names
from optsched.solution import Solution

if TYPE_CHECKING:  # few commands read such files
    from optsched.libraries import LibraryProblem

DEFAULT_FORMULATION = "max-min-fairness"

Performance = Mapping[str, Any] | str | Path
"""A performance object, or a file that `optsched model fit` wrote."""


InstanceSource = Instance | Mapping[str, Any] | str | Path
"""An instance, its document, or where it is read from (`load`)."""


@checks_arguments
@checks_keywords
def load(source: InstanceSource, performance: Performance | None = None) -> Instance:
    """Read an instance.

    Parameters
    ----------
    source : str, path, mapping or Instance
        A JSON, YAML or npz file, ``-`` for standard input, ``@name`` for one that ships; a file of
        a benchmark library, ``FILE#2`` for its second problem; a parsed document; or an instance,
        which is returned as it is.
    performance : mapping, str or path, optional
        A performance object, or a file that `optsched model fit` wrote, that takes the place of the
        instance's own.

    Returns
    -------
    Instance

    Raises
    ------
    InvalidInput
        With the path of the field, what was found and what was expected.
    """
    instance = _instance_of(source)
    if performance is None:
        return instance
    if isinstance(performance, Mapping):
        return replace(instance, performance=check_performance(performance))
    changed = replace(instance, performance=check_performance(read_model(performance)))
    _check_file(changed, performance)
    return changed


def _instance_of(source: InstanceSource) -> Instance:
    if isinstance(source, Instance):
        return source
    if isinstance(source, Mapping):
        return Instance.from_document(source)
    if not isinstance(source, str | Path):
        raise InvalidArgument("instance", show(source), "an Instance, its document or a file of it")
    if isinstance(source, str) and source.startswith("@"):
        return read_instance(shipped_path(source[1:]))
    if str(source) == STDIN:
        return _on_stdin().instance
    if may_be_library_file(source):
        from optsched.libraries import read_problem

        return read_problem(source).instance
    return read_instance(source)


class NamedProblem(NamedTuple):
    """What is solved, and with which formulation where none is asked for.

    Attributes
    ----------
    source : InstanceSource
        Standard input can be read only once: its instance.
    formulation : str
    """

    source: Any
    formulation: str


def default_formulation(source: Any) -> NamedProblem:
    """A source with the formulation that its library file belongs to, else
    `DEFAULT_FORMULATION`.
    """
    if isinstance(source, str | Path):
        if str(source) == STDIN:
            found = _on_stdin()
            return NamedProblem(found.instance, found.formulation)
        if may_be_library_file(source):
            from optsched.libraries import formulation_of_file

            return NamedProblem(source, formulation_of_file(source))
    return NamedProblem(source, DEFAULT_FORMULATION)


def _on_stdin() -> LibraryProblem:
    """The instance on standard input: a document, or the text of a library file."""
    from optsched.libraries import LibraryProblem, problem_of_bytes

    data = read_stdin()
    problem = None if begins_a_document(data) else problem_of_bytes(data)
    if problem is None:
        return LibraryProblem(instance_of_bytes(data, STDIN), DEFAULT_FORMULATION)
    return problem


def _check_file(instance: Instance, file: str | Path) -> None:
    """Make the model that came from a file,
    so that errors name the file and the paths in it.
    """
    try:
        model_of(instance)
    except InvalidInput as error:
        if not error.path.startswith(PERFORMANCE):
            raise  # of the instance, such as the parameters of its workloads
        with named(file), below(""):
            raise


def model_of(instance: Instance) -> PerformanceModel:
    """The performance model that an instance asks for.

    Raises
    ------
    InvalidInput
        Also where gangs have no rate but their workload's for 1 GPU.
    """
    if reads_table(instance.performance):
        TableModel.refuse_plain_numbers(instance)
    return make_model(instance, instance.performance)


def remembering(instance: Instance, model: PerformanceModel) -> Instance:
    """The instance with what the model of its performance object has learnt in that object.

    `model_of` makes a model of it that predicts and learns on in the same way, to the last bit. It
    need not be the instance that the model was made for: what was learnt goes by names. So a model
    is carried over to an instance whose jobs, workloads or nodes have changed, as models know their
    own instance's rows alone.
    """
    return replace(instance, performance=with_learnt(model, instance.performance))


def make_model(instance: Instance, document: Any, path: str = PERFORMANCE) -> PerformanceModel:
    """The performance model of a performance object, with the models that it is made of.

    Raises
    ------
    InvalidInput
        With the path of the field, what was found and what was expected.
    """
    if not isinstance(document, Mapping):
        raise InvalidInput(path, show(document), 'a performance object such as {"model": "table"}')
    options = dict(document)
    name = options.pop("model", None)
    if not isinstance(name, str) or name not in catalogue("performance model"):
        raise InvalidInput(
            f"{path}.model", show(name), f"one of {', '.join(names('performance model'))}"
        )
    owner = load_model(name)
    with below(path):
        if not issubclass(owner, ComposedModel):
            return owner.from_instance(instance, options)
        made = [make_model(instance, part, where) for where, part in _parts(owner, options)]
        if owner.corrects:
            from optsched.performance.composed import Chain  # few models correct what is stated

            made = [Chain.after_table(instance, part) for part in made]
        return owner.from_parts(instance, options, made)


def _parts(owner: type[ComposedModel], options: dict[str, Any]) -> list[tuple[str, Any]]:
    """Take the performance objects that a model is made of out
    of its options, each with its path.
    """
    wanted, other = (MODELS, OF) if owner.made_of == MODELS else (OF, MODELS)
    expected = "a list of performance objects" if wanted == MODELS else "a performance object"
    if other in options:
        misplaced = f'no such key: the {owner.name} model takes "{wanted}", {expected}'
        raise InvalidInput(f"{PERFORMANCE}.{other}", show(options[other]), misplaced)
    if wanted not in options:
        raise InvalidInput(f"{PERFORMANCE}.{wanted}", "nothing", expected)
    path, given = f"{PERFORMANCE}.{wanted}", options.pop(wanted)
    if wanted == OF:
        return [(path, given)]
    if not isinstance(given, list):
        raise InvalidInput(path, show(given), expected)
    return [(f"{path}[{row}]", part) for row, part in enumerate(given)]


def compile(
    instance: InstanceSource,
    model: PerformanceModel | None = None,
    future: bool = False,
    later_nodes: bool = False,
    on_demand: bool = False,
    timer: Timer = UNLIMITED,
) -> Candidates:
    """List every way in which the jobs of an instance can run.

    Parameters
    ----------
    instance : Instance, or what `optsched.load` takes
    model : PerformanceModel, optional
        Gives throughputs in steps/s; by default the model of the instance.
    future : bool
        Include jobs that have not arrived yet, for formulations that plan ahead.
    later_nodes : bool
        Include nodes that are not available yet.
    on_demand : bool
        Leave pairs of jobs, or else configurations, to column generation.
    timer : Timer
        Checked between two passes.

    Returns
    -------
    Candidates

    Raises
    ------
    InvalidInput
        The instance is wrong.
    OutOfTime
        The time is over.
    """
    instance = load(instance)
    model = model_of(instance) if model is None else model
    return compile_candidates(instance, model, future, later_nodes, on_demand, timer)


def compile_for(
    formulation: Formulation,
    instance: Instance,
    model: PerformanceModel | None = None,
    on_demand: bool = False,
    timer: Timer = UNLIMITED,
) -> Candidates:
    """The candidates that a formulation plans with;
    raises `UsageError` if it needs all columns and gets some.
    """
    if on_demand and not formulation.generates_columns:
        raise UsageError(
            f"{formulation.name} generates no columns: that takes a smallest level or a total of "
            "levels, as those of "
            "max-min-fairness, makespan, max-throughput and alpha-fairness"
        )
    # Columns are priced by throughputs. Those of jobs alone on one pool do not show that these
    # count for nothing in a pair.
    if on_demand and formulation.has_ties:
        raise UsageError(
            f"{formulation.name} generates no columns with agnostic: they are priced by "
            "throughputs, which do not count there"
        )
    ahead, nodes = formulation.plans_ahead, formulation.awaits_nodes
    model = model_of(instance) if model is None else model
    return compile_candidates(instance, model, ahead, nodes, on_demand, timer)


def make_formulation(
    name: str,
    options: Mapping[str, Any] | None = None,
    constraints: Sequence[Any] = (),
    extend: Extend | None = None,
) -> Formulation:
    """A formulation by name with its options and side constraints; raises `UsageError`."""
    owner = load_formulation(name)
    if options is not None and not isinstance(options, Mapping):
        raise InvalidArgument("options", show(options), f"options of {name} by name")
    return owner(options_from(owner, options or {}), make_constraints(constraints), extend)


def own_constraints(instance: Instance) -> list[SideConstraint]:
    """The side constraints that an instance asks for;
    raises `InvalidInput` with the number of one that cannot be.
    """
    made = []
    for index, item in enumerate(instance.constraints):
        try:
            constraint = make_constraint(item)
            constraint.check(instance)
            made.append(constraint)
        except UsageError as error:
            # `options_from` raises a UsageError, whose cause has the path of the option.
            if isinstance(cause := error.__cause__, InvalidInput):  # a value of one of its options
                where = f"constraints[{index}]" + (f".{cause.path}" if cause.path else "")
                raise InvalidInput(where, cause.found, cause.expected) from None
            raise InvalidInput(
                f"constraints[{index}]", show(item), f"a side constraint that can be ({error})"
            ) from None
    return made


def constraints_in_force(instance: Instance, given: Sequence[Any]) -> list[SideConstraint]:
    """The side constraints of an instance, and those that a caller gives beside them.

    Of a kind that is used once at most (`SideConstraint.single`), the caller's constraint replaces
    the instance's: ``-C deadlines:give_way=count`` replaces the deadlines of the file.
    """
    callers = make_constraints(given)
    replaced = {constraint.kind for constraint in callers if constraint.single}
    return [*(own for own in own_constraints(instance) if own.kind not in replaced), *callers]


def formulation_for(
    instance: Instance,
    name: str,
    options: Mapping[str, Any] | None = None,
    constraints: Sequence[Any] = (),
    extend: Extend | None = None,
) -> Formulation:
    """The formulation of this name with the side constraints that are in force,
    which must take instances of this kind; raises `UsageError`.
    """
    made = make_formulation(name, options, constraints_in_force(instance, constraints), extend)
    if instance.kind not in made.accepts:
        raise UsageError(f"{name} takes {', '.join(sorted(made.accepts))}, not {instance.kind}")
    return made


def formulation_of(solution: Solution) -> Formulation:
    """The formulation that a solution was made with, without rows of ``extend``."""
    return make_formulation(solution.formulation, solution.options, solution.side_constraints)


def classes_of(solution: Solution, formulation: Formulation | None = None) -> Classes:
    """The classes that were solved over, also where there is no allocation."""
    if solution.allocation is not None:
        return solution.allocation.classes
    return (formulation or formulation_of(solution)).classes(solution.candidates)


def reserves_cells(document: Mapping[str, Any]) -> bool:
    """Whether the document of a side constraint reserves cells. Other classes need not be
    registered, so that they cannot be made from their documents again.
    """
    return document.get("kind") == "cells" and bool(document.get("reserved"))


def make_constraints(items: Sequence[Any]) -> list[SideConstraint]:
    """The side constraints of a list; `make_constraint` says what its items may be."""
    if isinstance(items, str | Mapping) or not isinstance(items, Iterable):
        raise InvalidArgument("constraints", show(items), "a list of side constraints")
    return [make_constraint(item) for item in items]


def make_constraint(item: Any) -> SideConstraint:
    """A side constraint from its kind, a document ``{"kind": ..., ...}``, or itself."""
    if isinstance(item, SideConstraint):
        return item
    item = constraint_document(item)
    if not isinstance(item, Mapping) or not isinstance(item.get("kind"), str):
        raise InvalidArgument(
            "constraint",
            show(item),
            'a kind or an object with "kind"',
            sentence=f'a side constraint is a kind or an object with "kind", found {show(item)}',
        )
    owner = load_constraint(item["kind"])
    return owner(options_from(owner, {key: value for key, value in item.items() if key != "kind"}))


def constraint_document(item: Any) -> Any:
    """The document of a side constraint, or of one given by its kind alone; what is neither is
    given back as it is, for its reader to refuse.
    """
    if isinstance(item, SideConstraint):
        return item.document()
    if not isinstance(item, str):
        return item
    kind, colon, _ = item.partition(":")
    # `kind:option=value` is for the command line, which makes a document of it.
    if colon and kind in names("constraint"):
        expected = f'a kind, or a dict with its options: {{"kind": "{kind}", ...}}'
        raise InvalidArgument("constraint", show(item), expected)
    return {"kind": item}
