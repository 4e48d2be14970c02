"""Rows that run at the same time, as requests for GPUs, and what they need per GPU."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray, constant
from optsched.arrays.values import replace
from optsched.candidates import Classes, JobRows, Slices
from optsched.errors import InvalidArgument
from optsched.instance.cluster import PER_NODE
from optsched.instance.reading import show

# --- what rows need per GPU ------------------------------------------------------------------

OWN = tuple(PER_NODE)
"""Resources of single nodes, CPUs and memory: the columns of ``Nodes.own`` and
``Requests.need``."""


def needs_per_gpu(classes: Classes, column: IntArray) -> tuple[FloatArray, FloatArray]:
    """Needs of columns per GPU: CPUs and memory (GB), shape (columns, 2);
    resources that several nodes share, shape (columns, G).
    """
    each = classes.node_needs(column)
    return each[:, : len(OWN)], each[:, len(OWN) :]


# --- requests --------------------------------------------------------------------------------

ANTI_AFFINITY = "anti-affinity"
"""Kind of the side constraint that keeps jobs on different nodes."""


@dataclass(frozen=True)
class Requests:
    """P requests: each is a job, or two jobs that share the same GPUs.

    Attributes
    ----------
    classes : Classes
    row, column : IntArray, shape (P,)
        Row of the allocation, and its column.
    job, partner : IntArray, shape (P,)
        Rows of the job table; partner -1 for a job alone.
    pool, gpus : IntArray, shape (P,)
    span : IntArray, shape (P,)
        Most nodes that it may span: those of its candidate, on which its throughput depends.
    level : IntArray, shape (P,)
        Level of the topology (a rack, a block): all its GPUs are in one group of this level
        (`Cluster.group_of_node`); 0 for any nodes.
    share : FloatArray, shape (P,)
        Share of each GPU, in (0, 1].
    slices : Slices
        Of the columns.
    profile : IntArray, shape (P,)
        Profile of the slice (MIG) of each GPU, among those of the pool; `NO_SLICE` for none.
    need : FloatArray, shape (P, 2)
        CPUs and memory (GB) per GPU.
    group_need : FloatArray, shape (P, G)
        Of each resource that belongs to some nodes, per GPU on these nodes.
    apart : tuple of tuples of int, length P
        The anti-affinity sets that it belongs to.
    clashing : BoolArray, shape (P,)
        Both of its jobs are in one such set, so that it can be placed nowhere.
    barred : tuple of IntArray, length P
        Nodes that it must not use, by their number in the cluster.
    sets : tuple of IntArray
        Rows of the jobs of every anti-affinity set.
    """

    classes: Classes
    row: IntArray
    column: IntArray
    job: IntArray
    partner: IntArray
    pool: IntArray
    gpus: IntArray
    span: IntArray
    level: IntArray
    share: FloatArray
    slices: Slices
    profile: IntArray
    need: FloatArray
    group_need: FloatArray
    apart: tuple[tuple[int, ...], ...]
    clashing: BoolArray
    barred: tuple[IntArray, ...]
    sets: tuple[IntArray, ...]

    @classmethod
    def of(
        cls,
        classes: Classes,
        rows: JobRows,
        wanted: IntArray,
        constraints: Iterable[Mapping[str, Any]] = (),
        barred: Sequence[Collection[str]] | None = None,
    ) -> Requests:
        """Requests of some rows of an allocation; rows without GPUs are left out.

        ``barred`` has the names of the nodes that each of the wanted rows must not use.
        """
        column = rows.column[wanted]
        keep = (classes.pool[column] >= 0) & (classes.gpus[column] > 0)
        barred_nodes = _barred(classes, barred, keep)
        wanted = wanted[keep]
        column = column[keep]
        configuration = classes.configuration[column]
        gpus = classes.gpus[column]
        sets = anti_affinity_sets(classes, constraints)
        sets_of: dict[int, frozenset[int]] = {}
        for number, jobs in enumerate(sets):
            sets_of |= {job: sets_of.get(job, frozenset()) | {number} for job in jobs.tolist()}
        apart: tuple[tuple[int, ...], ...] = ((),) * len(wanted)
        # Two jobs of one set must not share GPUs, and so a node: such a pair fits nowhere.
        clashing = constant(False, len(wanted), np.bool_)
        if sets:
            first, second = (
                [sets_of.get(job, frozenset()) for job in jobs[wanted].tolist()]
                for jobs in (rows.job, rows.partner)
            )
            apart = tuple(tuple(sorted(a | b)) for a, b in zip(first, second, strict=True))
            clashing = np.array([bool(a & b) for a, b in zip(first, second, strict=True)], bool)
        need, group_need = needs_per_gpu(classes, column)
        slices = Slices.of(classes)
        return cls(
            classes=classes,
            row=wanted,
            column=column,
            job=rows.job[wanted],
            partner=rows.partner[wanted],
            pool=classes.pool[column],
            gpus=gpus,
            span=np.maximum(classes.configurations.nodes[configuration], 1),
            level=classes.configurations.levels[configuration],
            share=classes.configurations.share[configuration],
            slices=slices,
            profile=slices.profile[column],
            need=need,
            group_need=group_need,
            apart=apart,
            clashing=clashing,
            barred=barred_nodes,
            sets=sets,
        )

    @classmethod
    def of_columns(cls, classes: Classes, column: IntArray) -> Requests:
        """One request for each of some columns with GPUs, of no job."""
        nobody = np.full(len(column), -1, np.int64)
        nothing = np.zeros(len(column))
        rows = JobRows(nobody, nobody, column, nothing, nothing, nothing)
        return cls.of(classes, rows, np.arange(len(column)))

    def __len__(self) -> int:
        return len(self.row)

    def take(self, rows: IntArray) -> Requests:
        """Some of the requests."""

        def part(values: Any) -> Any:
            return tuple(values[row] for row in rows) if isinstance(values, tuple) else values[rows]

        names = [
            item.name for item in fields(self) if item.name not in ("classes", "sets", "slices")
        ]
        return replace(self, **{name: part(getattr(self, name)) for name in names})

    @property
    def jobs_of_all(self) -> IntArray:
        """Jobs and partners of all requests."""
        jobs = np.concatenate([self.job, self.partner])
        return jobs[jobs >= 0]

    def named(self, requests: Sequence[int]) -> list[str]:
        """``job a``, or ``jobs a and b``, for each of some requests."""
        names = self.classes.instance.jobs_table.names
        row = list(requests)
        members = zip(self.job[row].tolist(), self.partner[row].tolist(), strict=True)
        return [
            f"job {names[job]}" if other < 0 else f"jobs {names[job]} and {names[other]}"
            for job, other in members
        ]


def anti_affinity_sets(
    classes: Classes, constraints: Iterable[Mapping[str, Any]]
) -> tuple[IntArray, ...]:
    """Rows of the jobs of each anti-affinity set."""
    names = classes.instance.jobs_table.names
    documents = (document for document in constraints if document.get("kind") == ANTI_AFFINITY)
    return tuple(
        np.array([names.index(name) for name in document["jobs"]], np.int64)
        for document in documents
    )


def _barred(
    classes: Classes, barred: Sequence[Collection[str]] | None, keep: BoolArray
) -> tuple[IntArray, ...]:
    """Numbers of the nodes that are barred to each kept row, ascending."""
    if barred is None:
        return (EMPTY,) * int(keep.sum())
    if len(barred) != len(keep):
        raise InvalidArgument(
            "barred",
            f"{len(barred)} entries",
            f"{len(keep)}, one for each wanted row",
        )
    number = classes.instance.cluster.numbering.by_name
    # Thousands of rows are barred from the same few sets of nodes: each set is looked up once.
    known = dict[frozenset[str], IntArray]()
    for place, names in enumerate(barred):
        unknown = sorted(name for name in names if name not in number)
        if unknown:
            raise InvalidArgument(f"barred[{place}]", show(unknown[0]), "names of nodes")
        if names and frozenset(names) not in known:
            known[frozenset(names)] = np.array(
                sorted(number[name] for name in set(names)), np.int64
            )
    return tuple(
        known[frozenset(barred[row])] if barred[row] else EMPTY
        for row in np.flatnonzero(keep).tolist()
    )
