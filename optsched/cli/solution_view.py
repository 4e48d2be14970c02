"""A solution as people read it, from its heading to the GPUs that each job runs on."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from optsched.assembly import classes_of
from optsched.candidates import Classes
from optsched.cli.tables import (
    bullets,
    facts,
    heading,
    listed,
    more,
    name,
    number,
    optional,
    percent,
    rounded,
    seconds,
    section,
    share,
    table,
)
from optsched.display import count
from optsched.instance.staying import must_stay
from optsched.placement import slices
from optsched.placement.staying import can_run_on
from optsched.registry import load_formulation, objective_words
from optsched.solution import Allocation, Rounds, Schedule, Solution, Status
from optsched.solution.allocation import ColumnRecords
from optsched.solution.certificate import (
    ASKED,
    AVAILABLE,
    LARGEST_SHARE,
    OPTIMALITY,
    alike,
    shown_gap,
)
from optsched.solution.explanation import Explanation, assumptions_of, conflict_statement, under
from optsched.solving.stages import RELAXING

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from optsched.instance import Instance
    from optsched.instance.tables import JobNames
    from optsched.placement.gpu_slices import GpuSlice
    from optsched.program import Assumption
    from optsched.solution import Certificate, SolverRecord
    from optsched.study.direct import ProgramSolution

COLOUR = {Status.OPTIMAL: "bold green", Status.FEASIBLE: "bold yellow", Status.LIMIT: "bold yellow"}
STOPPED = {
    "time_limit": "the time limit was reached",
    "work_limit": "the work limit was reached",
    "gap_limit": "the gap is small enough",
    "interrupted": "interrupted",
    "by_rule": "no better plan than that of a rule was searched for",
    "imprecise": "the solver stopped before reaching the tolerance",
    "in_parts": "solved in parts",
}
PROOF = {
    "dual": "bound recomputed from the duals",
    "claimed": "bound claimed by the solver",
    "cross-checked": "cross-checked with a second run",
    "rule": "closed form, needs no proof",
    "none": "no bound",
}
METHOD = {
    "at-once": "all rows fit side by side on the GPUs of their pools",
    "open-shop": "exact decomposition into matchings of jobs and GPUs",
    "patterns": "column generation over sets of rows that fit side by side",
    "priority": "priority rule, round by round",
}

# Most items in lists.
JOBS = 20
# Configurations of one job.
PARTS = 12
IDLE = 10
REASONS = 20
REQUIREMENTS = 20
RESOURCES = 40
STRETCHES = 40
PLACED = 20
REFUSED = 10

# Smaller fractions of the time are not shown in the matrix: 18 ms of a round of 6 minutes.
INVISIBLE = 5e-5
# Pools that fit beside each other.
MATRIX_POOLS = 5


def solution_view(solution: Solution) -> Iterator[RenderableType]:
    """The whole solution, part by part."""
    yield from title(solution)
    yield facts(result_facts(solution))
    if solution.schedule is not None and solution.schedule.layouts is not None:
        yield from slices_table(solution)
    elif solution.schedule is not None:
        yield from schedule_table(solution.schedule)
    elif solution.allocation is not None:
        yield from allocation_table(solution.allocation)
        yield from idle_jobs(solution.allocation)
    if solution.allocation is not None:
        yield from resource_tables(solution)
    if solution.rounds is not None:
        yield from rounds_view(solution.rounds, solution.instance)
    yield from placement_view(solution)
    yield from unplaced(solution.unplaced)
    yield from unplaced(solution.declined, "Not admitted")
    yield from gives_way(solution)
    yield from conflicts(solution)
    yield from other_solutions(solution)


def other_solutions(solution: Solution) -> Iterator[RenderableType]:
    """Other solutions that the search found, with how many jobs they treat differently."""
    if not solution.alternatives:
        return
    rows = [
        (
            str(place),
            str(other.status),
            optional(other.objective, number),
            optional(seen_gap(other), share),
            f"{solution.differing_jobs(other):,}",
        )
        for place, other in enumerate((solution, *solution.alternatives), 1)
    ]
    columns = ("solution", "status", "objective", "gap", "other jobs")
    yield table(*columns, rows=rows, title="Several solutions", left=2)
    yield "other jobs: jobs that get something else than in the first solution"


def title(solution: Solution) -> Iterator[RenderableType]:
    """The instance, its size, and the formulation."""
    classes = classes_of(solution)
    yield heading(f"{name(solution.instance.name)}: {solution.formulation}")
    jobs = count(len(solution.instance.jobs_table), "job")
    yield f"{jobs}, {count(len(classes), 'class', 'classes')}, {count(classes.columns, 'column')}"
    if solution.columns_made is not None:
        what, made, possible = solution.columns_made
        yield f"{made:,} of {possible:,} {what} beside the first columns were made columns"
    yield cluster_words(solution.instance)
    yield ""


def cluster_words(instance: Instance) -> str:
    """``16 GPUs in 3 pools: v100 8, p100 4, k80 4``."""
    pools = instance.cluster.usable_gpus(instance.now)
    shown = listed([f"{name(pool)} {size:,}" for pool, size in pools.items()], most=8)
    return f"{count(sum(pools.values()), 'usable GPU')} in {count(len(pools), 'pool')}: {shown}"


def result_facts(solution: Solution) -> Iterator[tuple[str, str | Text]]:
    """Status, objective, bound, proof, solver, times."""
    options = changed_options(solution.formulation, solution.options)
    if options:
        yield "options", ", ".join(options)
    if solution.constraints:
        yield "constraints", "; ".join(_constraint_words(item) for item in solution.constraints)
    yield "status", status_words(solution.status, solution.termination, "allocation")
    if solution.packed is not None:
        yield "relaxation", solution.packed.relaxation(solution.instance.now)
    words, unit = objective_words(solution.formulation)
    yield from objective_facts(solution, unit, words)
    yield from (("then", words) for words in later_words(solution))
    found = solution.allocation is not None
    yield (
        "certificate",
        certificate_words(solution.certificate, solution.status, found, "allocation"),
    )
    if solution.solver.version:
        yield from solver_facts(solution.solver)
    if solution.metrics.get("cost_per_hour"):
        yield "cost", f"{solution.metrics['cost_per_hour']:,.2f} USD/h"
    yield "time", time_words(solution.timings)


def objective_facts(
    solution: Solution | ProgramSolution, unit: str = "", words: str = ""
) -> Iterator[tuple[str, str]]:
    """Objective, bound and gap, if they exist."""
    if solution.objective is not None:
        objective = quantity(solution.objective, unit)
        yield "objective", f"{objective}  {words}" if words else objective
    if solution.bound is not None:
        gap = optional(seen_gap(solution), share)
        yield "bound", quantity(solution.bound, unit) + (gap and f"  gap {gap}")


def seen_gap(solution: Solution | ProgramSolution) -> float | None:
    """The gap of a solution in a table; see `shown_gap`."""
    return shown_gap(solution.gap, solution.status is Status.OPTIMAL, solution.solver.gap)


def solver_facts(record: SolverRecord) -> Iterator[tuple[str, str]]:
    """The solver: name, version, reason of the choice, work, and earlier attempts."""
    parts = [f"{record.name} {record.version}"]
    parts += [record.reason] if record.reason else []
    parts += [count(record.iterations, "iteration")] if record.iterations else []
    parts += [count(record.nodes, "node")] if record.nodes else []
    yield "solver", ", ".join(parts)
    if record.attempts:
        outcomes = [f"{attempt.name}: {attempt.outcome}" for attempt in record.attempts]
        yield "attempts", "; ".join(outcomes)


def later_words(solution: Solution) -> Iterator[str]:
    """The secondary objectives among plans with the same objective:
    ``pieces: 27 (pieces that jobs are cut into; the least possible, as the solver claims)``.
    """
    for stage in solution.stages if solution.schedule is not None else ():
        bound, words = stage.bound, [*stage.words]
        if bound is not None:
            least = alike(stage.value, bound, OPTIMALITY, OPTIMALITY)
            limit = "the least possible" if least else f"at least {number(bound)}"
            words.append(f"{limit}, as the solver claims")
        yield f"{stage.name}: {number(stage.value)} ({'; '.join(words)})"


def changed_options(formulation: str, options: Mapping[str, Any]) -> list[str]:
    """Options that differ from their defaults, in the form of ``-O``."""
    fields = load_formulation(formulation).Options.model_fields
    return [
        f"{key}={plain(value)}"
        for key, value in options.items()
        if value != fields[key].get_default(call_default_factory=True)
    ]


def _constraint_words(document: Any) -> str:
    given = ", ".join(f"{key}={plain(value)}" for key, value in document.items() if key != "kind")
    return f"{document['kind']} ({given})" if given else str(document["kind"])


def plain(value: Any) -> str:
    """A value in the form of ``-O``."""

    return value if isinstance(value, str) else json.dumps(value)


def status_text(status: Status) -> Text:
    """A status in its colour."""
    from rich.text import Text

    return Text(str(status), style=COLOUR.get(status, "bold red"))


def status_words(status: Status, termination: str, what: str) -> Text:
    """Status, and the reason if the run was stopped early."""
    from rich.text import Text

    text = Text.assemble(status_text(status))
    if status in (Status.FEASIBLE, Status.LIMIT) and termination in STOPPED:
        text.append(f"  {STOPPED[termination]}")
    if status is Status.LIMIT:
        text.append(f", no feasible {what} was found")
    return text


def certificate_words(certificate: Certificate, status: Status, found: bool, what: str) -> Text:
    """The checks of the certificate, and its assumptions."""
    from rich.text import Text

    if not certificate.ok:
        return Text(f"FAILED: {'; '.join(certificate.problems)}", style="bold red")
    if status is Status.INFEASIBLE:
        if certificate.proof == "rule":
            return Text(f"infeasible whatever the {what}")
        if certificate.proof == "claimed":
            return Text("infeasible, as the solver claims: no duals prove it")
        if certificate.proof == "counted":
            asked, there = (certificate.residuals[name] for name in (ASKED, AVAILABLE))
            return Text(f"every {what} needs at least {asked:g} of a resource that has {there:g}")
        if LARGEST_SHARE in certificate.residuals:
            return Text(f"every {what} leaves a job without any time; recomputed from the duals")
        least = certificate.residuals["least_violation"]
        words = (
            f"every {what} violates its rows by at least {least:.2g} in total, "
            "relative to their size"
        )
        return Text(f"{words}; recomputed from the duals")
    if not found:
        return Text("nothing to certify")
    return Text(
        f"ok: largest residual {certificate.largest_residual:.1g}, {PROOF[certificate.proof]}"
    )


def time_words(timings: Mapping[str, float]) -> str:
    """Total time and its stages."""
    stages = dict(timings)
    total = stages.pop("total", sum(stages.values()))
    parts = [f"{stage} {seconds(spent)}" for stage, spent in stages.items() if spent >= 0.0005]
    return f"{seconds(total)}: {', '.join(parts)}" if parts else seconds(total)


# --- jobs without a place, requirements that do not hold ------------------------------------------


def unplaced(
    jobs: tuple[tuple[str, str], ...], title: str = "Not placed"
) -> Iterator[RenderableType]:
    """Jobs that are not in the program or not in its schedule, by reason."""
    reasons: dict[str, list[str]] = {}
    for job, reason in jobs:
        reasons.setdefault(reason, []).append(job)
    items = [f"{listed(members)}: {reason}" for reason, members in reasons.items()]
    yield from section(f"{title}: {count(len(jobs), 'job')}", items, REASONS, "reason")


def gives_way(solution: Solution) -> Iterator[RenderableType]:
    """Requirements that were relaxed, because they cannot all hold."""
    relaxed = [stage for stage in solution.stages if stage.name == RELAXING]
    items = [words for stage in relaxed for words in stage.words]
    if not items:
        return
    assumed = tuple(dict.fromkeys(item for stage in relaxed for item in stage.assumptions))
    why = sentence(under(assumed, "not all requirements can be met"))
    yielding = count(len(items), "requirement gives", "requirements give")
    yield from section(f"{why}; {yielding} way:", items, REQUIREMENTS)
    yield from decided_elsewhere(assumed)


def sentence(words: str) -> str:
    """Words that begin with a capital letter."""
    return words[:1].upper() + words[1:]


def decided_elsewhere(assumptions: Iterable[Assumption]) -> Iterator[RenderableType]:
    """How to decide about requirements without the assumptions that were made."""
    for assumption in assumptions:
        if assumption.decided_by:
            yield f"{sentence(assumption.decided_by)}."


def conflicts(solution: Solution) -> Iterator[RenderableType]:
    """Requirements that conflict, or that cannot hold at all; and how to find out more."""
    found = solution.conflicts
    explanation = solution.explanation
    if found:
        title = f"{sentence(conflict_statement(found, solution.certificate.proof))}:"
        yield from section(title, [conflict.words for conflict in found], REQUIREMENTS)
    if explanation is not Explanation.IRREDUCIBLE:
        counted = solution.certificate.proof == "counted"
        yield explanation_words(explanation, bool(found), counted)
    yield from decided_elsewhere(assumptions_of(found))


def explanation_words(explanation: Explanation, found: bool, counted: bool = False) -> str:
    """The reason why a conflicting set may not be minimal, or was not found."""
    if counted:
        return "They conflict by their sum alone; some of them may conflict without the others."
    why = (
        "the time was over"
        if explanation is Explanation.CUT_OFF
        else "the search stopped at its bound of work"
    )
    if not found:
        return f"Which requirements cannot all hold was not found: {why}."
    return (
        "Some of these may conflict without the others: "
        f"{why} before this set was as small as it can be."
    )


# --- allocation -----------------------------------------------------------------------------------


@dataclass
class Line:
    """A job, or two that share GPUs, with a record of each configuration that it runs in.

    A record is that of the solution format, with ``rates``: mean steps/s of the job, and of its
    partner if it has one.
    """

    names: str
    records: list[dict[str, Any]] = field(default_factory=list)

    @property
    def rate(self) -> str:
        """steps/s in total, of both jobs where two share."""
        by_job = zip(*(record["rates"] for record in self.records), strict=True)
        return _rates([sum(rates) for rates in by_job])


def allocation_table(allocation: Allocation) -> Iterator[RenderableType]:
    """Percent of the time by pool;
    where counts or options differ inside a pool, a line per configuration.
    """
    lines, total = _lines(allocation)
    if not lines:
        return
    pools = [pool.name for pool in allocation.classes.instance.cluster.pools]
    records = [record for line in lines for record in line.records]
    # A matrix of jobs and pools has one number per cell, so options or several counts need separate
    # lines
    plain = all(record["pool"] and not record["details"] for record in records)
    steady = all(len({record["gpus"] for record in line.records}) == 1 for line in lines)
    if plain and steady and len(pools) <= MATRIX_POOLS:
        yield _matrix(lines, pools)
    else:
        yield _long(lines)
    if total is None:
        yield "... and more jobs or pairs"
    elif total > len(lines):
        shared = (allocation.classes.class_b[allocation.x > 0] >= 0).any()
        what = ("job or pair", "jobs or pairs") if shared else ("job",)
        yield from more(total - len(lines), *what)


def _lines(allocation: Allocation) -> tuple[list[Line], int | None]:
    """The first jobs and pairs with their records, and how many there are;
    None: too many to count.
    """
    C = allocation.classes
    # If two jobs of one class share GPUs, only one of them begins a row
    rows, complete = allocation.first_rows(2 * JOBS + 2)
    key = rows.job * (len(C.instance.jobs_table) + 1) + rows.partner + 1
    order = np.argsort(key, kind="stable")
    # One key per job or pair; rows of the same key are records of one line
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    end = starts[JOBS] if len(starts) > JOBS else len(order)
    names = C.instance.jobs_table.names
    columns = ColumnRecords(C)
    lines: dict[int, Line] = {}
    for row in order[:end].tolist():
        job = int(rows.job[row])
        partner = int(rows.partner[row])
        fraction = float(rows.fraction[row])
        rates = [float(rows.rate[row])]
        rates += [float(rows.partner_rate[row])] if partner >= 0 else []
        column = int(rows.column[row])
        record = columns.configuration(column) | columns.option(column, job)
        record |= columns.details(column)
        record["fraction"] = fraction
        record["rates"] = [rate * fraction for rate in rates]
        bare = record["pool"] is None
        record["details"] = mode_words(C, job, record, "" if bare else None)
        record |= columns.stated(column, job)
        line = lines.setdefault(int(key[row]), Line(_job_words(names, job, partner)))
        line.records.append(record)
    return list(lines.values()), len(starts) if complete else None


def mode_words(C: Classes, job: int, record: Mapping[str, Any], numbered: str | None) -> str:
    """The fields of a record other than pool, GPUs and nodes: share, attributes, workers and
    servers.

    First comes the number of the option in the job's list (from 0, as in solution files), if the
    list has several options. ``numbered`` is the word before the number; None leaves the number
    out.
    """
    words = []
    if numbered is not None and "option" in record:
        first, end = C.instance.options.indptr[C.instance.jobs_table.options[job] :][:2].tolist()
        words = [f"{numbered}{record['option']}"] if end - first > 1 else []
    words += [f"share {record['share']:g}"] if "share" in record else []
    words += [f"{key}={value}" for key, value in record.get("attributes", {}).items()]
    return ", ".join(words)


def _matrix(lines: list[Line], pools: list[str]) -> RenderableType:
    rows = []
    for line in lines:
        shares = dict.fromkeys(pools, 0.0)
        for record in line.records:
            shares[record["pool"]] += record["fraction"]
        cells = [percent(share) if share > INVISIBLE else "" for share in shares.values()]
        rows.append([line.names, str(line.records[0]["gpus"]), *cells, line.rate])
    return table("job", "GPUs", *map(name, pools), "steps/s", rows=rows)


def _long(lines: list[Line]) -> RenderableType:
    """A line per configuration, with the columns that are not empty."""
    records = [record for line in lines for record in line.records]
    pooled = any(record["pool"] for record in records)
    useful = {
        "job": True,
        "pool": pooled,
        "option": any(record["details"] for record in records),
        "uses": any(record.get("uses") for record in records),
        "GPUs": pooled,
        "nodes": pooled,
        "value": any(record.get("value") for record in records),
        "cost": any(record.get("cost") for record in records),
        "time": True,
        "steps/s": any(rate for record in records for rate in record["rates"]),
    }
    heads = [head for head, shown in useful.items() if shown]
    cells = []
    for line in lines:
        # Show the records with the most time, in their original order
        fractions = np.array([record["fraction"] for record in line.records])
        largest = sorted(np.argsort(-fractions, kind="stable")[:PARTS].tolist())
        own = [_cells(line.records[row]) for row in largest]
        own[0]["job"] = line.names
        hidden = len(fractions) - len(largest)
        if hidden:
            rest = float(fractions.sum() - fractions[largest].sum())
            own.append({heads[1]: f"... {hidden:,} more", "time": percent(rest)})
        cells += own
    rows = [[record.get(head, "") for head in heads] for record in cells]
    text = [head for head in heads if head in ("job", "pool", "option", "uses")]
    return table(*heads, rows=rows, left=len(text))


def _cells(record: Mapping[str, Any]) -> dict[str, str]:
    """One configuration by the heads of its columns."""
    return {
        "pool": name(record["pool"] or "") or "none",
        "option": record["details"],
        "uses": listed(record.get("uses", ())),
        "GPUs": f"{record['gpus']:,}",
        "nodes": f"{record['nodes']:,}",
        "value": number(record.get("value", 0.0)),
        "cost": number(record.get("cost", 0.0)),
        "time": percent(record["fraction"]),
        "steps/s": _rates(record["rates"]),
    }


def _rates(rates: Sequence[float]) -> str:
    return " + ".join(rounded(rate) for rate in rates)


def _job_words(names: JobNames, job: int, partner: int) -> str:
    """``a``, or ``a + b`` of two jobs that share GPUs."""
    return name(names[job]) if partner < 0 else f"{name(names[job])} + {name(names[partner])}"


def idle_jobs(allocation: Allocation) -> Iterator[RenderableType]:
    """Jobs that could run but get nothing."""
    C = allocation.classes
    present = (C.of_job >= 0) & C.candidates.present
    jobs = np.flatnonzero(present & ~allocation.served)
    if len(jobs):
        names = [C.instance.jobs_table.names[job] for job in jobs.tolist()]
        yield f"{count(len(jobs), 'job gets', 'jobs get')} nothing: {listed(names, IDLE)}"


# --- objective and resources ----------------------------------------------------------------------


def quantity(value: float, unit: str) -> str:
    """A number with its unit; seconds also as a readable duration."""
    long = f" ({seconds(value)})" if unit == "s" and 120 <= value < float("inf") else ""
    return with_unit(value, unit) + long


def with_unit(value: float, unit: str) -> str:
    return f"{number(value)} {unit}" if unit else number(value)


def resource_tables(solution: Solution) -> Iterator[RenderableType]:
    """GPUs of the pools, then further resources: capacity, use, and what one more is worth."""
    allocation = solution.allocation
    assert allocation is not None
    resources = allocation.classes.resources
    usage = allocation.usage
    # Duals of a point that is not optimal are not prices
    known = solution.prices if solution.status is Status.OPTIMAL else {}
    prices = known if any(known.values()) else {}
    for title, unit, rows in (
        ("pool", "GPUs", np.flatnonzero(resources.pool >= 0)),
        ("resource", "capacity", np.flatnonzero(resources.pool < 0)),
    ):
        if len(rows) == 0:
            continue
        columns = [title, unit, "used", "utilisation"] + (["one more is worth"] if prices else [])
        lines = []
        for row in rows[:RESOURCES].tolist():
            capacity = float(resources.capacity[row])
            used = float(usage[row])
            line = [name(resources.names[row]), number(capacity), number(round(used, 6))]
            line.append(percent(min(used / capacity, 1.0)) if capacity > 0 else "")
            lines.append(line + ([price(prices[resources.names[row]])] if prices else []))
        yield table(*columns, rows=lines)
        yield from more(len(rows) - RESOURCES)
    if known and not prices:
        yield "All prices are 0: with all limits as they are, a larger cluster would not help."
    elif prices:
        yield worth_words(solution)


def worth_words(solution: Solution, what: str = "worth") -> str:
    """Explanation of the prices."""
    words, unit = objective_words(solution.formulation)
    change = "fall" if solution.sense == "min" else "rise"
    of = f"{words} ({unit})" if unit else words
    return f"{what}: {change} of the {of} for one more, at the margin"


def price(value: float) -> str:
    """A price; empty for 0."""
    return "" if value == 0 else rounded(value)


# --- schedule -------------------------------------------------------------------------------------


def schedule_table(schedule: Schedule) -> Iterator[RenderableType]:
    """The first stretches in order of their start, in seconds from now."""
    yield ""
    if not len(schedule):
        yield "No job is planned."
        return
    C = schedule.classes
    now = C.instance.now
    deadline = C.instance.jobs_table.deadline
    cells = []
    for row, record in enumerate(schedule.to_records(slice(STRETCHES))):
        job = int(schedule.job[row])
        due = float(deadline[job])
        cells.append(
            {
                "job": name(record["job"]),
                "pool": name(record["pool"] or ""),
                "mode": mode_words(C, job, record, "option "),
                "GPUs": f"{record['gpus']:,}",
                "nodes": f"{record['nodes']:,}",
                "start": moment(record["start"] - now),
                "end": moment(record["end"] - now),
                "deadline": moment(due - now) if np.isfinite(due) else "",
            }
        )
    unused = {
        "mode": not any(record["mode"] for record in cells),
        "nodes": not (C.configurations.nodes[C.configuration] > 1).any(),
        "deadline": not np.isfinite(deadline[schedule.job]).any(),
    }
    heads = [head for head in cells[0] if not unused.get(head)]
    yield heading("Schedule, from now")
    rows = [[record[head] for head in heads] for record in cells]
    yield table(*heads, rows=rows, left=2 if unused["mode"] else 3)
    yield from more(len(schedule) - STRETCHES, "stretch", "stretches")


def slices_table(solution: Solution) -> Iterator[RenderableType]:
    """The layout of each GPU in use, and the jobs in its slices."""
    by_gpu: dict[str, list[GpuSlice]] = {}
    for each in slices(solution).slices:
        by_gpu.setdefault(each.gpu, []).append(each)
    yield ""
    if not by_gpu:
        yield "No GPU is used."
        return
    rows = [
        [name(gpu), name(held[0].layout), _in_slices(held)]
        for gpu, held in itertools.islice(by_gpu.items(), PLACED)
    ]
    yield heading("Slices of GPUs")
    yield table("GPU", "layout", "runs", rows=rows, left=3)
    yield from more(len(by_gpu) - PLACED, "GPU")


def _in_slices(slices: Sequence[GpuSlice]) -> str:
    """``bert 3g.20gb, resnet 3 x 1g.5gb, 1 idle``."""
    who = Counter((each.workload or each.job, each.slice.partition("@")[0]) for each in slices)
    idle = sum(times for (owner, _), times in who.items() if not owner)
    words = [
        " ".join(filter(None, [name(owner), f"{times} x" if times > 1 else "", profile]))
        for (owner, profile), times in who.items()
        if owner
    ]
    return ", ".join([*words, *([f"{idle} idle"] if idle else [])])


def moment(time: float, now: str = "0") -> str:
    """A time relative to now; it may be in the past."""
    return now if time == 0 else seconds(time) if time > 0 else f"-{seconds(-time)}"


# --- rounds ---------------------------------------------------------------------------------------


def rounds_view(rounds: Rounds, instance: Instance) -> Iterator[RenderableType]:
    """How the slices were made, how many there are, and how much of the allocation they realise."""
    yield ""
    yield heading("Rounds")
    yield facts(_rounds_facts(rounds, instance))


def _rounds_facts(rounds: Rounds, instance: Instance) -> Iterator[tuple[str, str]]:
    yield "method", f"{rounds.method}: {METHOD[rounds.method]}"
    yield "window", f"{seconds(rounds.rounds * instance.round)}: {count(rounds.rounds, 'round')}"
    most = int(rounds.runs.sum(axis=1).max()) if len(rounds) else 0
    yield (
        "slices",
        f"{len(rounds):,}, at most {count(most, 'row')} at a time, "
        f"{count(rounds.switches, 'start')}",
    )
    yield "realised", _realised(rounds)
    stopped = [
        name(instance.jobs_table.names[job]) for job in rounds.stopped(must_stay(instance)).tolist()
    ]
    if stopped:
        yield (
            "stopped",
            f"{listed(stopped)}: running, and cannot be preempted (-C uninterrupted lets such "
            "jobs run on)",
        )


def _realised(rounds: Rounds) -> str:
    if rounds.scale == 1:
        return "the whole allocation"
    part = f"{percent(rounds.scale)} of every fraction"
    if rounds.method == "priority":
        return f"at least {part}"
    if rounds.finished:
        return f"{part}, the most that is possible"
    return f"{part}; the search ended without a proof, at most {percent(rounds.bound)} is possible"


# --- placement ------------------------------------------------------------------------------------


def placement_view(solution: Solution) -> Iterator[RenderableType]:
    """Rows that run first, with their GPUs; empty if no placement was requested."""
    placement = solution.placement
    if placement is None:
        return
    yield ""
    yield heading("Placement of what runs first")
    yield facts(_placement_facts(placement.figures))
    names = solution.instance.jobs_table.names
    rows = []
    granted = placement.granted
    for i, row in enumerate(placement.row[:PLACED].tolist()):
        jobs = _job_words(names, int(placement.rows.job[row]), int(placement.rows.partner[row]))
        gpus = placement.gpus[i]
        may_use = [] if granted is None else [percent(float(granted[i]))]
        rows.append([jobs, gpus_words(gpus), f"{len(gpus):,}", *may_use])
    if rows:
        head = ["job", "GPUs", "count"] + ["may use of each"] * (granted is not None)
        yield table(*head, rows=rows, left=2)
    yield from more(len(placement) - PLACED, "row")
    contradicted = [reason for _, reason in placement.contradicted]
    jobs = count(len(contradicted), "job")
    yield from section(
        f"Not preemptible, but stopped or moved by the allocation: {jobs}", contradicted, REFUSED
    )
    if contradicted:
        stays = np.array([job for job, _ in placement.contradicted], np.int64)
        asked = any(item["kind"] == "uninterrupted" for item in solution.constraints)
        helps = not asked and can_run_on(classes_of(solution), stays).any()
        yield "These jobs keep their GPUs." + (
            " Solve with -C uninterrupted for an allocation in which they continue." * bool(helps)
        )
    refused = [reason for _, reason in placement.refused]
    yield from section(f"No place: {count(len(refused), 'row')}", refused, REFUSED)


def _placement_facts(figures: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    wanted, placed, most = (
        int(figures[key]) for key in ("rows_wanted", "rows_placed", "rows_bound")
    )
    bound = "" if placed == wanted else f"; no placement has more than {most:,}"
    yield "placed", f"{placed:,} of {count(wanted, 'row')}{bound}"
    spanned = int(figures["nodes_spanned"])
    least = int(figures["nodes_bound"])
    tight = "the fewest" if spanned == least else f"at least {least:,}"
    yield "nodes spanned", f"{spanned:,} in all ({tight} for so many rows)"
    if figures["bandwidth"]:
        yield "bandwidth", f"{number(figures['bandwidth'])} GB/s: bottlenecks of the gangs added up"
    yield "moved", count(int(figures["gpus_moved"]), "GPU")
    yield (
        "proof",
        "no placement is better"
        if figures["exact"]
        else "best fit: a better placement is not excluded",
    )


def gpus_words(gpus: Sequence[str]) -> str:
    """``v100-0/0-3, v100-1/0 2``: indices by node, consecutive ones together."""
    by_node: dict[str, list[int]] = {}
    for gpu in gpus:
        node, _, index = gpu.rpartition("/")
        by_node.setdefault(node, []).append(int(index))
    return ", ".join(f"{name(node)}/{_runs(sorted(indices))}" for node, indices in by_node.items())


def _runs(indices: list[int]) -> str:
    runs: list[list[int]] = []
    for index in indices:
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return " ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


# --- programs that no formulation made ------------------------------------------------------------

# Columns of the point that are listed, at most.
NONZERO = 40


def program_view(solution: ProgramSolution) -> Iterator[RenderableType]:
    """Heading, result, the columns that are not 0, rows that cannot all hold."""
    rows, columns = solution.arrays.shape
    integer = int(solution.arrays.integer.sum())
    sense = "maximise" if solution.arrays.maximise else "minimise"
    yield heading(name(solution.name))
    kind = f" ({integer:,} integer)" if integer else ""
    size = count(solution.arrays.A.nnz, "coefficient")
    yield f"{sense}: {count(rows, 'row')}, {count(columns, 'column')}{kind}, {size}"
    yield ""
    yield facts(_program_facts(solution))
    if solution.x is not None:
        used = [(key, value) for key, value in solution.values.items() if value != 0]
        cells = [[name(key), number(value)] for key, value in used[:NONZERO]]
        if cells:
            yield table(
                "column",
                "value",
                rows=cells,
                title=f"Columns that are not 0: {len(used):,} of {columns:,}",
            )
        yield from more(len(used) - NONZERO)
    if solution.conflicts:
        yield ""
        yield heading("These rows cannot all hold:")
        yield bullets([listed(solution.conflicts, most=NONZERO)])
    if solution.outcome.explanation is not Explanation.IRREDUCIBLE:
        yield explanation_words(solution.outcome.explanation, bool(solution.conflicts))


def _program_facts(solution: ProgramSolution) -> Iterator[tuple[str, str | Text]]:
    yield "status", status_words(solution.status, solution.termination, "point")
    yield from objective_facts(solution)
    yield (
        "certificate",
        certificate_words(solution.certificate, solution.status, solution.x is not None, "point"),
    )
    yield from solver_facts(solution.solver)
    yield "time", time_words(solution.timings)
