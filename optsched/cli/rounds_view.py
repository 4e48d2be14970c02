"""Rounds as people read them: a plan, the rounds of a journal, and a running scheduler."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optsched.cli.shell import terminal_width
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
    facts,
    heading,
    listed,
    more,
    name,
    number,
    percent,
    seconds,
    section,
    share,
    table,
)
from optsched.display import count, printable, shortened
from optsched.registry import objective_words
from optsched.rounds.telling import verdict_words, words

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from optsched.rounds.plan import Decision, Plan
    from optsched.rounds.state import RoundState
    from optsched.rounds.watching import Watcher
    from optsched.study.explaining import JobExplanation


# --- a plan ---------------------------------------------------------------------------------------

# Rows in the table of what runs, at most.
RUNNING = 20
# Reasons why jobs stop or wait, at most.
WAITING = 10
DONE = {
    "HOLD": "waits",
    "START": "starts",
    "KEEP": "runs on",
    "MOVE": "moves",
    "PREEMPT": "stops",
}
"""What happens to a job, by the name of the verdict."""


def plan_view(plan: Plan, state: RoundState) -> Iterator[RenderableType]:
    """The whole plan, part by part."""
    policy = state.policy
    follows = policy.formulation if policy.ranking is None else f"ranking {policy.ranking}"
    yield heading(f"{name(plan.instance.name)}: round {plan.round:,} of {follows}")
    yield count(len(plan.instance.jobs_table), "job")
    yield cluster_words(plan.instance)
    yield ""
    yield facts(plan_facts(plan))
    yield from _running(plan)
    yield from _reasons("Stops", plan.preempt)
    yield from _reasons("Waits", plan.hold)


def decision_view(item: Decision, found: JobExplanation | None) -> Iterator[RenderableType]:
    """The decision of a plan about one job, and its explanation from the allocation."""
    from optsched.cli.explain_view import job_view

    done = DONE[item.verdict.name]
    where = f" on {gpus_words(item.gpus)}" if item.gpus else ""
    why = f": {item.reason}" if item.reason else ""
    yield f"{name(item.job)} {done}{where} in this round{printable(why)}"
    if found is not None:
        yield ""
        yield from job_view(found)


def plan_facts(plan: Plan) -> Iterator[tuple[str, str | Text]]:
    """Facts about the plan, and its quality."""
    from rich.text import Text

    figures = plan.metrics
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
        objective, unit = objective_words(solution.formulation)
        yield from objective_facts(solution, unit, objective)
        yield (
            "certificate",
            certificate_words(solution.certificate, solution.status, True, "allocation"),
        )
    yield "GPUs", gpus_in_use(figures["gpus_in_use"], figures["gpus"], figures["utilisation"])
    if plan.throughput is not None:
        yield "throughput", str(plan.throughput)
    if plan.fragmentation is not None and plan.fragmentation.words:
        yield "fragmentation", plan.fragmentation.words
    if plan.solution is not None:
        yield "warm start", plan.started_from
    if plan.declined:
        yield "not admitted", listed([name(job) for job, _ in plan.declined], most=8)
    if plan.notices:
        yield "notices", "; ".join(plan.notices[:3]) + (" ..." if len(plan.notices) > 3 else "")
    yield "time", time_words(stages(plan.timings))


def gpus_in_use(used: int, gpus: int, by_pool: dict[str, float | None]) -> str:
    """``15 of 16 in use: v100 100 %, p100 75 %``."""
    parts = [f"{name(pool)} {percent(part)}" for pool, part in by_pool.items() if part is not None]
    return f"{used:,} of {gpus:,} in use" + (f": {listed(parts, most=8)}" if parts else "")


def stages(timings: Mapping[str, float]) -> dict[str, float]:
    """Stages that do not overlap, and the total; the stage of the whole allocation consists of
    others, so it is left out.
    """
    return {stage: spent for stage, spent in timings.items() if stage != "allocate"}


def _running(plan: Plan) -> Iterator[RenderableType]:
    """Jobs that start, move and continue, in this order."""
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
        for words, item in items[:RUNNING]
    ]
    yield table(
        "", "job", "GPUs", "count", *(["configuration"] if plan.setups else []), rows=rows, left=3
    )
    yield from more(len(items) - RUNNING, "job")
    yield from _reasons("Reasons for moves", plan.move)


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


# --- the rounds of a journal ----------------------------------------------------------------------

# Rounds in the list, at most.
ROUNDS = 30


def list_view(
    journal: str, rounds: Sequence[Mapping[str, Any]], changes: Sequence[Mapping[str, Any]]
) -> Iterator[RenderableType]:
    """The rounds, and below them the changes of policy, constraints, tenants and workloads."""
    fell = sum(record["fallback"] is not None for record in rounds)
    yield heading(f"{name(journal)}: {count(len(rounds), 'round')}")
    yield f"{count(fell, 'fallback')} among them" if fell else "no fallbacks"
    if len(rounds) > ROUNDS:
        yield f"the last {ROUNDS} of them (--json lists all):"
    rows = []
    for record in rounds[-ROUNDS:]:
        jobs = record["jobs"]
        gpus = record["gpus"]
        spent = record["seconds"]
        rows.append(
            [
                f"{record['round']:,}",
                number(record["now"]),
                *(f"{jobs[key]:,}" for key in ("start", "keep", "move", "preempt", "hold")),
                percent(record["gpus_in_use"] / gpus) if gpus else "-",
                "-" if spent is None else seconds(spent),
                "fallback" if record["fallback"] is not None else record["status"] or "ranked",
            ]
        )
    columns = ("round", "clock", "start", "keep", "move", "stop", "wait", "GPUs", "time", "status")
    if rows:
        yield table(*columns, rows=rows, left=0)
    lines = [f"{number(record['now'])} s: {printable(words(record))}" for record in changes]
    title = "Changes" if len(lines) <= ROUNDS else f"The last {ROUNDS} changes"
    yield from section(title, lines[-ROUNDS:], ROUNDS)


# --- a running scheduler, on 24 lines of 80 columns -----------------------------------------------

LINES = 24
# Width of a bar.
BAR = 30
# Lines of the view beside pools and events.
FIXED = 11
# Pools with a bar, at most.
POOLS = 6


def top_view(
    watcher: Watcher, now: float, width: int | None = None, lines: int | None = None
) -> Iterator[RenderableType]:
    """The whole view; ``now`` is the time, seconds since 1970."""
    from rich.text import Text

    width = terminal_width() if width is None else width
    lines = LINES if lines is None else lines
    last = watcher.plans[-1] if watcher.plans else watcher.metrics.last
    age = max(now - watcher.written, 0.0)
    rounds = f"round {last['round']:,}" if last else "no round yet"
    yield _cut(heading(f"{name(str(watcher.path))}: {rounds} of {follows(watcher.policy)}"), width)
    clock = f"clock {number(last['now'])} s, " if last else ""
    yield Text(f"{clock}journal written {seconds(age)} ago", style="dim")
    yield Text("")
    pools = list(last["utilisation"].items()) if last else []
    yield from _bars(last, pools, width)
    yield _limited(_watched_facts(watcher, last), width)
    yield Text("")
    yield heading("Events")
    # Events use the rest of the screen, at least three lines
    room = max(lines - FIXED - min(len(pools), POOLS + 1), 3)
    yield from _events(watcher, room, width)


def follows(policy: dict[str, Any]) -> str:
    """The formulation or ranking of a policy."""
    from optsched.rounds.policy import RoundPolicy

    ranking = policy.get("ranking")
    return (
        f"ranking {ranking}"
        if ranking
        else str(policy.get("formulation", RoundPolicy().formulation))
    )


def _bars(
    last: dict[str, Any], pools: list[tuple[str, float | None]], width: int
) -> Iterator[Text]:
    """Bars with the fraction of each pool in use."""
    from rich.text import Text

    if not last:
        return
    full, empty = ("█", "░") if _drawn() else ("#", ".")
    most = max(len(name(pool)) for pool, _ in pools[:POOLS]) if pools else 0
    for pool, part in pools[:POOLS]:
        filled = round(BAR * min(part or 0.0, 1.0))
        use = "no usable GPUs" if part is None else percent(part)
        bar = Text.assemble(
            (f"{name(pool):<{most}}  ", "dim"),
            (full * filled, "green"),
            (empty * (BAR - filled), "dim"),
        )
        yield _cut(bar.append(f"  {use}"), width)
    if len(pools) > POOLS:
        yield Text(f"... and {count(len(pools) - POOLS, 'more pool')} (--json)", style="dim")


def _drawn() -> bool:
    """Whether the encoding of standard output has the characters of bars."""
    try:
        "█░".encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _watched_facts(watcher: Watcher, last: dict[str, Any]) -> Iterator[tuple[str, str]]:
    metrics = watcher.metrics
    if last:
        gpus = last["gpus"]
        part = f" ({percent(last['gpus_in_use'] / gpus)})" if gpus else ""
        yield "GPUs", f"{last['gpus_in_use']:,} of {gpus:,} in use{part}"
        yield "jobs", verdict_words(last["jobs"])
    yield (
        "so far",
        (
            f"{metrics.submitted:,} submitted, {metrics.completed:,} complete, "
            f"{metrics.cancelled:,} cancelled, "
            f"{count(metrics.moves, 'move')}, {count(metrics.preemptions, 'stop')}"
        ),
    )
    yield "plan", _plan_words(watcher, last)
    fell = next(
        (record for record in reversed(watcher.plans) if record["fallback"] is not None), None
    )
    fallbacks = f"{metrics.fallbacks:,} of {count(metrics.rounds, 'round')}"
    yield (
        "fallbacks",
        fallbacks if fell is None else f"{fallbacks}; round {fell['round']:,}: {fell['fallback']}",
    )
    if watcher.plans:
        waiting = [f"{name(job)} {seconds(spent)}" for job, spent in last.get("waiting", ())]
        yield "waiting", ", ".join(waiting) if waiting else "nobody waits longer than a round"


def _plan_words(watcher: Watcher, last: dict[str, Any]) -> str:
    """Durations of plans, and the quality of the last one."""
    spent = [record["seconds"] for record in watcher.plans if record["seconds"] is not None]
    if not last or not spent:
        return "none yet"
    parts = [
        f"{seconds(spent[-1])} (median {seconds(statistics.median(spent))}, "
        f"most {seconds(max(spent))})"
    ]
    parts += [f"gap {share(last['gap'])}"] if last["gap"] is not None else []
    parts += [str(last["status"])] if last.get("status") else []
    return ", ".join(parts)


def _events(watcher: Watcher, room: int, width: int) -> Iterator[Text]:
    """The last events, the newest first."""
    from rich.text import Text

    if not watcher.events:
        yield Text("none lately", style="dim")
    for record in list(watcher.events)[: -room - 1 : -1]:
        yield _cut(Text(f"{number(record['now'])} s  {printable(words(record))}"), width)


def _limited(entries: Iterator[tuple[str, str]], width: int) -> RenderableType:
    """Facts of a line each."""
    return facts((key, shortened(printable(text), width - 12)) for key, text in entries)


def _cut(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis" if _drawn() else "crop")
    return text
