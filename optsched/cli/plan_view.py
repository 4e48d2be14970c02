"""The plan of a round as people read it: what starts, runs on, moves, stops and waits, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from optsched.cli.solution_view import (
    certificate_words,
    cluster_words,
    gpus_words,
    objective_facts,
    status_words,
    time_words,
)
from optsched.cli.tables import (
    bullets,
    count,
    facts,
    heading,
    listed,
    more,
    name,
    number,
    percent,
    seconds,
    table,
)
from optsched.registry import objective_words
from optsched.rounds.telling import verdict_words

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from optsched.rounds.plan import Decision, Plan
    from optsched.rounds.state import RoundState

# Rows in the table of what runs, at most.
SHOWN = 20
# Reasons why jobs stop or wait, at most.
WAITING = 10


def plan_view(plan: Plan, state: RoundState) -> Iterator[RenderableType]:
    """The whole plan, part by part."""
    policy = state.policy
    follows = policy.formulation if policy.ranking is None else f"ranking {policy.ranking}"
    yield heading(f"{name(plan.instance.name)}: round {plan.number:,} of {follows}")
    yield count(len(plan.instance.jobs_table), "job")
    yield cluster_words(plan.instance)
    yield ""
    yield facts(_facts(plan))
    yield from _running(plan)
    yield from _reasons("Stops", plan.preempt)
    yield from _reasons("Waits", plan.hold)


def _facts(plan: Plan) -> Iterator[tuple[str, str | Text]]:
    from rich.text import Text

    figures = plan.figures()
    yield (
        "clock",
        f"{number(plan.now)} s to {number(plan.until)} s: {seconds(plan.until - plan.now)}",
    )
    yield "plan", verdict_words(figures["jobs"])
    if plan.fallback is not None:
        yield "fallback", Text(plan.fallback, style="bold yellow")
    if plan.solution is not None:
        solution = plan.solution
        yield "status", status_words(solution.status, solution.termination, "allocation")
        words, unit = objective_words(solution.formulation)
        yield from objective_facts(solution, unit, words)
        yield (
            "certificate",
            certificate_words(solution.certificate, solution.status, True, "allocation"),
        )
    yield "GPUs", gpus_in_use(figures["gpus_in_use"], figures["gpus"], figures["utilisation"])
    if plan.solution is not None:
        yield "warm start", plan.started_from
    if plan.notices:
        yield "notices", "; ".join(plan.notices[:3]) + (" ..." if len(plan.notices) > 3 else "")
    yield "time", time_words(stages(plan.timings))


def gpus_in_use(used: int, gpus: int, by_pool: dict[str, float | None]) -> str:
    """``15 of 16 in use: v100 100 %, p100 75 %``."""
    parts = [f"{name(pool)} {percent(part)}" for pool, part in by_pool.items() if part is not None]
    return f"{used:,} of {gpus:,} in use" + (f": {listed(parts, most=8)}" if parts else "")


def stages(timings: Mapping[str, float]) -> dict[str, float]:
    """Stages that do not overlap, and the total; the stage of the whole allocation is made of others."""
    return {stage: spent for stage, spent in timings.items() if stage != "allocate"}


def _running(plan: Plan) -> Iterator[RenderableType]:
    """What starts, moves and runs on, in this order."""
    kinds = (("starts", plan.start), ("moves", plan.move), ("runs on", plan.keep))
    items = [(words, item) for words, found in kinds for item in found]
    if not items:
        return
    rows = [
        [
            words,
            name(item.job),
            "-" if item.pool is None else gpus_words(item.gpus),
            f"{len(item.gpus):,}",
        ]
        + (
            [", ".join(f"{key} {number(value)}" for key, value in item.setup.stated().items())]
            if plan.setups
            else []
        )
        for words, item in items[:SHOWN]
    ]
    yield table(
        "", "job", "GPUs", "count", *(["configuration"] if plan.setups else []), rows=rows, left=3
    )
    yield from more(len(items) - SHOWN, "job")
    yield from _reasons("Why jobs move", plan.move)


def _reasons(title: str, items: tuple[Decision, ...]) -> Iterator[RenderableType]:
    """Jobs by reason, those with the most jobs first."""
    if not items:
        return
    by_reason: dict[str, list[str]] = {}
    for item in items:
        by_reason.setdefault(item.reason, []).append(item.job)
    reasons = sorted(by_reason.items(), key=lambda entry: -len(entry[1]))
    yield ""
    yield heading(f"{title}: {count(len(items), 'job')}")
    yield bullets(f"{listed(jobs)}: {reason}" for reason, jobs in reasons[:WAITING])
    yield from more(sum(len(jobs) for _, jobs in reasons[WAITING:]), "job")
