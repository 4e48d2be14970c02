"""`LinearProgram`: linear and mixed-integer programs written block by block on sparse matrices.

lp = LinearProgram()
x = lp.variables(n, name="x", upper=limit)
lp.constrain(C.usage @ x <= capacity, name="capacity")
lp.maximise(cost @ x)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from optsched.arrays import EMPTY, AnyArray, FloatArray, IntArray, lengths, pointers
from optsched.arrays.matrices import by_columns, compressed, index_type, same_places
from optsched.errors import UsageError
from optsched.program.arrays import Block, LinearArrays
from optsched.program.bounds import implied_bounds

Matrix = Any
"""Anything scipy.sparse.csr_matrix accepts."""


class Expression:
    """A vector of affine expressions: sum of matrix x block, plus a constant; shape (rows,)."""

    __array_ufunc__ = None  # numpy then calls the reflected operators below
    __slots__ = ("_terms", "constant", "variables")

    def __init__(
        self,
        terms: Sequence[tuple[sp.csr_matrix, Block]],
        constant: FloatArray,
        variables: Block | None = None,
    ) -> None:
        self._terms = tuple(terms)
        self.constant = constant
        self.variables = variables
        """The block of columns, if the expression is just that."""

    @classmethod
    def of(cls, block: Block) -> Expression:
        """A block of columns as an expression."""
        return cls((), np.zeros(len(block)), block)

    @property
    def terms(self) -> tuple[tuple[sp.csr_matrix, Block], ...]:
        """Matrices, and the blocks of columns that they are multiplied with."""
        if self.variables is None:
            return self._terms
        # Made on demand: most blocks are multiplied with a matrix first and need no identity.
        count = len(self.variables)
        places = np.arange(count + 1, dtype=index_type(count))
        identity = compressed(np.ones(count), places[:-1], places, (count, count))
        return ((identity, self.variables),)

    @property
    def rows(self) -> int:
        return len(self.constant)

    def __rmatmul__(self, matrix: Matrix) -> Expression:
        matrix = _matrix(matrix)
        if matrix.shape[1] != self.rows:
            raise ValueError(f"a matrix of {matrix.shape[1]} columns times {self.rows} expressions")
        if self.variables is not None:  # the matrix itself is the coefficients
            return Expression([(matrix, self.variables)], np.zeros(matrix.shape[0]))
        return Expression(
            [(sp.csr_matrix(matrix @ coefficients), block) for coefficients, block in self.terms],
            np.asarray(matrix @ self.constant, np.float64),
        )

    def __mul__(self, factor: ArrayLike) -> Expression:
        """Scale by a number, or each row by its own."""
        factors = _vector(factor, self.rows, float)
        return Expression(
            [(_scaled(coefficients, factors), block) for coefficients, block in self.terms],
            factors * self.constant,
        )

    __rmul__ = __mul__

    def __neg__(self) -> Expression:
        return Expression(
            [(same_places(matrix, -matrix.data), block) for matrix, block in self.terms],
            -self.constant,
        )

    def __add__(self, other: Expression | ArrayLike) -> Expression:
        if isinstance(other, Expression):
            rows = max(self.rows, other.rows)
            left, right = self._stretched(rows), other._stretched(rows)
            return Expression([*left.terms, *right.terms], left.constant + right.constant)
        constant = np.asarray(other, np.float64)
        stretched = self._stretched(len(constant)) if constant.ndim else self
        return Expression(stretched.terms, stretched.constant + constant)

    __radd__ = __add__

    def __sub__(self, other: Expression | ArrayLike) -> Expression:
        return self + (-other if isinstance(other, Expression) else -np.asarray(other, np.float64))

    def __rsub__(self, other: ArrayLike) -> Expression:
        return -self + other

    def __le__(self, other: Expression | ArrayLike) -> Relation:
        if isinstance(other, Expression):
            return (self - other).between(-np.inf, 0.0)
        return self.between(-np.inf, other)

    def __ge__(self, other: Expression | ArrayLike) -> Relation:
        if isinstance(other, Expression):
            return (self - other).between(0.0, np.inf)
        return self.between(other, np.inf)

    def __eq__(self, other: object) -> Relation:  # type: ignore[override]
        if isinstance(other, Expression):
            return (self - other).between(0.0, 0.0)
        return self.between(other, other)  # type: ignore[arg-type]

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: object) -> NoReturn:
        raise TypeError("rows of a program are written with <=, >= or ==, found < or >")

    __gt__ = __lt__

    def between(self, lower: ArrayLike, upper: ArrayLike) -> Relation:
        """lower <= self <= upper, row by row; infinite where a side is absent."""
        low, high = np.asarray(lower, np.float64), np.asarray(upper, np.float64)
        rows = max([self.rows, *(len(side) for side in (low, high) if side.ndim)])
        return Relation(self._stretched(rows), low, high)

    def sum(self) -> Expression:
        """The sum of all rows, shape (1,)."""
        return np.ones((1, self.rows)) @ self

    def _stretched(self, rows: int) -> Expression:
        """The expression repeated for this many rows, if it has one row."""
        if self.rows == rows:
            return self
        if self.rows != 1:
            raise ValueError(f"expressions of {self.rows} and {rows} rows do not fit")
        return np.ones((rows, 1)) @ self


Variables = Expression
"""A block of columns is an expression like any other: the identity times the block."""


class Relation:
    """lower <= expression <= upper, row by row; made by ``<=``, ``>=`` and ``==``."""

    __slots__ = ("expression", "lower", "upper")

    def __init__(self, expression: Expression, lower: FloatArray, upper: FloatArray) -> None:
        self.expression, self.lower, self.upper = expression, lower, upper

    def __bool__(self) -> bool:
        raise TypeError(
            "a relation has no truth value; chained comparisons (a <= b <= c) do not work"
        )


class LinearProgram:
    """A linear or mixed-integer program under construction;
    ``arrays`` is what solvers and certificates take.
    """

    def __init__(self) -> None:
        self._columns: list[Block] = []
        self._rows: list[Block] = []
        self._bounds = [np.zeros((4, 0))]
        self._integer = [np.zeros(0, bool)]
        self._relations: list[Relation] = []
        self._objective: Expression | None = None
        self._maximise = False
        self._arrays: LinearArrays | None = None

    def variables(
        self,
        count: int,
        *,
        name: str,
        lower: ArrayLike = 0.0,
        upper: ArrayLike = np.inf,
        implied: tuple[ArrayLike, ArrayLike] | None = None,
        integer: ArrayLike = False,
    ) -> Variables:
        """Add a block of columns.

        Parameters
        ----------
        count : int
        name : str
            Unique; what exports and duals call the block.
        lower, upper : float or array, shape (count,)
        implied : pair, optional
            Bounds that follow from the rows, for the certificate; infinite ones are derived from
            the rows.
        integer : bool or array
        """
        block = self._add_block(self._columns, name, count)
        low, high = (-np.inf, np.inf) if implied is None else implied
        bounds = np.empty((4, count))
        for row, value in zip(bounds, (lower, upper, low, high), strict=True):
            row[:] = value
        self._bounds.append(bounds)
        self._integer.append(np.full(count, integer, bool))
        return Expression.of(block)

    def constrain(self, relation: Relation, *, name: str) -> Block:
        """Add rows; returns their block."""
        block = self._add_block(self._rows, name, relation.expression.rows)
        self._relations.append(relation)
        return block

    def maximise(self, objective: Expression) -> None:
        """Set the objective (one row), to be maximised."""
        self._set_objective(objective, True)

    def minimise(self, objective: Expression) -> None:
        """Set the objective (one row), to be minimised."""
        self._set_objective(objective, False)

    def _set_objective(self, objective: Expression, maximise: bool) -> None:
        if objective.rows != 1:
            raise ValueError(f"an objective of {objective.rows} rows, expected one")
        self._objective, self._maximise, self._arrays = objective, maximise, None

    def _add_block(self, blocks: list[Block], name: str, count: int) -> Block:
        if any(block.name == name for block in blocks):
            raise UsageError(f"two blocks of the program are called {name!r}")
        start = blocks[-1].stop if blocks else 0
        block = Block(name, start, start + count)
        blocks.append(block)
        self._arrays = None
        return block

    @property
    def arrays(self) -> LinearArrays:
        """The program as arrays (made once, until the program changes)."""
        if self._arrays is None:
            self._arrays = self._assemble()
        return self._arrays

    def _assemble(self) -> LinearArrays:
        width = self._columns[-1].stop if self._columns else 0
        height = self._rows[-1].stop if self._rows else 0
        lower, upper, implied_lower, implied_upper = np.concatenate(self._bounds, axis=1)
        data: list[AnyArray] = [np.zeros(0)]
        rows: list[AnyArray] = [EMPTY]
        cols: list[AnyArray] = [EMPTY]
        row_lower, row_upper = np.zeros(height), np.zeros(height)
        for block, relation in zip(self._rows, self._relations, strict=True):
            for part, column_block in relation.expression.terms:
                data.append(part.data)
                rows.append(np.arange(block.start, block.stop).repeat(lengths(part.indptr)))
                cols.append(part.indices + column_block.start)
            row_lower[block.slice] = relation.lower - relation.expression.constant
            row_upper[block.slice] = relation.upper - relation.expression.constant
        matrix = _by_columns(
            np.concatenate(data), np.concatenate(rows), np.concatenate(cols), (height, width)
        )
        cost, offset = np.zeros(width), 0.0
        if self._objective is not None:
            for coefficients, column_block in self._objective.terms:
                cost[column_block.slice] += np.bincount(
                    coefficients.indices, coefficients.data, len(column_block)
                )
            offset = float(self._objective.constant[0])
        implied_lower, implied_upper = implied_bounds(
            matrix,
            row_lower,
            row_upper,
            np.maximum(lower, implied_lower),
            np.minimum(upper, implied_upper),
        )
        return LinearArrays(
            matrix,
            row_lower,
            row_upper,
            lower,
            upper,
            cost,
            np.concatenate(self._integer),
            self._maximise,
            offset,
            implied_lower,
            implied_upper,
            tuple(self._rows),
            tuple(self._columns),
        )


def _by_columns(
    data: FloatArray, rows: IntArray, columns: IntArray, shape: tuple[int, int]
) -> sp.csc_matrix:
    """The matrix with these entries, those of a column in order of rows;
    entries of one place are added up.

    The entries are in order of rows, so that a stable sort by columns suffices.
    """
    order = np.argsort(columns, kind="stable")
    kind = index_type(*shape, len(data))
    indptr = pointers(np.bincount(columns, minlength=shape[1]), kind)
    indices = rows[order].astype(kind, copy=False)
    matrix = by_columns(data[order], indices, indptr, shape)
    matrix.sum_duplicates()
    return matrix


def _scaled(matrix: sp.csr_matrix, factors: FloatArray) -> sp.csr_matrix:
    """A matrix with each row multiplied by its factor."""
    return same_places(matrix, matrix.data * factors.repeat(lengths(matrix.indptr)))


def _matrix(matrix: Matrix) -> sp.csr_matrix:
    if sp.issparse(matrix):
        by_rows: sp.csr_matrix = (
            matrix if isinstance(matrix, sp.csr_matrix) else sp.csr_matrix(matrix)  # type: ignore[call-overload]
        )
        return by_rows
    dense = np.atleast_2d(np.asarray(matrix, np.float64))
    rows, columns = dense.nonzero()
    kind = index_type(*dense.shape, len(rows))
    indptr = pointers(np.bincount(rows, minlength=len(dense)), kind)
    return compressed(dense[rows, columns], columns.astype(kind), indptr, dense.shape)


def _vector(value: ArrayLike, count: int, kind: type) -> FloatArray:
    return np.full(count, value, kind)
