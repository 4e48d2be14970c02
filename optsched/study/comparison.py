"""One instance, many formulations:
what each answers, and how the answers measure up to each other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from optsched.api import (
    InstanceSource,
    Performance,
    compile,
    constraints_in_force,
    load,
    make_formulation,
    solve,
)
from optsched.arrays import finite
from optsched.display import (
    Displayed,
    DisplayedTable,
    TableColumns,
    amount,
    columns_of,
    count,
    percent,
)
from optsched.display.picture import Picture
from optsched.errors import Interrupted, OptschedError, UsageError, given_twice
from optsched.executors import LOCAL, cores, results_of
from optsched.formulation import Formulation
from optsched.instance import Instance
from optsched.instance.arguments import checks_arguments, names_and_options
from optsched.lazy import convenience
from optsched.performance import PerformanceModel
from optsched.registry import load_formulation, names, objective_words
from optsched.solution import Solution, Status, Termination
from optsched.solution.measures import Measures, measure
from optsched.solving.limits import LimitOptions, make_limits, takes_limits

FORMAT = "optsched-comparison/1"
NOW = (False, False)
"""How candidates are compiled that plan neither jobs nor nodes ahead."""

WITH_SOLUTION = (
    "status",
    "objective",
    "bound",
    "gap",
    "termination",
    "reproducible",
    "certificate",
    "solver",
    "packed",
    "conflicts",
    "unplaced",
    "measures",
    "seconds",
)
"""Keys of a row that are null without a solution."""

# A formulation by name, or a name with its options.
Entry = str | tuple[str, Mapping[str, Any]]
Item = tuple[str, Mapping[str, Any], int]
"""A formulation to solve: its name, its options, and the place of its candidates in what is
shared."""

log = logging.getLogger("optsched")


@dataclass(frozen=True, repr=False)
class ComparisonRow(Displayed):
    """What came of one formulation.

    Attributes
    ----------
    formulation : str
    options : mapping
        Those that were given.
    solution : Solution or None
        None if the formulation refused the instance or a solver failed.
    error : OptschedError or None
        Why there is no solution.
    measures : Measures or None
        None without an answer, or where its certificate does not hold.
    """

    formulation: str
    options: Mapping[str, Any]
    solution: Solution | None = None
    error: OptschedError | None = None
    measures: Measures | None = None

    def _headline(self) -> str:
        return f"{_name(self)}: {_answer(self)}"

    def to_document(self) -> dict[str, Any]:
        """The row as plain data: every key is always there, what does not exist is null."""
        solution = self.solution
        owner = load_formulation(self.formulation)
        document = {
            "formulation": self.formulation,
            "options": dict(self.options),
            "sense": owner.sense,
            "objective_words": owner.objective_words,
            "refused": None if self.error is None else str(self.error),
        }
        if solution is None:
            return document | dict.fromkeys(WITH_SOLUTION)
        return document | {
            "status": str(solution.status),
            "objective": finite(solution.objective),
            "bound": finite(solution.bound),
            "gap": solution.gap,
            "termination": str(solution.termination),
            "reproducible": solution.reproducible,
            "certificate": solution.certificate.to_document(residuals=False),
            "solver": {"name": solution.solver.name, "version": solution.solver.version},
            "packed": None if solution.packed is None else solution.packed.to_document(),
            "conflicts": [conflict.words for conflict in solution.conflicts],
            "unplaced": len(solution.unplaced),
            "measures": None if self.measures is None else self.measures.to_document(),
            "seconds": solution.timings.get("total"),
        }


@dataclass(frozen=True, repr=False)
class Comparison(DisplayedTable):
    """An instance with a row for each formulation, in the order that was asked for.

    Attributes
    ----------
    instance : Instance
    constraints : tuple of mappings
        Side constraints of all formulations.
    rows : tuple of ComparisonRow
    """

    instance: Instance
    constraints: tuple[Mapping[str, Any], ...]
    rows: tuple[ComparisonRow, ...]

    def to_document(self) -> dict[str, Any]:
        """The comparison in the format ``optsched-comparison/1``."""
        return {
            "format": FORMAT,
            "instance": self.instance.identity,
            "constraints": [dict(document) for document in self.constraints],
            "rows": [row.to_document() for row in self.rows],
        }

    def __iter__(self) -> Iterator[ComparisonRow]:
        return iter(self.rows)

    def __contains__(self, formulation: object) -> bool:
        return any(row.formulation == formulation for row in self.rows)

    def __getitem__(self, formulation: str) -> ComparisonRow:
        """The first row of a formulation; raises KeyError."""
        for row in self.rows:
            if row.formulation == formulation:
                return row
        raise KeyError(formulation)

    def plot(self) -> Picture:
        """The measures that all answers share, a bar for each formulation."""
        return Picture(convenience("Comparison.plot")(self))

    def _headline(self) -> str:
        answers = sum(row.measures is not None for row in self.rows)
        return (
            f"of {self.instance.name}: {count(len(self.rows), 'formulation')}, "
            f"{answers:,} with an answer"
        )

    def _facts(self) -> Mapping[str, str]:
        return {_name(row): _answer(row) for row in self.rows}

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The formulations with what they answered, then the measures that all answers share."""
        records = []
        for row in self.rows[:first]:
            document = row.to_document()
            keys = ("formulation", "options", "status", "objective", "bound", "gap", "refused")
            record = {name: document[name] for name in keys}
            records.append(record | (document["measures"] or {}))
        return columns_of(records)


def _name(row: ComparisonRow) -> str:
    """A formulation with its options, which tell two rows of one formulation apart."""
    options = ", ".join(f"{name}={value}" for name, value in row.options.items())
    return f"{row.formulation} ({options})" if options else row.formulation


def _answer(row: ComparisonRow) -> str:
    """What came of a row: the status and the objective, or why there is none."""
    if row.solution is None:
        return f"refused: {row.error}"
    objective = row.solution.objective
    if objective is None:
        none = ", no job is in the program" if row.solution.status is Status.OPTIMAL else ""
        return f"{row.solution.status}{none}"
    _, unit = objective_words(row.formulation)
    answer = f"{row.solution.status}, {amount(objective)} {unit}".strip()
    if row.measures is not None and row.measures.smallest_share is not None:
        answer += f", smallest share {percent(row.measures.smallest_share)}"
    packed = row.solution.packed
    return answer if packed is None else f"{answer}, {packed.words(row.solution.instance.now)}"


@checks_arguments
@takes_limits
def compare(
    instance: InstanceSource,
    formulations: str | Sequence[Entry] | None = None,
    *,
    constraints: Sequence[Any] = (),
    model: PerformanceModel | None = None,
    performance: Performance | None = None,
    classes: bool = True,
    solver: str = "auto",
    prove: bool = False,
    processes: int = 1,
    executor: str = LOCAL,
    on_row: Callable[[str], None] | None = None,
    **limits: Unpack[LimitOptions],
) -> Comparison:
    """Solve an instance with many formulations, and measure all answers alike.

    Parameters
    ----------
    instance : Instance, or what `load` takes
    formulations : str or sequence, optional
        Names, or pairs of a name and options; one formulation may come several times with other
        options. Default: all that take this kind of instance, with their defaults.
    constraints : sequence
        Side constraints of all formulations, beside those of the instance.
    model, performance, classes, solver, prove
        As of `optsched.solve`.
    **limits : LimitOptions
        As of `optsched.solve`; each formulation has the whole of the limits.
    processes : int
        Formulations at a time, each in its own process; with 1 all in this one.
    executor : str
        ``processes`` of this machine; ``ray``, on the Ray cluster of the environment
        (``RAY_ADDRESS``), or on this machine alone; ``ray:ADDRESS``.
    on_row : callable, optional
        Called with the name of each formulation before it is solved.

    Returns
    -------
    Comparison
        A formulation that refuses the instance, or whose solver fails, is a row with the error. If
        the user interrupts a run, it is the last one: fewer rows than were asked for.

    Raises
    ------
    UsageError
        No formulation, one that does not exist, one given twice alike, or a wrong option of one.
    InvalidInput, Interrupted
    """
    # A wrong one is refused before anything is read
    budget = make_limits(**limits)
    entries = None
    if formulations is not None:
        entries = names_and_options(formulations, "formulations", "formulation")
    chosen = None if entries is None else _checked(entries, constraints)
    instance = load(instance, performance)
    in_force = constraints_in_force(instance, constraints)
    if entries is None or chosen is None:
        entries = [(name, {}) for name in accepting(instance.kind)]
        chosen = _checked(entries, constraints)
    how = {"classes": classes, "solver": solver, "prove": prove, **limits}
    if processes > 1 or executor != LOCAL:
        how |= {"on_progress": None, "on_log": None}  # other processes do not report them
    # Compiled once for all formulations that see the same jobs and nodes. Measures are of what is
    # there now, whatever a formulation plans with.
    views = {(formulation.plans_ahead, formulation.awaits_nodes): None for formulation in chosen}
    compiled = {view: compile(instance, model, *view) for view in [NOW, *views]}
    shared = (instance, constraints, how, *compiled.values())
    place = {view: number for number, view in enumerate(compiled, 3)}
    items = [
        (name, options, place[formulation.plans_ahead, formulation.awaits_nodes])
        for (name, options), formulation in zip(entries, chosen, strict=True)
    ]

    found = results_of(
        _row,
        shared,
        items,
        processes=processes,
        executor=executor,
        threads=limits.get("threads", 1) or cores(),
        time_limit=budget.time,
        on_begin=None if on_row is None else lambda number: on_row(items[number][0]),
    )
    rows = _until_interrupted(found, items)
    # A constraint of the instance may be given by the caller too: it is listed once.
    documents = {repr(item.document()): item.document() for item in in_force}
    return Comparison(instance, tuple(documents.values()), tuple(rows))


def accepting(kind: str) -> list[str]:
    """Names of the formulations that take a kind of instance, each once whatever its aliases."""
    owners = {load_formulation(name).name: load_formulation(name) for name in names("formulation")}
    return [name for name, owner in owners.items() if kind in owner.accepts]


def _checked(
    entries: Sequence[tuple[str, Mapping[str, Any]]], constraints: Sequence[Any]
) -> list[Formulation]:
    """The formulations, so that a wrong name or option is refused before anything is solved."""
    if not entries:
        raise UsageError("there is nothing to compare: no formulation is named")
    for place, (name, options) in enumerate(entries):
        if (name, dict(options)) in [(other, dict(given)) for other, given in entries[:place]]:
            raise given_twice("formulation", f"{name} with the same options")
    return [make_formulation(name, options, constraints) for name, options in entries]


def _until_interrupted(
    found: Iterator[tuple[int, ComparisonRow | OptschedError]], items: Sequence[Item]
) -> list[ComparisonRow]:
    """The rows, or where the user interrupts those before; raises `Interrupted` without any."""
    rows: dict[int, ComparisonRow] = {}
    try:
        for number, row in found:
            if isinstance(row, Interrupted):
                raise row
            if isinstance(row, OptschedError):
                name, options, _ = items[number]
                log.info("%s: %s", name, row)
                rows[number] = ComparisonRow(name, options, error=row)
                continue
            rows[number] = row
            if row.solution is not None and row.solution.termination is Termination.INTERRUPTED:
                break
    except (Interrupted, KeyboardInterrupt):
        if not rows:
            raise
    return [row for _, row in sorted(rows.items())]


def _row(shared: tuple[Any, ...], item: Item) -> ComparisonRow:
    """The answer of one formulation and its measures."""
    (_, constraints, how, present), (name, options, place) = shared[:4], item
    solution = solve(shared[place], name, constraints=constraints, options=options, **how)
    measures = measure(solution, present) if solution.certificate.ok else None
    return ComparisonRow(name, options, solution, measures=measures)
