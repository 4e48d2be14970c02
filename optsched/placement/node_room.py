"""Rows of an allocation that find room on nodes side by side, by the rules of
`optsched.program.Space`.

If nodes can hold rows in too many ways, these contents are made on demand: those with the greatest
worth at the prices of a program (`optsched.solving.contents_on_demand`). A selection of them is a
placement, and the prices give a bound over all contents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of
from optsched.candidates import Classes
from optsched.placement.requests import anti_affinity_sets
from optsched.program import LinearArrays, LinearProgram, Space, Variables
from optsched.program.space import TenantCells, finds_nodes, seated_types
from optsched.solution.certificate import dual_bound
from optsched.solving.contents_on_demand import priced_contents
from optsched.solving.engine import Engine


@dataclass(eq=False)
class KnownContents:
    """The nodes with all contents that were made so far.

    Attributes
    ----------
    space : Space
    """

    space: Space

    @cached_property
    def numbered(self) -> Space:
        """The same nodes, with numbered gangs (`Space.numbered`): a far larger program."""
        return self.space.numbered()


@dataclass(frozen=True, eq=False)
class NodeRoom:
    """The nodes of one instant.

    Attributes
    ----------
    known : KnownContents
        Shared by all parts that are made of this object (`take`).
    column : IntArray, shape (A,)
        Class column of each row.
    engine : Engine
        Solves the integer programs.
    """

    known: KnownContents
    column: IntArray
    engine: Engine

    @classmethod
    def of(
        cls,
        classes: Classes,
        column: IntArray,
        engine: Engine,
        constraints: Iterable[Mapping[str, Any]],
        cells: Sequence[TenantCells] = (),
    ) -> NodeRoom | None:
        """None if the sums of the pools are enough: all rows use one whole GPU and need no other
        resource of their node, and no cells are reserved for tenants.
        """
        jobs = len(classes.instance.jobs_table)
        apart = [mask_of(rows, jobs) for rows in anti_affinity_sets(classes, constraints)]
        space = Space.of(classes, apart, cells)
        types = space.types
        plain = (types.gpus == 1) & (types.share == 1)
        plain &= ~types.need.any(axis=1) & ~types.apart.any(axis=1)
        if plain.all() and not cells:
            return None
        return cls(KnownContents(space), column, engine)

    @property
    def space(self) -> Space:
        """The nodes with the known contents."""
        return self.known.space

    def take(self, rows: IntArray) -> NodeRoom:
        """Some of the rows."""
        return replace(self, column=self.column[rows])

    def alone(self) -> BoolArray:
        """Mask of the rows that have room if nothing else runs, shape (A,)."""
        type_ = self._types(np.arange(len(self.column)))
        types, first = np.unique(type_, return_index=True)
        able = [
            len(self.fitting(np.array([row]))) > 0
            if self.space.reserved is not None
            else bool(seated_types(self.space, np.array([t]))[0][0])
            for t, row in zip(types.tolist(), first.tolist(), strict=True)
        ]
        return np.array(able, bool)[np.searchsorted(types, type_)]

    def fitting(self, rows: IntArray) -> IntArray:
        """Of some rows, not all different, those that find room together: by best fit; if that
        leaves some out, by an integer program for the most GPUs with the known contents.

        The result always has a placement.
        """
        type_ = self._types(rows)
        types = self.space.types
        gpus, share = np.append(types.gpus, 0)[type_], np.append(types.share, 0.0)[type_]
        order = np.lexsort((type_, -share, -gpus))
        seated, space = np.zeros(len(rows), bool), self.space
        if self.space.reserved is None:  # best fit knows no cells
            seated, space = seated_types(self.space, type_[order])
        if seated.all():
            self.known.space = space  # later calls for some of these rows find room again
            return rows
        column = self.column[rows]
        most = np.bincount(column, minlength=self.space.classes.columns).astype(np.float64)
        x = self._most_gpus(most, int(gpus[order][seated].sum()))
        if x is None:
            self.known.space = space
            return rows[order[seated]]
        # The first rows of each column.
        by_column = np.argsort(column, kind="stable")
        turn = np.arange(len(rows)) - np.searchsorted(column[by_column], column[by_column])
        return rows[by_column[turn < x[column[by_column]]]]

    def _most_gpus(self, most: FloatArray, at_least: int) -> FloatArray | None:
        """Rows of each column that use the most GPUs side by side, at most ``most``; None where no
        placement with so many GPUs is found.
        """
        for numbered in (False, True):
            # Without numbers the shares of one gang may be on the same GPU: that is no placement.
            space = self.known.numbered if numbered else self.space
            if numbered and not space.complete:
                return None
            C = space.classes
            lp = LinearProgram()
            x = lp.variables(C.columns, name="x", upper=most, implied=(0.0, most), integer=True)
            space.add_to(lp, x, whole=True)
            lp.maximise(np.maximum(C.gpus, 1).astype(np.float64)[np.newaxis, :] @ x)
            outcome = self.engine.solve_linear(lp, np.round)
            if outcome.x is None or outcome.value is None or outcome.value < at_least:
                return None
            if finds_nodes(space.read(outcome.x)):
                return outcome.x
        return None

    def add_to(self, lp: LinearProgram, count: Variables, contents: bool = True) -> None:
        """Add the rows and columns of the nodes to a program with a count of each row; with
        ``contents``, also the columns of the known contents.
        """
        shape = (self.space.classes.columns, len(self.column))
        each = (np.ones(len(self.column)), (self.column, np.arange(len(self.column))))
        space = self.space if contents else self.space.without_contents()
        space.add_to(lp, sp.csr_matrix(each, shape=shape) @ count, whole=True)

    def make_contents(
        self, program: LinearArrays, alone: LinearArrays, bounding: LinearArrays
    ) -> float | None:
        """Make the contents of greatest worth to a program, and bound its optimum over all
        contents.

        Parameters
        ----------
        program : LinearArrays
            The program with the nodes and the known contents, which are its last columns.
        alone : LinearArrays
            The program without the nodes.
        bounding : LinearArrays
            The program with the nodes, without contents.
        """
        alone = replace(alone, integer=np.zeros(alone.shape[1], bool))
        priced = priced_contents(self.engine, program, self.space, alone)
        self.known.space = priced.space
        return None if priced.duals is None else dual_bound(bounding, priced.duals)

    def _types(self, rows: IntArray) -> IntArray:
        """Type of the gang of each row, -1 for rows without GPUs."""
        return self.space.types.of_column[self.column[rows]]
