"""Column generation of contents: nodes that can hold jobs in more ways than can be written down.

The program of a `Space` starts with the contents of a best fit, and is solved without whole numbers
(restricted master). At its duals let v_pr be the price of room for a part p on nodes of class r,
and s_r that of such a node. Contents z are worth a column where v_r'z > s_r. An integer program
finds them (`Bin.relaxed`); it may ask for more GPUs for shares than there are, so what fits of its
optimum is made a column. Its bound b_r is one of all contents, also those that are not made: with
s_r = b_r the duals are feasible in the dual of the whole program, and bound it. `verify` searches
the contents again, at the duals of the file (`optsched.verify.contents`).

Duals are smoothed towards those of the best bound (`column_loop`): both are feasible for the
columns of jobs, gangs and parts, so their mean is. The first bound is that of the program without
its space, where v = 0. While contents that a greedy rule finds at the duals of the master improve
it (`Bin.guesses`), no integer program is solved: these take ten times as long. What is a column in
the end is solved for whole numbers (restricted master heuristic).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray, owners
from optsched.arrays.values import replace
from optsched.program import LinearArrays, Space
from optsched.program.space.bins import Bin
from optsched.program.space.node_bins import Contents
from optsched.solution import Values
from optsched.solution.certificate import dual_bound
from optsched.solvers import Session
from optsched.solving.column_loop import ColumnLoop
from optsched.solving.engine import Engine

log = logging.getLogger("optsched")

CLOSED = 1e-4
"""Relative gap between the value and the bound at which no more contents are made."""
WORTH = 1e-7
"""Worth of contents, relative to the largest cost, from which they become a column."""
GUESSES = 3
"""Contents of each bin that are made at once without a search."""
KEPT = 0.6
"""Fraction of the time that is reserved for the integer program."""
PRICED = 0.4
"""Fraction of the time at which pricing ends, even where the duals prove no bound without the rest;
and the program without contents, whose bound may be the only one."""
SMOOTHING = (0.8, 0.4, 0.0)
"""Weights of the duals of the best bound; the next weight is tried if pricing finds no new
column."""
PADDED = 1 + 1e-7
"""Factor on the bound of a solver on the worth of contents, which is right up to its tolerances."""
ROUGHLY, FINELY, NEAR = 1e-2, 1e-4, 0.05
"""Gap of the integer programs of bins, while the gap of the master is above NEAR, and then."""


class PricedContents(NamedTuple):
    """What column generation found.

    Attributes
    ----------
    space : Space
        With the contents that were made.
    duals : FloatArray or None, shape (rows,)
        Those that bound the program with all contents best; None where none do.
    x : FloatArray or None
        The last optimum of the master.
    """

    space: Space
    duals: FloatArray | None
    x: FloatArray | None


def priced_contents(
    engine: Engine, arrays: LinearArrays, space: Space, alone: LinearArrays
) -> PricedContents:
    """Make the contents that are worth a column.

    Parameters
    ----------
    engine : Engine
    arrays : LinearArrays
        The program with the contents there are, which are its last columns.
    space : Space
    alone : LinearArrays
        The program without its space and without whole numbers, of which it has all rows.
    """
    return _Generation(engine, arrays, space, alone).run()


class _Found(NamedTuple):
    """Contents of a node of a class, or of a GPU there; counts of the parts, shape (parts,)."""

    node_class: int
    of_gpu: bool
    counts: IntArray


class _Generation(ColumnLoop[FloatArray]):
    """One run of column generation; duals are those of a maximum."""

    def __init__(
        self, engine: Engine, arrays: LinearArrays, space: Space, alone: LinearArrays
    ) -> None:
        self._engine, self._space = engine, space
        self._sign = 1.0 if arrays.maximise else -1.0
        relaxed = replace(arrays, integer=np.zeros(arrays.shape[1], bool))
        self._session = engine.open(relaxed, "highs")
        self._least = WORTH * float(np.abs(arrays.cost).max(initial=0.0))
        self._bins: list[_PricedBin] = []
        self._known = set[tuple[int, bool, bytes]]()
        self.weights = SMOOTHING
        self._bound, self._value, self._made = np.inf, -np.inf, 0
        self._x: FloatArray | None = None
        self._last: FloatArray | None = None
        self._prove_alone(alone)

    def _run(self, session: Session, kept: float = KEPT) -> Values:
        """Run a linear program, without progress: its bound does not hold for contents that are not
        made.

        It ends where so much of the time is left, which the integer program needs.
        """
        engine = self._engine
        limits = replace(
            engine.limits_left(kept), on_progress=None, options={}, gap=None, work=None
        )
        return engine.run_within(session, limits)

    def _prove_alone(self, alone: LinearArrays) -> None:
        """The bound of the program without its space: there may be no other one."""
        duals = self._run(self._engine.open(alone, "highs"), PRICED).y
        if duals is not None:
            arrays = self._session.arrays
            y = np.zeros(arrays.shape[0])
            for rows in alone.rows:
                y[arrays.row_block(rows.name).slice] = self._sign * duals[rows.slice]
            self._prove(y)

    def _open(self) -> bool:
        """Open the bins of all classes; False if the time is up before."""
        programs: dict[Bin, _ContentsProgram] = {}
        for r, kind in enumerate(self._space.nodes.contents.tolist()):
            node, gpu, one_gpu = self._space.bins[kind]
            for bin_, one in ((gpu, one_gpu), (node, -1)):
                if bin_ is None or not len(bin_.allowed):
                    continue
                if not self._has_time():
                    return False
                if bin_ not in programs:
                    programs[bin_] = _ContentsProgram.of(bin_, one)
                self._bins.append(_PricedBin.of(self._engine, programs[bin_], r))
        return True

    def _of_one_part(self) -> Contents:
        """Contents of one part only, as many as fit: with them no price is far off."""
        programs = list(dict.fromkeys(one.program for one in self._bins))
        turn = {program: number for number, program in enumerate(programs)}
        counts = [np.zeros((0, len(self._space.parts)), np.int64)]
        counts += [program.of_one_part for program in programs]
        first = np.cumsum([len(some) for some in counts])
        rows = [
            first[turn[one.program]] + np.arange(len(one.program.of_one_part)) for one in self._bins
        ]
        bin_ = owners([len(row) for row in rows])
        node_class = np.array([one.node_class for one in self._bins], np.int64)[bin_]
        of_gpu = np.array([one.of_gpu for one in self._bins], bool)[bin_]
        row = np.concatenate([EMPTY, *rows])
        return Contents(node_class, row, of_gpu, np.concatenate(counts))

    def _has_time(self) -> bool:
        """Whether contents may still be made; what is left then is for the integer program."""
        left = self._engine.has_time_left(KEPT)
        self._engine.by_clock |= not left
        return left

    def run(self) -> PricedContents:
        """Make contents, as long as there is time."""
        if self._open():
            self._add(self._of_one_part())
            self.generate()
            if self._last is not None:
                # Whole numbers may need contents that do not improve the master.
                self._add_found(self._guessed(self._last, -np.inf))
        duals = None if self.best is None else self._sign * self.best
        return PricedContents(self._space, duals, self._x)

    def solve(self) -> FloatArray | None:
        """The duals of the master; None if the time is up."""
        if self._made and not self._has_time():
            return None
        values = self._run(self._session)
        if values.x is None or values.y is None:
            return None
        self._x, self._value = values.x, self._sign * self._session.arrays.objective(values.x)
        self._last = self._sign * values.y
        return self._last

    def between(self, weight: float, best: FloatArray, duals: FloatArray) -> FloatArray:
        """A mean of the two."""
        return weight * best + (1 - weight) * duals

    def add_priced(self, at: FloatArray, duals: FloatArray) -> bool:
        """Contents that improve the master become columns of it."""
        far = self._bound - self._value > NEAR * abs(self._value)
        found = self._guessed(duals, self._least) or self._at(at, duals, ROUGHLY if far else FINELY)
        self._add_found(found)
        return bool(found)

    def _add_found(self, found: Sequence[_Found]) -> None:
        self._made += len(found)
        if found:
            node_class = np.array([one.node_class for one in found], np.int64)
            of_gpu = np.array([one.of_gpu for one in found], bool)
            counts = np.array([one.counts for one in found], np.int64)
            self._add(Contents(node_class, np.arange(len(found)), of_gpu, counts))

    @property
    def ended(self) -> bool:
        """Whether the bound is near enough."""
        return self._bound - self._value <= CLOSED * abs(self._value)

    def note(self) -> None:
        """Value and bound in the log."""
        log.info(
            "%d contents of nodes made columns: value %.9g, bound %.9g",
            self._made,
            self._value,
            self._bound,
        )

    def _guessed(self, y: FloatArray, least: float) -> list[_Found]:
        """Contents that are worth so much more than they cost, found without a search: they prove
        no bound.
        """
        if not self._has_time():
            return []
        price, of_class = self._prices(y)
        return [
            one
            for bin_ in self._bins
            for one in bin_.guesses(np.maximum(price[bin_.node_class], 0.0))
            if self._is_worth(one, price, of_class, least)
        ]

    def _prices(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Views of duals: of parts on nodes of each class, shape (classes, parts), and of these
        nodes.
        """
        node, count = (self._session.arrays.row_block(name).slice for name in ("node", "count"))
        return y[node].reshape(len(self._space.nodes), len(self._space.parts)), y[count]

    def _at(self, at: FloatArray, y: FloatArray, gap: float) -> list[_Found]:
        """Contents that are worth most at some duals, of which those that improve the master."""
        # Simplex duals of rows that only limit may be below 0 by rounding.
        at = np.where(np.isneginf(self._session.arrays.row_lower), np.maximum(at, 0.0), at)
        price, of_class = self._prices(at)
        master, of_master = self._prices(y)
        found: list[_Found] = []
        proven = True
        for bin_ in sorted(self._bins, key=lambda one: not one.of_gpu):
            if not self._engine.has_time_left(PRICED):
                self._engine.by_clock, proven = True, False
                break
            r = bin_.node_class
            most, contents = bin_.best(self._engine, price[r], gap)
            proven &= most is not None
            if bin_.of_gpu:
                # A whole GPU costs what shares on it are worth: nodes are priced after their GPUs.
                price[r, bin_.one_gpu] = max(price[r, bin_.one_gpu], most or 0.0)
            else:
                of_class[r] = most or 0.0
            found.append(contents)
        if proven:
            self._prove(at)
        return [one for one in found if self._is_worth(one, master, of_master, self._least)]

    def _is_worth(self, one: _Found, price: FloatArray, of_class: FloatArray, least: float) -> bool:
        """Whether contents are worth so much at prices of the master, and are no column yet."""
        cost = 0.0 if one.of_gpu else of_class[one.node_class]
        key = one.node_class, one.of_gpu, one.counts.tobytes()
        worth = float(price[one.node_class] @ one.counts - cost) > least
        new = worth and key not in self._known
        if new:
            self._known.add(key)
        return new

    def _prove(self, y: FloatArray) -> None:
        """Keep duals of the whole program, if they prove a better bound."""
        bound = dual_bound(self._session.arrays, self._sign * y)
        if bound is not None and self._sign * bound < self._bound:
            self._bound, self.best = self._sign * bound, y

    def _add(self, more: Contents) -> None:
        """More contents in the master and in the space."""
        space, arrays = self._space, self._session.arrays
        matrix = space.columns_of_contents(arrays, more)
        most = space.most_contents(more.node_class, more.of_gpu)
        name = f"contents {len(arrays.columns)}"
        self._session.add_columns(matrix, np.zeros(len(more.row)), most, name)
        self._space = space.with_contents(more)


@dataclass(frozen=True, eq=False)
class _ContentsProgram:
    """The program that finds contents for equal bins, which are in nodes of several classes.

    Attributes
    ----------
    bin : Bin
    one_gpu : int
        The part whose place in the node a GPU takes; -1 for a node.
    arrays : LinearArrays
        Of `Bin.relaxed`.
    needs_less : BoolArray, shape (parts of the bin, parts of the bin)
        Whether the first part needs no more of anything than the second one.
    of_one_part : IntArray, shape (contents, parts)
        Contents of one part only, as many as fit.
    """

    bin: Bin
    one_gpu: int
    arrays: LinearArrays
    needs_less: BoolArray
    of_one_part: IntArray

    @classmethod
    def of(cls, bin_: Bin, one_gpu: int) -> _ContentsProgram:
        """With all that does not depend on prices."""
        arrays = bin_.relaxed().arrays
        allowed = bin_.allowed
        # A part of which there are too few to fill the bin dominates no other part.
        needs_less = np.repeat(
            (bin_.most[allowed] > arrays.upper)[:, np.newaxis], len(allowed), axis=1
        )
        for row in arrays.A.toarray():
            needs_less &= row[:, np.newaxis] <= row
        nothing = np.zeros(len(bin_.parts), np.int64)
        fit = np.array([bin_.extra(nothing, part) for part in allowed.tolist()], np.int64)
        counts = np.zeros((len(allowed), len(bin_.parts)), np.int64)
        counts[np.arange(len(allowed)), allowed] = fit
        if one_gpu >= 0:
            counts[:, one_gpu] -= 1
        return cls(bin_, one_gpu, arrays, needs_less, counts[fit > 0])


class _PricedBin(NamedTuple):
    """Equal bins of nodes of one class, and the session that prices contents for them."""

    program: _ContentsProgram
    node_class: int
    session: Session

    @classmethod
    def of(cls, engine: Engine, program: _ContentsProgram, node_class: int) -> _PricedBin:
        """With a session of its own, as prices differ between classes."""
        return cls(program, node_class, engine.load("highs")().open(program.arrays))

    def _dominated(self, price: FloatArray) -> BoolArray:
        """Parts that another part dominates: it needs no more of anything and is worth as much."""
        needs_less = self.program.needs_less
        # Of equal ones the first stays
        first = np.tri(len(price), k=-1, dtype=bool).T
        better = price[:, np.newaxis] > price
        equal = price[:, np.newaxis] == price
        alike = needs_less & needs_less.T
        found: BoolArray = (needs_less & (better | (equal & (~alike | first)))).any(axis=0)
        return found

    @property
    def one_gpu(self) -> int:
        """The part whose place in the node a GPU takes; -1 for a node."""
        return self.program.one_gpu

    @property
    def of_gpu(self) -> bool:
        return self.one_gpu >= 0

    def best(self, engine: Engine, price: FloatArray, gap: float) -> tuple[float | None, _Found]:
        """A bound on what contents are worth at prices of parts, and contents that are worth
        much.
        """
        bin_ = self.program.bin
        allowed, parts = bin_.allowed, bin_.parts
        wanted = np.zeros(len(parts), np.int64)
        most: float | None = 0.0
        if (price[allowed] > 0).any():
            self.session.set_cost(-price[allowed])
            open_ = ~self._dominated(price[allowed])
            self.session.set_bounds(
                np.zeros(len(allowed)), np.where(open_, self.program.arrays.upper, 0.0)
            )
            left = engine.limits_left(PRICED)
            limits = replace(left, on_progress=None, options={}, gap=gap, work=None)
            values = self.session.run(limits)
            most = None if values.bound is None else max(0.0, -values.bound) * PADDED
            if values.x is not None:
                wanted[allowed] = np.round(values.x).astype(np.int64)
        return most, self._filled(price, wanted)

    def guesses(self, price: FloatArray) -> list[_Found]:
        """Contents that may be worth much at prices of parts, found without a search."""
        counts = self.program.bin.guesses(price)
        best = np.argsort(-(counts @ price), kind="stable")[:GUESSES]
        return [self._filled(price, wanted) for wanted in counts[best]]

    def _filled(self, price: FloatArray, wanted: IntArray) -> _Found:
        """Contents with as many of the wanted parts as fit, and others that are worth something.

        The largest come first, as others fit beside them.
        """
        bin_ = self.program.bin
        size = np.array([part.gpus * part.share for part in bin_.parts])
        order = bin_.allowed[np.argsort(-size[bin_.allowed], kind="stable")]
        return self.found(bin_.filled(order[price[order] > 0], wanted))

    def found(self, counts: IntArray) -> _Found:
        """Counts of parts as contents, of which those of a GPU have -1 for one whole GPU."""
        if self.of_gpu:
            counts[self.one_gpu] -= 1
        return _Found(self.node_class, self.of_gpu, counts)
