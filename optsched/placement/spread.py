"""From counts back to rows: which members of a group run in which slice, so that each gets exactly its share.

A group has n equal members. In slice P, of length z_P, c_Pi of them run in item i. Let t_mPi be the time of member m in
item i during slice P; each is to have the same,

    sum_P t_mPi = sum_P c_Pi z_P / n    for every member m and item i,
    sum_m t_mPi = c_Pi z_P              for every slice P and item i,
    sum_i t_mPi <= z_P                  for every member m and slice P,   t >= 0.

t_mPi = c_Pi z_P / n solves this, so the polytope is not empty; a vertex of it is sparse: most t are 0 or all of z_P.
Within a slice the t of a group are times of jobs on places with room for c_Pi, of which no job and no place has more
than z_P: an open shop, which `decompose` runs in exactly z_P. Groups have no member in common and are cut side by side.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray
from optsched.placement.items import Items
from optsched.placement.open_shop import decompose
from optsched.placement.priority import SCRAMBLE, run_matrix
from optsched.program import LinearProgram
from optsched.solution.values import Termination
from optsched.solving.engine import Engine

Part = tuple[FloatArray, list[IntArray]]
"""Ends of the parts of a slice, as shares of it, and the rows of a group that run in each."""


def spread(
    items: Items, lengths: FloatArray, counts: FloatArray, engine: Engine
) -> tuple[FloatArray, sp.csr_matrix]:
    """Slices over rows in which all members of a group run equally long in each of its items.

    Parameters
    ----------
    items : Items
    lengths : FloatArray, shape (S,)
        Above 0.
    counts : FloatArray, shape (S, I)
        Members of each item in each slice.
    engine : Engine
        Finds the vertices.

    Returns
    -------
    lengths : FloatArray
    runs : csr_matrix of 0/1, shape (slices, rows)
    """
    rows = int(max((part.max() for part in items.rows), default=-1)) + 1
    parts: list[list[Part]] = [[] for _ in lengths]
    indptr = items.member.indptr
    for group, size in enumerate(items.count.tolist()):
        mine = items.member.indices[indptr[group] : indptr[group + 1]].astype(np.int64)
        if size == 1:
            for number, chosen in enumerate(counts[:, mine] > 0):
                parts[number].append(
                    (
                        np.ones(1),
                        [np.array([items.rows[item][0] for item in mine[chosen]], np.int64)],
                    )
                )
            continue
        for number, part in _shared_out(items, mine, size, lengths, counts, engine):
            parts[number].append(part)
    made: list[float] = []
    runs: list[IntArray] = []
    for length, groups in zip(lengths.tolist(), parts, strict=True):
        ends = np.unique(np.concatenate([[1.0], *(end for end, _ in groups)]))
        starts = np.concatenate(([0.0], ends[:-1]))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            # up to its last end a group is busy; what follows are idle members
            running = [
                rows_of[k]
                for at, rows_of in groups
                if (k := int(np.searchsorted(at, end))) < len(at)
            ]
            runs.append(
                np.unique(np.concatenate([np.zeros(0, np.int64), *running]))
            )  # a pair is in two groups
            made.append(length * (end - start))
    return np.array(made), run_matrix(runs, rows)


def _shared_out(
    items: Items, mine: IntArray, size: int, lengths: FloatArray, counts: FloatArray, engine: Engine
) -> list[tuple[int, Part]]:
    """(slice, its parts) for a group of several members."""
    slices, places = np.nonzero(counts[:, mine])
    if len(slices) == 0:
        return []
    count = counts[slices, mine[places]]
    time = _vertex(slices, places, count * lengths[slices], lengths, size, engine)
    rows = np.stack([items.rows[item] for item in mine])
    result = []
    for number in np.unique(slices).tolist():
        cells = np.flatnonzero(slices == number)
        member = np.repeat(np.arange(size), len(cells))
        place = np.tile(places[cells], size)
        takes = np.ones(len(mine), np.int64)
        takes[places[cells]] = count[cells]
        cut, running, total = decompose(
            member, place, (time[:, cells] / lengths[number]).ravel(), takes
        )
        ends = np.cumsum(cut) / max(total, 1.0)
        ends[ends > 1 - 1e-12] = 1.0
        result.append((number, (ends, [rows[place[entry], member[entry]] for entry in running])))
    return result


def _vertex(
    slices: IntArray,
    places: IntArray,
    amount: FloatArray,
    lengths: FloatArray,
    size: int,
    engine: Engine,
) -> FloatArray:
    """t of every member and cell (slice, item), shape (members, cells): a vertex, or equal shares if a limit is met."""
    cells = len(slices)
    equal = np.tile(amount / size, (size, 1))
    whole, of_place = (
        sp.eye_array(size),
        sp.csr_matrix((np.ones(cells), (places, np.arange(cells)))),
    )
    used, of_cell = np.unique(slices, return_inverse=True)
    of_slice = sp.csr_matrix((np.ones(cells), (of_cell, np.arange(cells))))
    program = LinearProgram()
    t = program.variables(size * cells, name="time", upper=np.tile(lengths[slices], size))
    program.constrain(
        sp.kron(whole, of_place) @ t == np.tile(np.bincount(places, amount) / size, size),
        name="members",
    )
    program.constrain(sp.kron(np.ones((1, size)), sp.eye_array(cells)) @ t == amount, name="cells")
    if len(used) < cells:
        program.constrain(
            sp.kron(whole, of_slice) @ t <= np.tile(lengths[used], size), name="slices"
        )
    # any vertex will do: a cost without ties leads to one with few steps
    program.minimise(np.arange(1, size * cells + 1)[None, :] * SCRAMBLE % 1.0 @ t)
    values = engine.run(engine.open(program.arrays))
    if values.termination is not Termination.OPTIMAL or values.x is None:
        return equal
    time = np.clip(values.x.reshape(size, cells), 0.0, None)
    time[time < 1e-12] = 0.0
    return time
