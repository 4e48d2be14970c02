"""`Items`: rows of equal jobs counted together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray
from optsched.placement.instant import FULL, Instant
from optsched.placement.shares import Shares


@dataclass(frozen=True)
class Items:
    """Rows put together: n_g jobs that have the same rows, of equal use and equal fraction, are one group.

    An item is one of the rows of a group, with all its members; c of an item run when c members run in that row. Jobs
    that share with another are groups of their own.

    Attributes
    ----------
    need : FloatArray, shape (I,)
        Time of the item: of all members together, as a share of the window.
    usage : FloatArray, shape (R, I)
        Share of each capacity that one of them holds.
    member : csr_matrix, shape (G, I)
        1 where a member of the group takes part.
    count : IntArray, shape (G,)
        n_g.
    rows : tuple of IntArray, length I
        The row of each member, in the order of the members.
    shares : Shares, optional
        The shares of GPUs of each item; None where all GPUs are held as a whole.
    """

    need: FloatArray
    usage: FloatArray
    member: sp.csr_matrix
    count: IntArray
    rows: tuple[IntArray, ...]
    shares: Shares | None = None

    @classmethod
    def of(cls, instant: Instant) -> Items:
        """Put the rows of an allocation together."""
        use, shares = instant.usage.toarray(), instant.shares
        alike = use if shares is None else np.vstack([use, shares.pool, shares.gpus, shares.share])
        kind = np.zeros(len(instant), np.int64)
        if len(alike):
            kind = np.unique(alike, axis=1, return_inverse=True)[1].ravel()
        sharing = np.zeros(instant.jobs + 1, bool)
        pairs = np.flatnonzero(instant.partner >= 0)
        sharing[instant.job[pairs]] = sharing[instant.partner[pairs]] = True
        own: dict[int, list[int]] = {}
        for row in np.lexsort((instant.fraction, kind)).tolist():
            own.setdefault(int(instant.job[row]), []).append(row)
        for row in pairs.tolist():
            own.setdefault(int(instant.partner[row]), [])
        groups: dict[object, list[int]] = {}
        for job in sorted(own):
            same = tuple((int(kind[row]), float(instant.fraction[row])) for row in own[job])
            groups.setdefault(job if sharing[job] else same, []).append(job)
        group_of = {
            job: number for number, members in enumerate(groups.values()) for job in members
        }
        rows: list[IntArray] = []
        member: list[tuple[int, int]] = []
        for number, members in enumerate(groups.values()):
            for i, row in enumerate(own[members[0]]):
                item = len(rows)
                rows.append(np.array([own[job][i] for job in members], np.int64))
                member.append((number, item))
                if instant.partner[row] >= 0:
                    member.append((group_of[int(instant.partner[row])], item))
        first = np.array([part[0] for part in rows], np.int64)
        where = np.array(member, np.int64).reshape(-1, 2).T
        return cls(
            need=np.array([instant.fraction[part].sum() for part in rows]),
            usage=use[:, first],
            member=sp.csr_matrix(
                (np.ones(where.shape[1]), (where[0], where[1])), shape=(len(groups), len(rows))
            ),
            count=np.array([len(members) for members in groups.values()], np.int64),
            rows=tuple(rows),
            shares=None if shares is None else shares.take(first),
        )

    def __len__(self) -> int:
        return len(self.need)

    def greedy(self, order: IntArray, most: FloatArray) -> FloatArray:
        """Counts of a set that fits: items in order, each as often as there is room for it, at most ``most`` times."""
        free = np.full(len(self.usage), FULL)
        members = self.count.astype(np.float64)
        by_item = self.member.tocsc()
        counts = np.zeros(len(self))
        for item in order.tolist():
            uses = self.usage[:, item]
            groups = by_item.indices[by_item.indptr[item] : by_item.indptr[item + 1]]
            room = min((free[uses > 0] / uses[uses > 0]).min(initial=np.inf), members[groups].min())
            counts[item] = taken = np.floor(min(room, most[item]))
            if taken > 0:
                free -= taken * uses
                members[groups] -= taken
        return self.packed(counts)

    def packed(self, counts: FloatArray) -> FloatArray:
        """As many of these counts, which are within all capacities, as find whole GPUs for their shares too."""
        if self.shares is None:
            return counts
        each = np.repeat(np.arange(len(self)), counts.astype(np.int64))
        if self.shares.fits(each):
            return counts
        order = self.shares.decreasing(each)
        return np.bincount(order[self.shares.first_fit(order)], minlength=len(self)).astype(
            np.float64
        )

    def peel(self, need: FloatArray) -> tuple[FloatArray, FloatArray]:
        """A plain way to run all of ``need``: sets that fit, the longest jobs first, each until something ends.

        Returns
        -------
        lengths : FloatArray, shape (S,)
        counts : FloatArray, shape (S, I)
        """
        left, lengths, counts = need.copy(), [], []
        while (left > 0).any():
            load = np.asarray((self.member @ left) / self.count)
            urgency = self.member.T @ load  # of a pair: both jobs
            size = self.usage.max(axis=0, initial=0.0)
            order = np.lexsort((-size, -urgency))
            chosen = self.greedy(order[left[order] > 0], np.full(len(self), np.inf))
            on = chosen > 0
            length = float((left[on] / chosen[on]).min())
            lengths.append(length)
            counts.append(chosen)
            left[on] -= length * chosen[on]
            left[left < 1e-15] = 0.0
        return np.array(lengths), np.array(counts).reshape(-1, len(self))
