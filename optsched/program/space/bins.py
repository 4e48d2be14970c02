"""Bins: nodes, and single GPUs of nodes, and which counts of parts of gangs they have room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from itertools import product

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.program.linear import LinearProgram
from optsched.program.space.contents import (
    ROUNDING,
    SEARCHED,
    WHOLE_GPU,
    GangPart,
    GpuRoom,
    fits_fullest,
    gpus_of_pieces,
    share_counts,
)

Counts = tuple[int, ...]
"""How many of each part."""

TRIES = 2_000
"""States of GPUs that are looked at to find GPUs for shares, where contents are not all written
down."""
STEPS = 50_000
"""Parts that are tried at most to find all contents of a bin."""
WEIGHTS = 4
"""Weights of what parts use add up to this number, where contents are guessed."""
DEEPEST = 500
"""Parts that a bin may hold where all of its contents are found."""


class Bin:
    """A node, or one GPU.

    Its contents are counts z of parts, of which those of other pools are 0:

        sum_p use[i, p] z_p  <=  room_i      whole GPUs, CPUs, memory, sets of jobs kept apart, numbered gangs

    and there are GPUs for all shares and slices (`gpus_of_pieces`).

    Parameters
    ----------
    parts : sequence of GangPart
    allowed : sequence of int
        The parts that may be in it.
    most : FloatArray, shape (parts,)
        Parts that all jobs together have at most.
    gpus : int
    own : FloatArray, shape (2,)
        CPUs and memory of the node.
    layouts : IntArray, shape (layouts, profiles), optional
        Slices that one GPU can have (MIG), as counts of each profile.
    taken : BoolArray, shape (sets,), optional
        Sets of which a job is on the node already, and no other one may be.
    rooms : tuple of GpuRoom
        More GPUs, of which only a part is left.

    Attributes
    ----------
    allowed : IntArray
    most : FloatArray, shape (parts,)
    use : FloatArray, shape (resources, parts)
    room : FloatArray, shape (resources,)
    """

    def __init__(
        self,
        parts: Sequence[GangPart],
        allowed: Sequence[int],
        most: FloatArray,
        gpus: int,
        own: FloatArray,
        layouts: IntArray | None = None,
        taken: BoolArray | None = None,
        rooms: tuple[GpuRoom, ...] = (),
    ) -> None:
        self.parts, self.allowed, self.gpus = parts, np.array(allowed, np.int64), gpus
        self.most, self.rooms = most, rooms
        self._own = len(own)
        self._left = gpus + sum(room.left for room in rooms)
        self._layouts = layouts
        free = [] if taken is None else (~taken).astype(np.float64).tolist()
        # Of a gang whose parts have one size, `most` says that only one of them is here.
        sizes = Counter(parts[part].gang for part in allowed)
        gangs = [gang for gang, many in sizes.items() if gang and many > 1]
        self.use = (
            np.array(
                [
                    [
                        part.gpus if part.share == 1 else 0,
                        *(part.gpus * each for each in part.need[: len(own)]),
                        *(float(number in part.apart) for number in range(len(free))),
                        *(float(part.gang == gang) for gang in gangs),
                    ]
                    for part in parts
                ],
                np.float64,
            )
            .reshape(len(parts), 1 + len(own) + len(free) + len(gangs))
            .T
        )
        self.room = np.array(
            [float(gpus), *(own * (1 + ROUNDING)).tolist(), *free, *(1.0 for _ in gangs)]
        )
        self._size = np.array([part.gpus * part.share for part in parts], np.float64)
        self._shared = np.array([part.share < 1 for part in parts], bool)
        self._fits_gpus = cache(self._finds_gpus)

    def _finds_gpus(
        self, shared: tuple[tuple[int, int], ...], whole: int, tries: int | None
    ) -> bool:
        """Whether there are GPUs for these shares, as (part, count), beside so many whole GPUs."""
        pieces = [self.parts[part].piece for part, count in shared for _ in range(count)]
        gpus = (*self.rooms, *[WHOLE_GPU] * (self.gpus - whole))
        if fits_fullest(pieces, gpus):
            return True
        return gpus_of_pieces(pieces, gpus, self._layouts, tries) is not None

    def _has_gpus(self, counts: IntArray, tries: int | None) -> bool:
        parts = np.flatnonzero(self._shared & (counts > 0))
        if not len(parts):
            return True
        whole = int(self.use[0] @ counts)
        shared = tuple(zip(parts.tolist(), counts[parts].tolist(), strict=True))
        return whole <= self.gpus and self._fits_gpus(shared, whole, tries)

    def most_extra(self, counts: IntArray, parts: IntArray | slice = slice(None)) -> IntArray:
        """A bound on `extra` of each of these parts, which takes no search for GPUs."""
        use, size = self.use[:, parts], self._size[parts]
        left = (self.room - self.use @ counts)[:, np.newaxis]
        # Nodes without a limit have infinite room
        with np.errstate(divide="ignore", invalid="ignore"):
            most = np.where(use > 0, left / use + ROUNDING, np.inf).min(axis=0)
        # Shares have no row
        free = self._left * (1 + ROUNDING) - self._size @ counts
        most = np.minimum(most, free / size + ROUNDING)
        most = np.minimum(most, self.most[parts] - counts[parts])
        whole: IntArray = np.maximum(most, 0.0).astype(np.int64)
        return whole

    def has_shares(self, counts: IntArray, part: IntArray | int) -> BoolArray:
        """Whether these counts or a part share GPUs: then `extra` may be below `most_extra`."""
        return np.asarray(self._shared[part] | self._shared[counts > 0].any(), bool)

    def extra(self, counts: IntArray, part: int) -> int:
        """How many more of a part fit beside these counts, if nothing else is added."""
        most = int(self.most_extra(counts, np.array([part]))[0])
        if most == 0 or not self.has_shares(counts, part):
            return most
        more = counts.copy()
        fits, tried = 0, most
        while fits < most:
            more[part] = counts[part] + tried
            fits, most = (tried, most) if self._has_gpus(more, TRIES) else (fits, tried - 1)
            tried = (fits + most + 1) // 2
        return fits

    def gpus_taken(self, counts: IntArray) -> int:
        """Fewest wholly free GPUs that these counts take, which fit."""
        whole = int(self.use[0] @ counts)
        parts = np.flatnonzero(self._shared & (counts > 0))
        pieces = [self.parts[p].piece for p in parts.tolist() for _ in range(int(counts[p]))]
        return next(
            whole + more
            for more in range(self.gpus - whole + 1)
            if gpus_of_pieces(pieces, (*self.rooms, *[WHOLE_GPU] * more), self._layouts) is not None
        )

    def fullest(
        self, most: int, every: bool = False, has_time: Callable[[], bool] = lambda: True
    ) -> IntArray | None:
        """Contents to which no further part can be added, or all (``every``), shape (P, parts).

        None where there are more than ``most``, or it takes too many steps, or too much time, to
        find them.
        """
        # Python numbers: there are as many small sums as contents, and arrays would take most of
        # the time.
        use, allowed, limit = self.use.T.tolist(), self.allowed.tolist(), self.most.tolist()
        found: list[Counts] = []
        tried = 0

        def fits(held: Counts, left: Sequence[float], number: int) -> bool:
            if held[number] >= limit[number]:
                return False
            if any(amount > there for amount, there in zip(use[number], left, strict=True)):
                return False
            return self._has_gpus(np.array(_with_one(held, number)), None)

        # Beyond `SEARCHED` shares the first GPUs that fit decide, which is no proof unless all are
        # alike
        shares = [part for part in allowed if self._shared[part]]
        alike = len(shares) <= 1 and all(self.parts[part].gpus == 1 for part in shares)
        deepest = DEEPEST if alike else min(DEEPEST, SEARCHED - 1)

        def extend(
            held: Counts, left: Sequence[float], last: int, among: Sequence[int], depth: int = 0
        ) -> bool:
            """Add parts from ``last`` on in every way; False where there are too many contents.

            What is not ``among`` these parts did not fit beside less.
            """
            nonlocal tried
            tried += len(allowed)
            if depth > deepest or not has_time():
                return False
            able = [number for number in among if fits(held, left, number)]
            if every or not able:
                found.append(held)
            following = [number for number in able if number >= last]
            if tried + len(following) * len(allowed) > STEPS:
                return False  # each of them takes at least one pass through all parts
            for number in following:
                rest = [there - amount for amount, there in zip(use[number], left, strict=True)]
                if not extend(_with_one(held, number), rest, number, able, depth + 1):
                    return False
            return len(found) <= most and tried <= STEPS

        if not extend((0,) * len(self.parts), self.room.tolist(), 0, allowed):
            return None
        return np.array(found, np.int64).reshape(len(found), len(self.parts))

    def relaxed(self) -> LinearProgram:
        """The program over z that `filled` makes contents of, without an objective.

        Shares that add up may need more GPUs than there are. For every dual feasible function f
        (`share_counts`),

            sum_p gpus_p f(share_p) z_p  <=  sum over GPUs of f(left)

        holds of all contents, and so does the sum of all shares.
        """
        A, upper = self.relaxed_rows
        limit = upper[:, np.newaxis]
        with np.errstate(divide="ignore", invalid="ignore"):
            most = np.where(A > 0, np.floor(limit / A + ROUNDING), np.inf).min(
                axis=0, initial=np.inf
            )
        most = np.minimum(most, self.most[self.allowed])
        lp = LinearProgram()
        z = lp.variables(len(most), name="contents", upper=most, integer=True)
        lp.constrain(A @ z <= upper, name="room")
        return lp

    @cached_property
    def relaxed_rows(self) -> tuple[FloatArray, FloatArray]:
        """Coefficients, shape (rows, allowed parts), and finite limits of the rows of `relaxed`."""
        parts = [self.parts[p] for p in self.allowed.tolist()]
        gpus = np.array([part.gpus for part in parts], np.float64)
        share = np.array([part.share for part in parts])
        rows, limits = (
            [self.use[:, self.allowed], gpus * share],
            [*self.room, self._left * (1 + ROUNDING)],
        )
        for count in share_counts(share):
            rows.append(gpus * count.of(share))
            limits.append(count.held(self.gpus, self.rooms))
        upper = np.array(limits)
        finite = np.isfinite(upper)
        return np.vstack(rows)[finite], upper[finite]

    def guesses(self, price: FloatArray) -> IntArray:
        """Contents that may be worth much at prices of parts, shape (guesses, parts): they keep the
        rows of `relaxed`.

        Parts are taken in decreasing price for a weighted sum of the GPUs, CPUs and memory that
        they use, for several weights.
        """
        A, upper = self.relaxed_rows
        worth, most = price[self.allowed], self.most[self.allowed]
        order = np.argsort(-worth / self._weighted_uses, axis=1, kind="stable")
        guess = np.arange(len(order))
        left = np.repeat(upper[:, np.newaxis], len(order), axis=1)
        counts = np.zeros((len(order), len(self.allowed)), np.int64)
        for part in order.T:  # one of each guess
            use = A[:, part]
            with np.errstate(divide="ignore", invalid="ignore"):
                fit = np.where(use > 0, left / use + ROUNDING, np.inf).min(axis=0, initial=np.inf)
            fit = np.where(worth[part] > 0, np.floor(np.minimum(fit, most[part])), 0.0)
            left -= use * fit
            counts[guess, part] = fit
        found = np.zeros((len(order), len(self.parts)), np.int64)
        found[:, self.allowed] = counts
        return np.unique(found, axis=0)

    @cached_property
    def _weighted_uses(self) -> FloatArray:
        """Weighted sums of what each allowed part uses of a bin, shape (weights, allowed parts)."""
        room = np.append(self._left, self.room[1 : 1 + self._own])
        use = np.vstack([self._size, self.use[1 : 1 + self._own]])[:, self.allowed]
        # Of what has no room no part is allowed that uses it
        limited = np.isfinite(room) & (room > 0)
        use = use[limited] / room[limited, np.newaxis]
        steps = product(range(WEIGHTS + 1), repeat=len(use))
        weights = np.array([some for some in steps if sum(some) == WEIGHTS], np.float64)
        sums: FloatArray = np.maximum(weights @ use, ROUNDING)
        return sums

    def filled(self, order: IntArray, wanted: IntArray) -> IntArray:
        """Contents with as many of the wanted parts as fit in this order, and then as many
        others.
        """
        counts = np.zeros(len(self.parts), np.int64)
        for most in (wanted, None):
            # What has no room now has none later
            able = order[self.most_extra(counts, order) > 0]
            for part in (able if most is None else order[most[order] > 0]).tolist():
                fitting = self.extra(counts, part)
                counts[part] += fitting if most is None else min(fitting, int(most[part]))
        return counts


def _with_one(held: Counts, number: int) -> Counts:
    return (*held[:number], held[number] + 1, *held[number + 1 :])
