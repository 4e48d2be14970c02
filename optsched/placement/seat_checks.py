"""An independent check of who holds which GPUs in a round, job by job, with nothing of what decided it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from optsched.instance import Instance
from optsched.instance.reading import listed, show
from optsched.placement.check_nodes import (
    SLACK,
    nodes_over_capacity,
    nodes_shared_wrongly,
    sizes_and_states,
    wrong_gpus,
)


class Seat(NamedTuple):
    """What a job holds.

    Attributes
    ----------
    pool : str
    gpus : sequence of str
        ``node/index``.
    share : float
        Share of each GPU; of a job with a partner, what both have together.
    partner : str
        The job that holds the same GPUs by agreement; empty for a job alone.
    gang : int or None
        How many GPUs make it whole; None: any number that the instance has for it in this pool (its options, levels or
        range). Jobs with parameter servers have it from their law.
    needs : mapping of str to float or None
        Per GPU, by the names of resources; None: its option's, or the demand of its workload.
    """

    pool: str
    gpus: Sequence[str]
    share: float = 1.0
    partner: str = ""
    gang: int | None = None
    needs: Mapping[str, float] | None = None


class SeatFlaw(NamedTuple):
    """What is wrong with the seat of a job, in words."""

    job: str
    message: str


def check_seats(
    instance: Instance,
    seats: Mapping[str, Seat],
    constraints: Iterable[Mapping[str, Any]] = (),
    *,
    starting: Collection[str] = (),
    barred: Mapping[str, Collection[str]] | None = None,
) -> list[SeatFlaw]:
    """What is wrong where jobs hold GPUs at one time; an empty list where nothing is.

    Found are GPUs that do not exist or are given away more than once, gangs that are not whole, nodes and groups of
    nodes that are asked for more CPUs, memory or other resources than they have, jobs on one node that may not be, and
    jobs that start where they may not.

    Parameters
    ----------
    instance : Instance
    seats : mapping of str to Seat
        By the name of the job.
    constraints : iterable of mappings
        Side constraints; those of kind ``anti-affinity`` count.
    starting : collection of str
        Jobs that start now: nodes that take no work are none for them. Others may stay there.
    barred : mapping of str to collections of str, optional
        Nodes that a job may not have, by its name.
    """
    names = list(seats)
    flaws: list[SeatFlaw] = []
    on: dict[int, dict[str, int]] = {}
    demand: dict[int, Mapping[str, float]] = {}
    known = {pool.name: sizes_and_states(pool, instance.now) for pool in instance.cluster.pools}
    staying = {
        pool: {node: (gpus, True) for node, (gpus, _) in nodes.items()}
        for pool, nodes in known.items()
    }
    for entry, (name, seat) in enumerate(seats.items()):
        if name not in instance.jobs or seat.pool not in known:
            unknown = (
                "a job of the instance"
                if seat.pool in known
                else f"one of the pools {listed(known)}"
            )
            flaws.append(
                SeatFlaw(
                    name,
                    f"found {show(name if seat.pool in known else seat.pool)}, expected {unknown}",
                )
            )
            continue
        nodes = (known if name in starting else staying)[seat.pool]
        flaws += [SeatFlaw(name, words) for _, words in wrong_gpus(seat.pool, nodes, seat.gpus)]
        flaws += [
            SeatFlaw(name, words)
            for words in (*_not_whole(instance, name, seat), *_unpaired(seats, name))
        ]
        if not 0 < seat.share <= 1:
            flaws.append(
                SeatFlaw(name, f"found a share of {seat.share:g}, expected one above 0, at most 1")
            )
        on[entry] = defaultdict(int)
        for gpu in seat.gpus:
            on[entry][gpu.rpartition("/")[0]] += 1
        off = [node for node in on[entry] if node in (barred or {}).get(name, ())]
        flaws += [
            SeatFlaw(name, f"found GPUs of node {node}, which is barred to it") for node in off
        ]
        demand[entry] = _needs(instance, name, seat)
    flaws += _given_twice(seats)
    found = nodes_over_capacity(instance.cluster, on, demand)
    found += nodes_shared_wrongly({entry: [names[entry]] for entry in on}, on, constraints)
    return flaws + [SeatFlaw(names[flaw.entry], flaw.message) for flaw in found]


def _not_whole(instance: Instance, name: str, seat: Seat) -> list[str]:
    """Gangs of another size than the job's."""
    held = len(seat.gpus)
    if seat.gang is not None:
        return (
            []
            if held == seat.gang
            else [f"found {held} GPUs, expected {seat.gang}: gangs are whole"]
        )
    table, row = instance.jobs_table, instance.jobs_table.names.index(name)
    if table.options[row] >= 0:
        sizes = sorted(
            {int(instance.options.gpus[option]) for option in _options(instance, row, seat.pool)}
        )
    elif table.levels[row] >= 0:
        sizes = list(table.level_lists[int(table.levels[row])])
    else:
        low, high = int(table.gpus_min[row]), int(table.gpus_max[row])
        told = str(low) if low == high else f"{low} to {high}"
        return (
            [] if low <= held <= high else [f"found {held} GPUs, expected {told}: gangs are whole"]
        )
    told = listed(map(str, sizes)) or "none of this pool"
    return [] if held in sizes else [f"found {held} GPUs, expected {told}: gangs are whole"]


def _options(instance: Instance, row: int, pool: str) -> list[int]:
    """Explicit ways to run in a pool."""
    first, last = instance.options.indptr[
        [instance.jobs_table.options[row], instance.jobs_table.options[row] + 1]
    ]
    mine = np.arange(first, last)
    found: list[int] = mine[
        instance.options.pool[mine] == instance.cluster.pool_index[pool]
    ].tolist()
    return found


def _unpaired(seats: Mapping[str, Seat], name: str) -> list[str]:
    """A partner that has other GPUs, or another partner."""
    seat = seats[name]
    if not seat.partner:
        return []
    other = seats.get(seat.partner)
    if (
        other is None
        or other.partner != name
        or (other.pool, other.share) != (seat.pool, seat.share)
    ):
        return [
            f"found partner {show(seat.partner)}, which is not partner of {show(name)} in the same way"
        ]
    if sorted(other.gpus) != sorted(seat.gpus):
        return [f"found other GPUs than its partner {show(seat.partner)} has, expected the same"]
    return []


def _needs(instance: Instance, name: str, seat: Seat) -> Mapping[str, float]:
    """What a job needs per GPU, by name; of options that differ in nothing that a seat says, the first one's."""
    if seat.needs is not None:
        return seat.needs
    table, row = instance.jobs_table, instance.jobs_table.names.index(name)
    if table.options[row] < 0:
        return (
            {} if table.workload[row] < 0 else instance.workloads[int(table.workload[row])].demand
        )
    for option in _options(instance, row, seat.pool):
        if (instance.options.gpus[option], instance.options.share[option]) == (
            len(seat.gpus),
            seat.share,
        ):
            return {
                need: amount / len(seat.gpus)
                for need, amount in instance.options.uses[option].items()
            }
    return {}


def _given_twice(seats: Mapping[str, Seat]) -> list[SeatFlaw]:
    """GPUs whose shares add up to more than 1, with two partners counted once."""
    load: dict[str, float] = defaultdict(float)
    holders: dict[str, list[str]] = defaultdict(list)
    for name, seat in seats.items():
        other = seats.get(seat.partner)
        counted = (
            other.gpus
            if other is not None and other.partner == name and seat.partner < name
            else ()
        )
        for gpu in dict.fromkeys(seat.gpus):
            holders[gpu].append(name)
            load[gpu] += 0.0 if gpu in counted else seat.share
    return [
        SeatFlaw(
            name,
            f"{gpu} is given away {amount:g} times (to {', '.join(holders[gpu])}), expected once",
        )
        for gpu, amount in load.items()
        if amount > 1 + SLACK
        for name in holders[gpu]
    ]
