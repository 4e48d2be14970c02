"""`Results`: rows of sweeps as a table of problems x methods,
in which what is missing stays missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any, Self

from optsched.benchmarking.best_known import Table, with_best_known
from optsched.display import Displayed, DisplayedTable, TableColumns, columns_of, count, seconds
from optsched.display.picture import Picture
from optsched.errors import InvalidArgument
from optsched.lazy import convenience

Row = Mapping[str, Any]
IDENTITY = (
    "instance",
    "trace",
    "formulation",
    "options",
    "constraints",
    "policy",
    "solver",
    "seed",
    "threads",
    "time_limit_s",
    "settings",
)
"""Columns that say what was asked; all others say what came of it."""
METHOD_COLUMNS = ("policy", "solver", "formulation", "options", "settings", "threads")
"""Columns that are compared, the first one that has several values."""
WORST_FIRST = ("error", "memory", "limit", "unbounded", "infeasible", "feasible", "optimal", "ok")
SETTLED = frozenset({"ok", "optimal", "infeasible", "unbounded"})
"""Nothing is left to be found out: times of these tasks can be compared."""
ANSWERED = SETTLED | {"feasible"}
"""There is an answer: its figures count."""
TIMES = ("total_s", "wall_s")
OVERHEAD = frozenset(
    {
        "n",
        "m",
        "classes",
        "columns",
        "objective",
        "bound",
        "gap",
        "best_known",
        "gap_to_best",
        "iterations",
        "nodes",
        "exit_code",
        "cores",
        "repeat",
        "peak_memory_mb",
    }
)
"""Numbers that have their own tables, or cannot be averaged over problems."""


@dataclass(frozen=True, repr=False)
class Cell(Displayed):
    """What one method made of one problem, in one repetition or several."""

    rows: tuple[Row, ...]

    @property
    def status(self) -> str:
        """The worst of the repetitions."""
        found = {str(row.get("status")) for row in self.rows}
        return next((status for status in WORST_FIRST if status in found), sorted(found)[0])

    def value(self, name: str) -> float | None:
        """The median of the repetitions; None if one of them has no finite number there."""
        values = [number(row.get(name)) for row in self.rows]
        known = [value for value in values if value is not None]
        return median(known) if len(known) == len(values) else None


def number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


@dataclass(frozen=True, repr=False)
class Results(DisplayedTable):
    """Rows by problem and method.

    Attributes
    ----------
    rows : tuple of mappings
        With best known objectives.
    by : tuple of str
        Columns that tell the methods apart.
    problems : tuple of tuples
        Values of ``problem_columns``, in the order of the rows.
    methods : tuple of tuples
        Values of ``by``.
    problem_columns : tuple of str
    cells : mapping of (problem, method) -> Cell
        Tasks that were not done have none.
    """

    rows: tuple[Row, ...]
    by: tuple[str, ...]
    problem_columns: tuple[str, ...]
    problems: tuple[tuple[Any, ...], ...]
    methods: tuple[tuple[Any, ...], ...]
    cells: Mapping[tuple[tuple[Any, ...], tuple[Any, ...]], Cell]

    @classmethod
    def of(
        cls,
        rows: Sequence[Row],
        by: Sequence[str] | None = None,
        best: Table | None = None,
    ) -> Self:
        """Arrange rows.

        Parameters
        ----------
        rows : sequence of mappings
        by : sequence of str, optional
            Columns that tell the methods apart (default: the first of `METHOD_COLUMNS` that has
            several values).
        best : mapping, optional
            Best known objectives, see `read_best`.

        Raises
        ------
        UsageError
            For a column that no row has, and for rows of solved problems beside simulations.
        """
        _refuse_two_kinds(rows)
        full = with_best_known(rows, best)
        chosen = _method_columns(full) if by is None else tuple(by)
        wrong = [name for name in chosen if not any(name in row for row in full)]
        if wrong:
            columns = ", ".join(full[0])
            raise InvalidArgument(
                "by",
                repr(wrong[0]),
                f"one of {columns}",
                sentence=f"no row has a column {wrong[0]!r}: the columns are {columns}",
            )
        # All else that was asked tells problems apart, so that seeds and limits are never mixed.
        rest = [
            name
            for name in IDENTITY
            if name not in chosen and any(row.get(name) is not None for row in full)
        ]
        grouped: dict[tuple[tuple[Any, ...], tuple[Any, ...]], list[Row]] = {}
        for row in full:
            key = tuple(_key(row, name) for name in rest), tuple(_key(row, name) for name in chosen)
            grouped.setdefault(key, []).append(row)
        problems = tuple(dict.fromkeys(problem for problem, _ in grouped))
        methods = tuple(dict.fromkeys(method for _, method in grouped))
        cells = {key: Cell(tuple(group)) for key, group in grouped.items()}
        return cls(tuple(full), chosen, tuple(rest), problems, methods, cells)

    def cell(self, problem: tuple[Any, ...], method: tuple[Any, ...]) -> Cell | None:
        """What a method made of a problem; None if it was not asked."""
        return self.cells.get((problem, method))

    def values(
        self, name: str, method: tuple[Any, ...], settled: bool
    ) -> dict[tuple[Any, ...], float]:
        """Values of a column by problem, where there are any:
        of tasks with an answer, or of settled ones alone.
        """
        counted, found = SETTLED if settled else ANSWERED, {}
        for problem in self.problems:
            cell = self.cell(problem, method)
            if cell is not None and cell.status in counted:
                value = cell.value(name)
                if value is not None:
                    found[problem] = value
        return found

    @cached_property
    def time_column(self) -> str | None:
        """The column of times that is compared."""
        return next(
            (name for name in TIMES if any(number(row.get(name)) is not None for row in self.rows)),
            None,
        )

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """Columns of numbers that can be averaged over problems:
        those of simulations; of benchmarks none.
        """
        names = dict.fromkeys(name for row in self.rows for name in row)
        return tuple(
            name
            for name in names
            if name not in IDENTITY
            and name not in OVERHEAD
            and not name.endswith("_s")
            and any(number(row.get(name)) is not None for row in self.rows)
        )

    def method_name(self, method: tuple[Any, ...]) -> str:
        """A method as text."""
        return _words(self.by, method)

    def method_in_words(self, method: tuple[Any, ...]) -> str:
        """How many problems a method settled, and how long that took."""
        cells = [self.cell(problem, method) for problem in self.problems]
        settled = sum(cell is not None and cell.status in SETTLED for cell in cells)
        text = f"{settled:,} of {count(len(cells), 'problem')} settled"
        times = self.values(self.time_column or "", method, settled=True)
        return f"{text}, {seconds(median(times.values()))} in the median" if times else text

    def plot(self) -> Picture:
        """The performance profile of times; of objectives where there are no times."""
        return Picture(convenience("Results.plot")(self))

    def _headline(self) -> str:
        methods, problems = count(len(self.methods), "method"), count(len(self.problems), "problem")
        return f"of {methods} on {problems}: {count(len(self.rows), 'row')}"

    def to_columns(self, first: int | None = None) -> TableColumns:
        return columns_of(self.rows[:first])


def _refuse_two_kinds(rows: Sequence[Row]) -> None:
    """Raise `UsageError` for simulations beside solved problems: no column compares the two."""
    simulated = sum(row.get("policy") is not None for row in rows)
    solved = sum(row.get("formulation") is not None and row.get("policy") is None for row in rows)
    if simulated and solved:
        found = f"{count(simulated, 'simulation')} and {count(solved, 'solved problem')}"
        raise InvalidArgument("rows", found, "results of one kind: summarise them separately")


def _method_columns(rows: Sequence[Row]) -> tuple[str, ...]:
    for name in METHOD_COLUMNS:
        if len({_key(row, name) for row in rows}) > 1:
            return (name,)
    return (
        next(
            (name for name in METHOD_COLUMNS if any(row.get(name) is not None for row in rows)),
            METHOD_COLUMNS[1],
        ),
    )


def _key(row: Row, name: str) -> Any:
    value = row.get(name)
    return str(value) if isinstance(value, list | dict) else value


def _words(columns: Iterable[str], values: Iterable[Any]) -> str:
    """Names as they are, numbers and options with their column."""
    parts = []
    for column, value in zip(columns, values, strict=True):
        if value is None:
            continue
        plain = isinstance(value, str) and column not in ("options", "constraints", "settings")
        parts.append(value if plain else f"{column} {value}")
    return " ".join(parts) or "none"
