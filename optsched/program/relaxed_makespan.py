"""The least makespan of an assignment that may split jobs, but uses no column that is longer than
it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray
from optsched.arrays.matrices import sum_by
from optsched.errors import SolverCrashed

ROUNDING = 1e-9
"""Relative differences that are rounding."""


class RelaxedMakespan(NamedTuple):
    """T* and its assignment.

    Attributes
    ----------
    bound : float
        No whole assignment has a smaller makespan.
    longest : float
        Duration of the longest column that may be used: at most T*.
    x : FloatArray, shape (columns,)
        How many jobs use each column; no resource is loaded beyond T*.
    """

    bound: float
    longest: float
    x: FloatArray


class _Relaxed(NamedTuple):
    """C(T): the least makespan with columns of at most T, ``bound`` below it, and its
    assignment.
    """

    bound: float
    x: FloatArray


def relaxed_makespan(
    duration: FloatArray, owner: IntArray, resource: IntArray, count: FloatArray, machines: IntArray
) -> RelaxedMakespan:
    """T* of Lenstra, Shmoys and Tardos.

    ::

        C(T)  =  min C   s.t.   sum_{c of k} x_c = n_k            every class k
                                sum_{c of r} d_c x_c <= N_r C     every resource r
                                x >= 0,  0 where d_c > T

        T*  =  min { T : C(T) <= T }

    C(T) falls, and changes at durations alone: let b be the first duration with C(b) below the next
    one. Then T* = max(b, C(b)). A whole assignment that uses a column longer than b takes longer
    than C(b), others take C(b) at least. It takes b at least, since without columns of b it takes C
    of the duration before, which is b or more.

    C(T) is bounded by prices u of the resources alone, which the linear program gives: ::

        sum_r N_r u_r = 1,  u >= 0:   C(T)  >=  sum_k n_k min_{c of k, d_c <= T} u_{r(c)} d_c

    Parameters
    ----------
    duration, owner, resource : array, shape (columns,)
        d_c, the class of a column, and its resource.
    count : FloatArray, shape (classes,)
    machines : IntArray, shape (resources,)

    Raises
    ------
    SolverCrashed
        A linear program could not be solved.
    """
    steps = np.unique(duration)
    fastest = np.full(len(count), np.inf)
    np.minimum.at(fastest, owner, duration)
    # Every class needs a column: some class has none shorter than this one
    first = int(np.searchsorted(steps, fastest.max()))
    found: dict[int, _Relaxed] = {}

    def at(number: int) -> _Relaxed:
        if number not in found:
            few = duration <= steps[number]
            found[number] = _solved(few, duration, owner, resource, count, machines)
        return found[number]

    def suffices(number: int) -> bool:
        """Whether C of this duration is below the next one."""
        return number + 1 == len(steps) or at(number).bound < steps[number + 1]

    low, high = first, len(steps) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle + 1, high)
    best, longest = at(low), float(steps[low])
    bound = max(best.bound, longest if low == first else min(at(low - 1).bound, longest))
    return RelaxedMakespan(bound, longest, best.x)


def _solved(
    few: np.ndarray,
    duration: FloatArray,
    owner: IntArray,
    resource: IntArray,
    count: FloatArray,
    machines: IntArray,
) -> _Relaxed:
    """C(T) over some columns."""
    from scipy.optimize import linprog  # takes a quarter of a second to load

    column = np.flatnonzero(few)
    d, k, r = duration[column], owner[column], resource[column]
    each = sum_by(k, 1.0, len(count))
    capacity = sp.csr_matrix(-machines.astype(np.float64)[:, np.newaxis])
    load = sp.csr_matrix(sp.hstack([sum_by(r, d, len(machines)), capacity]))
    # The simplex method ends in a vertex: no more jobs are split than there are resources
    sparse: Any = linprog  # its stubs know no sparse matrices
    solved = sparse(
        np.append(np.zeros(len(column)), 1.0),
        A_ub=load,
        b_ub=np.zeros(len(machines)),
        A_eq=sp.csr_matrix(sp.hstack([each, sp.csr_matrix((len(count), 1))])),
        b_eq=count,
        method="highs-ds",
    )
    if solved.x is None:
        raise SolverCrashed(f"the relaxation of the makespan was not solved: {solved.message}")
    price = np.maximum(-solved.ineqlin.marginals, 0.0)
    price = price / max(float(price @ machines), 1e-300)
    least = np.full(len(count), np.inf)
    np.minimum.at(least, k, price[r] * d)
    x = np.zeros(len(duration))
    x[column] = np.maximum(solved.x[:-1], 0.0)
    return _Relaxed(float(count @ least) * (1.0 - ROUNDING), x)
