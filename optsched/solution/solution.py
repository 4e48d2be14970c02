"""`Solution`: an allocation with its objective, bound,
certificate and everything needed to check it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from optsched.arrays import FloatArray, finite
from optsched.arrays.values import cached_property
from optsched.candidates import Candidates
from optsched.display import (
    Displayed,
    DisplayedTable,
    TableColumns,
    amount,
    columns_of,
    count,
    first_of,
    percent,
    seconds,
)
from optsched.display.picture import Picture
from optsched.errors import UsageError
from optsched.instance import Instance
from optsched.lazy import convenience
from optsched.solution.allocation import Allocation
from optsched.solution.certificate import Certificate, gap_of, shown_gap
from optsched.solution.explanation import Conflict, Explanation, assumptions_of, conflict_statement
from optsched.solution.prices import Prices
from optsched.solution.time_prices import TimePrices
from optsched.solution.values import Termination

if TYPE_CHECKING:  # what few solutions have
    from optsched.solution.placement import Placement
    from optsched.solution.rounds import Rounds
    from optsched.solution.schedule import Schedule
    from optsched.solution.stage import Stage

FORMAT = "optsched-solution/1"
DUAL_ROWS = 100_000
"""Row duals are written for at most this many rows, unless asked for."""


class Status(StrEnum):
    """What a solution is worth, if its certificate is ok.

    ``feasible`` is a point that is not proved to be optimal. Where a point breaks a row by more
    than the certificate accepts, the status is ``feasible`` too, and `Certificate.ok` is false.
    """

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    LIMIT = "limit"
    ERROR = "error"


class Attempt(NamedTuple):
    """One attempt at a program that the first one did not settle.

    Attributes
    ----------
    name : str
        The solver, or ``known point`` for a feasible point that needs none.
    outcome : str
        What came of it.
    """

    name: str
    outcome: str


@dataclass(frozen=True, repr=False)
class SolverRecord(Displayed):
    """Which solver made the values, how it was chosen and called.

    ``attempts`` lists, in their order, what was tried where the first solver alone did not settle a
    program; ``by_clock`` says whether time decided which attempts were made, or how far one of them
    came.
    """

    name: str
    version: str
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    reason: str = ""
    iterations: int = 0
    nodes: int = 0
    rebuilt: tuple[str, ...] = ()
    gap: float | None = None
    """The relative gap that was asked for: up to it a solution may be called optimal."""
    attempts: tuple[Attempt, ...] = ()
    by_clock: bool = False

    def _headline(self) -> str:
        work = [count(self.iterations, "iteration")] if self.iterations else []
        work += [count(self.nodes, "node")] if self.nodes else []
        return ", ".join(filter(None, [f"{self.name} {self.version}".strip(), self.reason, *work]))

    def to_document(self) -> dict[str, Any]:
        """The record as in a solution file; attempts only where there were several, ``by_clock``
        only where it is true.
        """
        document = {
            "name": self.name,
            "version": self.version,
            "options": dict(self.options),
            "seed": self.seed,
            "gap": self.gap,
        }
        if self.attempts:
            document["attempts"] = [attempt._asdict() for attempt in self.attempts]
        if self.by_clock:
            document["by_clock"] = True
        return document


PAIRS, CONFIGURATIONS = "pairs", "configurations"


class ColumnsMade(NamedTuple):
    """Columns of classes that were made, of those that could be,
    beside those that a program starts with.

    Attributes
    ----------
    of : str
        What the columns are of: `PAIRS` of jobs that share GPUs, or `CONFIGURATIONS` of jobs alone.
    made, possible : int
    """

    of: str
    made: int
    possible: int


class Packed(NamedTuple):
    """How many rows that are to run side by side find whole GPUs,
    where the program counts shares of GPUs in sum.

    Attributes
    ----------
    rows : int
        That run side by side.
    held, most : int
        A packing that was found holds so many of them; no packing holds more than ``most``.
    time : float or None
        When they do, of a schedule: absolute seconds.
    turns : float or None
        Of rows that take turns, and whose time no sequence of packings gives them: the part of
        their time that all of them can have at most.
    """

    rows: int
    held: int
    most: int
    time: float | None = None
    turns: float | None = None

    @property
    def refuted(self) -> bool:
        """Whether it is shown that the rows cannot be carried out as they are."""
        return self.most < self.rows or self.turns is not None

    def to_document(self) -> dict[str, Any]:
        """The counts as in a solution file; the time only of a schedule."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    def words(self, now: float) -> str:
        """``of its 3 rows side by side, 2 fit``, for every place that names the status."""
        if self.turns is not None:
            return f"its rows can have at most {percent(self.turns)} of their time"
        later = self.time is not None and self.time > now
        when = f" {seconds(self.time - now)} from now" if later and self.time is not None else ""
        proved = self.held == self.most
        most = "" if proved else f", and no packing has room for more than {self.most:,}"
        return f"of its {count(self.rows, 'row')} side by side{when}, {self.held:,} fit{most}"

    def relaxation(self, now: float) -> str:
        """What status, objective and bound are of, and how many rows find whole GPUs."""
        return (
            "status, objective and bound are of a relaxation that adds up shares of GPUs and "
            f"does not pack them into whole GPUs: {self.words(now)}"
        )


@dataclass(frozen=True, repr=False)
class JobAnswer(DisplayedTable):
    """What a solution gives one job.

    Attributes
    ----------
    job : str
    rows : tuple of mappings
        Its rows of the schedule, or of the allocation, as in the solution format.
    throughput : float
        steps/s; 0 for a job that gets nothing, or that a schedule starts later.
    reason : str
        Why it gets nothing, where that was decided before the program or by it; else empty.
    """

    job: str
    rows: tuple[Mapping[str, Any], ...]
    throughput: float
    reason: str

    def _headline(self) -> str:
        runs = f"{count(len(self.rows), 'row')}, {amount(self.throughput)} steps/s"
        nothing = self.reason or "nothing; optsched.explain_job says why"
        return f"of {self.job}: {runs if self.rows else nothing}"

    def to_columns(self, first: int | None = None) -> TableColumns:
        return columns_of(self.rows[:first])


@dataclass(frozen=True, repr=False, eq=False)
class Solution(DisplayedTable):
    """The answer of a formulation for an instance.

    Attributes
    ----------
    candidates : Candidates
        What was solved over; carries the instance.
    formulation : str
    options : mapping
        All options of the formulation, defaults included.
    constraints : tuple of mappings
        Side constraints, ``{"kind": ..., ...}``.
    solver : SolverRecord
    sense : str
        ``max``, ``min``, or ``rule`` for a closed form.
    objective, bound, gap : float or None
        In the formulation's units; gap as of `gap_of`.
    bound_source : str
        ``dual`` (recomputed by us), ``solver``, ``relaxation`` or ``none``.
    termination : Termination
    status : Status
    reproducible : bool
        False if the clock or the user stopped the run, one of several attempts, or the search for
        conflicts.
    certificate : Certificate
    allocation : Allocation or None
        None if nothing was found.
    prices : Prices
        Improvement of the objective per unit of each resource (LP duals; empty without): a
        dictionary that shows itself as a table and as a picture.
    duals : mapping of name -> FloatArray, or None
        Row duals by block, as the program's derivatives.
    time_prices : TimePrices or None
        Prices of time on resources, where they prove the bound of a schedule.
    conflicts : tuple of Conflict
        Why the instance is infeasible: requirements that cannot all be met.
    explanation : Explanation
        How small this set is known to be.
    timings : mapping
        Seconds by stage.
    schedule : Schedule or None
        What runs when, for programs that decide it; the allocation is then what runs first.
    rounds : Rounds or None
        The allocation cut into slices, if asked for.
    placement : Placement or None
        GPUs of what runs first, if asked for.
    figures : mapping of name -> job -> number
        Figures of each job in the words of the formulation, as the normalised throughput of water
        filling.
    stages : tuple of Stage
        Programs that were solved before the last one, whose optima it keeps; of a plan the
        objectives that decide among its optima, which its bound is not about.
    declined : tuple of (job, why)
        Jobs of the program that a schedule leaves out, as their deadlines cannot be kept beside
        those of others.
    columns_made : ColumnsMade or None
        How many columns were made, where they were generated; the bound is that of all that could
        be.
    packed : Packed or None
        Where GPUs are shared: how many of the rows that run side by side, all the time or at a time
        of a schedule, find whole GPUs, where these are not shown to be all.
    notes : tuple of str
        What the answer leaves out: fields that were stated and have no effect on it, jobs that
        arrive later.
    alternatives : tuple of Solution
        Other solutions in whole jobs that the search found on its way, best first, if asked for;
        each has the bound of this one.
    side_constraints : tuple of SideConstraint
        The objects of ``constraints``, for what builds the program again: the class of one that was
        made in Python need not be registered.
    """

    candidates: Candidates
    formulation: str
    options: Mapping[str, Any]
    constraints: tuple[Mapping[str, Any], ...]
    solver: SolverRecord
    sense: str
    objective: float | None
    bound: float | None
    bound_source: str
    termination: Termination
    status: Status
    certificate: Certificate
    allocation: Allocation | None
    prices: Mapping[str, float] = field(default_factory=dict)
    duals: Mapping[str, FloatArray] | None = None
    time_prices: TimePrices | None = None
    conflicts: tuple[Conflict, ...] = ()
    explanation: Explanation = Explanation.IRREDUCIBLE
    reproducible: bool = True
    timings: Mapping[str, float] = field(default_factory=dict)
    schedule: Schedule | None = None
    rounds: Rounds | None = None
    placement: Placement | None = None
    figures: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    stages: tuple[Stage, ...] = ()
    declined: tuple[tuple[str, str], ...] = ()
    columns_made: ColumnsMade | None = None
    packed: Packed | None = None
    notes: tuple[str, ...] = ()
    side_constraints: tuple[Any, ...] = ()
    alternatives: tuple[Solution, ...] = ()

    def differing_jobs(self, other: Solution) -> int:
        """How many jobs another solution of the same program gives something else, or at another
        time.

        Parameters
        ----------
        other : Solution

        Returns
        -------
        int
        """
        rows = np.concatenate([_rows_of(self), _rows_of(other)])
        different, count = np.unique(rows, axis=0, return_counts=True)
        jobs = np.unique(different[count == 1][:, :2])
        return int((jobs >= 0).sum())

    def __post_init__(self) -> None:
        # Whoever makes a solution hands over plain numbers; what they mean depends on its other
        # fields.
        prices = Prices(
            self.prices,
            instance=self.instance,
            formulation=self.formulation,
            sense=self.sense,
            status=self.status,
            allocation=self.allocation,
        )
        object.__setattr__(self, "prices", prices)

    @property
    def instance(self) -> Instance:
        return self.candidates.instance

    @property
    def extended(self) -> bool:
        """Whether a function (``extend``) added rows, which nothing but that function knows."""
        return any(item["kind"] == "extend" for item in self.constraints)

    @property
    def gap(self) -> float | None:
        return gap_of(self.objective, self.bound)

    @property
    def why_infeasible(self) -> str:
        """What is shown of the requirements that conflict, what decides more,
        and the requirements; else empty.
        """
        if not self.conflicts:
            return ""
        further = "".join(
            f" ({item.decided_by})" for item in assumptions_of(self.conflicts) if item.decided_by
        )
        shown = conflict_statement(self.conflicts, self.certificate.proof)
        return f"{shown}{further}: {'; '.join(conflict.words for conflict in self.conflicts)}"

    @property
    def ok(self) -> bool:
        """Whether the certificate holds."""
        return self.certificate.ok

    @property
    def throughput(self) -> Mapping[str, float]:
        """steps/s of each job that is in the program."""
        if self.allocation is None:
            return {}
        classes, total = self.allocation.classes, self.allocation.throughput
        names = self.instance.jobs_table.names
        jobs = np.flatnonzero(classes.of_job >= 0)
        return {
            names[job]: rate for job, rate in zip(jobs.tolist(), total[jobs].tolist(), strict=True)
        }

    @cached_property
    def unplaced(self) -> tuple[tuple[str, str], ...]:
        """(job, reason) of the jobs that are not in the program."""
        names = self.instance.jobs_table.names
        return tuple((names[job], reason) for job, reason in self.candidates.unplaced())

    @cached_property
    def metrics(self) -> Mapping[str, Any]:
        """Figures of the allocation:
        jobs placed, GPUs in use, utilisation by resource, cost per hour where priced; of a placement
        the free GPUs, and those of them that the jobs cannot use (`optsched.fragmentation`).
        """
        metrics = allocation_metrics(self.allocation)
        if self.placement is not None and self.allocation is not None:
            metrics["fragmentation"] = convenience("Solution.fragmentation")(self)
        return metrics

    def to_document(self, all_duals: bool = False) -> dict[str, Any]:
        """The solution in the format ``optsched-solution/1``; numbers that do not exist are null.

        Parameters
        ----------
        all_duals : bool
            Write row duals of more than `DUAL_ROWS` rows too; they are left out otherwise.

        Returns
        -------
        dict
            Plain data, ready for JSON.
        """
        document = {
            "format": FORMAT,
            "instance": self.instance.identity,
            "formulation": self.formulation,
            "options": dict(self.options),
            "constraints": [dict(constraint) for constraint in self.constraints],
            "solver": self.solver.to_document(),
            "classes": self.candidates.aggregate,
            "sense": self.sense,
            "objective": finite(self.objective),
            "bound": finite(self.bound),
            "bound_source": self.bound_source,
            "gap": self.gap,
            "termination": str(self.termination),
            "status": str(self.status),
            "reproducible": self.reproducible,
            "certificate": self.certificate.to_document(),
            "allocation": [],
            "throughput": {},
            "prices": dict(self.prices),
            "duals": self._written_duals(all_duals),
            "conflicts": [conflict.words for conflict in self.conflicts],
            "unplaced": _reasons(self.unplaced),
            "metrics": dict(self.metrics),
            "timings": dict(self.timings),
        }
        document |= self._remarks() | self._parts(all_duals)
        # Numbers of numpy become plain ones on the way through the text. What there is of each job
        # is plain, and long.
        plain: dict[str, Any] = json.loads(json.dumps(document, default=_plain))
        plain["throughput"] = self.throughput
        if self.allocation is not None:
            plain["allocation"] = self.allocation.to_records()
        return plain

    def _written_duals(self, all_duals: bool) -> dict[str, list[float]] | None:
        """Row duals by block, unless there are too many."""
        if self.duals is None:
            return None
        rows = sum(len(block) for block in self.duals.values())
        if rows > DUAL_ROWS and not all_duals:
            return None
        return {name: block.tolist() for name, block in self.duals.items()}

    def _remarks(self) -> dict[str, Any]:
        """What most solutions have nothing to say about; keys without content are left out."""
        remarks: dict[str, Any] = {
            "notes": list(self.notes),
            "figures": {name: dict(figure) for name, figure in self.figures.items()},
            "assumptions": [item.words for item in assumptions_of(self.conflicts)],
            "declined": _reasons(self.declined),
            "columns_made": None if self.columns_made is None else self.columns_made._asdict(),
            "packed": {} if self.packed is None else self.packed.to_document(),
        }
        if self.explanation is not Explanation.IRREDUCIBLE:
            remarks = {"explanation": str(self.explanation)} | remarks
        return {name: value for name, value in remarks.items() if value}

    def _parts(self, all_duals: bool) -> dict[str, Any]:
        """Stages, schedule, rounds and placement, where the solution has them."""
        parts: dict[str, Any] = {}
        if self.stages:
            duals = [stage.duals for stage in self.stages if stage.duals is not None]
            rows = sum(len(block) for blocks in duals for block in blocks.values())
            write_duals = all_duals or rows <= DUAL_ROWS
            parts["stages"] = [stage.to_record(write_duals) for stage in self.stages]
        if self.schedule is not None:
            parts["schedule"] = self.schedule.to_records()
            if self.schedule.layouts is not None:
                parts["layouts"] = {
                    pool: dict(gpus) for pool, gpus in self.schedule.layouts.items()
                }
        if self.time_prices is not None:
            parts["time_prices"] = self.time_prices.to_record()
        if self.rounds is not None:
            parts["rounds"] = self.rounds.to_record()
        if self.placement is not None:
            parts["placement"] = self.placement.to_records()
            parts["placement_figures"] = dict(self.placement.figures)
            contradicted = self.placement.contradicted
            if contradicted:
                names = self.instance.jobs_table.names
                parts["placement_contradicts"] = _reasons(
                    (names[job], reason) for job, reason in contradicted
                )
        return parts

    def __iter__(self) -> Iterator[str]:
        """The names of the jobs of the instance."""
        names = self.instance.jobs_table.names
        return (names[row] for row in range(len(names)))

    def __contains__(self, job: object) -> bool:
        return job in self.instance.jobs

    @cached_property
    def _reasons_by_job(self) -> Mapping[str, str]:
        return dict((*self.unplaced, *self.declined))

    def __getitem__(self, job: str) -> JobAnswer:
        """What the solution gives a job; raises KeyError where the instance has no such job."""
        if job not in self:
            raise KeyError(job)
        row = self.instance.jobs_table.names.index(job)
        shown = self.schedule if self.schedule is not None else self.allocation
        return JobAnswer(
            str(job),
            () if shown is None else tuple(shown.to_records(shown.rows_of(row))),
            self.throughput.get(job, 0.0),
            self._reasons_by_job.get(job, ""),
        )

    def write(self, path: str | Path, all_duals: bool = False) -> None:
        """Write the solution as a file in the format ``optsched-solution/1``, atomically.

        Parameters
        ----------
        path : str or Path
        all_duals : bool
            Row duals of more than `DUAL_ROWS` rows too.
        """
        convenience("Solution.write")(self, path, all_duals)

    def plot(self, kind: str | None = None) -> Picture:
        """A picture of the solution.

        Parameters
        ----------
        kind : str, optional
            ``allocation``, ``topology``, ``gantt``, ``rounds`` or ``prices`` (default: ``gantt``
            where there is a schedule, else ``allocation``). Rounds and GPUs are made for a picture
            that needs them.

        Returns
        -------
        Picture

        Raises
        ------
        UsageError
            For another kind, or where the solution has nothing of the kind.
        """
        return Picture(convenience("Solution.plot")(self, kind))

    def _headline(self) -> str:
        objective = "none" if self.objective is None else f"{self.objective:.9g}"
        seen = shown_gap(self.gap, self.status is Status.OPTIMAL, self.solver.gap)
        gap = "" if seen is None else f", gap {seen:.2g}"
        # Before the solver, as a line is cut at its end.
        packed = "" if self.packed is None else f", {self.packed.words(self.instance.now)}"
        answer = f"{self.formulation}: {self.status}, objective {objective}{gap}{packed}"
        return f"{answer}, solver {self.solver.name}"

    def _facts(self) -> Mapping[str, str]:
        certificate = self.certificate
        holds = "holds" if certificate.ok else f"does not hold: {'; '.join(certificate.problems)}"
        prices = [f"{name} {amount(price)}" for name, price in self.prices.items() if price]
        return {
            "objective": self._objective_in_words(),
            "relaxation": "" if self.packed is None else self.packed.relaxation(self.instance.now),
            "certificate": f"{holds} ({certificate.proof})",
            "bound": "" if self.bound is None else f"{self.bound:.9g} ({self.bound_source})",
            "prices": first_of(prices),
            "not placed": "" if not self.unplaced else count(len(self.unplaced), "job"),
            "infeasible": self.why_infeasible,
            "notes": "; ".join(self.notes),
        }

    def _objective_in_words(self) -> str:
        """What the objective is, with its unit; nothing of a formulation that nobody registered."""
        try:
            words, unit = convenience("Solution.objective_words")(self.formulation)
        except UsageError:
            return ""
        better = {"max": " (more is better)", "min": " (less is better)"}.get(self.sense, "")
        return f"{words}{f', {unit}' if unit else ''}{better}"

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The rows of the schedule where there is one, else of the allocation."""
        shown = self.schedule if self.schedule is not None else self.allocation
        return {} if shown is None else columns_of(shown.to_records(slice(first)))


def _reasons(jobs: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"job": job, "reason": reason} for job, reason in jobs]


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a {type(value).__name__} has no place in a solution file")


def allocation_metrics(allocation: Allocation | None) -> dict[str, Any]:
    """Figures that depend on the allocation alone, so that anybody can recompute them."""
    if allocation is None:
        return {}
    classes = allocation.classes
    metrics = {
        "jobs": int((classes.of_job >= 0).sum()),
        "gpus_in_use": float(allocation.usage[classes.resources.pool >= 0].sum()),
        "utilisation": allocation.utilisation,
        "total_throughput": float(allocation.throughput.sum()),
    }
    used = allocation.x > 0
    cost = classes.configurations.cost_per_hour(classes.instance.cluster)[classes.configuration]
    if used.any() and np.isfinite(cost[used]).all():
        metrics["cost_per_hour"] = float(cost[used] @ allocation.x[used])
    return metrics


def _rows_of(solution: Solution) -> FloatArray:
    """(job, partner or -1, column, ...) of all rows of a schedule or an allocation."""
    if solution.schedule is not None:
        plan = solution.schedule
        alone = np.full(len(plan.job), -1)
        return np.stack([plan.job, alone, plan.column, plan.start, plan.end], axis=1)
    if solution.allocation is None:
        return np.zeros((0, 4))
    rows = solution.allocation.rows
    return np.stack([rows.job, rows.partner, rows.column, rows.fraction], axis=1)
