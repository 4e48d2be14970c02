"""Warm starts: a simplex basis, prices or a schedule of one program, with labels, for the next
program.

Jobs come and go between rounds, and classes, columns and rows are numbered anew. A basis is
therefore kept with what its columns and rows stand for, as plain data: a solver that starts from it
needs nothing else of the round before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from optsched.arrays import FloatArray, IntArray, find_rows, gathered
from optsched.arrays.values import replace
from optsched.candidates import Classes
from optsched.candidates.classes import LABELS
from optsched.display import Displayed
from optsched.program import AllocationProgram, LinearArrays
from optsched.solution.values import BASIC, LOWER, Basis, Termination, Values
from optsched.solvers import Capability, Session, Solver

if TYPE_CHECKING:
    from optsched.formulation import Stretches
    from optsched.program import LimitRows
    from optsched.solution import Schedule

OF_CLASSES = ("time", "levels")
"""Blocks with a row for each class."""
X = "x"
"""The block of the class columns."""
START, END = "start", "end"
"""Rows of a schedule: the bits of moments in absolute seconds."""


@dataclass(frozen=True, repr=False, eq=False)
class WarmStart(Displayed):
    """The basis in which a program ended.

    Attributes
    ----------
    of_job : IntArray, shape (jobs,)
        Class that each job was in; -1 for jobs that were in none.
    column : IntArray, shape (columns, fields)
        What each class column is: its classes and its configuration
        (`Classes.configuration_labels`).
    columns, rows : mapping of the name of a block to IntArray
        Status codes of its columns or rows.
    prices : mapping of the name of a resource, or of a row that limits, to float
        Where prices solved the program; there is no basis then.
    """

    of_job: IntArray
    column: IntArray
    columns: Mapping[str, IntArray]
    rows: Mapping[str, IntArray]
    prices: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def at(cls, limits: LimitRows, prices: FloatArray) -> WarmStart:
        """The prices of the rows that limit a program."""
        nobody = np.full(len(limits.classes.of_job), -1, np.int64)
        nothing = np.zeros((0, 2 + LABELS), np.int64)
        named = zip(limits.names, prices.tolist(), strict=True)
        return cls(nobody, nothing, {}, {}, {name: price for name, price in named if price > 0})

    @classmethod
    def of(cls, classes: Classes, arrays: LinearArrays, basis: Basis) -> WarmStart:
        """The basis of a program over these classes."""
        return cls(
            classes.of_job,
            np.column_stack([classes.class_a, classes.class_b, classes.configuration_labels]),
            {block.name: basis.columns[block.slice] for block in arrays.columns},
            {block.name: basis.rows[block.slice] for block in arrays.rows},
        )

    @classmethod
    def of_schedule(cls, schedule: Schedule) -> WarmStart:
        """A schedule: each job is a class, and each stretch a column."""
        C, job = schedule.classes, schedule.job
        times = {START: schedule.start.view(np.int64), END: schedule.end.view(np.int64)}
        column = np.column_stack([job, np.full(len(job), -1), C.labels_of(schedule.column)])
        return cls(np.arange(len(C.of_job)), column, {}, times)

    @property
    def stretches(self) -> Stretches | None:
        """The schedule, of jobs that are still there; None if there is none."""
        if START not in self.rows:
            return None
        from optsched.formulation import Stretches  # few programs plan schedules

        number = self.column[:, 0]
        row = np.full(1 + max(self.of_job.max(initial=0), number.max(initial=0)), -1, np.int64)
        known = np.flatnonzero(self.of_job >= 0)
        row[self.of_job[known]] = known
        job = row[number]
        there = job >= 0
        start, end = (self.rows[name].view(np.float64)[there] for name in (START, END))
        return Stretches(job[there], self.column[there, 2:], start, end)

    def revised(self, rows: IntArray, added: int) -> WarmStart:
        """The warm start after only the jobs at these rows stayed, in this order, and others were
        added.
        """
        return replace(
            self, of_job=np.concatenate([self.of_job[rows], np.full(added, -1, np.int64)])
        )

    def basis(self, classes: Classes, arrays: LinearArrays) -> tuple[Basis, str]:
        """A basis for another program, and a text that says how much of it is known.

        Known rows and columns keep their status; new columns start at their lower bound, and new
        rows are basic. If there are fewer basic variables than rows, the first nonbasic rows become
        basic. If there are too many, the solver repairs the basis.
        """
        # Numbers are new in each round: a column is known by classes of the one before and a label.
        class_before = self._classes_before(classes)
        label = np.column_stack(
            [
                gathered(class_before, classes.class_a, -1),
                gathered(class_before, classes.class_b, -1),
                classes.configuration_labels,
            ]
        )
        found = find_rows(self.column, label)
        columns = np.full(arrays.shape[1], LOWER, np.int64)
        for block in arrays.columns:
            known = self.columns.get(block.name)
            if block.name == X:
                columns[block.slice] = (
                    LOWER if known is None else np.where(found >= 0, known[found], LOWER)
                )
            elif known is not None and len(known) == len(block):
                columns[block.slice] = known
        rows = np.full(arrays.shape[0], BASIC, np.int64)
        for block in arrays.rows:
            known = self.rows.get(block.name)
            if known is None:
                continue
            if block.name in OF_CLASSES and len(block) == len(classes):
                rows[block.slice] = np.where(class_before >= 0, known[class_before], BASIC)
            elif len(known) == len(block):
                rows[block.slice] = known
        lacking = len(rows) - int((columns == BASIC).sum() + (rows == BASIC).sum())
        rows[np.flatnonzero(rows != BASIC)[: max(lacking, 0)]] = BASIC
        words = f"basis mapped: {int((found >= 0).sum()):,} of {len(found):,} columns known"
        return Basis(columns, rows), words

    def _classes_before(self, classes: Classes) -> IntArray:
        """Class before of each class: that of one of its jobs; -1 where all of them are new."""
        before = np.full(len(classes), -1, np.int64)
        placed = np.flatnonzero(classes.of_job >= 0)
        np.maximum.at(before, classes.of_job[placed], self.of_job[placed])
        return before


@dataclass(eq=False)
class Bases:
    """Where the first run of an engine starts, and where it ends.

    Attributes
    ----------
    warm : WarmStart, optional
        The basis of a program before this one, from which the first run starts.
    keep : bool
        Whether the basis of the first run is kept in ``ended``, and `auto` prefers solvers that
        have one.
    ended : WarmStart, optional
    words : str
        How the first run started.
    """

    warm: WarmStart | None = None
    keep: bool = False
    ended: WarmStart | None = None
    words: str = ""
    _first: tuple[Session, Classes] | None = None

    def begin(self, session: Session, solver: type[Solver], classes: Classes) -> None:
        """Give the first session the basis, mapped to its program."""
        if self.warm is None and not self.keep:
            return
        if Capability.BASIS not in solver.capabilities:
            self.words = f"cold: solver {solver.name} has no basis"
            return
        if self.warm is None:
            self.words = "cold: there is no basis yet"
        elif self.warm.prices:
            self.words = "cold: the program before was solved by prices"
        elif not self.words:
            basis, self.words = self.warm.basis(classes, session.arrays)
            session.set_start(basis)
        self._first = (session, classes)

    def first_prices(self, limits: LimitRows) -> FloatArray | None:
        """Prices to start from, of the rows that limit a program; None without any."""
        if self.warm is None and not self.keep:
            return None
        if self.warm is None or not self.warm.prices:
            self.words = "cold: there are no prices yet"
            return None
        known = [self.warm.prices.get(name, 0.0) for name in limits.names]
        self.words = (
            f"prices of {sum(price > 0 for price in known)} of {len(known)} resources known"
        )
        return np.array(known)

    def last_prices(self, program: AllocationProgram, values: Values) -> None:
        """Keep the prices in which the first run ended;
        ``values`` are of the lowered program's rows.
        """
        if (
            self.keep
            and self.ended is None
            and values.y is not None
            and values.termination is Termination.OPTIMAL
        ):
            self.ended = WarmStart.at(program.limit_rows, program.limit_duals(values.y))

    def end(self, session: Session, values: Values) -> None:
        """Keep the basis in which the first run of a session ended."""
        if self._first is None or self._first[0] is not session:
            return
        basis = session.basis() if self.keep else None
        if basis is not None and values.termination is Termination.OPTIMAL:
            self.ended = WarmStart.of(self._first[1], session.arrays, basis)
        self._first = None
