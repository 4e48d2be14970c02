"""Reduced costs of the columns of an allocation program:
what each would earn, and what it would pay.

With duals y (derivatives of the optimum with respect to the right-hand sides) the reduced cost of
column c is

    d_c = sum_k e_kc  -  sum_k lambda_k member_kc  -  sum_r q_r usage_rc  -  sum_i y_i M_ic

e_kc  what the steps of class k earn in c: w_k levels_kc of a linear total, else levels_kc times the
      (negative) dual of the row ``levels`` of the class: the part of the objective that hangs on
      its level
lambda, q, y   duals of the rows ``time``, ``capacity`` and of the side rows M

At an optimum d_c = 0 for every column in use and d_c <= 0 for all others (x >= 0 is their only
bound). The derivation holds with normalisers fixed, as that of the prices does. Of a ratio all of
this is stated per unit of y = x tau, and what a column spends is part of what it pays
(`optsched.program.ratio`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray
from optsched.display import Displayed
from optsched.program import AllocationProgram, SideRows
from optsched.program.ratio import dual_of
from optsched.solution.certificate import dual_bound, noise_at

SAME_RATIO = 1e-9


@dataclass(frozen=True, repr=False)
class ReducedCosts(Displayed):
    """Reduced costs in units of the program's value, per unit of x:
    one job in that column all the time.

    Attributes
    ----------
    total : FloatArray, shape (N,)
        d_c.
    earned : csr_matrix, shape (K, N)
        e_kc, and what side rows pay for steps, such as deadlines: all that grows in proportion to
        the rate.
    per_step : bool
        Whether e_kc is in proportion to the rate, so that there is a rate at which the column
        would be taken.
    time : FloatArray, shape (K,)
        lambda_k.
    capacity : FloatArray, shape (R,)
        q_r.
    levels : FloatArray, shape (K,), or None
        The part of an improvement that hangs on each class's level; None where the utility is a
        total.
    side : mapping of str to FloatArray
        Duals of the side rows.
    bound, noise : float
        What these duals prove of the program's value, and what is rounding in it.
    """

    total: FloatArray
    earned: sp.csr_matrix
    per_step: bool
    time: FloatArray
    capacity: FloatArray
    levels: FloatArray | None
    side: Mapping[str, FloatArray]
    bound: float
    noise: float


def reduced_costs(
    program: AllocationProgram,
    duals: Mapping[str, FloatArray],
    x: FloatArray,
    faster: Sequence[SideRows] = (),
) -> ReducedCosts | None:
    """The reduced costs, or None if the duals are not those of rows of this program.

    Parameters
    ----------
    program : AllocationProgram
    duals : mapping of str to FloatArray
        Row duals by block.
    x : FloatArray, shape (N,)
        The optimum, where tangents of a concave utility are taken.
    faster : sequence of SideRows
        The side rows if every rate were twice as high: what differs is in proportion to rates.
    """
    # Any tangent has the rows that the duals must belong to.
    arrays = program.tangent(x).arrays if program.concave else program.to_linear().arrays
    if {block.name: len(block) for block in arrays.rows} != {
        name: len(block) for name, block in duals.items()
    }:
        return None
    y = np.concatenate([duals[block.name] for block in arrays.rows])
    if program.concave:
        # The tangent that touches where the duals say, as in the certificate.
        arrays = program.tangent(x, y).arrays
    bound = dual_bound(arrays, y)
    if bound is None:
        return None
    side = {rows.name: dual_of(duals, rows.name, rows.lower, rows.upper) for rows in program.side}
    levels = program.levels.tocsr()
    earned = sp.csr_matrix(sp.diags_array(_per_level(program, duals)) @ levels)
    earned = sp.csr_matrix(earned + _earned_by_side_rows(program, faster, side))
    return ReducedCosts(
        # The columns of classes come first
        total=np.asarray(arrays.cost - arrays.A.T @ y)[: program.classes.columns],
        earned=earned,
        per_step=_in_proportion(levels, program.classes.throughput),
        time=duals["time"],
        capacity=duals["capacity"],
        levels=-duals["levels"] * program.classes.count if program.utility.smallest_level else None,
        side=side,
        bound=bound,
        noise=noise_at(arrays, program.complete(x)),
    )


def _per_level(program: AllocationProgram, duals: Mapping[str, FloatArray]) -> FloatArray:
    """What one unit of ``levels @ x`` of each class earns."""
    if "levels" in duals:
        return -duals["levels"]
    prices = program.utility.level_prices(program)
    assert prices is not None
    return prices


def _earned_by_side_rows(
    program: AllocationProgram, faster: Sequence[SideRows], side: Mapping[str, FloatArray]
) -> sp.csr_matrix:
    """What side rows pay each class for its steps, shape (K, N);
    of rows whose columns all belong to one class.
    """
    C = program.classes
    total = sp.csr_matrix((len(C), C.columns))
    member = sp.csr_matrix(C.member > 0, dtype=np.float64)
    for rows, doubled in zip(program.side, faster, strict=False):
        if rows.matrix.shape != doubled.matrix.shape:
            continue
        # Twice the rates minus once: the part of each entry that is in proportion to the rate.
        steps = sp.csr_matrix(doubled.matrix - rows.matrix)
        steps.eliminate_zeros()
        entries = np.diff(steps.indptr)
        # Columns that each row shares with each class.
        shared = sp.csr_matrix(abs(steps).sign() @ member.T)
        whole = sp.coo_matrix(sp.diags_array(1.0 / np.maximum(entries, 1)) @ shared)
        # Rows all of whose entries are of one class.
        single = np.flatnonzero((whole.data > 1 - SAME_RATIO) & (entries[whole.row] > 0))
        owner = sp.csr_matrix(
            (-side[rows.name][whole.row[single]], (whole.col[single], whole.row[single])),
            (len(C), steps.shape[0]),
        )
        total = total + (owner @ steps).multiply(member)
    return sp.csr_matrix(total)


def _in_proportion(levels: sp.csr_matrix, throughput: sp.csr_matrix) -> bool:
    """Whether the levels of every class are its throughputs times one number."""
    entries = throughput.tocoo()
    some = entries.data > 0
    row, rate = entries.row[some], entries.data[some]
    ratio = np.asarray(levels[row, entries.col[some]]).ravel() / rate
    highest, lowest = np.zeros(levels.shape[0]), np.full(levels.shape[0], np.inf)
    np.maximum.at(highest, row, ratio)
    np.minimum.at(lowest, row, ratio)
    known = np.isfinite(lowest)
    return bool((highest[known] - lowest[known] <= SAME_RATIO * highest[known]).all())
