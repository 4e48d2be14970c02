"""What a side constraint is: rows over the columns of any formulation."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.candidates import Classes
from optsched.display import Displayed
from optsched.formulation.options import ConstraintOptions
from optsched.instance import Instance
from optsched.instance.documents import changed_fields
from optsched.instance.durations import UNLIMITED, Timer
from optsched.solution import Conflict

if TYPE_CHECKING:  # formulations without side constraints need no side rows
    from optsched.program import Assumption, SideRows, Space
    from optsched.program.space import TenantCells

SHOWN = 20
"""Jobs that an infeasible instance names at most."""
MOST_NAMED = 20
"""Requirements that nothing can meet are listed one by one up to this many."""


class Infeasible(Exception):
    """Raised where some requirements cannot be met, whatever the others ask;
    has a conflict for each.
    """

    def __init__(self, conflicts: Sequence[Conflict]) -> None:
        super().__init__("; ".join(conflict.words for conflict in conflicts))
        named, more = conflicts[:MOST_NAMED], len(conflicts) - MOST_NAMED
        rest = (
            [Conflict(conflicts[0].block, -1, f"and {more:,} more of this kind")]
            if more > 0
            else []
        )
        self.conflicts = (*named, *rest)


class SideConstraint(ABC, Displayed):
    """Rows that compose with any allocation formulation: deadlines, budgets, quotas ...

    Parameters
    ----------
    options : ConstraintOptions
        Of the class ``Options`` of the kind, which checks them.
    """

    kind: ClassVar[str]
    reads: frozenset[str] = frozenset()
    also_reads: ClassVar[frozenset[str]] = frozenset()
    """Fields that it reads in other ways, as by `labels`.
    Answers have notes on fields that nothing reads.
    """
    knows_nodes: ClassVar[bool] = False
    """Whether it has a `space`: jobs that must be apart (`apart`) are in their own classes then."""
    of_placement: ClassVar[bool] = False
    """Whether it speaks of the placement alone and never has rows:
    rules take it, and equal jobs stay one class.
    """
    of_sums: ClassVar[bool] = False
    """Whether its rows are sums over all jobs of a class, so that equal jobs stay one class where
    jobs are whole.
    """
    counts_splits: ClassVar[bool] = False
    """Whether its rows depend on how gangs may be split over nodes: gangs that may span more nodes
    than they need have a column on the fewest nodes as well.
    """
    hard_deadlines: ClassVar[bool] = False
    """Whether it asks for throughputs that must be reached:
    those at the quantile of the formulation.
    """
    per_job: bool = False
    """Whether it must tell equal jobs apart: every job is a separate class then."""
    single: ClassVar[bool] = False
    """Whether it is one rule for the whole instance:
    a caller's takes the place of the instance's own.
    """
    assumes: ClassVar[Assumption | None] = None
    """What its rows take for granted of the requirement, where they ask for more than it does."""
    declinable: bool = False
    """Whether its rows are requirements of single jobs, so that rounds may decline some
    (`SideRows.of_class`).
    """
    asked: FloatArray | None = None
    """The part of its requirement that each job is held to, shape (jobs,); 0 for one that was
    declined. None: all of it. Only constraints that are ``declinable`` read it.
    """

    class Options(ConstraintOptions):
        """No options, unless a constraint states its own."""

    def __init__(self, options: ConstraintOptions) -> None:
        self.options = options

    def _headline(self) -> str:
        return ", ".join([self.kind, *changed_fields(self.options)])

    def check(self, instance: Instance) -> None:
        """Refuse names that the instance does not have. It is called before anything else.

        Parameters
        ----------
        instance : Instance

        Raises
        ------
        UsageError
            Naming what the instance does not have.
        """

    def labels(self, instance: Instance) -> IntArray | None:
        """By what the constraint tells jobs apart beside the arrays in ``reads``.

        Parameters
        ----------
        instance : Instance

        Returns
        -------
        IntArray, shape (jobs,), or None
            Jobs with different numbers are never one class; None if it tells none apart.
        """
        return None

    def asking(self, part: FloatArray) -> Self:
        """The constraint that holds each job to a part of its requirement.

        Parameters
        ----------
        part : FloatArray, shape (jobs,)
            0 for a job that is declined, 1 for the whole requirement.

        Returns
        -------
        SideConstraint
        """
        held = copy.copy(self)
        held.asked = part
        return held

    def declines(self, jobs: IntArray) -> BoolArray:
        """Which of some jobs were declined.

        Parameters
        ----------
        jobs : IntArray, shape (n,)
            Rows of the jobs.

        Returns
        -------
        BoolArray, shape (n,)
        """
        if self.asked is None:
            return np.zeros(len(jobs), bool)
        return np.asarray(self.asked[jobs] == 0)

    def asked_of(self, C: Classes, k: IntArray) -> FloatArray:
        """The part of the requirement that each of some classes is held to.

        Jobs of a class are held to the same part.

        Parameters
        ----------
        C : Classes
        k : IntArray, shape (n,)
            Classes.

        Returns
        -------
        FloatArray, shape (n,)
        """
        return np.ones(len(k)) if self.asked is None else self.asked[C.first[k]]

    def impossible(self, C: Classes) -> list[tuple[int, Conflict]]:
        """Jobs whose own requirement nothing can meet, and the conflict of each.

        Parameters
        ----------
        C : Classes

        Returns
        -------
        list of (row of the job, Conflict)
        """
        return []

    def note(self, instance: Instance) -> str:
        """What a user of the constraint must know about its meaning here.

        Parameters
        ----------
        instance : Instance

        Returns
        -------
        str
            A sentence; empty if there is nothing to say.
        """
        return ""

    @abstractmethod
    def rows(self, C: Classes) -> SideRows | None:
        """What the constraint demands, as rows over the columns of the classes.

        Parameters
        ----------
        C : Classes

        Returns
        -------
        SideRows or None
            None if there is nothing to demand.

        Raises
        ------
        Infeasible
            If nothing can meet it.
        UsageError
            If the instance lacks what it needs, such as a price.
        """

    def apart(self, instance: Instance) -> BoolArray | None:
        """Jobs of which no two may be on one node.

        Parameters
        ----------
        instance : Instance

        Returns
        -------
        BoolArray, shape (jobs,), or None
            None if it says nothing of it.
        """
        return None

    def reserves(self, instance: Instance) -> TenantCells | None:
        """Cells that are reserved for the jobs of a tenant.

        Parameters
        ----------
        instance : Instance

        Returns
        -------
        TenantCells or None
            None if it reserves none.
        """
        return None

    def space(
        self,
        C: Classes,
        apart: Sequence[BoolArray] = (),
        cells: Sequence[TenantCells] = (),
        timer: Timer = UNLIMITED,
    ) -> Space | None:
        """Which nodes hold which parts of whole jobs, where the answer must be a placement.

        Parameters
        ----------
        C : Classes
        apart : sequence of BoolArray, each of shape (jobs,)
            Of all constraints.
        cells : sequence of TenantCells
            Of all constraints.
        timer : Timer
            The time limit of the call.

        Returns
        -------
        Space or None
            None if it asks for no placement.
        """
        return None

    def document(self) -> dict[str, Any]:
        """The constraint as in an instance or solution file."""
        return {"kind": self.kind, **self.options.model_dump()}
