"""A comparison as people read it: what each formulation answered, and the same figures of every answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from optsched.cli.solution_view import (
    cluster_words,
    decided_elsewhere,
    plain,
    quantity,
    status_text,
)
from optsched.cli.tables import (
    bullets,
    count,
    heading,
    name,
    optional,
    percent,
    seconds,
    share,
    table,
)
from optsched.registry import objective_words
from optsched.solution import Status
from optsched.solution.explanation import assumptions_of, conflict_statement
from optsched.study.comparison import Comparison, ComparisonRow

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

MEASURED = (
    "min share", "mean share", "fairness", "GPUs", "USD/h", "makespan", "deadlines", "idle", "solved in",
)  # fmt: skip
NOTES = (
    "share: of the throughput that a job would have with the cluster to itself (of a plan: of its speed until it ends)",
    "fairness: Jain's index of the shares, 1 if all are equal",
    "makespan: until the last job ends, at constant rates; deadlines: met of all; idle: jobs that get nothing",
)


def comparison_view(comparison: Comparison) -> Iterator[RenderableType]:
    """The whole comparison, table by table."""
    jobs = count(len(comparison.instance.jobs_table), "job")
    formulations = count(len(comparison.rows), "formulation")
    yield heading(f"{name(comparison.instance.name)}: {jobs}, {formulations}")
    yield cluster_words(comparison.instance)
    labels = {id(row): _label(row) for row in comparison.rows}
    measured = any(row.measures is not None for row in comparison.rows)
    yield table(
        "formulation", "status", "objective", "gap", "proof", *(MEASURED if measured else ()),
        rows=[[labels[id(row)], *_answer(row), *(_measured(row) if measured else ())] for row in comparison.rows],
        left=2,
    )  # fmt: skip
    if measured:
        yield bullets(NOTES)
    yield from _failures([(labels[id(row)], row) for row in comparison.rows])


def _label(row: ComparisonRow) -> str:
    """The formulation with the options that were given."""
    options = ",".join(f"{key}={plain(value)}" for key, value in row.options.items())
    return f"{row.formulation}:{options}" if options else row.formulation


def _answer(row: ComparisonRow) -> list[str | Text]:
    from rich.text import Text

    solution = row.solution
    if solution is None:
        return [Text("refused", style="bold red"), "", "", ""]
    if not solution.certificate.ok:
        return [Text("not certified", style="bold red"), "", "", ""]
    _, unit = objective_words(row.formulation)
    proved = (
        solution.certificate.proof if solution.status in (Status.OPTIMAL, Status.FEASIBLE) else ""
    )
    objective = "" if solution.objective is None else quantity(solution.objective, unit)
    return [
        status_text(solution.status),
        objective.partition(" (")[0],
        optional(solution.gap, share),
        proved,
    ]


def _measured(row: ComparisonRow) -> list[str]:
    """What was measured of an answer, by the heads `MEASURED`."""
    measures = row.measures
    if measures is None or row.solution is None:
        return [""] * len(MEASURED)
    makespan = "never" if measures.makespan is None else seconds(measures.makespan)
    return [
        optional(measures.smallest_share, percent),
        optional(measures.mean_share, percent),
        optional(measures.fairness, "{:.3f}".format),
        optional(measures.utilisation, lambda used: percent(min(used, 1.0))),
        optional(measures.cost_per_hour, "{:,.2f}".format),
        makespan,
        f"{measures.deadlines_met:,} of {measures.deadlines:,}" if measures.deadlines else "",
        f"{measures.idle:,}" if measures.idle else "",
        seconds(row.solution.timings.get("total", 0.0)),
    ]


def _failures(rows: list[tuple[str, ComparisonRow]]) -> Iterator[RenderableType]:
    """Why rows have no figures, and how many jobs are in no program."""
    reasons: dict[str, list[str]] = {}
    for label, row in rows:
        if row.error is not None:
            reasons.setdefault(str(row.error), []).append(label)
        elif row.solution is not None and not row.solution.certificate.ok:
            problems = "; ".join(row.solution.certificate.problems)
            reasons.setdefault(f"the certificate failed: {problems}", []).append(label)
        elif row.solution is not None and row.solution.conflicts:
            first, *others = row.solution.conflicts
            more = f" (and {count(len(others), 'more requirement')})" if others else ""
            shown = conflict_statement(row.solution.conflicts, row.solution.certificate.proof)
            reasons.setdefault(f"{shown}: {first.words}{more}", []).append(label)
    if reasons:
        yield ""
        yield heading("Without an answer")
        yield bullets(f"{', '.join(labels)}: {reason}" for reason, labels in reasons.items())
        found = [
            conflict
            for _, row in rows
            if row.solution is not None
            for conflict in row.solution.conflicts
        ]
        yield from decided_elsewhere(assumptions_of(found))
    unplaced = {
        label: len(row.solution.unplaced) for label, row in rows if row.solution is not None
    }
    if any(unplaced.values()):
        yield ""
        if len(set(unplaced.values())) == 1:
            yield f"{count(next(iter(unplaced.values())), 'job is', 'jobs are')} in no program: see `optsched explain`."
        else:
            counts = (f"{label} {number:,}" for label, number in unplaced.items() if number)
            yield f"Jobs that are in no program: {', '.join(counts)}."
