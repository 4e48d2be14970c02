"""One job of a solution: what it gets, what holds it, what it pays, and what else it could run in.

Everything is in units of the objective: an improvement is positive, whether the objective is
maximised or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray
from optsched.arrays.values import replace
from optsched.candidates import Classes
from optsched.display import Displayed, amount
from optsched.performance import Source
from optsched.program import AllocationProgram
from optsched.solution.allocation import Allocation, ColumnRecords
from optsched.solution.certificate import FEASIBILITY
from optsched.solution.reduced_costs import ReducedCosts
from optsched.solution.schedule import Schedule

ZERO = 1e-9
"""Parts of a column's terms below this are rounding."""
IN_USE = 1e-6
"""Fractions of time from which a column is in use:
what interior-point methods leave elsewhere is smaller.
"""


@dataclass(frozen=True, repr=False)
class Way(Displayed):
    """A column of the job's class.

    Attributes
    ----------
    column : int
        Column of the classes.
    configuration : mapping
        ``pool``, ``gpus``, ``nodes``, and ``with``, ``share``, ``attributes`` where there are any.
    rate, fraction : float
        steps/s of the job in it, and the job's fraction of time there; of a plan 1 if it runs in
        it.
    gain : float or None
        Reduced cost: change of the objective per unit of time there, at the margin; 0 where it is
        in use, never above. None without prices.
    prices : mapping of str to float
        Of each pool or resource that an unused column needs: the price at which it would be worth
        taking, other prices as they are; negative: not even for nothing.
    rate_needed : float or None
        steps/s up to which an unused column is certainly not worth taking, with normalisers as they
        are; None where no rate would do, or rates don't count. Just above it is worth taking,
        unless the optimum is degenerate: where several sets of prices are optimal, these are those
        of one of them.
    uses : mapping of str to float
        What it takes of each resource.
    seconds : float or None
        Of a plan: how long the job takes in it.
    value : float or None
        Of an option, or of workers and parameter servers: what it is worth by itself.
    lacks : mapping of str to float
        Of an allocation of whole jobs and a column that is not in use: the resources of which less
        is left than it needs, the other jobs being where they are, and what is left of them.
    source : str
        Where its rate comes from, a `optsched.performance.Source` in small letters.
    log_sd : float
        Standard deviation of the log of the rate, as the performance model states it.
    """

    column: int
    configuration: Mapping[str, Any]
    rate: float
    fraction: float
    gain: float | None = None
    prices: Mapping[str, float] | None = None
    rate_needed: float | None = None
    uses: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None
    value: float | None = None
    lacks: Mapping[str, float] = field(default_factory=dict)
    source: str = Source.MEASURED.name.lower()
    log_sd: float = 0.0

    @property
    def words(self) -> str:
        """The configuration as text: ``pool v100, gpus 2, nodes 1``."""
        return ", ".join(f"{key} {value}" for key, value in self.configuration.items())

    def _headline(self) -> str:
        gain = "" if self.gain is None else f", reduced cost {amount(self.gain)}"
        return f"{self.words}: {amount(self.rate)} steps/s, {self.fraction:.1%} of the time{gain}"

    @property
    def in_use(self) -> bool:
        """Whether the job runs in it, beyond the noise of a solver."""
        return self.fraction > IN_USE

    def to_document(self) -> dict[str, Any]:
        """The column as plain data."""
        return {
            **self.configuration,
            "rate": self.rate,
            "fraction": self.fraction,
            "gain": self.gain,
            "worth_taking_at_prices": None if self.prices is None else dict(self.prices),
            "worth_taking_from_rate": self.rate_needed,
            "uses": dict(self.uses),
            "seconds": self.seconds,
            "value": self.value,
            "lacks": dict(self.lacks),
            "source": self.source,
            "log_sd": self.log_sd,
        }


@dataclass(frozen=True, repr=False)
class Binding(Displayed):
    """A row that holds the job:
    its block, what it says, and what easing it by one unit is worth (None if unknown).
    """

    row: str
    words: str
    price: float | None

    def to_document(self) -> dict[str, Any]:
        """The row as plain data."""
        return {"row": self.row, "words": self.words, "price": self.price}


@dataclass(frozen=True, repr=False)
class Payment(Displayed):
    """What the job holds of a resource on average, the price of one unit,
    and the product of both.
    """

    resource: str
    used: float
    price: float | None

    @property
    def paid(self) -> float | None:
        """Units of the objective."""
        return None if self.price is None else self.used * self.price

    def to_document(self) -> dict[str, Any]:
        """The payment as plain data."""
        return {
            "resource": self.resource,
            "used": self.used,
            "price": self.price,
            "paid": self.paid,
        }


@dataclass(frozen=True)
class Share:
    """The job's rows of an allocation:
    columns, fractions, and how many jobs share the GPUs of each.
    """

    column: IntArray
    fraction: FloatArray
    sharing: FloatArray


def share_of(allocation: Allocation, job: int) -> Share:
    """The rows of one job, whether it is named first or second in them."""
    rows = allocation.rows
    of_job = np.flatnonzero((rows.job == job) | (rows.partner == job))
    return Share(
        rows.column[of_job], rows.fraction[of_job], np.where(rows.partner[of_job] >= 0, 2.0, 1.0)
    )


def share_of_plan(schedule: Schedule, job: int) -> Share:
    """The columns in which a plan runs a job."""
    column = np.unique(schedule.column[schedule.job == job])
    return Share(column, np.ones(len(column)), np.ones(len(column)))


def left_for(allocation: Allocation, share: Share) -> FloatArray:
    """What is left of each resource, shape (R,), without what one job holds:
    the other jobs are where they are.
    """
    C = allocation.classes
    held = sp.csc_matrix(C.usage)[:, share.column] @ (share.fraction / share.sharing)
    return np.asarray(C.capacity - C.usage @ allocation.x + held)


def ways_of(
    C: Classes,
    job: int,
    share: Share | None,
    costs: ReducedCosts | None,
    worth: float,
    *,
    left: FloatArray | None = None,
    planned: bool = False,
) -> tuple[Way, ...]:
    """All columns of the job's class, in the order of columns.

    ``left`` is what is left of each resource for a whole job (`left_for`); ``planned`` asks for how
    long it takes.
    """
    source = C.candidates.columns
    k = int(C.of_job[job])
    # A job may have several rows in one column, one with each partner.
    fraction = np.zeros(C.columns)
    if share is not None:
        np.add.at(fraction, share.column, share.fraction)
    usage = sp.csc_matrix(C.usage)
    # One row of the sparse matrix as an array: its entries are looked up column by column below.
    earned = None if costs is None else np.asarray(costs.earned[[k]].todense()).ravel()
    records = ColumnRecords(C)
    ways = []
    for column in C.member[[k]].indices.tolist():
        is_first = bool(C.class_a[column] == k)
        rate = float(C.rate_a[column] if is_first else C.rate_b[column])
        configuration = _configuration(C, records, column, job)
        way = Way(int(column), configuration, rate, float(fraction[column]))
        entries = slice(usage.indptr[column], usage.indptr[column + 1])
        uses = (usage.indices[entries].astype(np.int64), usage.data[entries])
        if costs is not None and earned is not None:
            way = _priced(way, C, costs, worth, uses, float(earned[column]))
        row = int(C.kind_column[column])
        # Only options and laws of workers give a column its own value.
        worthy = source.option[row] >= 0 or source.workers[row] > 0
        takes = float(C.duration[column]) if planned else np.inf
        way = replace(
            way,
            uses={C.resources.names[r]: float(amount) for r, amount in zip(*uses, strict=True)},
            seconds=takes if np.isfinite(takes) else None,
            value=float(source.value[row]) if worthy and source.value[row] else None,
            lacks={} if left is None or way.in_use else _lacking(C, uses, left),
            source=Source(int(source.source[row])).name.lower(),
            log_sd=float(source.log_sd[row]),
        )
        ways.append(way)
    return tuple(sorted(ways, key=lambda way: way.column))


def _lacking(C: Classes, uses: tuple[IntArray, FloatArray], left: FloatArray) -> dict[str, float]:
    """Resources of which a column needs more than is left, and what is left of them."""
    return {
        C.resources.names[r]: float(max(left[r], 0.0))
        for r, amount in zip(*uses, strict=True)
        if amount > left[r] + FEASIBILITY * C.capacity[r]
    }


def _priced(
    way: Way,
    C: Classes,
    costs: ReducedCosts,
    worth: float,
    uses: tuple[IntArray, FloatArray],
    earned: float,
) -> Way:
    """A column with its reduced cost, and the prices and the rate at which that would be 0."""
    reduced = float(costs.total[way.column])
    terms = abs(earned) + float(costs.capacity[uses[0]] @ uses[1])
    if abs(reduced) <= ZERO * terms or way.in_use:
        # In use it must be 0, but solvers leave noise, which is shown as it is.
        gain = reduced * worth if abs(reduced) > ZERO * terms else 0.0
        return Way(way.column, way.configuration, way.rate, way.fraction, gain)
    # Each unit used at a price p costs p: d_c is 0 where the price is q_r + d_c / usage_rc.
    prices = {
        C.resources.names[row]: float((costs.capacity[row] + reduced / amount) * worth)
        for row, amount in zip(uses[0].tolist(), uses[1].tolist(), strict=True)
        if amount > 0 and costs.capacity[row] > 0
    }
    # A rate f times as high earns f e_kc: d_c + (f - 1) e_kc is 0 at f = 1 - d_c / e_kc.
    rate = way.rate * (1.0 - reduced / earned) if costs.per_step and earned > 0 else None
    return Way(way.column, way.configuration, way.rate, way.fraction, reduced * worth, prices, rate)


def _configuration(C: Classes, records: ColumnRecords, column: int, job: int) -> dict[str, Any]:
    """A column as text; ``with`` names a job that it may share its GPUs with."""
    found = records.configuration(column)
    if C.class_b[column] >= 0:
        first, second = int(C.class_a[column]), int(C.class_b[column])
        partners = C.jobs_of(second if first == C.of_job[job] else first)
        found["with"] = C.instance.jobs_table.names[int(partners[partners != job][0])]
    return found | records.details(column)


def payments_of(C: Classes, share: Share, prices: Mapping[str, float]) -> tuple[Payment, ...]:
    """What the job holds of each resource and pays for it; two that share GPUs pay half each."""
    used = np.asarray(sp.csc_matrix(C.usage)[:, share.column] @ (share.fraction / share.sharing))
    names = C.resources.names
    return tuple(
        Payment(names[row], float(used[row]), prices.get(names[row]))
        for row in np.flatnonzero(used > 0).tolist()
    )


def binding_rows(
    program: AllocationProgram,
    x: FloatArray,
    job: int,
    share: Share,
    costs: ReducedCosts | None,
    worth: float,
) -> tuple[Binding, ...]:
    """Rows without slack that any column of the job's class is part of,
    and the level if the objective hangs on it.
    """
    C = program.classes
    k = int(C.of_job[job])
    columns = C.member[[k]].indices
    name = C.instance.jobs_table.names[job]
    found = []
    if costs is not None and costs.levels is not None and costs.levels[k] > 0:
        part = 100.0 * float(costs.levels[k] / C.count[k])  # of all jobs together: 100 %
        found.append(
            Binding("levels", f"{part:.3g} % of the objective hangs on the level of {name}", None)
        )
    if share.fraction.sum() >= 1 - FEASIBILITY:
        price = None if costs is None else float(costs.time[k]) * worth
        found.append(Binding("time", f"{name} runs all the time", price))
    usage = C.usage @ x
    # Of all full resources only those that a column of the class uses hold the job.
    used = np.flatnonzero(np.diff(sp.csr_matrix(C.usage[:, columns]).indptr))
    for row in used[usage[used] >= C.capacity[used] * (1 - FEASIBILITY)].tolist():
        price = None if costs is None else float(costs.capacity[row]) * worth
        found.append(
            Binding("capacity", f"{C.resources.names[row]} is full ({C.capacity[row]:g})", price)
        )
    for side in program.side:
        activity = side.matrix @ x
        # Relative to the terms: a sum of large numbers that cancel is not tight at 1e-6 of itself.
        near = FEASIBILITY * np.maximum(abs(side.matrix) @ x, np.abs(activity))
        tight = (activity <= side.lower + near) | (activity >= side.upper - near)
        of_job = np.diff(sp.csr_matrix(side.matrix.tocsr()[:, columns]).indptr) > 0
        for row in np.flatnonzero(tight & of_job).tolist():
            # The sign of a dual says only which side is tight.
            price = None if costs is None else abs(float(costs.side[side.name][row])) * worth
            found.append(Binding(side.name, side.describe(row), price))
    return tuple(found)
