"""`Candidates`: every way in which jobs can run. `Classes`: the columns that a program is built
from.

The columns of candidates are those of kinds of jobs. A formulation declares which job data it
reads. Jobs of a kind that are equal in these data are merged into a class, and the columns of
`Classes` are those of classes. Classes refer to their candidates, and candidates make the classes,
so both are in one file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optsched.arrays import (
    AnyArray,
    BoolArray,
    FloatArray,
    IntArray,
    constant,
    group_rows,
    in_order,
    is_constant,
    is_range,
    joined,
    looked_up,
    mask_of,
    owners,
    pointers,
    ranges,
    refined,
    rows_of_table,
    stable_order,
    table_of,
    take_rows,
    without_repeats,
)
from optsched.arrays.matrices import rows_in_order, same_places
from optsched.arrays.values import cached_property, replace
from optsched.candidates.columns import Drop, KindColumns, WayColumns, is_kept
from optsched.candidates.kinds import Absence, Kinds, is_present
from optsched.candidates.needs import column_needs
from optsched.candidates.resources import Resources, resource_rows
from optsched.candidates.row_uses import RowUses
from optsched.candidates.usage import Usage
from optsched.display import Displayed, DisplayedTable, TableColumns, count
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.rates import LEVEL
from optsched.performance import Configurations

if TYPE_CHECKING:  # rarely needed at run time, so not imported at start-up
    from optsched.candidates.configuration_table import ConfigurationTable
    from optsched.candidates.drop_words import DropWords
    from optsched.candidates.pair_table import PairTable

Scalar = TypeVar("Scalar", bound=np.generic)

MOST_PAIR_COLUMNS = 5_000_000
"""Most columns of pairs in a program. Each takes about 1.5 kB until it is solved."""
LABELS = 7
"""How many numbers identify a configuration (`Classes.configuration_labels`)."""
READABLE = frozenset(
    {
        "weight",
        "steps",
        "steps_left",
        "arrival",
        "deadline",
        "soft_deadline",
        "tenant",
        "preemptible",
        "restart_cost",
        "isolated_time",
        "queue",
    }
)
"""Job arrays that a formulation may declare in ``reads``;
the gang belongs to the kind and is always known.
"""
KNOWN = READABLE | {"gang"}


@dataclass(frozen=True, repr=False, eq=False)
class Candidates(Displayed):
    """Every way in which the jobs of an instance can run, by kind.

    Formulations work on `Classes`, which `classes` makes for the job data that they read.

    Attributes
    ----------
    instance : Instance
    kinds : Kinds
        Jobs with equal columns.
    columns : KindColumns
        The table of the columns of kinds, sorted by (kind, partner, pool, GPUs, nodes, option,
        workers, servers); none of them dropped. `Classes.columns` is a number: how many columns
        of classes there are. ``columns.take(C.kind_column)`` is the row of each column of C.
    configuration : IntArray, shape (N,)
        Row of ``configurations`` of each column.
    configurations : Configurations
    resources : Resources
    holds : Usage
        Resources that one unit of each column holds.
    dropped : KindColumns
        Columns that are left out, each with its reason (`Drop`): most cannot run.
    later_nodes : bool
        Whether nodes that are not available yet were counted on.
    aggregate : bool
        False: every job is a separate class (`per_job`), for comparison.
    excluded : mapping of words to a mask of jobs
        Jobs that the formulation excludes from the program, by reason (`without_jobs`).
    quantile : float, optional
        Probability with which hard deadlines are to be kept; None: median rates are used.
    unfinished : bool
        Whether the time limit stopped the compile step, so that it is not known which jobs have a
        column.
    """

    instance: Instance
    kinds: Kinds
    columns: KindColumns
    configuration: np.ndarray
    configurations: Configurations
    resources: Resources
    holds: Usage
    dropped: KindColumns
    later_nodes: bool = False
    aggregate: bool = True
    excluded: Mapping[str, BoolArray] = field(default_factory=dict)
    quantile: float | None = None
    unfinished: bool = False
    pairs: PairTable | None = None
    """Pairs that can be made columns when they are asked for (`with_pairs`); None:
    all of them are columns.
    """
    elastic: ConfigurationTable | None = None
    """Configurations that can be made columns (`with_configurations`); None:
    all of them are columns.
    """

    @classmethod
    def of(
        cls,
        instance: Instance,
        kinds: Kinds,
        kept: KindColumns,
        dropped: KindColumns,
        later_nodes: bool,
        pairs: PairTable | None = None,
    ) -> Candidates:
        """Candidates with these columns, which are sorted here, and with their configurations and
        resources.
        """
        # In the usual case the ways are sorted by pool, GPUs and nodes already: then a way's number
        # is its rank.
        place = kept.way if is_range(kept.ways.rank, len(kept.ways)) else kept.ways.rank[kept.way]
        keys = (kept.kind, kept.partner, place, kept.option, kept.workers, kept.servers)
        if not in_order(keys):
            kept = kept.take(np.lexsort([key for key in keys[::-1] if not is_constant(key)]))
        configuration, table = _intern_configurations(instance, kept)
        ways = WayColumns(table.pool, table.gpus, table.nodes, table.share, table.levels)
        columns = replace(kept, way=configuration, ways=ways)
        if pairs is None:
            resources, holds = resource_rows(instance, kinds, columns)
        else:
            resources, holds = pairs.usage_rows(instance, columns)
        return cls(
            instance=instance,
            kinds=kinds,
            columns=columns,
            configuration=configuration,
            configurations=table,
            resources=resources,
            holds=holds,
            dropped=dropped,
            later_nodes=later_nodes,
            pairs=pairs,
        )

    def _headline(self) -> str:
        return (
            f"of {self.instance.name}: {count(len(self.kinds), 'kind')} of jobs, "
            f"{count(len(self.columns), 'column')}, {len(self.dropped):,} dropped"
        )

    @property
    def usage(self) -> sp.csr_matrix:
        """Resources that one unit of each column holds, shape (R, N)."""
        return self.holds.matrix

    def classes(self, reads: frozenset[str], labels: Sequence[IntArray] = ()) -> Classes:
        """Merge jobs that a formulation which reads only these job arrays cannot tell apart.

        Jobs with different numbers in any array of ``labels``, each of shape (jobs,), stay apart as
        well.
        """
        return build_classes(self, reads, labels)

    def at(self, instance: Instance) -> Candidates:
        """The same candidates of the instance at a later time,
        with the same jobs, nodes and rates.
        """
        return replace(self, instance=instance)

    def per_job(self) -> Candidates:
        """The same candidates, but with every job a separate class."""
        return replace(self, aggregate=False)

    def with_pairs(self, kind: IntArray, partner: IntArray, way: IntArray) -> Candidates:
        """The same candidates with columns for these pairs of kinds, in ways of ``pairs``; they
        replace all earlier columns of pairs.
        """
        assert self.pairs is not None
        first, second = np.minimum(kind, partner), np.maximum(kind, partner)
        once = group_rows((first, second, way), len(way)).first
        made = self.pairs.columns_of(first[once], second[once], way[once])
        alone = self.columns.take(np.flatnonzero(self.columns.partner < 0))
        return self._with_columns(KindColumns.concatenate([alone, made]))

    def with_configurations(self, cells: IntArray) -> Candidates:
        """The same candidates with additional columns for these cells of ``elastic``, each given
        once.
        """
        assert self.elastic is not None
        return self._with_columns(
            KindColumns.concatenate([self.columns, self.elastic.columns_of(cells)])
        )

    @cached_property
    def on_fewest_nodes(self) -> Candidates:
        """The same candidates with one more column for each that may span more nodes than it needs:
        the same on the fewest nodes.

        A rate for a rack, say, holds on any nodes of the rack. Over fewer nodes a gang has fewer
        splits, which is what side constraints with `counts_splits` ask for.
        """
        columns, sizes = self.columns, self.instance.cluster.sizes
        fewest = sizes(np.inf if self.later_nodes else self.instance.now).fewest_nodes(
            columns.pool, columns.gpus
        )
        # Options and parameter servers state their own nodes, and pairs have no splits of their own.
        plain = (columns.partner < 0) & (columns.option < 0) & (columns.workers == 0)
        wide = np.flatnonzero(plain & (columns.gpus > 0) & (columns.nodes > fewest))
        if not len(wide):
            return self
        # Of several wide columns the fastest comes first.
        wide = wide[np.argsort(-columns.rate[wide], kind="stable")]
        ways = replace(columns.ways.take(columns.way[wide]), nodes=fewest[wide])
        narrow = replace(columns.take(wide), way=np.arange(len(wide), dtype=np.int64), ways=ways)
        both = KindColumns.concatenate([columns, narrow])
        names = ("kind", "partner", "pool", "gpus", "nodes", "level", "share", "option", "workers")
        first = group_rows([getattr(both, name) for name in names], len(both)).first
        added = np.sort(first[first >= len(columns)])
        if not len(added):
            return self
        return self._with_columns(both.take(np.append(np.arange(len(columns)), added)))

    def _with_columns(self, columns: KindColumns) -> Candidates:
        grown = Candidates.of(
            self.instance, self.kinds, columns, self.dropped, self.later_nodes, self.pairs
        )
        return replace(
            grown,
            aggregate=self.aggregate,
            excluded=self.excluded,
            quantile=self.quantile,
            elastic=self.elastic,
        )

    def by_kind(self) -> Candidates:
        """The same candidates with equal jobs merged, whatever `per_job` said."""
        return self if self.aggregate else replace(self, aggregate=True)

    def at_quantile(self, quantile: float | None) -> Candidates:
        """The same candidates for hard deadlines that are kept with this probability."""
        return self if quantile == self.quantile else replace(self, quantile=quantile)

    def without(self, reasons: NDArray[np.uint8]) -> Candidates:
        """The same candidates without the columns that have a reason;
        they are recorded in ``dropped`` with this reason.

        Parameters
        ----------
        reasons : NDArray[uint8], shape (N,)
            `Drop` of each column; 0 for those that stay.
        """
        stay = np.flatnonzero(is_kept(reasons))
        if len(stay) == len(reasons):
            return self
        leave = np.flatnonzero(~is_kept(reasons))
        leaving = replace(self.columns.take(leave), drop=reasons[leave].astype(np.uint8))
        return replace(
            self,
            columns=self.columns.take(stay),
            configuration=self.configuration[stay],
            holds=self.holds.take(stay),
            dropped=KindColumns.concatenate([self.dropped, leaving]),
        )

    def admitting(self, *reasons: Drop, where: BoolArray | None = None) -> Candidates:
        """The same candidates with the columns that were dropped
        for these reasons put back, at rate 0.

        ``where``, a mask over ``dropped``, chooses among them.
        """
        back = np.isin(self.dropped.drop, reasons)
        back = back if where is None else back & where
        if not back.any():
            return self
        dropped = replace(
            self.dropped,
            rate=np.where(back, 0.0, self.dropped.rate),
            partner_rate=np.where(back, 0.0, self.dropped.partner_rate),
            drop=np.where(back, Drop.KEPT, self.dropped.drop).astype(np.uint8),
        )
        both = KindColumns.concatenate([self.columns, dropped])
        keep = is_kept(both.drop)
        made = Candidates.of(
            self.instance, self.kinds, both.take(keep), both.take(~keep), self.later_nodes
        )
        return replace(
            made, aggregate=self.aggregate, excluded=self.excluded, quantile=self.quantile
        )

    def without_jobs(self, jobs: BoolArray, why: str) -> Candidates:
        """The same candidates without these jobs; they are unplaced for the reason ``why``.

        The mask replaces an earlier one of the same reason.
        """
        if not jobs.any() and why not in self.excluded:
            return self
        others = {words: mask for words, mask in self.excluded.items() if words != why}
        return replace(self, excluded={**others, why: jobs} if jobs.any() else others)

    @cached_property
    def absence(self) -> np.ndarray:
        """`Absence` of each job, including jobs whose kind has no column."""
        absence = self.kinds.absence.copy()
        # The last entry is read for jobs without a kind.
        has_column = mask_of(self.columns.kind, len(self.kinds) + 1)
        has_column[self.columns.partner[self.columns.pairs]] = True
        if not has_column[:-1].all() and not self.unfinished:
            absence[is_present(absence) & ~has_column[self.kinds.of_job]] = Absence.NO_COLUMN
        for jobs in self.excluded.values():
            absence[is_present(absence) & jobs] = Absence.EXCLUDED
        return absence

    @cached_property
    def present(self) -> BoolArray:
        """Whether each job is in the program."""
        return is_present(self.absence)

    def unplaced(self) -> Iterator[tuple[int, str]]:
        """Jobs that are not in the program, with the reason as text."""
        arrival = self.instance.jobs_table.arrival
        now = self.instance.now
        absent = np.flatnonzero(~self.present)
        kinds = self.kinds.of_job[absent].tolist()
        reasons: dict[int, str] = {}
        for job, why, kind in zip(
            absent.tolist(), self.absence[absent].tolist(), kinds, strict=True
        ):
            match why:
                case Absence.NO_STEP_LEFT:
                    yield job, "no step left to do"
                case Absence.ARRIVES_LATER:
                    yield job, f"arrives at {arrival[job]:g} s, after now ({now:g} s)"
                case Absence.EXCLUDED:
                    yield job, next(words for words, jobs in self.excluded.items() if jobs[job])
                case _:
                    if kind not in reasons:
                        reasons[kind] = self.why_no_column(kind)
                    yield job, reasons[kind]

    @cached_property
    def _drop_words(self) -> DropWords:
        from optsched.candidates.drop_words import DropWords

        return DropWords(self.dropped, self.instance, self.kinds, self.later_nodes)

    def dropped_of(self, kind: int) -> Iterator[tuple[int, str]]:
        """Rows of ``dropped`` that a kind has alone, each with the reason as text."""
        return self._drop_words.of_kind(kind)

    def why_no_column(self, kind: int) -> str:
        """Why a kind can run nowhere, pool by pool."""
        reasons = self.why_dropped(kind) or "it has no configuration of its own"
        return f"can run nowhere: {reasons}"

    def why_dropped(self, kind: int) -> str:
        """Why some columns of a kind were dropped, pool by pool; empty where none was."""
        return self._drop_words.summary(kind)


def _intern_configurations(
    instance: Instance, columns: KindColumns
) -> tuple[np.ndarray, Configurations]:
    sets = {"{}": 0}
    documents: list[Mapping[str, Any]] = [{}]
    rows = np.zeros(len(instance.options.attributes) + 1, np.int64)
    for option, free in enumerate(instance.options.attributes):
        if not free:
            continue
        key = json.dumps(free, sort_keys=True)
        if key not in sets:
            sets[key] = len(documents)
            documents.append(dict(free))
        rows[option] = sets[key]
    # Columns without an option read the last row, of no attributes.
    attributes = looked_up(rows, columns.option)
    if columns.ways.level.any():
        # Only columns without an option are within a group.
        attributes = np.where(columns.level > 0, len(documents) - 1 + columns.level, attributes)
        documents += [{"level": name} for name in instance.cluster.level_names]
    served = np.flatnonzero(columns.workers > 0)
    if len(served):
        attributes = np.array(attributes)
        pairs = group_rows((columns.workers[served], columns.servers[served]), len(served))
        numbers = np.zeros(len(pairs), np.int64)
        for number, column in enumerate(served[pairs.first].tolist()):
            free = {
                "workers": int(columns.workers[column]),
                "servers": int(columns.servers[column]),
            }
            numbers[number] = sets.setdefault(json.dumps(free, sort_keys=True), len(documents))
            if numbers[number] == len(documents):
                documents.append(free)
        attributes[served] = numbers[pairs.inverse]
    groups = group_rows((columns.way, attributes), len(columns))
    first = groups.first
    ways = columns.ways.take(columns.way[first])
    table = Configurations(
        ways.pool,
        ways.gpus,
        ways.nodes,
        ways.share,
        attributes[first],
        tuple(documents),
        ways.level,
    )
    return groups.inverse, table


@dataclass(frozen=True, repr=False, eq=False)
class Classes(DisplayedTable):
    """The data that a program is built from: K classes of n_k equal jobs, N columns, R resources.

    A column is a class (or a pair of classes that share GPUs) in one configuration; its variable
    counts job-fractions: ``x = 1`` is one job (or pair) in that configuration all the time, so a
    class of n jobs can have up to n.

    Attributes
    ----------
    candidates : Candidates
    reads : frozenset of str
        Job arrays that jobs of a class share; reading any other is an error.
    of_job : IntArray, shape (jobs,)
        Class of each job, -1 for jobs that are not in the program.
    first : IntArray, shape (K,)
        First job of each class.
    count : FloatArray, shape (K,)
        n_k.
    origin : IntArray or None, shape (N,)
        Column of the candidates that each column comes from (`kind_column`); None: column i is
        column i of the candidates.
    class_a, class_b : IntArray, shape (N,)
        The class and its partner's (-1: alone).
    rate_a, rate_b : FloatArray, shape (N,)
        steps/s of a job of ``class_a`` and of ``class_b``.
    throughput : csr_matrix, shape (K, N)
        steps/s that one unit of x gives to the class.
    holds : Usage
        Resources that one unit of x holds.
    """

    candidates: Candidates
    reads: frozenset[str]
    of_job: IntArray
    first: IntArray
    count: FloatArray
    origin: IntArray | None
    class_a: IntArray
    class_b: IntArray
    rate_a: FloatArray
    rate_b: FloatArray
    throughput: sp.csr_matrix
    holds: Usage

    def _headline(self) -> str:
        jobs = count(int(self.count.sum()), "job")
        return (
            f"of {self.instance.name}: {jobs} in {count(len(self), 'class', 'classes')}, "
            f"{count(self.columns, 'column')}, {count(len(self.resources.capacity), 'resource')}"
        )

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The columns; each class is named by its first job."""
        rows = slice(first)
        names, pools = self.instance.jobs_table.names, self.instance.cluster.pools
        job = self.first[self.class_a[rows]].tolist()
        partner = np.where(self.alone, -1, self.first[self.class_b])[rows].tolist()
        configuration, table = self.configuration[rows], self.configurations
        columns = {
            "job": [names[row] for row in job],
            "partner": [None if row < 0 else names[row] for row in partner],
            "jobs": self.count[self.class_a[rows]].tolist(),
            "pool": [None if row < 0 else pools[row].name for row in self.pool[rows].tolist()],
            "gpus": table.gpus[configuration].tolist(),
            "nodes": table.nodes[configuration].tolist(),
            "share": table.share[configuration].tolist(),
            "rate": self.rate_a[rows].tolist(),
            "partner_rate": self.rate_b[rows].tolist(),
        }
        if self.all_alone:
            del columns["partner"], columns["partner_rate"]
        return columns

    def __len__(self) -> int:
        return len(self.first)

    @property
    def columns(self) -> int:
        """N, the number of columns. The data of each are in `Candidates.columns`, a table of
        columns of kinds, at the row `kind_column`.
        """
        return len(self.class_a)

    def at(self, instance: Instance) -> Classes:
        """The same classes of the instance at a later time,
        where nothing in ``reads`` has changed.
        """
        later = copy(self)  # with the cached properties: none of them depends on the time
        object.__setattr__(later, "candidates", self.candidates.at(instance))
        return later

    def with_capacity(self, capacity: FloatArray) -> Classes:
        """The same classes with other capacities, shape (R,)."""
        resources = replace(self.resources, capacity=np.asarray(capacity, np.float64))
        return replace(self, candidates=replace(self.candidates, resources=resources))

    def with_resources(self, resources: Resources, holds: Usage) -> Classes:
        """The same classes with other resources, the first of which are those that they had."""
        candidates = self.candidates
        of_kinds = candidates.holds.with_more(len(resources) - len(candidates.resources))
        candidates = replace(candidates, resources=resources, holds=of_kinds)
        return replace(self, candidates=candidates, holds=holds)

    def some(self, classes: IntArray, columns: IntArray, fraction: float) -> Classes:
        """Some of the classes with some of their columns, and a fraction of every capacity.

        Parameters
        ----------
        classes, columns : IntArray
            In order; no column is of another class.
        fraction : float
        """
        number = np.full(len(self) + 1, -1, np.int64)  # the last entry is read for no class
        number[classes] = np.arange(len(classes))
        return replace(
            self.with_capacity(self.capacity * fraction),
            of_job=number[self.of_job],
            first=self.first[classes],
            count=self.count[classes],
            origin=self.kind_column[columns],
            class_a=number[self.class_a[columns]],
            class_b=number[self.class_b[columns]],
            rate_a=self.rate_a[columns],
            rate_b=self.rate_b[columns],
            throughput=sp.csr_matrix(self.throughput[classes][:, columns]),
            holds=self.holds.take(columns),
        )

    @cached_property
    def member(self) -> sp.csr_matrix:
        """1 if a job of the class takes part in the column, 2 for a pair of two jobs of the class;
        shape (K, N).
        """
        if self.all_alone and in_order([self.class_a]):
            return same_places(self.throughput, np.ones(self.columns))
        pair = np.flatnonzero(~self.alone)
        number = np.arange(self.columns, dtype=np.int64)
        where = (np.concatenate([self.class_a, self.class_b[pair]]), np.concatenate([number, pair]))
        return sp.csr_matrix((np.ones(len(where[0])), where), shape=self.throughput.shape)

    @property
    def usage(self) -> sp.csr_matrix:
        """Resources that one unit of x holds, shape (R, N)."""
        return self.holds.matrix

    def time(self, x: FloatArray) -> FloatArray:
        """Time that the members of each class spend in an allocation,
        ``member @ x``; shape (K,).
        """
        if not self.all_alone:
            return self.member @ x
        return np.bincount(self.class_a, x, len(self)).astype(np.float64, copy=False)

    @property
    def instance(self) -> Instance:
        return self.candidates.instance

    @property
    def resources(self) -> Resources:
        """The rows of ``usage``."""
        return self.candidates.resources

    @property
    def capacity(self) -> FloatArray:
        """Capacity of each resource, shape (R,)."""
        return self.candidates.resources.capacity

    @property
    def configurations(self) -> Configurations:
        return self.candidates.configurations

    @cached_property
    def kind_column(self) -> IntArray:
        """Column of the candidates that each column comes from, shape (N,)."""
        return np.arange(self.columns, dtype=np.int64) if self.origin is None else self.origin

    @cached_property
    def configuration(self) -> IntArray:
        """Row of the configurations table of each column, shape (N,)."""
        return take_rows(self.candidates.configuration, self.origin)

    @cached_property
    def pool(self) -> IntArray:
        """Pool of each column, -1 for none."""
        return self.configurations.pool[self.configuration]

    @cached_property
    def gpus(self) -> IntArray:
        """GPUs of each column."""
        return self.configurations.gpus[self.configuration]

    @cached_property
    def needs(self) -> Mapping[str, FloatArray]:
        """Need per GPU of each column, by resource; each array of shape (N,)."""
        C = self.candidates
        columns = C.columns if self.origin is None else C.columns.take(self.origin)
        needs = column_needs(C.instance, C.kinds, columns)
        per_gpu = {name: np.zeros(self.columns) for name in needs}
        for name, (column, total) in needs.items():
            # `column_needs` returns totals of a column, so divide by its GPUs.
            per_gpu[name][column] = total / np.maximum(self.gpus[column], 1)
        return per_gpu

    def node_needs(self, column: IntArray) -> FloatArray:
        """What some columns need per GPU of the resources of nodes, shape (columns, 2 + G).

        CPUs, memory (GB), then the resources of some nodes (`Cluster.node_resources`).
        """
        names = self.instance.cluster.node_resources
        need = np.zeros((len(column), len(names)))
        for place, name in enumerate(names):
            if name in self.needs:
                need[:, place] = self.needs[name][column]
        return need

    @cached_property
    def uses(self) -> RowUses:
        """Shares of all renewable resources that each column holds."""
        return RowUses.of_columns(self.holds, self.resources)

    @cached_property
    def configuration_labels(self) -> IntArray:
        """The configuration of each column as numbers that stay the same in later compiles; shape
        (N, `LABELS`).

        Pool, GPUs, nodes and level (`LEVEL`), place in the job's own list of options (-1: none),
        workers, servers, and the bits of the share.
        """
        return self.labels_of(np.arange(self.columns, dtype=np.int64))

    def labels_of(self, some: IntArray) -> IntArray:
        """`configuration_labels` of some of the columns."""
        labels = rows_of_table(self._labels_of_configurations, self.configuration[some])
        columns = self.candidates.columns
        kind_column = self.kind_column[some]
        if (without_repeats(columns.option) >= 0).any():
            option = columns.option[kind_column]
            lists = np.append(self.candidates.kinds.options, -1)[columns.kind[kind_column]]
            first = self.instance.options.indptr[np.maximum(lists, 0)]
            labels[:, 3] = np.where(option >= 0, option - first, -1)
        if without_repeats(columns.workers).any():
            labels[:, 4] = columns.workers[kind_column]
            labels[:, 5] = columns.servers[kind_column]
        return labels

    @cached_property
    def _labels_of_configurations(self) -> IntArray:
        """`configuration_labels` of columns without options, workers and servers,
        by row of the configurations table.
        """
        table = self.configurations
        none = np.full(len(table), -1, np.int64)
        zero = np.zeros(len(table), np.int64)
        share = np.ascontiguousarray(table.share, np.float64).view(np.int64)
        nodes = table.nodes + LEVEL * table.levels
        return table_of(table.pool, table.gpus, nodes, none, zero, zero, share)

    @cached_property
    def alone(self) -> np.ndarray:
        """Mask of the columns without a partner."""
        return self.class_b < 0

    @cached_property
    def alone_by_class(self) -> tuple[IntArray, IntArray]:
        """Columns without a partner class by class, and where those of each class begin."""
        alone = np.flatnonzero(self.alone)
        if not in_order([self.class_a]):
            alone = alone[stable_order(self.class_a[alone], len(self))]
        count = np.bincount(self.class_a[alone], minlength=len(self))
        return alone, pointers(count)

    @cached_property
    def all_alone(self) -> bool:
        """Whether no column has a partner."""
        return bool((without_repeats(self.class_b) < 0).all())

    @cached_property
    def limit(self) -> FloatArray:
        """Upper bound on x that the time rows imply: n_k for a column of one class, the smaller
        count for a pair of classes, n_k / 2 for a pair inside a class.
        """
        if self.all_alone and len(self) and (self.count == self.count[0]).all():
            return constant(self.count[0], self.columns, np.float64)
        count = self.count[self.class_a]
        if self.all_alone:
            return count
        other = np.where(self.alone, count, self.count[self.class_b])
        return np.where(self.class_a == self.class_b, count / 2, np.minimum(count, other))

    # --- job data, one value per class, shape (K,) ------------------------------------------------

    def _read(self, name: str) -> AnyArray:
        # If every job is a separate class, no class has jobs that differ.
        if name not in self.reads and self.candidates.aggregate:
            raise KeyError(
                f"{name!r} is read but not declared: jobs of one class may differ in it; "
                "declare it in reads, or make every job a class: "
                "solve(..., classes=False) or compile(instance).per_job()"
            )
        # Jobs of a class have equal values, so the value of the first job is that of the class.
        array: AnyArray = job_array(self.instance, name)
        return array[self.first]

    @cached_property
    def kind(self) -> IntArray:
        """Kind of each class's jobs."""
        return self.candidates.kinds.of_job[self.first]

    @property
    def gang(self) -> FloatArray:
        """Gang size s_k; the smallest size of an elastic job."""
        return self.candidates.kinds.gang[self.kind].astype(np.float64)

    @property
    def weight(self) -> FloatArray:
        """Priority weight p_k of a job, shape (K,)."""
        return self._read("weight")

    @property
    def steps_left(self) -> FloatArray:
        """Steps still to do."""
        return self._read("steps_left")

    @property
    def deadline(self) -> FloatArray:
        """Deadline as seconds of the clock, inf for none."""
        return self._read("deadline")

    @property
    def soft_deadline(self) -> BoolArray:
        """Whether the deadline is soft."""
        return self._read("soft_deadline")

    @property
    def arrival(self) -> FloatArray:
        """Arrival times, in seconds of the clock."""
        return self._read("arrival")

    @property
    def isolated_time(self) -> FloatArray:
        """Seconds that the steps done would have taken in isolation (``history.isolated_time``)."""
        return self._read("isolated_time")

    @property
    def queue(self) -> IntArray:
        """Place in the queue of a tenant that serves its jobs in the order
        of their arrival, 0 for other jobs.
        """
        return self._read("queue")

    @property
    def tenant(self) -> IntArray:
        """Row of the instance's tenants, -1 for none."""
        return self._read("tenant")

    @property
    def duration(self) -> FloatArray:
        """Seconds that the steps left take in each column alone, shape (N,);
        exact where the instance states them.
        """
        exact = self.candidates.columns.duration[self.kind_column]
        left = self.steps_left[self.class_a]
        whole = self.instance.jobs_table.steps[self.first[self.class_a]]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(np.isnan(exact), left / self.rate_a, exact * (left / whole))

    # --- rates that are reached with a given probability ------------------------------------------

    @cached_property
    def sure_factor(self) -> FloatArray:
        """Fraction of its median rate that each column reaches with probability q: exp(-z_q
        log_sd), shape (N,).
        """
        quantile = self.candidates.quantile
        if quantile is None:
            z = 0.0
        else:
            from scipy.special import ndtri  # slow to import, and rarely needed

            z = float(ndtri(quantile))
        return np.exp(-z * self.candidates.columns.log_sd[self.kind_column])

    @property
    def sure_throughput(self) -> sp.csr_matrix:
        """``throughput`` with the rates that columns reach
        with probability q (`Candidates.quantile`).
        """
        if self.candidates.quantile is None:
            return self.throughput
        return sp.csr_matrix(self.throughput @ sp.diags(self.sure_factor))

    @property
    def sure_duration(self) -> FloatArray:
        """``duration`` at these rates; durations that the instance states are exact."""
        exact = ~np.isnan(self.candidates.columns.duration[self.kind_column])
        return np.where(exact, self.duration, self.duration / self.sure_factor)

    # --- jobs of classes --------------------------------------------------------------------------

    @cached_property
    def jobs_by_class(self) -> tuple[IntArray, IntArray]:
        """Jobs class by class, and where those of each class begin."""
        placed = np.flatnonzero(self.of_job >= 0)
        order = placed
        if not in_order([self.of_job[placed]]):
            order = placed[stable_order(self.of_job[placed], len(self))]
        start = pointers(np.bincount(self.of_job[placed], minlength=len(self)))
        return order.astype(np.int64), start

    def jobs_of(self, number: int) -> IntArray:
        """Jobs of a class, in order."""
        order, start = self.jobs_by_class
        return order[start[number] : start[number + 1]]

    def jobs_among(self, mask: BoolArray) -> list[int]:
        """Jobs of the classes of a mask, in order."""
        return np.flatnonzero(np.append(np.ravel(mask), False)[self.of_job]).tolist()

    def common(self, values: NDArray[Scalar]) -> NDArray[Scalar]:
        """One value per class, shape (K,), of a value per job, shape (jobs,),
        that jobs of a class must agree in.
        """
        placed = np.flatnonzero(self.of_job >= 0)
        found = values[self.first]
        if (values[placed] != found[self.of_job[placed]]).any():
            raise KeyError(
                "jobs of one class differ in what is read, which must be declared: in reads, "
                "or by labels"
            )
        return found

    def part_of(self, classes: BoolArray) -> FloatArray:
        """Part of each column that belongs to the classes of a mask, shape (N,):
        two jobs that share GPUs have half of their column each.
        """
        other = np.where(self.alone, classes[self.class_a], classes[self.class_b])
        return (classes[self.class_a].astype(np.float64) + other) / 2.0

    def job_name(self, number: int) -> str:
        """A class as text for users: the name of its first job, and the number of jobs like it."""
        name = self.instance.jobs_table.names[int(self.first[number])]
        others = int(self.count[number]) - 1
        return f"job {name}" + (f" (and {others} like it)" if others else "")


def job_array(instance: Instance, name: str) -> Any:
    """A job array by its name in ``reads``."""
    return instance.queue if name == "queue" else getattr(instance.jobs_table, name)


# --- merging jobs into classes --------------------------------------------------------------------


def build_classes(
    candidates: Candidates, reads: frozenset[str], labels: Sequence[IntArray] = ()
) -> Classes:
    """Group jobs by kind, declared job arrays and labels into classes, and make columns of classes
    from columns of kinds.
    """
    groups = merge_jobs(candidates, reads, labels)
    kind, count = candidates.kinds.of_job[groups.first], groups.count
    alone = alone_columns(candidates.columns, kind, len(candidates.kinds))
    pairs = _pair_columns(candidates, kind, count)
    return assemble(candidates, reads, groups, alone, pairs)


@dataclass(frozen=True, eq=False)
class JobGroups:
    """Jobs of the program, merged:
    class of each job (-1: not in the program), first job and size of each class.
    """

    of_job: IntArray
    first: IntArray
    count: IntArray


def merge_jobs(
    candidates: Candidates, reads: frozenset[str], labels: Sequence[IntArray] = ()
) -> JobGroups:
    """Merge the jobs of a kind that agree in the declared arrays,
    and in all ``labels``, each of shape (jobs,).
    """
    if not reads <= KNOWN:
        raise KeyError(f"no such job array: {min(reads - KNOWN)}")
    table, kinds = candidates.instance.jobs_table, candidates.kinds
    (placed,) = candidates.present.nonzero()
    if candidates.aggregate:
        read = [job_array(candidates.instance, name) for name in sorted(reads - {"gang"})]
        rows = None if len(placed) == len(table) else placed
        if rows is None and 2 * len(kinds) > len(table):
            # A kind with one job is a class already, which is the usual case. Only the other kinds
            # are examined.
            groups = refined(kinds.groups, [*read, *labels])
        else:
            groups = group_rows(
                [take_rows(array, rows) for array in (kinds.of_job, *read, *labels)], len(placed)
            )
        first, inverse, count = groups.first, groups.inverse, groups.count
        if rows is not None:
            first = placed[first]
    else:
        first, inverse, count = placed, np.arange(len(placed)), np.ones(len(placed), np.int64)
    if len(placed) == len(table):
        return JobGroups(inverse, first, count)
    of_job = np.full(len(table), -1, np.int64)
    of_job[placed] = inverse
    return JobGroups(of_job, first, count)


Columns = tuple[IntArray | None, IntArray, IntArray]
"""(kind column, class, partner class or -1) of columns of classes; None:
all kind columns, in order.
"""


def assemble(
    candidates: Candidates, reads: frozenset[str], groups: JobGroups, alone: Columns, pairs: Columns
) -> Classes:
    """The classes with these columns, and their matrices."""
    origin, class_a, class_b = alone
    if origin is not None and pairs[0] is not None:
        origin = joined([origin, pairs[0]])
        class_a = joined([class_a, pairs[1]])
        class_b = joined([class_b, pairs[2]])
    columns, kinds, first = candidates.columns, candidates.kinds, groups.first
    if origin is not None and is_range(origin, len(columns)):
        origin = None
    rate_a, rate_b = take_rows(columns.rate, origin), take_rows(columns.partner_rate, origin)
    shape = (len(first), len(class_a))
    if len(pairs[1]):
        # A pair has the lower class first. If that is the class of the partner, the two rates are
        # swapped.
        swapped = (class_b >= 0) & (kinds.of_job[first[class_a]] != take_rows(columns.kind, origin))
        rate_a, rate_b = np.where(swapped, rate_b, rate_a), np.where(swapped, rate_a, rate_b)
        pair = np.flatnonzero(class_b >= 0)
        number = np.arange(len(class_a), dtype=np.int64)
        where = (np.concatenate([class_a, class_b[pair]]), np.concatenate([number, pair]))
        throughput = sp.csr_matrix((np.concatenate([rate_a, rate_b[pair]]), where), shape=shape)
    else:
        throughput = rows_in_order(class_a, rate_a, shape)
    return Classes(
        candidates=candidates,
        reads=reads,
        of_job=groups.of_job,
        first=first,
        count=groups.count.astype(np.float64),
        origin=origin,
        class_a=class_a,
        class_b=class_b,
        rate_a=rate_a,
        rate_b=rate_b,
        throughput=throughput,
        holds=candidates.holds if origin is None else candidates.holds.take(origin),
    )


def alone_columns(columns: KindColumns, kind_of_class: IntArray, kinds: int) -> Columns:
    """Every column without a partner of every class:
    class by class, in the order of the kind's columns.
    """
    if not len(columns.pairs) and in_order([columns.kind]) and is_range(kind_of_class, kinds):
        return None, columns.kind, constant(-1, len(columns), np.int64)
    alone = np.flatnonzero(columns.partner < 0)
    if not in_order([columns.kind[alone]]):
        alone = alone[stable_order(columns.kind[alone], kinds)]
    columns_of = np.bincount(columns.kind[alone], minlength=kinds)
    first_of = pointers(columns_of)[:-1]
    length = columns_of[kind_of_class]
    column = alone[ranges(first_of[kind_of_class], length)]
    owner = owners(length)
    return column, owner, constant(-1, len(column), np.int64)


def _pair_columns(candidates: Candidates, kind_of_class: IntArray, count: IntArray) -> Columns:
    """Every column of two kinds for every pair of their classes, the lower class first."""
    columns, kinds = candidates.columns, len(candidates.kinds)
    pairs = columns.pairs
    if not len(pairs):
        return pairs, pairs, pairs
    by_kind = stable_order(kind_of_class, kinds)
    classes_of = np.bincount(kind_of_class, minlength=kinds)
    start_of = pointers(classes_of)[:-1]
    size_a, size_b = classes_of[columns.kind[pairs]], classes_of[columns.partner[pairs]]
    products = size_a * size_b
    _refuse_many_pairs(candidates, products, len(kind_of_class))
    pair_column = pairs.repeat(products)
    local = ranges(0, products)
    width = size_b.repeat(products)
    # Within a pair of kinds, pairs of classes are numbered row by row: quotient and remainder give
    # the two classes.
    class_a = by_kind[start_of[columns.kind[pair_column]] + local // np.maximum(width, 1)]
    class_b = by_kind[start_of[columns.partner[pair_column]] + local % np.maximum(width, 1)]
    same_kind = columns.kind[pair_column] == columns.partner[pair_column]
    # Two classes of one kind come in both orders; keep one. A class of one job makes no pair with
    # itself.
    keep = ~same_kind | (class_a < class_b) | ((class_a == class_b) & (count[class_a] > 1))
    return pair_column[keep], np.minimum(class_a, class_b)[keep], np.maximum(class_a, class_b)[keep]


def _refuse_many_pairs(candidates: Candidates, products: IntArray, classes: int) -> None:
    """Refuse pairs of so many different jobs that their columns would not fit
    in memory, before columns of classes are made.

    n jobs that are all different make n^2 / 2 columns of pairs.
    """
    columns = candidates.columns
    within = columns.kind[columns.pairs] == columns.partner[columns.pairs]
    made = float(np.sum(np.where(within, products / 2, products)))
    if made > MOST_PAIR_COLUMNS:
        raise InvalidInput(
            "colocation" if candidates.instance.colocation else "performance",
            f"{classes:,} different jobs, which make about {made:,.0f} columns of two jobs",
            f"at most {MOST_PAIR_COLUMNS:,}; --generate-columns (generate_columns=True) makes only "
            "those that are "
            "needed, where the formulation can",
        )
