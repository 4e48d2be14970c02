"""Random rows that stand and rows that start, what is wrong with who holds what, and a search for room."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from placement_cases import Document, apart_documents, instance_of, random_case, rows_of

from optsched.candidates import Classes, JobRows
from optsched.placement import Occupied, place_beside
from optsched.placement.checks import (
    Flaw,
    NodeOfPool,
    PlacedRow,
    anti_affinity_kept,
    gpus_of_pool,
    needs_of_column,
    no_gpu_given_twice,
    node_resources_kept,
    nodes_of_pool,
)

Held = dict[int, tuple[str, ...]]
"""GPUs by row of the allocation."""


@dataclass(frozen=True)
class Case:
    """Some rows stand, the others are wanted."""

    classes: Classes
    rows: JobRows
    apart: list[list[str]]
    stands: Held
    wanted: list[int]
    barred: dict[int, tuple[str, ...]]

    @property
    def constraints(self) -> list[dict[str, Any]]:
        return apart_documents(self.apart)

    @property
    def occupied(self) -> Occupied:
        chosen = np.array(list(self.stands), np.int64)
        return Occupied.of_rows(self.classes, self.rows, chosen, list(self.stands.values()))

    @property
    def barred_of_wanted(self) -> list[tuple[str, ...]]:
        return [self.barred.get(row, ()) for row in self.wanted]

    def flaws(self, placed: Mapping[int, Collection[str]]) -> list[Flaw]:
        return flaws_of(
            self.classes,
            self.rows,
            {**self.stands, **placed},
            self.constraints,
            placed,
            self.barred,
        )

    def has_room(self, row: int, placed: Held) -> bool:
        """Try every set of GPUs for one row beside all others."""
        configuration = self.classes.configuration[self.rows.column[row]]
        gpus, span = (
            int(getattr(self.classes.configurations, key)[configuration])
            for key in ("gpus", "nodes")
        )
        return any(
            len({gpu.split("/")[0] for gpu in chosen}) <= span
            and not self.flaws({**placed, row: chosen})
            for chosen in itertools.combinations(every_gpu(self.classes), gpus)
        )


def every_gpu(classes: Classes) -> list[str]:
    return [
        f"{pool.node_name(node)}/{i}"
        for pool in classes.instance.cluster.pools
        for node, gpus in enumerate(pool.node_gpus)
        for i in range(gpus)
    ]


def flaws_of(
    classes: Classes,
    rows: JobRows,
    held: Mapping[int, Collection[str]],
    constraints: Any = (),
    starting: Collection[int] = (),
    barred: Mapping[int, Collection[str]] | None = None,
) -> list[Flaw]:
    """What is wrong with who holds what; rows that stand may be on nodes of any state."""
    instance, flaws, entries = classes.instance, [], {}
    names = instance.jobs_table.names
    for row, gpus in held.items():
        column = int(rows.column[row])
        pool = instance.cluster.pools[int(classes.pool[column])]
        nodes = nodes_of_pool(pool, instance.now)
        if row not in starting:
            nodes = {node: NodeOfPool(part.gpus, True) for node, part in nodes.items()}
        flaws += gpus_of_pool(row, tuple(gpus), pool.name, nodes)
        off = set((barred or {}).get(row, ())) if row in starting else set()
        on = {gpu.rpartition("/")[0] for gpu in gpus}
        if len(gpus) != classes.gpus[column] or on & off:
            flaws.append(Flaw(row, "gpus", f"{gpus}: the gang is not whole, or on barred nodes"))
        jobs = [names[int(job)] for job in (rows.job[row], rows.partner[row]) if job >= 0]
        share = float(classes.configurations.share[classes.configuration[column]])
        entries[row] = PlacedRow(jobs, tuple(gpus), share, needs_of_column(classes, column))
    flaws += no_gpu_given_twice(entries)
    flaws += node_resources_kept(entries, instance.cluster)
    return flaws + anti_affinity_kept(entries, constraints)


def random_occupied(seed: int) -> Case:
    """A random problem (`random_case`) in which about half of the rows stand somewhere, on nodes of any state."""
    classes, rows, apart = random_case(seed)
    random = np.random.default_rng([seed, 1])
    stands: Held = {}
    spots = every_gpu(classes)
    for row in range(len(rows)):
        gpus = int(classes.gpus[rows.column[row]])
        for _ in range(3 if random.random() < 0.55 else 0):
            chosen = tuple(
                sorted(
                    str(spot) for spot in random.choice(spots, min(gpus, len(spots)), replace=False)
                )
            )
            if not flaws_of(classes, rows, {**stands, row: chosen}, apart_documents(apart)):
                stands[row] = chosen
                break
    wanted = [int(row) for row in random.permutation(len(rows)) if row not in stands]
    nodes = sorted({spot.split("/")[0] for spot in spots})
    barred = {row: (str(random.choice(nodes)),) for row in wanted if random.random() < 0.2}
    return Case(classes, rows, apart, stands, wanted, barred)


def beside(
    jobs: list[Document],
    stands: dict[str, list[str]],
    *pools: Document,
    constraints: Any = (),
    **more: Any,
) -> dict[str, Any]:
    """GPUs, or the reason of a refusal, by the job of every row that starts."""
    barred = more.pop("barred", {})
    classes, rows = rows_of(instance_of(jobs, list(pools), **more))
    names = [classes.instance.jobs_table.names[int(j)] for j in rows.job]
    chosen = np.array([names.index(name) for name in stands], np.int64)
    occupied = Occupied.of_rows(classes, rows, chosen, list(stands.values()))
    wanted = np.array([row for row, name in enumerate(names) if name not in stands], np.int64)
    off = [barred.get(names[row], ()) for row in wanted]
    found = place_beside(classes, rows, wanted, occupied, constraints, barred=off)
    held = dict(zip(found.row.tolist(), found.gpus, strict=True))
    held |= dict(zip(chosen.tolist(), map(tuple, stands.values()), strict=True))
    assert flaws_of(classes, rows, held, constraints, found.row.tolist()) == []
    result: dict[str, Any] = {
        names[row]: gpus for row, gpus in held.items() if names[row] not in stands
    }
    return result | {names[told.row]: (told.reason, told.scattered) for told in found.refused}
