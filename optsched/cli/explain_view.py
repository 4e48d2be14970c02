"""Explanations as people read them: of a solution, and of one of its jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from optsched.cli.solution_view import (
    conflicts,
    idle_jobs,
    moment,
    resource_tables,
    result_facts,
    title,
    unplaced,
    worth_words,
)
from optsched.cli.tables import (
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
    spread,
    table,
)
from optsched.display import count
from optsched.performance.concave import concave_envelope, envelope_gap
from optsched.registry import objective_words
from optsched.solution import Solution, Status
from optsched.study.explaining import JobExplanation

if TYPE_CHECKING:
    from rich.console import RenderableType

    from optsched.solution.job_explanation import Way

# Rows of each table and list, at most.
SHOWN = 20


def explanation_view(solution: Solution, document: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield from title(solution)
    shown = ("options", "constraints", "status", "objective", "bound")
    yield facts((key, words) for key, words in result_facts(solution) if key in shown)
    if solution.allocation is not None:
        yield from _pools(solution)
        yield from _holding(solution, document["holding"])
        yield from _requirements(document["requirements"])
        # Jobs of a schedule may run later
        if solution.schedule is None:
            yield from idle_jobs(solution.allocation)
    yield from unplaced(solution.unplaced)
    yield from unplaced(solution.declined, "Not admitted")
    yield from conflicts(solution)


def _pools(solution: Solution) -> Iterator[RenderableType]:
    yield from resource_tables(solution)
    if solution.status is not Status.OPTIMAL:
        yield "Only an optimal solution has prices."
        return
    if not solution.prices:
        nobody = solution.allocation is not None and len(solution.allocation.classes) == 0
        yield (
            "No job can run, so nothing has a price."
            if nobody
            else "An integer program or a rule has no prices."
        )
        return
    # A price of 0 is an answer too: more of this resource would not help
    free = [name for name, price in solution.prices.items() if price == 0]
    if 0 < len(free) < len(solution.prices):
        yield f"More of {listed(free)} would not help."


def _holding(solution: Solution, holding: list[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Jobs with the smallest level, sorted by their effect on the objective."""
    if not holding:
        return
    words, _ = objective_words(solution.formulation)
    yield ""
    yield heading(f"Jobs that hold the {words} {'up' if solution.sense == 'min' else 'down'}")
    rows = []
    for item in holding[:SHOWN]:
        others = f" and {item['jobs'] - 1:,} like it" if item["jobs"] > 1 else ""
        rows.append([name(item["job"]) + others, rounded(item["rate"]), percent(item["share"])])
    yield table("job", "steps/s", "share", rows=rows)
    yield from more(len(holding) - SHOWN, "class of jobs", "classes of jobs", see="--json")
    yield (
        "share: if the job ran 1 % faster everywhere, "
        "the objective would improve by this part of 1 %"
    )


def _requirements(requirements: list[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Side rows with a price."""
    items = [
        f"{item['requirement']}: to loosen it by 1 % would be worth {rounded(item['worth'])}"
        for item in requirements
    ]
    title = "Requirements that cost something:"
    yield from section(title, items, SHOWN, "requirement", see="--json")


# --- one job --------------------------------------------------------------------------------------

MOST_POOLS = 4
# A curve with a smaller relative gap counts as concave.
CONCAVE = 1e-9


def job_view(found: JobExplanation) -> Iterator[RenderableType]:
    """The whole explanation, part by part."""
    solution = found.solution
    yield heading(f"{name(solution.instance.name)}: {solution.formulation}: job {name(found.job)}")
    yield ""
    shown = ("options", "constraints", "status", "objective")
    yield facts(
        [(key, words) for key, words in result_facts(solution) if key in shown]
        + list(job_facts(found))
    )
    if found.unplaced is not None:
        yield ""
        yield f"It is not placed: {found.unplaced}."
    yield from _pays(found)
    yield from _binding(found)
    yield from _ways(found)
    yield from _dropped(found)
    yield from conflicts(solution)


def job_facts(found: JobExplanation) -> Iterator[tuple[str, str]]:
    """Data of the job and its allocation."""
    instance = found.solution.instance
    row = instance.jobs_table.names.index(found.job)
    left = float(instance.jobs_table.steps_left[row])
    deadline = float(instance.jobs_table.deadline[row])
    words = f"{number(left)} steps left"
    if np.isfinite(deadline):
        due = deadline - instance.now
        words += f", deadline in {seconds(due)}" if due > 0 else f", deadline {seconds(-due)} ago"
    yield "job", words + (f"; {count(found.like, 'other job')} like it" if found.like else "")
    if found.solution.schedule is not None:
        hidden = len(found.gets) - SHOWN
        for number_, record in enumerate(found.gets[:SHOWN]):
            start, end = (moment(record[key] - instance.now, "now") for key in ("start", "end"))
            yield "" if number_ else "gets", f"{_place(record)} from {start} to {end}"
        yield from (("", line) for line in more(hidden, "stretch", "stretches", see="--json"))
    elif found.throughput > 0:
        yield (
            "gets",
            f"{rounded(found.throughput)} steps/s: at this rate it ends in "
            f"{seconds(left / found.throughput)}",
        )
    yield from _scaling(found)
    if not found.gets and found.unplaced is None:
        yield "gets", "nothing" + (f": {found.why_nothing}" if found.why_nothing else "")


def _scaling(found: JobExplanation) -> Iterator[tuple[str, str]]:
    """For a job with several possible numbers of GPUs: by how much its rates in a pool are below a
    concave curve.
    """
    by_pool: dict[str, dict[int, float]] = {}
    for way in found.ways:
        where = way.configuration
        if (
            where["pool"] is not None
            and where["gpus"] > 0
            and not {"with", "share", "attributes"} & set(where)
        ):
            rates = by_pool.setdefault(where["pool"], {})
            rates[where["gpus"]] = max(rates.get(where["gpus"], 0.0), way.rate)
    gaps = []
    for pool, rates in by_pool.items():
        counts = sorted(rates)
        if len(counts) > 1:
            curve = [rates[gpus] for gpus in counts]
            gap = float(envelope_gap(curve, concave_envelope(counts, curve, from_zero=True)))
            words = f"at most {percent(gap)} below a concave curve" if gap > CONCAVE else "concave"
            gaps.append(f"{words} in {name(pool)}")
    if gaps:
        yield "scaling", ", ".join(gaps[:MOST_POOLS])


def _place(record: dict[str, Any] | Any) -> str:
    """``2 GPUs of v100 with b (share=0.5)``."""
    if record["pool"] is None:
        uses = record.get("uses", {})
        words = ", ".join(
            f"{number(round(amount, 6))} {name(resource)}" for resource, amount in uses.items()
        )
        return words or "no pool"
    words = f"{count(record['gpus'], 'GPU')} of {name(record['pool'])}"
    words += f" on {record['nodes']} nodes" if record["nodes"] > 1 else ""
    words += f" with {name(record['with'])}" if "with" in record else ""
    extra = {"share": record["share"]} if "share" in record else {}
    extra |= record.get("attributes", {})
    return words + (
        f" ({', '.join(f'{key}={value}' for key, value in extra.items())})" if extra else ""
    )


def _pays(found: JobExplanation) -> Iterator[RenderableType]:
    """Resources that the job holds, and their cost."""
    if not found.pays:
        return
    rows = [[name(item.resource), number(round(item.used, 6))] for item in found.pays]
    if found.no_prices is not None:
        yield table("resource", "holds", rows=rows, title="What it uses")
        return
    for row, item in zip(rows, found.pays, strict=True):
        row += [rounded(item.price or 0.0), rounded(item.paid or 0.0)]
    yield table(
        "resource", "holds", "price of one", "pays", rows=rows, title="What it uses and pays"
    )
    yield worth_words(found.solution, "prices")


def _binding(found: JobExplanation) -> Iterator[RenderableType]:
    """Binding rows, with the gain from relaxing them."""
    eased = {"capacity": "one more is worth", "time": "as much time again would be worth"}
    items = []
    for item in found.binding:
        worth = eased.get(item.row, "easing it by 1 would be worth")
        items.append(item.words + (f": {worth} {rounded(item.price)}" if item.price else ""))
    yield from section("Binding rows", items, SHOWN, "row", see="--json")


def _ways(found: JobExplanation) -> Iterator[RenderableType]:
    """All columns of its class: first those in use, then the others by reduced cost."""
    if not found.ways:
        return
    # Smallest reduced cost first: a small change of prices would bring this column in
    ways = sorted(found.ways, key=lambda way: (not way.in_use, -(way.gain or 0.0)))
    # Reduced costs exist only with duals
    priced = found.no_prices is None and any(way.gain is not None for way in ways)
    cells = {
        "column": [_place({**way.configuration, "uses": way.uses}) for way in ways],
        "value": [optional(way.value, rounded) for way in ways],
        "steps/s": [rounded(way.rate) if way.rate else "" for way in ways],
        "from": [_source(way) for way in ways],
        "takes": [optional(way.seconds, seconds) for way in ways],
        "time": [_share(found, way) for way in ways],
        "too little left": [_lacking(way) for way in ways],
        "reduced cost": [_change(way.gain) if priced else "" for way in ways],
        "needs steps/s": [optional(way.rate_needed, rounded) if priced else "" for way in ways],
    }
    needed = {"column", *(("reduced cost", "needs steps/s") if priced else ())}
    shown = {
        head: column[:SHOWN] for head, column in cells.items() if head in needed or any(column)
    }
    yield table(
        *shown,
        rows=[list(row) for row in zip(*shown.values(), strict=True)],
        title="Configurations",
    )
    yield from more(len(ways) - SHOWN, "column", see="--json")
    if priced:
        yield (
            "reduced cost: change of the objective if the job spent all its time there; "
            "0 where that costs nothing"
        )
        yield from _best(found.best_alternative)
    elif found.no_prices is not None and found.solution.status is not Status.INFEASIBLE:
        yield found.no_prices


def _source(way: Way) -> str:
    """``parametric ± 12 %``: where the rate comes from, if it was not measured or stated."""
    return "" if way.source == "measured" else f"{way.source}{spread(way.log_sd)}"


def _share(found: JobExplanation, way: Way) -> str:
    """The chosen configuration for a plan; else the fraction of time."""
    if not way.in_use:
        return ""
    return "chosen" if found.solution.schedule is not None else percent(way.fraction)


def _lacking(way: Way) -> str:
    """``16 of v100, needs 20``: the missing capacity for a whole job beside the others."""
    lacking = [
        f"{number(round(left, 6))} of {name(resource)}, "
        f"needs {number(round(way.uses[resource], 6))}"
        for resource, left in list(way.lacks.items())[:2]
    ]
    hidden = len(way.lacks) - len(lacking)
    return "; ".join(lacking) + (f" and {hidden} more" if hidden else "")


def _change(gain: float | None) -> str:
    return "" if gain is None else "0" if gain == 0 else rounded(gain)


def _best(way: Way | None) -> Iterator[RenderableType]:
    """The alternative with the smallest reduced cost, as text."""
    if way is None:
        return
    place = _place(way.configuration)
    yield ""
    if way.gain == 0 or way.gain is None:
        yield f"Best alternative: {place}, which is as good as what it has."
        return
    needs = [
        f"the price of {name(resource)} fell below {rounded(price)}" if price > 0 else ""
        for resource, price in (way.prices or {}).items()
    ]
    needs = [words for words in needs if words]
    needs += (
        [f"it ran at more than {rounded(way.rate_needed)} steps/s there"]
        if way.rate_needed is not None
        else []
    )
    if needs:
        yield f"Best alternative: {place}, not worth taking unless {', or '.join(needs)}."
    else:
        yield f"Best alternative: {place}, not worth taking at any price of what it needs."


def _dropped(found: JobExplanation) -> Iterator[RenderableType]:
    """Configurations that cannot run."""
    # For a job without columns the reason is shown above
    if not found.dropped or found.unplaced is not None:
        return
    places = Counter(
        f"{'without a pool' if item['pool'] is None else name(item['pool'])}: {item['reason']}"
        for item in found.dropped
    )
    items = [
        words + (f" ({times:,} columns)" if times > 1 else "") for words, times in places.items()
    ]
    yield from section("Configurations that cannot run", items, SHOWN, "reason", see="--json")
