"""Rows over the columns of the classes that side constraints add to an allocation program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray


class Assumption(NamedTuple):
    """What rows take for granted of the requirement that they stand for.

    Where such rows cannot hold, it is shown only that the requirement cannot be met in this way.
    Every sentence about it says so.

    Attributes
    ----------
    words : str
        In which way, to stand before a statement: ``at a constant rate from now on``.
    decided_by : str
        What decides whether the requirement can be met at all, as a sentence without its full stop;
        empty if nothing does.
    """

    words: str
    decided_by: str = ""


@dataclass(frozen=True, eq=False)
class SideRows:
    """Rows over the columns of the classes that a side constraint adds:
    lower <= matrix @ x <= upper.

    Attributes
    ----------
    name : str
    matrix : csr_matrix, shape (rows, N)
    lower, upper : FloatArray, shape (rows,)
    describe : callable
        Row number -> the requirement in the user's words, for the explanation of conflicts.
    relax : str
        What is done where not all requirements can be met: ``none`` (the program is infeasible),
        ``shortfall`` (rows fall short by as little as possible in total) or ``count`` (as few rows
        as possible are given up); such rows have a lower side only, above 0.
    weight : FloatArray or None, shape (rows,)
        What giving way counts, row by row (None: 1).
    slack : FloatArray or None, shape (rows,)
        By how much lower sides are below what is meant, because a solver met them up to its
        tolerance only.
    broken : tuple of str
        Requirements that nothing can meet and that have no row, in words, where rows may give way.
    barring : bool
        The rows say where jobs may not run: one that they leave nowhere makes the program
        infeasible, even if its utility could do without it.
    assumption : Assumption or None
        What the rows take for granted of the requirement.
    """

    name: str
    matrix: sp.csr_matrix
    lower: FloatArray
    upper: FloatArray
    describe: Callable[[int], str]
    relax: str = "none"
    weight: FloatArray | None = None
    slack: FloatArray | None = None
    broken: tuple[str, ...] = ()
    barring: bool = False
    assumption: Assumption | None = None

    @classmethod
    def bar(cls, name: str, matrix: sp.csr_matrix, describe: Callable[[int], str]) -> SideRows:
        """Rows of a matrix with nothing negative that say where jobs may not run.

        Parameters
        ----------
        name : str
        matrix : csr_matrix, shape (rows, N)
        describe : callable
            Row number -> the requirement in the user's words.

        Returns
        -------
        SideRows
        """
        zero = np.zeros(matrix.shape[0])
        return cls(name, matrix, zero, zero, describe, barring=True)

    @property
    def closed(self) -> sp.csr_matrix:
        """The rows that leave nothing to their columns, shape (rows, N),
        with all other rows empty.
        """
        least = (
            np.asarray(self.matrix.min(axis=1).todense()).ravel()
            if self.matrix.nnz
            else np.zeros(len(self.upper))
        )
        rows = (self.upper == 0) & (least >= 0)
        closed = sp.csr_matrix(sp.diags_array(rows.astype(np.float64)) @ self.matrix)
        closed.eliminate_zeros()
        return closed
