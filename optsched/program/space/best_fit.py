"""A placement of whole jobs by best fit: where the program of a `Space` starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.instance.cluster import PER_NODE
from optsched.program.space.contents import ROUNDING
from optsched.program.space.node_bins import Contents
from optsched.program.space.seats import Space


def best_fit(
    space: Space,
    worth: FloatArray,
    A: sp.csr_matrix,
    upper: FloatArray,
    first: FloatArray | None = None,
    has_time: Callable[[], bool] = lambda: True,
) -> tuple[FloatArray, Space, FloatArray]:
    """An allocation of whole jobs, shape (N,); and its columns of the space, shape (Y + H + M,),
    which has more contents then, if those in use were not written down.

    Classes take their turns in decreasing worth per GPU of their best column, and each class takes
    its columns in decreasing worth, as often as there is room. The jobs that come before all others
    are known to nearly fit: of those on one GPU the largest come first (`_packing_order`). A gang
    goes into the group with the fewest free GPUs in which it fits, each part, the largest first,
    onto the node or GPU where the fewest are left.

    Parameters
    ----------
    space : Space
    worth : FloatArray, shape (N,)
        Of one job in a column; columns that are worth nothing are left out.
    A : csr_matrix, shape (rows, N)
    upper : FloatArray, shape (rows,)
        Rows A x <= upper that hold as well.
    first : FloatArray, shape (N,), optional
        Jobs of each column that come before all others, such as those of a previous answer.
    has_time : callable, optional
        Whether one more job may be placed; asked before each.
    """
    seats = _Seats(space)
    C = space.classes
    x = np.zeros(C.columns)
    room = upper + ROUNDING * np.maximum(1.0, np.abs(upper))
    by_column = A.tocsc()
    turns = _order(space, worth).tolist()
    before = np.zeros(C.columns) if first is None else np.minimum(np.floor(first), C.limit)
    wanted = [(column, before[column]) for column in _packing_order(space, turns) if before[column]]
    for column, most in [*wanted, *((column, C.limit[column]) for column in turns)]:
        entries = slice(by_column.indptr[column], by_column.indptr[column + 1])
        row, use = by_column.indices[entries], by_column.data[entries]
        t = int(space.types.of_column[column])
        while x[column] < most and (use <= room[row]).all() and has_time():
            if t >= 0 and not seats.take(t):
                break
            x[column] += 1
            room[row] -= use
    return x, *seats.point()


def seated_types(space: Space, types: IntArray) -> tuple[BoolArray, Space]:
    """Which gangs of these types, in this order, best fit finds room for, -1 needs none;
    and the space with all contents that are in use.
    """
    seats = _Seats(space)
    full = set[int]()
    seated = np.ones(len(types), bool)
    for turn, t in enumerate(types.tolist()):
        if t >= 0 and (t in full or not seats.take(t)):
            full.add(t)
            seated[turn] = False
    return seated, space if space.complete else seats.point()[0]


def _order(space: Space, worth: FloatArray) -> IntArray:
    """Columns in their turns; of jobs on one GPU that are worth as much, the smallest come first."""
    C = space.classes
    per_gpu = worth / np.maximum(C.gpus, 1)
    best, least = np.full(len(C), -np.inf), np.full(len(C), np.inf)
    np.maximum.at(best, C.class_a, per_gpu)
    np.minimum.at(least, C.class_a, np.where(C.gpus <= 1, _sizes(space), 0.0))
    turn = C.class_a
    order = np.lexsort((np.arange(C.columns), -worth, turn, least[turn], -best[turn]))
    chosen: IntArray = order[worth[order] > 0]
    return chosen


def _sizes(space: Space) -> FloatArray:
    """What a job of each column takes: its parts of the GPUs, CPUs and memory of its pool, summed."""
    types, cluster = space.types, space.classes.instance.cluster
    has = np.column_stack([np.diff(cluster.numbering.start), cluster.own_capacity])
    total = np.zeros((len(cluster.pools), has.shape[1]))
    np.add.at(total, cluster.numbering.pool, has)
    per_gpu = np.column_stack([types.share, types.need[:, : len(PER_NODE)]])
    takes, of_pool = per_gpu * types.gpus[:, np.newaxis], total[types.pool]
    part = np.divide(takes, of_pool, out=np.zeros_like(takes), where=of_pool > 0).sum(axis=1)
    size: FloatArray = np.append(part, 0.0)[types.of_column]  # type -1 takes nothing
    return size


def _packing_order(space: Space, turns: Sequence[int]) -> list[int]:
    """Columns in an order in which more of their jobs fit: those of at most one GPU first, the
    largest of them first; then gangs in their turns.
    """
    single, size = (space.classes.gpus <= 1).tolist(), _sizes(space).tolist()
    return sorted(turns, key=lambda column: -size[column] if single[column] else 1.0)


class _Seats:
    """Bins, which are the nodes and the GPUs that have their own contents, and what is in them.

    Equal bins with the same counts are in the same state.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        nodes, types = space.nodes, space.types
        self._states = _States(space)
        self._class = np.repeat(np.arange(len(nodes), dtype=np.int64), nodes.count)
        self._is_node = np.ones(len(self._class), bool)
        self._free = nodes.room[self._class]
        empty = [self._states.empty(r, of_gpu=False) for r in range(len(nodes))]
        self._state = np.array(empty, np.int64)[self._class]
        self._gangs = np.zeros(len(space.gangs.type_))
        self._held = np.zeros(len(space.held.part))
        held = space.held
        keys = zip(held.part.tolist(), held.node_class.tolist(), held.level.tolist(), strict=True)
        self._column_held = {key: column for column, key in enumerate(keys)}
        self._columns = [np.flatnonzero(space.gangs.type_ == t) for t in range(len(types))]
        self._taken = np.zeros(len(types), np.int64)
        self._pieces = np.array([sum(split.values()) for split in space.gangs.split], np.int64)
        groups = space.classes.instance.cluster.groups
        self._shared = np.array([group.capacity * (1 + ROUNDING) for group in groups])
        self._changes: list[tuple[str, int, float]] = []

    def take(self, t: int) -> bool:
        """Seat one gang of a type, if there is room."""
        types = self.space.types
        level, pool = int(types.level[t]), int(types.pool[t])
        columns = self._columns[t]
        number = self.space.gangs.number[columns]
        columns = columns[(number == 0) | (number == number[:1] + self._taken[t])]
        # Whole groups with too few free GPUs are not tried.
        group = self.space.nodes.group[level]
        in_pool = self._is_node & (self.space.nodes.pool[self._class] == pool)
        free = np.bincount(group[self._class[in_pool]], self._free[in_pool], int(group.max()) + 1)
        left = free[self.space.gangs.group[columns]]
        columns = columns[np.lexsort((columns, left, self._pieces[columns]))]
        if types.share[t] == 1:
            columns = columns[free[self.space.gangs.group[columns]] >= types.gpus[t]]
        for column in columns.tolist():
            bins = len(self._class)
            self._changes.clear()
            if self._seat(column, level):
                self._gangs[column] += 1
                self._taken[t] += 1
                return True
            self._undo(bins)
        return False

    def _seat(self, column: int, level: int) -> bool:
        gangs, nodes = self.space.gangs, self.space.nodes
        pool = int(self.space.types.pool[gangs.type_[column]])
        inside = (nodes.group[level] == gangs.group[column]) & (nodes.pool == pool)
        shared = self.space.types.share[gangs.type_[column]] < 1
        seated: list[int] = []  # a gang that shares GPUs has each part in a bin of its own
        for part, count in gangs.split[column].items():
            left = count
            while left:
                bin_ = self._bin_for(part, inside, seated)
                if bin_ is None:
                    return False
                many = 1 if shared else min(left, self._states.room(int(self._state[bin_]), part))
                if shared:
                    seated.append(bin_)
                r = int(self._class[bin_])
                if not self._use_shared(part, r, many):
                    return False
                self._add(bin_, part, many)
                self._change("_held", self._column_held[part, r, level], many)
                left -= many
        return True

    def _bin_for(self, part: int, inside: BoolArray, besides: Sequence[int]) -> int | None:
        """The bin of some classes, none of ``besides``, with the fewest GPUs left that has room for
        a part.
        """
        other = np.ones(len(self._class), bool)
        other[list(besides)] = False
        found = self._fullest(part, inside, other)
        if found is None and self._states.of_gpu[part]:
            one = self._states.one_gpu[self.space.parts[part].pool]
            node = self._fullest(one, inside, self._is_node)
            if node is None:
                return None
            self._add(node, one, 1)
            found = self._open_gpu(int(self._class[node]))
        return found

    def _fullest(self, part: int, inside: BoolArray, among: BoolArray) -> int | None:
        bins = np.flatnonzero(among & inside[self._class])
        bins = bins[self._states.room_at_most(self._state[bins], part) > 0]
        for bin_ in bins[np.argsort(self._free[bins], kind="stable")].tolist():
            if self._states.room(int(self._state[bin_]), part):
                return int(bin_)
        return None

    # --- changes ----------------------------------------------------------------------------------

    def _change(self, name: str, place: int, by: float) -> None:
        getattr(self, name)[place] += by
        self._changes.append((name, place, by))

    def _undo(self, bins: int) -> None:
        """Take back the changes of a gang that found no room, and bins after so many."""
        for name, place, by in self._changes:
            getattr(self, name)[place] -= by
        for name in ("_class", "_is_node", "_free", "_state"):
            setattr(self, name, getattr(self, name)[:bins])

    def _add(self, bin_: int, part: int, count: int) -> None:
        before = int(self._state[bin_])
        self._change("_state", bin_, self._states.after(before, part, count) - before)
        self._change("_free", bin_, -count * self._states.gpus[part])

    def _open_gpu(self, r: int) -> int:
        """One more bin: a GPU of a node of a class."""
        self._class = np.append(self._class, r)
        self._is_node = np.append(self._is_node, False)
        self._free = np.append(self._free, 1.0)
        self._state = np.append(self._state, self._states.empty(r, of_gpu=True))
        return len(self._class) - 1

    def _use_shared(self, part: int, r: int, count: int) -> bool:
        """Take resources of some nodes, if they suffice."""
        one = self.space.parts[part]
        need = np.array(one.need[len(PER_NODE) :]) * (one.gpus * count)
        need = need * self.space.nodes.member[r]
        if (need > self._shared).any():
            return False
        for place in np.flatnonzero(need).tolist():
            self._change("_shared", place, -float(need[place]))
        return True

    # --- the point --------------------------------------------------------------------------------

    def point(self) -> tuple[Space, FloatArray]:
        """y, h and n of what is seated, shape (Y + H + M,); and the space with all contents that
        are in use.
        """
        space = self.space
        states, times = np.unique(np.stack([self._class, self._state]), axis=1, return_counts=True)
        # What has contents that are written down; and what has none of these.
        used: list[tuple[int, int]] = []
        more: list[tuple[int, bool, IntArray, int]] = []
        for (r, state), many in zip(states.T.tolist(), times.tolist(), strict=True):
            of_gpu, counts = self._states.of(state)
            if not counts.any():
                continue
            column = _column_with(space, r, of_gpu, counts)
            if column is None:
                if of_gpu:
                    counts = counts.copy()
                    counts[space.bins[int(space.nodes.contents[r])].one_gpu] -= 1
                more.append((r, of_gpu, counts, many))
            else:
                used.append((column, many))
        if more:
            first = len(space.contents.row)
            used += [(first + turn, many) for turn, (*_, many) in enumerate(more)]
            new, cut, counts, _ = (np.array(each) for each in zip(*more, strict=True))
            row = np.arange(len(counts))
            space = space.with_contents(
                Contents(new.astype(np.int64), row, cut.astype(bool), counts)
            )
        n = np.zeros(len(space.contents.row))
        for column, many in used:
            n[column] += many
        return space, np.concatenate([self._gangs, self._held, n])


def _column_with(space: Space, r: int, of_gpu: bool, counts: IntArray) -> int | None:
    """The first contents of a node of a class, or of its GPUs, that have as many of each part."""
    contents = space.contents
    alike = np.flatnonzero((contents.node_class == r) & (contents.of_gpu == of_gpu))
    enough = (np.maximum(contents.counts[contents.row[alike]], 0) >= counts).all(axis=1)
    return int(alike[np.argmax(enough)]) if enough.any() else None


class _States:
    """What can be in bins: the bin (equal nodes, or their GPUs), and counts of parts.

    Attributes
    ----------
    gpus : FloatArray, shape (parts,)
        GPUs that a part takes.
    of_gpu : BoolArray, shape (parts,)
        Parts that are contents of a GPU.
    one_gpu : mapping from pool to part
        The part whose place in a node a GPU with its own contents takes.
    """

    def __init__(self, space: Space) -> None:
        self._bins = space.bins
        self._kind_of_class = space.nodes.contents
        self._parts = len(space.parts)
        self._number: dict[tuple[int, bool, bytes], int] = {}
        self._known: list[tuple[int, bool, IntArray]] = []
        # Of each part; below 0: at most minus so many, GPUs were not searched yet
        self._extra: IntArray = np.zeros((64, self._parts), np.int64)
        self.gpus = np.array([part.gpus * part.share for part in space.parts])
        self.of_gpu: BoolArray = np.zeros(self._parts, bool)
        self.one_gpu = {}
        for kind in space.bins:
            if kind.gpu is not None:
                self.of_gpu[kind.gpu.allowed] = True
                self.one_gpu[space.parts[kind.one_gpu].pool] = kind.one_gpu

    def empty(self, r: int, of_gpu: bool) -> int:
        """State of an empty node of a class, or of an empty GPU there."""
        return self._state(int(self._kind_of_class[r]), of_gpu, np.zeros(self._parts, np.int64))

    def _state(self, kind: int, of_gpu: bool, counts: IntArray) -> int:
        number = self._number.setdefault((kind, of_gpu, counts.tobytes()), len(self._known))
        if number == len(self._known):
            self._known.append((kind, of_gpu, counts))
            if number == len(self._extra):
                self._extra = np.concatenate([self._extra, np.zeros_like(self._extra)])
            node, gpu, _ = self._bins[kind]
            bin_ = gpu if of_gpu else node
            if bin_ is not None:
                allowed = bin_.allowed
                most = bin_.most_extra(counts, allowed)
                self._extra[number, allowed] = np.where(
                    bin_.has_shares(counts, allowed), -most, most
                )
        return number

    def of(self, state: int) -> tuple[bool, IntArray]:
        """Whether it is of a GPU, and counts of parts."""
        return self._known[state][1:]

    def room_at_most(self, states: IntArray, part: int) -> IntArray:
        """A bound on `room` in each of these states, which takes no search for GPUs."""
        found: IntArray = np.abs(self._extra[states, part])
        return found

    def room(self, state: int, part: int) -> int:
        """How many more of a part fit into a bin in this state, if nothing else is added."""
        if self._extra[state, part] < 0:
            kind, of_gpu, counts = self._known[state]
            node, gpu, _ = self._bins[kind]
            bin_ = gpu if of_gpu else node
            assert bin_ is not None, "a bin has its state"
            self._extra[state, part] = bin_.extra(counts, part)
        return int(self._extra[state, part])

    def after(self, state: int, part: int, count: int) -> int:
        """The state with more of a part."""
        kind, of_gpu, counts = self._known[state]
        more = counts.copy()
        more[part] += count
        return self._state(kind, of_gpu, more)
