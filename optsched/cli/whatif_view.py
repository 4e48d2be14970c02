"""What-if answers, ranges of prices and curves as people read them, and the last two as documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from optsched.cli.solution_view import classes_of, price, quantity, status_text, title, worth_words
from optsched.cli.tables import (
    bullets,
    count,
    heading,
    listed,
    more,
    name,
    number,
    optional,
    rounded,
    table,
)
from optsched.instance.resize import words_of
from optsched.registry import objective_words
from optsched.sensitivity import CapacityCurve, CapacityRange, Change, WhatIf
from optsched.solution import Solution, Status

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

# Rows of a table, at most.
SHOWN = 40


def whatif_view(found: WhatIf) -> Iterator[RenderableType]:
    """The objectives, the prices, and what is to be known of them."""
    base = found.base
    yield from title(base, classes_of(base))
    words, unit = objective_words(base.formulation)
    yield f"{words}{f', {unit}' if unit else ''} ({'less' if base.sense == 'min' else 'more'} is better)"
    held = any(change.held is not None for change in found.changes)
    predicted = any(change.predicted is not None for change in found.changes)
    columns = ["", "status", "objective", "change"] + ["held"] * held + ["by prices"] * predicted
    rows: list[list[str | Text]] = [["now", *_answer(base), *[""] * (len(columns) - 3)]]
    for change in found.changes:
        row: list[str | Text] = [
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


def _label(change: Change) -> str:
    return listed(words_of(change.add), most=4)


def _answer(solution: Solution) -> list[str | Text]:
    _, unit = objective_words(solution.formulation)
    objective = "" if solution.objective is None else quantity(solution.objective, unit)
    return [status_text(solution.status), objective.partition(" ")[0]]


def _signed(difference: float | None) -> str:
    if difference is None or difference == 0:
        return "" if difference is None else "0"
    return f"{float(f'{difference:.4g}'):+,.6g}"


def _prices(found: WhatIf) -> Iterator[RenderableType]:
    """Prices now and then: of all resources after one change, of the added one after each of several."""
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
        yield worth_words(found.base)


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
    # A smaller cluster may leave jobs without a place, and the objective does not see those
    old = {job for job, _ in found.base.unplaced}
    for change in found.changes:
        new = {job for job, _ in change.solution.unplaced}
        for jobs, words in ((new - old, "can run no longer, and the objective does not see"),
                           (old - new, "can run then, and the objective sees")):  # fmt: skip
            if jobs:
                them = "it" if len(jobs) == 1 else "them"
                yield f"{_label(change)}: {listed(sorted(jobs))} {words} {them}"
        for solution, when in ((found.base, "now"), (change.solution, _label(change))):
            if solution.conflicts and (when != "now" or change is found.changes[0]):
                yield f"{when}: {solution.why_infeasible}"


# --- ranging -------------------------------------------------------------------------------------------------------


def ranging_view(
    solution: Solution, ranges: Mapping[str, CapacityRange]
) -> Iterator[RenderableType]:
    """Each price with the capacities between which it holds."""
    yield from title(solution, classes_of(solution))
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
        yield "A limit was reached: some prices hold further than is told here."
    yield worth_words(solution)


def ranging_document(solution: Solution, ranges: Mapping[str, CapacityRange]) -> dict[str, Any]:
    """The ranges in the format ``optsched-ranging/1``."""
    return {
        **_header(solution, "optsched-ranging/1"),
        "ranges": [item.to_document() for item in ranges.values()],
    }


def curve_view(solution: Solution, curve: CapacityCurve) -> Iterator[RenderableType]:
    """The breakpoints of a curve; between them the price is the same."""
    yield from title(solution, classes_of(solution))
    words, unit = objective_words(solution.formulation)
    yield heading(f"The {words} over the capacity of {name(curve.resource)}, all else held")
    sizes = [number(capacity) for capacity in curve.capacity.tolist()]
    objectives = [quantity(value, unit).partition(" (")[0] if np.isfinite(value) else "none"
                  for value in curve.objective.tolist()]  # fmt: skip
    rows = [list(pair) for pair in zip(sizes, objectives, strict=True)]
    yield table("capacity", "objective", rows=rows[:SHOWN], left=0)
    yield from more(len(rows) - SHOWN, "breakpoint", see="--json")
    if not curve.finished:
        yield "A limit was reached: further breakpoints may lie between these."


def curve_document(solution: Solution, curve: CapacityCurve) -> dict[str, Any]:
    """The curve in the format ``optsched-curve/1``."""
    return {**_header(solution, "optsched-curve/1"), **curve.to_document()}


def _header(solution: Solution, kind: str) -> dict[str, Any]:
    return {
        "format": kind,
        "instance": {"name": solution.instance.name, "sha256": solution.instance.sha256},
        "formulation": solution.formulation,
        "options": dict(solution.options),
        "constraints": [dict(item) for item in solution.constraints],
        "sense": solution.sense,
        "objective": solution.objective,
    }
