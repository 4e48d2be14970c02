"""Which rows of an allocation find nodes side by side, by the rules of `optsched.program.Space`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, IntArray, mask_of
from optsched.candidates import Classes
from optsched.placement.requests import anti_affinity_sets
from optsched.program import LinearProgram, Space, Variables
from optsched.program.space import seated_types
from optsched.solving.engine import Engine


@dataclass(frozen=True, eq=False)
class NodeRoom:
    """The nodes of one instant.

    Attributes
    ----------
    space : Space
    column : IntArray, shape (A,)
        Class column of each row.
    engine : Engine
        Solves the integer programs.
    """

    space: Space
    column: IntArray
    engine: Engine

    @classmethod
    def of(
        cls,
        classes: Classes,
        column: IntArray,
        engine: Engine,
        constraints: Iterable[Mapping[str, Any]],
    ) -> NodeRoom | None:
        """None where the sums of the pools are enough: all have single whole GPUs, and need nothing
        else of their nodes.

        Raises
        ------
        UsageError
            A node can have too many contents to be written down.
        """
        jobs = len(classes.instance.jobs_table)
        apart = [mask_of(rows, jobs) for rows in anti_affinity_sets(classes, constraints)]
        space = Space.of(classes, apart)
        types = space.types
        plain = (types.gpus == 1) & (types.share == 1)
        plain &= ~types.need.any(axis=1) & ~types.apart.any(axis=1)
        if plain.all():
            return None
        space.require_all_contents()
        return cls(space, column, engine)

    def take(self, rows: IntArray) -> NodeRoom:
        """Some of the rows."""
        return replace(self, column=self.column[rows])

    def alone(self) -> BoolArray:
        """Rows that have nodes where nothing else runs, shape (A,)."""
        type_ = self._types(np.arange(len(self.column)))
        able = [bool(seated_types(self.space, np.array([t]))[0]) for t in np.unique(type_).tolist()]
        return np.array(able, bool)[np.searchsorted(np.unique(type_), type_)]

    def fitting(self, rows: IntArray) -> IntArray:
        """Rows, not all different, of which all find nodes: by best fit, and where that leaves some
        out, as many GPUs as an integer program finds room for.
        """
        type_ = self._types(rows)
        gpus = np.append(self.space.types.gpus, 0)[type_]
        order = np.argsort(-gpus, kind="stable")
        seated = seated_types(self.space, type_[order])
        if seated.all():
            return rows
        column = self.column[rows]
        C = self.space.classes
        most = np.bincount(column, minlength=C.columns).astype(np.float64)
        lp = LinearProgram()
        x = lp.variables(C.columns, name="x", upper=most, implied=(0.0, most), integer=True)
        self.space.add_to(lp, x, whole=True)
        lp.maximise(np.maximum(C.gpus, 1).astype(np.float64)[np.newaxis, :] @ x)
        outcome = self.engine.solve_linear(lp, np.round)
        if outcome.x is None or outcome.value is None or outcome.value < gpus[order][seated].sum():
            return rows[order[seated]]
        # The first rows of each column.
        by_column = np.argsort(column, kind="stable")
        turn = np.arange(len(rows)) - np.searchsorted(column[by_column], column[by_column])
        return rows[by_column[turn < outcome.x[column[by_column]]]]

    def add_to(self, lp: LinearProgram, count: Variables) -> None:
        """Add the rows and columns of the nodes to a program with how often each row runs."""
        shape = (self.space.classes.columns, len(self.column))
        each = (np.ones(len(self.column)), (self.column, np.arange(len(self.column))))
        self.space.add_to(lp, sp.csr_matrix(each, shape=shape) @ count, whole=True)

    def _types(self, rows: IntArray) -> IntArray:
        """Type of gangs of each row, -1 for what needs no nodes."""
        return self.space.types.of_column[self.column[rows]]
