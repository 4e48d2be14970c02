"""What the programs of `deadline_elastic` and `deadline_fluid` have in common: columns in
intervals, and words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from formulations.horizon import (
    NO_VALUE,
    ROUNDING,
    Supply,
    amount_of,
    asked_classes,
    column_deadlines,
    column_values,
    needs_of,
    slack_of,
    without_column,
)
from formulations.machines import place_in
from formulations.reference_rates import refuse_endless
from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of, owners, pointers, ranges
from optsched.candidates import Classes
from optsched.formulation import Infeasible
from optsched.solution import Conflict, Schedule


@dataclass(frozen=True)
class DeadlineProgram(ABC):
    """Columns, intervals and words of one program. Times are seconds from now.

    Attributes
    ----------
    optional : BoolArray, shape (K,)
        Classes whose jobs with a deadline may be declined.
    leaves_out : bool
        Whether jobs that can run nowhere do not make the instance infeasible.
    """

    C: Classes
    supply: Supply
    optional: BoolArray
    leaves_out: bool

    @property
    @abstractmethod
    def c(self) -> IntArray:
        """Class columns in which jobs run."""

    @property
    @abstractmethod
    def edges(self) -> FloatArray:
        """Ends of intervals, shape (intervals + 1,)."""

    @property
    @abstractmethod
    def first(self) -> IntArray:
        """First interval of each column, (c,)."""

    @property
    @abstractmethod
    def size(self) -> IntArray:
        """Number of intervals of each column, (c,)."""

    @property
    @abstractmethod
    def deadlines(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """(class, deadline, value) of each deadline of each class, in this order."""

    @property
    @abstractmethod
    def able(self) -> BoolArray:
        """Whether a job alone on the cluster could keep each of them."""

    @abstractmethod
    def _describe(self, block: str, number: int) -> str: ...

    @cached_property
    def value(self) -> FloatArray:
        """Value of a job that is done in each column of the classes, (columns,)."""
        return column_values(self.C)

    @cached_property
    def now(self) -> float:
        return float(self.C.instance.now)

    @cached_property
    def asked(self) -> BoolArray:
        """Classes with a deadline, (K,)."""
        return asked_classes(self.C)

    @cached_property
    def must(self) -> BoolArray:
        """Classes whose jobs must meet their deadlines, (K,)."""
        return self.asked & ~self.optional

    @cached_property
    def due(self) -> FloatArray:
        """Deadline of each column, (c,)."""
        return column_deadlines(self.C)[self.c] - self.now

    @cached_property
    def highest_value(self) -> FloatArray:
        """The largest value that a job of each class can have, max_m v_km; (K,).

        Deadlines that no job can meet any more count too: their jobs are declined, at the cost of
        their value.
        """
        C, highest = self.C, np.zeros(len(self.C))
        stated = np.flatnonzero(C.alone & np.isfinite(column_deadlines(C)))
        np.maximum.at(highest, C.class_a[stated], self.value[stated])
        return highest

    @cached_property
    def renewable(self) -> IntArray:
        """Resources with rows ``capacity``, shape (R,)."""
        return np.flatnonzero(self.C.resources.renewable)

    @cached_property
    def consumable(self) -> IntArray:
        """Resources with rows ``budget``, shape (B,)."""
        return np.flatnonzero(~self.C.resources.renewable)

    @cached_property
    def uses(self) -> sp.csc_matrix:
        """u_rc, shape (R, c)."""
        return sp.csc_matrix(self.C.usage.tocsr()[self.renewable][:, self.c])

    @cached_property
    def of(self) -> IntArray:
        """Column of each variable of a column in an interval, an index of ``c``."""
        return owners(self.size)

    @cached_property
    def t(self) -> IntArray:
        """Interval of each of these."""
        return ranges(self.first, self.size)

    def _variable(self, c: IntArray, t: IntArray) -> IntArray:
        """The variable of each column in an interval."""
        return pointers(self.size)[c] + t - self.first[c]

    def _slack(self, moment: FloatArray | float) -> FloatArray:
        return slack_of(self.now, moment)

    def _columns_of(self, schedule: Schedule) -> IntArray:
        """The column of each stretch of a schedule, an index of ``c``; raises ValueError
        without.
        """
        return place_in(self.c, schedule, "without a deadline")

    def _check_room(
        self,
        column: IntArray,
        start: FloatArray,
        end: FloatArray,
        times: FloatArray,
        free: FloatArray,
    ) -> None:
        """Raise ValueError where stretches of time hold more of a resource than there is.

        Parameters
        ----------
        column : IntArray, shape (stretches,)
            Of each, an index of ``c``.
        start, end : FloatArray, shape (stretches,)
            Seconds from now.
        times : FloatArray, shape (steps,)
            When steps of the capacity begin, ascending; the first is 0.
        free : FloatArray, shape (R, steps)
            Capacity in each step.
        """
        begin, stop = start + self._slack(start), end - self._slack(end)
        moments = np.unique(np.concatenate([times, begin, stop]))
        step = np.maximum(np.searchsorted(times, moments, "right") - 1, 0)
        begins, stops = np.searchsorted(moments, begin), np.searchsorted(moments, stop)
        uses = sp.csr_matrix(self.uses)[:, column]
        for row, resource in enumerate(self.renewable.tolist()):
            amount = uses[row].toarray().ravel()
            changes = np.bincount(begins, amount, len(moments))
            changes -= np.bincount(stops, amount, len(moments))
            over = np.cumsum(changes) > free[row][step] * (1 + ROUNDING) + ROUNDING
            if over.any():
                at = round(self.now + float(moments[np.argmax(over)]), 6)
                name = self.C.resources.names[resource]
                raise ValueError(f"{name} is used beyond its capacity at {at:g} s")

    # --- words ------------------------------------------------------------------------------------

    def _refuse_stuck(self, stuck: IntArray) -> None:
        """Refuse jobs that never end, and these classes, whose jobs must meet a deadline and cannot
        even alone on the cluster.
        """
        C = self.C
        refuse_endless(C, np.flatnonzero(self.must))
        words = needs_of(C, stuck, alone=self.supply) if len(stuck) else []
        conflicts = [
            Conflict("work", k, f"{C.job_name(k)} {needs}")
            for k, needs in zip(stuck.tolist(), words, strict=True)
        ]
        conflicts += [] if self.leaves_out else without_column(C)
        if conflicts:
            raise Infeasible(conflicts)

    def _declined(self, schedule: Schedule) -> tuple[tuple[int, str], ...]:
        """Jobs with a deadline that are not planned, and what they need."""
        of_job, (k, _, value) = self.C.of_job, self.deadlines
        could, gains = mask_of(k[self.able], len(self.C)), np.zeros(len(self.C))
        np.maximum.at(gains, k, value * self.able)
        in_vain = could & (gains == 0)
        declined = np.setdiff1d(np.flatnonzero(np.append(self.asked, False)[of_job]), schedule.job)
        needs = needs_of(self.C, of_job[declined])
        return tuple(
            (job, NO_VALUE if in_vain[of_job[job]] else f"it {words}")
            for job, words in zip(declined.tolist(), needs, strict=True)
        )

    @cached_property
    def _needs(self) -> list[str]:
        """What a job of each class needs."""
        return needs_of(self.C, np.arange(len(self.C)))

    def _of_class(self, k: int) -> str:
        return f"{self.C.job_name(k)} {self._needs[k]}"

    def _capacity(self, row: int, amount: float, start: float, end: float) -> str:
        """What a row ``capacity`` says."""
        there = amount_of(self.C, int(self.renewable[row]), amount)
        return f"the time from {self.now + start:g} s to {self.now + end:g} s has {there}"

    def _budget(self, row: int) -> str:
        """What a row ``budget`` says."""
        resource = int(self.consumable[row])
        return f"there is {amount_of(self.C, resource, float(self.C.capacity[resource]))} in all"
