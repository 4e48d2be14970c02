"""The allocation as a table: jobs x pools, or one line per configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from optsched.candidates import Absence, Classes
from optsched.cli.tables import count, listed, name, number, percent, rounded, table
from optsched.solution import Allocation

if TYPE_CHECKING:
    from rich.console import RenderableType

SHOWN = 20
"""Jobs or pairs shown."""
PARTS = 12
"""Configurations of one job in a table, at most."""
INVISIBLE = 5e-5
"""Shares of the time below this are left out of the matrix: 18 ms of a round of 6 minutes."""
MATRIX_POOLS = 5
"""Pools that fit beside each other."""


@dataclass
class Line:
    """A job, or two that share GPUs: fractions and steps/s by configuration."""

    names: str
    parts: list[Part] = field(default_factory=list)

    @property
    def rate(self) -> str:
        """steps/s in all, of both jobs where two share."""
        return _rates(
            [sum(rates) for rates in zip(*(part.rates for part in self.parts), strict=True)]
        )


@dataclass(frozen=True)
class Part:
    """One configuration of a line."""

    pool: str
    gpus: int
    nodes: int
    fraction: float
    rates: tuple[float, ...]
    details: str
    uses: str = ""
    value: float = 0.0
    cost: float = 0.0


def allocation_table(allocation: Allocation) -> Iterator[RenderableType]:
    """Percent of the time by pool; where counts or options differ inside a pool, a line per configuration."""
    lines, total = _lines(allocation)
    if not lines:
        return
    pools = [pool.name for pool in allocation.classes.instance.cluster.pools]
    parts = [part for line in lines for part in line.parts]
    plain = all(not part.details and part.pool for part in parts)
    steady = all(len({part.gpus for part in line.parts}) == 1 for line in lines)
    if plain and steady and len(pools) <= MATRIX_POOLS:
        yield _matrix(lines, pools)
    else:
        yield _long(lines)
    if total > len(lines):
        shared = (allocation.rows.partner >= 0).any()
        more = ("more job or pair", "more jobs or pairs") if shared else ("more job", "more jobs")
        yield f"... and {count(total - len(lines), *more)} (use -o or --json)"


def _matrix(lines: list[Line], pools: list[str]) -> RenderableType:
    rows = []
    for line in lines:
        shares = dict.fromkeys(pools, 0.0)
        for part in line.parts:
            shares[part.pool] += part.fraction
        cells = [percent(share) if share > INVISIBLE else "" for share in shares.values()]
        rows.append([line.names, str(line.parts[0].gpus), *cells, line.rate])
    return table("job", "GPUs", *map(name, pools), "steps/s", rows=rows)


def _long(lines: list[Line]) -> RenderableType:
    """A line per configuration, with the columns that say something."""
    parts = [part for line in lines for part in line.parts]
    pooled, optional = any(part.pool for part in parts), any(part.details for part in parts)
    using, moving = (
        any(part.uses for part in parts),
        any(rate for part in parts for rate in part.rates),
    )
    valued, priced = any(part.value for part in parts), any(part.cost for part in parts)
    rows = []
    for line in lines:
        sizes = [-part.fraction for part in line.parts]
        largest = np.argsort(sizes, kind="stable")[:PARTS].tolist()
        for place, part in enumerate(line.parts[turn] for turn in sorted(largest)):
            row = [line.names if place == 0 else ""]
            row += [name(part.pool) or "none"] if pooled else []
            row += [part.details] if optional else []
            row += [part.uses] if using else []
            row += [f"{part.gpus:,}", f"{part.nodes:,}"] if pooled else []
            row += [number(part.value)] if valued else []
            row += [number(part.cost)] if priced else []
            rows.append([*row, percent(part.fraction), *([_rates(part.rates)] if moving else [])])
        if len(line.parts) > PARTS:
            rest = sum(part.fraction for part in line.parts) - sum(
                line.parts[turn].fraction for turn in largest
            )
            told = ["", f"... {len(line.parts) - PARTS:,} more"]
            blank = [""] * (len(rows[-1]) - len(told) - (2 if moving else 1))
            rows.append([*told, *blank, percent(rest), *([""] if moving else [])])
    text = [
        "job",
        *(["pool"] if pooled else []),
        *(["option"] if optional else []),
        *(["uses"] if using else []),
    ]
    numbers = [
        *(["GPUs", "nodes"] if pooled else []),
        *(["value"] if valued else []),
        *(["cost"] if priced else []),
    ]
    return table(
        *text, *numbers, "time", *(["steps/s"] if moving else []), rows=rows, left=len(text)
    )


def _rates(rates: list[float] | tuple[float, ...]) -> str:
    return " + ".join(rounded(rate) for rate in rates)


def _lines(allocation: Allocation) -> tuple[list[Line], int]:
    """The first jobs and pairs with their parts, and how many there are."""
    C, rows = allocation.classes, allocation.rows
    names, pools = C.instance.jobs_table.names, C.instance.cluster.pools
    jobs = len(C.instance.jobs_table)
    key = rows.job * (jobs + 1) + rows.partner + 1
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    end = starts[SHOWN] if len(starts) > SHOWN else len(order)
    options, table = C.candidates.columns.option[C.kind_column], C.instance.options
    lines: dict[int, Line] = {}
    for row in order[:end].tolist():
        job, partner, column = int(rows.job[row]), int(rows.partner[row]), int(rows.column[row])
        told = name(names[job]) if partner < 0 else f"{name(names[job])} + {name(names[partner])}"
        fraction, rates = float(rows.fraction[row]), [float(rows.rate[row])]
        rates += [float(rows.partner_rate[row])] if partner >= 0 else []
        c = int(C.configuration[column])
        pool, option = int(C.configurations.pool[c]), int(options[column])
        bare = pool < 0 and option >= 0
        part = Part(
            "" if pool < 0 else pools[pool].name,
            int(C.configurations.gpus[c]),
            int(C.configurations.nodes[c]),
            fraction,
            tuple(rate * fraction for rate in rates),
            mode_words(C, column, job, "" if pool < 0 else None),
            listed([f"{key} {number(held)}" for key, held in table.uses[option].items()])
            if bare
            else "",
            float(table.value[option]) if bare else 0.0,
            float(table.cost[option]) if bare else 0.0,
        )
        lines.setdefault(int(key[row]), Line(told)).parts.append(part)
    return list(lines.values()), len(starts)


def mode_words(C: Classes, column: int, job: int, numbered: str | None) -> str:
    """What a column is beside its pool, GPUs and nodes: share, attributes, workers and servers.

    First comes the number of the option in the job's own list, from 0 as in solution files, where that list has
    several; ``numbered`` is what stands before the number, and None leaves it out.
    """
    configuration, table = int(C.configuration[column]), C.configurations
    option, told = int(C.candidates.columns.option[C.kind_column[column]]), []
    if numbered is not None and option >= 0:
        first, end = C.instance.options.indptr[C.instance.jobs_table.options[job] :][:2].tolist()
        told = [f"{numbered}{option - first}"] if end - first > 1 else []
    share = float(table.share[configuration])
    told += [f"share {share:g}"] if share != 1 else []
    attributes = table.attribute_sets[table.attributes[configuration]]
    return ", ".join([*told, *(f"{key}={value}" for key, value in attributes.items())])


def idle_jobs(allocation: Allocation) -> Iterator[RenderableType]:
    """Jobs that could run but get nothing."""
    C, rows = allocation.classes, allocation.rows
    idle = C.of_job >= 0
    idle &= C.candidates.absence == Absence.PRESENT
    idle[rows.job] = False
    idle[rows.partner[rows.partner >= 0]] = False
    jobs = np.flatnonzero(idle)
    if len(jobs):
        names = [C.instance.jobs_table.names[job] for job in jobs[:10].tolist()]
        more = "" if len(jobs) <= 10 else f" and {len(jobs) - 10:,} more"
        yield f"{count(len(jobs), 'job gets', 'jobs get')} nothing: {listed(names, most=10)}{more}"
