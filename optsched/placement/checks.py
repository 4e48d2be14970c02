"""Independent checks of placements and of rounds; they use no code that makes these.

`check_placement` turns rows of an allocation into entries (`PlacedRow`) with the GPUs that they
hold at one time. Each rule is one function over entries. `check_rounds` checks slices of time
against the allocation and the capacities. `optsched.rounds.checking` checks the plan of a round, in
arrays.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import IntArray
from optsched.candidates import NO_SLICE, Classes, layouts_of
from optsched.candidates.held import held_gpus
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.cluster import Cluster, Partition, Pool
from optsched.instance.documents import parse_index
from optsched.instance.layouts import MIG
from optsched.instance.reading import listed, show
from optsched.instance.staying import must_stay
from optsched.performance import partitions_of
from optsched.placement.reserved import JobsOnGpus, cells_fit
from optsched.placement.shares import Shares
from optsched.solution import Rounds
from optsched.solution.certificate import FEASIBILITY

# --- entries ---------------------------------------------------------------------------------

SLACK = 1e-6
"""Relative excess of a share, a CPU or a capacity that is rounding."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """An error: the entry, the part of it, and the text of the message."""

    entry: int
    part: str
    message: str


class PlacedRow(NamedTuple):
    """GPUs that the one or two jobs of a row hold.

    Attributes
    ----------
    names : sequence of str
        The jobs.
    gpus : sequence of str
        ``node/index``.
    share : float
        Share of each GPU.
    needs : mapping of str to float
        Needs per GPU: CPUs, memory and other resources of its node.
    profile : Partition or None
        Profile of its slice of each GPU (MIG).
    """

    names: Sequence[str]
    gpus: Sequence[str]
    share: float
    needs: Mapping[str, float]
    profile: Partition | None = None

    @property
    def gpus_on(self) -> Counter[str]:
        """GPUs on each node."""
        return Counter(gpu.rpartition("/")[0] for gpu in self.gpus)


class NodeOfPool(NamedTuple):
    """Number of GPUs of a node, and whether it takes work."""

    gpus: int
    usable: bool


# --- rules: each returns the flaws that it finds ----------------------------------------------


def gpus_of_pool(
    entry: int,
    gpus: Sequence[str],
    pool: str,
    nodes: Mapping[str, NodeOfPool],
    *,
    stays: bool = False,
) -> list[Flaw]:
    """Every GPU exists in the pool, is named once, and is on a node that takes work, unless all
    jobs there run and cannot be preempted (``stays``).
    """
    flaws = []
    for i, gpu in enumerate(gpus):
        node, _, index = gpu.rpartition("/")
        words = ""
        if node not in nodes or not 0 <= parse_index(index) < nodes[node].gpus:
            words = f", expected a GPU of pool {show(pool)} written node/index"
        elif not (stays or nodes[node].usable):
            words = f", but node {node} takes no work now"
        elif gpu in gpus[:i]:
            words = " a second time, expected GPUs that differ"
        if words:
            flaws.append(Flaw(entry, f"gpus[{i}]", f"found {show(gpu)}{words}"))
    return flaws


def no_gpu_given_twice(entries: Mapping[int, PlacedRow]) -> list[Flaw]:
    """The shares of a GPU add up to at most 1."""
    load: dict[str, float] = defaultdict(float)
    holders = defaultdict(list)
    for number, entry in entries.items():
        for gpu in entry.gpus:
            holders[gpu].append(number)
            load[gpu] += entry.share
    flaws = []
    for gpu, amount in load.items():
        if amount > 1 + SLACK:
            to = ", ".join(" + ".join(entries[number].names) for number in holders[gpu])
            words = f"{gpu} is given away {amount:g} times (to {to}), expected once"
            flaws += [Flaw(number, "gpus", words) for number in holders[gpu]]
    return flaws


def slices_kept(entries: Mapping[int, PlacedRow]) -> list[Flaw]:
    """The slices of a GPU can start where no two of them overlap, and nothing else is on it."""
    on_gpu = defaultdict(list)
    for number, entry in entries.items():
        for gpu in entry.gpus:
            on_gpu[gpu].append(number)
    flaws = []
    for gpu, numbers in on_gpu.items():
        parts = [entries[number].profile for number in numbers]
        sliced = [part for part in parts if part is not None]
        if not sliced:
            continue
        largest_first = sorted(sliced, key=lambda part: -part.memory_slices)
        words = ""
        if len(sliced) < len(parts):
            words = f"{gpu} has slices and other shares, expected one of the two"
        elif not _can_start(largest_first, frozenset()):
            names = ", ".join(part.profile for part in sliced)
            words = f"{gpu} has the slices {names}, which no layout of it has"
        flaws += [Flaw(number, "gpus", words) for number in numbers if words]
    return flaws


def _can_start(parts: Sequence[Partition], taken: frozenset[int]) -> bool:
    """Whether all parts have starts at which they overlap neither each other nor ``taken``."""
    if not parts:
        return True
    for start in parts[0].starts:
        slices = frozenset(range(start, start + parts[0].memory_slices))
        if not slices & taken and _can_start(parts[1:], taken | slices):
            return True
    return False


def node_resources_kept(entries: Mapping[int, PlacedRow], cluster: Cluster) -> list[Flaw]:
    """No node, and no resource that several nodes share, is used beyond its capacity."""
    capacity: dict[tuple[str, str], float] = {}
    for pool in cluster.pools:
        for row in range(len(pool.node_gpus)):
            node = pool.node_name(row)
            capacity[node, "cpu"] = float(pool.node_cpus[row])
            capacity[node, "memory"] = float(pool.node_memory[row])
    groups = [item for item in cluster.resources if item.nodes and item.kind == "renewable"]
    capacity |= {("", group.name): group.capacity for group in groups}
    used: dict[tuple[str, str], float] = defaultdict(float)
    users = defaultdict(list)
    for number, entry in entries.items():
        for node, gpus in entry.gpus_on.items():
            places = [(node, "cpu"), (node, "memory")]
            # A resource that several nodes share is counted once for all, under the empty name.
            places += [("", group.name) for group in groups if node in (group.nodes or ())]
            for place in places:
                need = entry.needs.get(place[1])
                if need:
                    used[place] += gpus * need
                    users[place].append(number)
    flaws = []
    for place, amount in used.items():
        node, name = place
        has = capacity.get(place, float("inf"))
        # A capacity that is not stated is NaN: no comparison with it holds.
        if amount > has * (1 + SLACK) + SLACK:
            where = f"{name} of node {node}" if node else name
            words = f"the GPUs need {amount:g} of {where}, expected at most {has:g}"
            flaws += [Flaw(number, "gpus", words) for number in dict.fromkeys(users[place])]
    return flaws


def anti_affinity_kept(
    entries: Mapping[int, PlacedRow], constraints: Iterable[Mapping[str, Any]]
) -> list[Flaw]:
    """Jobs of an anti-affinity constraint are on different nodes."""
    flaws = []
    for constraint in constraints:
        if constraint.get("kind") != "anti-affinity":
            continue
        apart = set(constraint["jobs"])
        first_on: dict[str, str] = {}
        for number, entry in entries.items():
            for name in entry.names:
                for node in entry.gpus_on if name in apart else ():
                    # This also finds a pair of two jobs that must be apart.
                    other = first_on.setdefault(node, name)
                    if other != name:
                        words = (
                            f"jobs {other} and {name} are both on node {node}, "
                            "expected different nodes (anti-affinity)"
                        )
                        flaws.append(Flaw(number, "gpus", words))
    return flaws


def reserved_cells_kept(
    entries: Mapping[int, PlacedRow], instance: Instance, constraints: Iterable[Mapping[str, Any]]
) -> list[Flaw]:
    """The cells that are reserved for tenants hold their jobs, and no others."""
    cells = [one for one in constraints if one.get("kind") == "cells" and one.get("reserved")]
    if not cells or not entries:
        return []
    numbering, names = instance.cluster.numbering, instance.jobs_table.names
    jobs, gpus = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for entry in entries.values():
        given = numbering.numbers(entry.gpus)
        for name in entry.names:
            jobs.append(np.full(len(given), names.index(name)))
            gpus.append(given)
    fits = cells_fit(instance, JobsOnGpus(np.concatenate(jobs), np.concatenate(gpus)), cells)
    if fits:
        return []
    tenants = ", ".join(dict.fromkeys(str(one["tenant"]) for one in cells))
    how = "cannot be" if fits is False else "are not known to be"
    words = f"the cells of tenants {tenants} {how} where their jobs are, beside all others (cells)"
    placed = [number for number in entries if number >= 0]
    return [Flaw(min(placed), "gpus", words)] if placed else []


def jobs_placed_once(classes: Classes, job: IntArray, partner: IntArray) -> list[Flaw]:
    """A job runs in one row at a time."""
    names = classes.instance.jobs_table.names
    first = dict[int, int]()
    flaws = []
    for row, jobs in enumerate(zip(job.tolist(), partner.tolist(), strict=True)):
        for member in jobs:
            if member >= 0 and first.setdefault(member, row) != row:
                words = f"is placed a second time (entry {first[member]} is the first)"
                flaws.append(Flaw(row, "row", f"job {names[member]} {words}"))
    return flaws


def gpus_of_row(classes: Classes, column: int, entry: int, gpus: Sequence[str]) -> list[Flaw]:
    """A gang has as many GPUs as its row, on at most the nodes that its throughput assumes."""
    table = classes.configurations
    configuration = int(classes.configuration[column])
    wanted = table.gpus[configuration]
    flaws = []
    if len(gpus) != wanted:
        words = f"found {len(gpus)} GPUs, expected the {wanted} of the row"
        flaws.append(Flaw(entry, "gpus", words))
    nodes = dict.fromkeys(gpu.rpartition("/")[0] for gpu in gpus)
    # A row that states no nodes spans one node.
    most = max(int(table.nodes[configuration]), 1)
    if len(nodes) > most:
        words = (
            f"found {len(nodes)} nodes ({listed(nodes)}), expected at most {most}: "
            "the row's throughput is for that"
        )
        flaws.append(Flaw(entry, "gpus", words))
    level = int(table.levels[configuration])
    if level > 0:
        flaws += _in_one_group(classes.instance.cluster, level, entry, list(nodes))
    return flaws


def _in_one_group(cluster: Cluster, level: int, entry: int, nodes: Sequence[str]) -> list[Flaw]:
    """If the throughput of a row assumes one rack or block, all its nodes are in one."""
    name = cluster.level_names[level - 1]
    number = cluster.numbering.by_name
    # An unknown node is a separate flaw (`gpus_of_pool`).
    known = [node for node in nodes if node in number]
    groups = {int(cluster.group_of_node[level, number[node]]) for node in known}
    if len(groups) <= 1:
        return []
    words = f"found nodes of {len(groups)} groups of level {name} ({listed(known)}), expected one"
    return [Flaw(entry, "gpus", f"{words}: the row's throughput is for that")]


def running_jobs_unmoved(
    classes: Classes,
    job: IntArray,
    partner: IntArray,
    column: IntArray,
    gpus: Sequence[Sequence[str]],
) -> list[Flaw]:
    """Running jobs that cannot be preempted keep their GPUs, and no other row has one of these
    whole.
    """
    table = classes.instance.jobs_table
    stays = must_stay(classes.instance)
    share = classes.configurations.share[classes.configuration[column]]
    holder: dict[str, str] = {}
    for number in np.flatnonzero(stays).tolist():
        holder |= dict.fromkeys(table.running[number][1], table.names[number])
    flaws = []
    for row, given in enumerate(gpus):
        jobs = [number for number in (int(job[row]), int(partner[row])) if number >= 0]
        firm = [number for number in jobs if stays[number]]
        for number in firm:
            held = table.running[number][1]
            if sorted(given) != sorted(held):
                why = f"job {table.names[number]} runs on {listed(held)} and cannot be preempted"
                words = f"found {listed(given)}, expected {listed(held)}: {why}"
                flaws.append(Flaw(row, "gpus", words))
        # A row of shares may run beside such a job: the sum of the shares is checked elsewhere.
        of_others = [gpu for gpu in given if gpu in holder]
        if of_others and not firm and share[row] == 1.0:
            gpu = of_others[0]
            why = f"job {holder[gpu]}, which holds {gpu}, cannot be preempted"
            flaws.append(Flaw(row, "gpus", f"found {gpu}, expected other GPUs: {why}"))
    return flaws


# --- rows of an allocation --------------------------------------------------------------------


def check_placement(
    classes: Classes,
    job: IntArray,
    partner: IntArray,
    column: IntArray,
    gpus: Sequence[Sequence[str]],
    constraints: Iterable[Mapping[str, Any]] = (),
) -> list[Flaw]:
    """Errors in the GPUs of rows that run at one time; an empty list if there are none.

    Parameters
    ----------
    classes : Classes
    job, partner, column : IntArray, shape (P,)
        The rows: jobs (partner -1 for a job alone) and the column of the classes in which they run.
    gpus : sequence of sequences of str, length P
        ``node/index``.
    constraints : iterable of mappings
        Side constraints; those of kind ``anti-affinity``, and reserved ``cells``, are checked.
    """
    instance = classes.instance
    table = classes.configurations
    names = instance.jobs_table.names
    pools = instance.cluster.pools
    # Cached: thousands of rows use the same pools.
    nodes_of = cache(lambda pool: nodes_of_pool(pools[pool], instance.now))
    stays = must_stay(instance)
    flaws = jobs_placed_once(classes, job, partner)
    entries = _staying_rows(instance, np.concatenate([job, partner]))
    for row, given in enumerate(gpus):
        configuration = int(classes.configuration[column[row]])
        pool = int(table.pool[configuration])
        if pool < 0:
            words = f"found {len(given)} GPUs, expected none: the row uses no pool"
            flaws.append(Flaw(row, "gpus", words))
            continue
        numbers = [int(number) for number in (job[row], partner[row]) if number >= 0]
        remains = bool(stays[numbers].all())
        flaws += gpus_of_pool(row, given, pools[pool].name, nodes_of(pool), stays=remains)
        flaws += gpus_of_row(classes, int(column[row]), row, given)
        jobs = [names[number] for number in numbers]
        needs = needs_of_column(classes, int(column[row]))
        profile = profile_of(classes, configuration)
        entries[row] = PlacedRow(jobs, given, float(table.share[configuration]), needs, profile)
    flaws += no_gpu_given_twice(entries)
    flaws += slices_kept(entries)
    flaws += node_resources_kept(entries, instance.cluster)
    flaws += anti_affinity_kept(entries, constraints)
    if not flaws:
        flaws += reserved_cells_kept(entries, instance, constraints)
    flaws = [flaw for flaw in flaws if flaw.entry >= 0]
    return flaws + running_jobs_unmoved(classes, job, partner, column, gpus)


def _staying_rows(instance: Instance, placed: IntArray) -> dict[int, PlacedRow]:
    """What running jobs hold that cannot be preempted and are in no placed row, as on nodes that
    drain: entries -1, -2, ...
    """
    stays = must_stay(instance)
    stays[placed[placed >= 0]] = False
    jobs, names = np.flatnonzero(stays), instance.cluster.node_resources
    held = held_gpus(instance, jobs, names)
    table, found = instance.jobs_table, {}
    for place, number in enumerate(jobs.tolist()):
        pool, gpus, _ = table.running[number]
        part = int(held.profile[place])
        found[-1 - place] = PlacedRow(
            [table.names[number]],
            gpus,
            float(held.share[held.owner == place].min()),
            dict(zip(names, held.need[place].tolist(), strict=True)),
            None
            if part == NO_SLICE
            else layouts_of(instance.cluster.pools[pool], pool).partitions[part],
        )
    return found


def nodes_of_pool(pool: Pool, now: float) -> dict[str, NodeOfPool]:
    """The nodes of a pool by name."""
    usable = pool.usable(now).tolist()
    return {
        pool.node_name(row): NodeOfPool(gpus, usable[row])
        for row, gpus in enumerate(pool.node_gpus.tolist())
    }


def profile_of(classes: Classes, configuration: int) -> Partition | None:
    """The profile of the slice of a configuration (MIG), None for no slice.

    Raises
    ------
    InvalidInput
        If the GPUs of its pool have no such profile.
    """
    table = classes.configurations
    name = table.attribute_sets[int(table.attributes[configuration])].get(MIG)
    if name is None:
        return None
    number = int(table.pool[configuration])
    parts = partitions_of(classes.instance.cluster.pools[number], f"cluster.pools[{number}].gpu")
    known = {part.profile: part for part in parts}
    if name not in known:
        raise InvalidInput(f"attributes.{MIG}", show(name), f"one of the profiles {listed(known)}")
    return known[name]


def needs_of_column(classes: Classes, column: int) -> dict[str, float]:
    """Needs of a column per GPU, by name: those of its option, else those of its jobs'
    workloads.
    """
    candidates = classes.candidates
    instance = classes.instance
    columns = candidates.columns
    number = int(classes.kind_column[column])
    option = int(columns.option[number])
    if option >= 0:
        gpus = max(int(columns.gpus[number]), 1)
        return {name: amount / gpus for name, amount in instance.options.uses[option].items()}
    total: dict[str, float] = defaultdict(float)
    for kind in (int(columns.kind[number]), int(columns.partner[number])):
        workload = -1 if kind < 0 else int(candidates.kinds.workload[kind])
        for name, amount in {} if workload < 0 else instance.workloads[workload].demand.items():
            total[name] += amount
    return total


# --- slices of the time ----------------------------------------------------------------------

RELATIVE = 1e-9
ABSOLUTE = 1e-11
"""Tolerances for the time of a row: relative, and as a share of the window."""
CLOSED = 1e-7
"""Largest difference of bound and scale after a finished search."""
REPORTED = 20
"""Flaws of one kind that are reported."""


class RoundsFlaw(NamedTuple):
    """An error in rounds: the field, as a path inside `rounds` of a solution file, and a text."""

    field: str
    words: str


def check_rounds(rounds: Rounds, classes: Classes) -> list[RoundsFlaw]:
    """Errors in rounds; an empty list if there are none.

    Every slice is within every renewable resource, has whole GPUs for its shares, and has no job
    twice;
    lengths of slices are not negative and fill at most the window; every row runs for ``scale``
    times its fraction (by the priority rule: for at least that, and some row for no more, unless
    ``scale`` is 1).
    """
    problems = [*_check_length(rounds), *_check_share(rounds)]
    # The later checks need a valid matrix.
    shape = (len(rounds), len(rounds.rows))
    if rounds.runs.shape != shape or not (rounds.runs.data == 1).all():
        return [
            *problems,
            RoundsFlaw(
                "slices",
                f"expected a 0/1 matrix of {shape[0]} slices x {shape[1]} rows",
            ),
        ]
    problems += [
        *_check_jobs(rounds, classes),
        *_check_capacity(rounds, classes),
    ]
    return [
        *problems,
        *([] if problems else _check_packing(rounds, classes)),
        *_check_received(rounds),
    ]


def _check_length(rounds: Rounds) -> list[RoundsFlaw]:
    wrong = np.flatnonzero(~(rounds.length >= 0)).tolist()
    problems = [
        RoundsFlaw(
            f"slices[{number}].duration",
            f"found {rounds.length[number]:.9g} of the window, expected 0 or more",
        )
        for number in wrong[:REPORTED]
    ]
    total = float(rounds.length.sum())
    if not total <= 1 + RELATIVE:
        problems.append(
            RoundsFlaw(
                "slices",
                f"they last {total:.12g} of the window together, expected at most 1",
            )
        )
    return problems


def _check_share(rounds: Rounds) -> list[RoundsFlaw]:
    problems = []
    if not 0 <= rounds.scale <= 1:
        problems.append(
            RoundsFlaw(
                "scale",
                f"found {rounds.scale!r}, expected a number from 0 to 1",
            )
        )
    if not rounds.scale - RELATIVE <= rounds.bound <= 1 + RELATIVE:
        problems.append(
            RoundsFlaw(
                "bound",
                f"found {rounds.bound!r}, expected a number from the scale to 1",
            )
        )
    elif rounds.finished and rounds.method != "priority" and rounds.bound - rounds.scale > CLOSED:
        text = f"expected {rounds.scale!r}, the scale: the search is said to be finished"
        problems.append(RoundsFlaw("bound", f"found {rounds.bound!r}, {text}"))
    if not rounds.finished and rounds.method != "patterns":
        problems.append(
            RoundsFlaw(
                "finished",
                f"found false, expected true: {rounds.method} has no search to stop",
            )
        )
    return problems


def _check_jobs(rounds: Rounds, classes: Classes) -> list[RoundsFlaw]:
    rows = rounds.rows
    names = classes.instance.jobs_table.names
    number = np.arange(len(rows))
    shared = number[rows.partner >= 0]
    where = (
        np.concatenate([number, shared]),
        np.concatenate([rows.job, rows.partner[shared]]),
    )
    takes_part = sp.csr_matrix((np.ones(len(where[0])), where), shape=(len(rows), len(names)))
    running = sp.coo_matrix(rounds.runs.astype(np.float64) @ takes_part)
    twice = np.flatnonzero(running.data > 1)
    return [
        RoundsFlaw(
            f"slices[{running.row[entry]}].run",
            f"job {names[int(running.col[entry])]} runs twice at a time",
        )
        for entry in twice[np.lexsort((running.col[twice], running.row[twice]))][:REPORTED].tolist()
    ]


def _check_capacity(rounds: Rounds, classes: Classes) -> list[RoundsFlaw]:
    resources = classes.resources
    usage = sp.csr_matrix(classes.usage[:, rounds.rows.column])
    used = np.asarray((rounds.runs.astype(np.float64) @ usage.T).todense()).reshape(
        len(rounds), len(resources)
    )
    over = (used > resources.capacity * (1 + FEASIBILITY)) & resources.renewable
    return [
        RoundsFlaw(
            f"slices[{number}].run",
            f"it takes {used[number, resource]:.9g} of {resources.names[resource]}, "
            f"expected at most {resources.capacity[resource]:.9g}",
        )
        for number, resource in np.argwhere(over)[:REPORTED].tolist()
    ]


def _check_packing(rounds: Rounds, classes: Classes) -> list[RoundsFlaw]:
    """Slices whose shares of GPUs do not fit into whole GPUs, or are not known to fit."""
    shares = Shares.of(classes, rounds.rows.column)
    if shares is None:
        return []
    problems = []
    for number in range(len(rounds)):
        fits = shares.fits(rounds.running(number))
        if fits is not True:
            how = "do not fit" if fits is False else "are not known to fit"
            words = (
                f"its shares of GPUs {how} into the whole GPUs of their pools, "
                "expected rows that do"
            )
            problems.append(RoundsFlaw(f"slices[{number}].run", words))
    return problems[:REPORTED]


def _check_received(rounds: Rounds) -> list[RoundsFlaw]:
    """Rows with a wrong running time; if all rows agree on another scale, only the scale is
    reported.
    """
    fraction = rounds.rows.fraction
    received = rounds.received
    wanted = fraction > 0
    if not wanted.any() or not np.isfinite(rounds.scale):
        return []
    share = np.divide(received, fraction, out=np.zeros_like(received), where=wanted)
    if rounds.method == "priority":
        least = float(min(1.0, share[wanted].min()))
        return (
            []
            if abs(least - rounds.scale) <= RELATIVE
            else [
                RoundsFlaw(
                    "scale",
                    f"found {rounds.scale!r}, expected {least!r}: "
                    "the smallest share that a row receives",
                )
            ]
        )
    large = fraction >= 0.1 * fraction.max()  # the scale of small fractions is inexact
    actual = float(np.median(share[large]))
    problems = []
    scale = rounds.scale
    if not abs(actual - scale) <= RELATIVE + 10 * ABSOLUTE / fraction.max():
        problems.append(
            RoundsFlaw(
                "scale",
                f"found {scale!r}, but the rows run for {actual!r} of their fractions",
            )
        )
        scale = actual
    expected = scale * fraction
    wrong = np.flatnonzero(~(np.abs(received - expected) <= RELATIVE * expected + ABSOLUTE))
    return problems + [
        RoundsFlaw(
            "slices",
            f"allocation[{row}] runs for {received[row]:.12g} of the window, "
            f"expected {expected[row]:.12g}: scale x fraction",
        )
        for row in wrong[:REPORTED].tolist()
    ]
