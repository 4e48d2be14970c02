"""Several answers side by side as people read them: a comparison, a front, other capacities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optsched.cli.solution_view import (
    changed_options,
    cluster_words,
    conflicts,
    decided_elsewhere,
    plain,
    price,
    seen_gap,
    status_text,
    title,
    with_unit,
    worth_words,
)
from optsched.cli.tables import (
    bullets,
    facts,
    heading,
    listed,
    more,
    name,
    number,
    optional,
    rounded,
    seconds,
    section,
    share,
    table,
)
from optsched.display import count
from optsched.display.columns import written
from optsched.instance.resize import words_of
from optsched.registry import objective_words
from optsched.sensitivity import CapacityCurve, CapacityRange, Change, Front, WhatIf
from optsched.solution import Solution, Status
from optsched.solution.explanation import assumptions_of, conflict_statement
from optsched.study.comparison import Comparison, ComparisonRow
from optsched.study.room import Room

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text


# --- a comparison ---------------------------------------------------------------------------------

# Measures with their headings, which are shorter than in frames; some combine several fields.
MEASURED = {
    "smallest_share": "min share",
    "mean_share": "mean share",
    "fairness": "fairness",
    "utilisation": "GPUs",
    "cost_per_hour": "USD/h",
    "makespan": "makespan",
    "deadlines": "deadlines",
    "idle": "idle",
    "seconds": "solved in",
}
NOTES = (
    "share: of the throughput that a job would have with the cluster to itself (of a plan: "
    "of its speed until it ends)",
    "fairness: Jain's index of the shares, 1 if all are equal; GPUs: "
    "part of the usable ones in use",
    "makespan: until the last job ends, at constant rates; deadlines: met of all; idle: "
    "jobs that get nothing",
)


def comparison_view(comparison: Comparison) -> Iterator[RenderableType]:
    """The whole comparison, table by table."""
    jobs = count(len(comparison.instance.jobs_table), "job")
    formulations = count(len(comparison.rows), "formulation")
    yield heading(f"{name(comparison.instance.name)}: {jobs}, {formulations}")
    yield cluster_words(comparison.instance)
    labels = {
        id(row): _labelled(
            row.formulation, [f"{key}={plain(value)}" for key, value in row.options.items()]
        )
        for row in comparison.rows
    }
    measured = any(row.measures is not None for row in comparison.rows)
    yield table(
        "formulation",
        "status",
        "objective",
        "gap",
        "proof",
        *(MEASURED.values() if measured else ()),
        rows=[
            [labels[id(row)], *_outcome(row), *(_measured(row) if measured else ())]
            for row in comparison.rows
        ],
        left=2,
    )
    if measured:
        yield bullets([*_packed_notes(comparison, labels), *NOTES])
    yield from _failures([(labels[id(row)], row) for row in comparison.rows])


def _packed_notes(comparison: Comparison, labels: Mapping[int, str]) -> Iterator[str]:
    """Notes on answers of relaxations whose rows do not all fit into whole GPUs."""
    for row in comparison.rows:
        if row.solution is not None and row.solution.packed is not None:
            relaxation = row.solution.packed.relaxation(comparison.instance.now)
            yield f"{labels[id(row)]}: {relaxation}"


def _labelled(formulation: str, options: Sequence[str]) -> str:
    """A formulation with options, as -f takes it."""
    return f"{formulation}:{','.join(options)}" if options else formulation


def _outcome(row: ComparisonRow) -> list[str | Text]:
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
    return [
        status_text(solution.status),
        "" if solution.objective is None else with_unit(solution.objective, unit),
        optional(seen_gap(solution), share),
        proved,
    ]


def _measured(row: ComparisonRow) -> list[str]:
    """Measures of an answer, in the columns `MEASURED`."""
    measures = row.measures
    if measures is None or row.solution is None:
        return [""] * len(MEASURED)
    met = f"{measures.deadlines_met:,} of {measures.deadlines:,}"
    texts = {name: written(name, value) for name, value in measures.to_document().items()} | {
        "makespan": written("makespan", measures.makespan) or "never",
        "deadlines": met if measures.deadlines else "",
        "idle": f"{measures.idle:,}" if measures.idle else "",
        "seconds": written("seconds", row.solution.timings.get("total", 0.0)),
    }
    return [texts[name] for name in MEASURED]


def _failures(rows: list[tuple[str, ComparisonRow]]) -> Iterator[RenderableType]:
    """Reasons for rows without figures, and numbers of jobs that are in no program."""
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
    items = [f"{', '.join(labels)}: {reason}" for reason, labels in reasons.items()]
    yield from section("Without an answer", items, len(items))
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
            yield (
                f"{count(next(iter(unplaced.values())), 'job is', 'jobs are')} in no program: "
                "see `optsched explain`."
            )
        else:
            counts = (f"{label} {number:,}" for label, number in unplaced.items() if number)
            yield f"Jobs that are in no program: {', '.join(counts)}."


# --- a front --------------------------------------------------------------------------------------


def pareto_view(front: Front) -> Iterator[RenderableType]:
    """The axes, the points, and notes."""
    first, second = front.axes
    yield heading(f"{name(front.instance.name)}: {first.formulation} against {second.formulation}")
    yield cluster_words(front.instance)
    yield ""
    yield facts(
        (
            label,
            (
                f"{_labelled(axis.formulation, changed_options(axis.formulation, axis.options))}: "
                f"{axis.title}"
            ),
        )
        for label, axis in zip(("1st", "2nd"), front.axes, strict=True)
    )
    if front.points:
        yield from _points(front)
    else:
        # An end without an optimum is the reason
        for axis, end in zip(front.axes, front.ends, strict=False):
            yield f"{axis.formulation}: {end.status}"
        if front.ends:
            yield from conflicts(front.ends[0])
    yield ""
    yield bullets(_front_notes(front))


def _points(front: Front) -> Iterator[RenderableType]:
    rows: list[list[str | Text]] = []
    for place, point in enumerate(front.points, 1):
        rows.append(
            [
                str(place),
                status_text(point.solution.status),
                *(_number(value) for value in point.objectives),
                optional(point.exchange, rounded),
                optional(seen_gap(point.solution), share),
            ]
        )
    for label, corner in (("ideal", front.ideal), ("nadir", front.nadir)):
        if corner is not None:
            rows.append([label, "", *(_number(value) for value in corner), "", ""])
    yield table("", "status", "1st", "2nd", "exchange", "gap", rows=rows, left=2)


def _number(value: float) -> str:
    return number(value) if np.isfinite(value) else "none"


def _front_notes(front: Front) -> Iterator[str]:
    if any(point.exchange is not None for point in front.points):
        yield (
            "exchange: what the next unit of improvement of the 2nd costs of the 1st, "
            "from the duals"
        )
    if len(front.points) == 1:
        yield "both objectives agree: one allocation is best for both"
    if any(not np.isfinite(value) for point in front.points for value in point.objectives):
        yield "none: the objective does not exist, as some job gets nothing"
    yield from front.notes
    if front.removed:
        yield (
            f"{count(front.removed, 'point was', 'points were')} repeated or dominated, "
            "and left out"
        )
    if front.missing:
        yield f"{count(front.missing, 'point is', 'points are')} missing"
    if front.runs:
        session = f"{count(front.runs, 'run')} of two sessions, changed in place"
        yield (
            f"{count(front.runs, 'run')}: {'; '.join(front.rebuilt)}" if front.rebuilt else session
        )


# --- other capacities -----------------------------------------------------------------------------

# Rows of a table, at most.
SHOWN = 40


def whatif_view(found: WhatIf) -> Iterator[RenderableType]:
    """The objectives, the prices, and notes."""
    base = found.base
    yield from title(base)
    words, unit = objective_words(base.formulation)
    yield (
        f"{words}{f', {unit}' if unit else ''} ({'less' if base.sense == 'min' else 'more'} is "
        "better)"
    )
    held = any(change.held is not None for change in found.changes)
    predicted = any(change.predicted is not None for change in found.changes)
    columns = ["", "status", "objective", "change"] + ["held"] * held + ["by prices"] * predicted
    rows = [["now", *_answer(base), *[""] * (len(columns) - 3)]]
    for change in found.changes:
        row = [
            _label(change),
            *_answer(change.solution),
            _signed(found.difference(change.solution)),
        ]
        row += [_signed(found.difference(change.held))] if held else []
        rows.append(row + ([_signed(change.predicted)] if predicted else []))
    yield table(*columns, rows=rows, left=2)
    yield from _prices(found)
    yield ""
    yield bullets(_notes(found, held, predicted))


# --- room for a job -------------------------------------------------------------------------------

MIGRATIONS = 40


def room_view(found: Room) -> Iterator[RenderableType]:
    """Whether there is room, the migrations, and whether fewer migrations are possible."""
    yield heading(f"{name(found.instance.name)}: room for {name(found.job)}")
    lost = _of_free(found.before.gpus, float(found.before.free.sum()))
    then = "" if found.after is None else _of_free(found.after.gpus, float(found.after.free.sum()))
    lines = [
        ("answer", found.words),
        ("GPUs", listed(found.gpus, most=16)),
        ("restarts", _restarts(found)),
        ("now", lost),
        ("then", then),
    ]
    yield facts((key, words) for key, words in lines if words)
    if not found.migrations:
        return
    names = found.instance.jobs_table.names
    rows = [
        [
            str(one.step),
            name(names[one.job]),
            listed(one.gpus, most=4),
            listed(one.target, most=4),
            seconds(one.seconds),
        ]
        for one in found.migrations[:MIGRATIONS]
    ]
    yield ""
    yield table("step", "job", "from", "to", "restart", rows=rows, left=4)
    yield from more(len(found.migrations) - MIGRATIONS, "migration")


def _of_free(gpus: float, free: float) -> str:
    return f"{number(gpus)} of {number(free)} free GPUs cannot be used by the jobs of the instance"


def _restarts(found: Room) -> str:
    if not found.migrations:
        return ""
    least = "" if found.seconds <= found.cheapest else f"; at least {seconds(found.cheapest)}"
    return f"{seconds(found.seconds)} in all{least}"


def _label(change: Change) -> str:
    return listed(words_of(change.add), most=4)


def _answer(solution: Solution) -> list[str | Text]:
    return [status_text(solution.status), optional(solution.objective, number)]


def _signed(difference: float | None) -> str:
    if difference is None or difference == 0:
        return "" if difference is None else "0"
    return f"{float(f'{difference:.4g}'):+,.6g}"


def _prices(found: WhatIf) -> Iterator[RenderableType]:
    """Prices now and then: of all resources after one change,
    of the added one after each of several.
    """
    rows = []
    for change in found.changes:
        now, then = (
            solution.prices if solution.status is Status.OPTIMAL else {}
            for solution in (found.base, change.solution)
        )
        shown = list(dict.fromkeys((*now, *then))) if len(found.changes) == 1 else list(change.add)
        capacities = [_capacities(solution) for solution in (found.base, change.solution)]
        for resource in shown if now or then else ():
            cells = [optional(held.get(resource), number) for held in capacities]
            prices = [optional(known.get(resource), rounded) for known in (now, then)]
            rows.append([name(resource), *cells, *prices])
    if rows:
        yield table("resource", "now", "then", "price now", "price then", rows=rows[:SHOWN])
        yield from more(len(rows) - SHOWN, see="--json")
        yield worth_words(found.base, "prices")


def _capacities(solution: Solution) -> dict[str, float]:
    resources = solution.candidates.resources
    return dict(zip(resources.names, resources.capacity.tolist(), strict=True))


def _notes(found: WhatIf, held: bool, predicted: bool) -> Iterator[str]:
    yield "change: of the objective, with the other cluster recompiled as a whole"
    if held:
        session = f"{count(found.runs, 'run')} of one session, changed in place"
        how = (
            f"{count(found.runs, 'run')}, not all in place: {'; '.join(found.rebuilt)}"
            if found.rebuilt
            else session
        )
        yield f"held: with all coefficients and normalisers held ({how})"
    elif found.not_held:
        yield f"no held optimum: {found.not_held}"
    if predicted:
        yield "by prices: price x amount; no held change is better than that"
    if any(_grows_yet_worse(found, change) for change in found.changes):
        yield (
            "more GPUs, yet a worse objective: it measures jobs "
            "by what the whole cluster could give "
            "them, which grows with the cluster; held leaves that as it is"
        )
    # On a smaller cluster some jobs may not be able to run, and the objective does not count them
    old = {job for job, _ in found.base.unplaced}
    for change in found.changes:
        new = {job for job, _ in change.solution.unplaced}
        for jobs, words in (
            (new - old, "can run no longer, and the objective does not see"),
            (old - new, "can run then, and the objective sees"),
        ):
            if jobs:
                them = "it" if len(jobs) == 1 else "them"
                yield f"{_label(change)}: {listed(sorted(jobs))} {words} {them}"
        for solution, when in ((found.base, "now"), (change.solution, _label(change))):
            if solution.conflicts and (when != "now" or change is found.changes[0]):
                yield f"{when}: {solution.why_infeasible}"


def _grows_yet_worse(found: WhatIf, change: Change) -> bool:
    """Whether added capacity makes the objective worse, although with all coefficients held it does
    not.
    """
    then, held = found.difference(change.solution), found.difference(change.held)
    if min(change.add.values()) < 0 or then is None or held is None:
        return False
    better = -1.0 if found.base.sense == "min" else 1.0
    return better * then < 0 <= better * held


# --- ranging --------------------------------------------------------------------------------------


def ranging_view(
    solution: Solution, ranges: Mapping[str, CapacityRange]
) -> Iterator[RenderableType]:
    """Each price with the capacities between which it holds."""
    yield from title(solution)
    yield heading("Where the prices hold, one capacity at a time, all else held")
    rows = []
    for item in list(ranges.values())[:SHOWN]:
        high = number(item.high) if np.isfinite(item.high) else "no end"
        ends = ["" if end is None else price(end) or "0" for end in (item.below, item.above)]
        capacity = number(item.capacity)
        rows.append(
            [name(item.resource), capacity, rounded(item.price), number(item.low), high, *ends]
        )
    yield table(
        "resource", "capacity", "price", "from", "to", "price below", "price above", rows=rows
    )
    yield from more(len(ranges) - SHOWN, see="--json")
    if not all(item.finished for item in ranges.values()):
        yield "A limit was reached: some prices may hold further than shown."
    yield worth_words(solution, "prices")


def ranging_document(solution: Solution, ranges: Mapping[str, CapacityRange]) -> dict[str, Any]:
    """The ranges in the format ``optsched-ranging/1``."""
    return {
        **_header(solution, "optsched-ranging/1"),
        "ranges": [item.to_document() for item in ranges.values()],
    }


def curve_view(solution: Solution, curve: CapacityCurve) -> Iterator[RenderableType]:
    """The breakpoints of a curve; between them the price is the same."""
    yield from title(solution)
    words, unit = objective_words(solution.formulation)
    yield heading(f"The {words} over the capacity of {name(curve.resource)}, all else held")
    sizes = [number(capacity) for capacity in curve.capacity.tolist()]
    objectives = [
        with_unit(value, unit) if np.isfinite(value) else "none"
        for value in curve.objective.tolist()
    ]
    rows = [list(pair) for pair in zip(sizes, objectives, strict=True)]
    yield table("capacity", "objective", rows=rows[:SHOWN], left=0)
    yield from more(len(rows) - SHOWN, "breakpoint", see="--json")
    if not curve.finished:
        yield "A limit was reached: there may be further breakpoints between these."


def curve_document(solution: Solution, curve: CapacityCurve) -> dict[str, Any]:
    """The curve in the format ``optsched-curve/1``."""
    return {**_header(solution, "optsched-curve/1"), **curve.to_document()}


def _header(solution: Solution, kind: str) -> dict[str, Any]:
    return {
        "format": kind,
        "instance": solution.instance.identity,
        "formulation": solution.formulation,
        "options": dict(solution.options),
        "constraints": [dict(item) for item in solution.constraints],
        "sense": solution.sense,
        "objective": solution.objective,
    }
