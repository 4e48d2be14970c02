"""A running scheduler as people watch it, on 24 lines of 80 columns."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from optsched.cli.shell import printable, terminal_width
from optsched.cli.tables import count, facts, heading, name, number, percent, seconds, share
from optsched.rounds.telling import verdict_words, words

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from optsched.rounds.watching import Watcher

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

    width, lines = terminal_width() if width is None else width, LINES if lines is None else lines
    last = watcher.plans[-1] if watcher.plans else watcher.metrics.last
    age = max(now - watcher.written, 0.0)
    rounds = f"round {last['round']:,}" if last else "no round yet"
    yield _cut(heading(f"{name(str(watcher.path))}: {rounds} of {follows(watcher.policy)}"), width)
    clock = f"clock {number(last['now'])} s, " if last else ""
    yield Text(f"{clock}journal written {seconds(age)} ago", style="dim")
    yield Text("")
    pools = list(last["utilisation"].items()) if last else []
    yield from _bars(last, pools, width)
    yield _limited(_facts(watcher, last), width)
    yield Text("")
    yield heading("Events")
    # Events take what the other parts leave of the screen, three lines at least
    room = max(lines - FIXED - min(len(pools), POOLS + 1), 3)
    yield from _events(watcher, room, width)


def follows(policy: dict[str, Any]) -> str:
    """What a policy's rounds follow."""
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
    """Which part of each pool is in use."""
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
    """Whether standard output takes characters that draw bars."""
    try:
        "█░".encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _facts(watcher: Watcher, last: dict[str, Any]) -> Iterator[tuple[str, str]]:
    metrics = watcher.metrics
    if last:
        gpus = last["gpus"]
        part = f" ({percent(last['gpus_in_use'] / gpus)})" if gpus else ""
        yield "GPUs", f"{last['gpus_in_use']:,} of {gpus:,} in use{part}"
        yield "jobs", verdict_words(last["jobs"])
    yield (
        "so far",
        (
            f"{metrics.submitted:,} submitted, {metrics.completed:,} complete, {metrics.cancelled:,} cancelled, "
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
    """How long plans take, and how good the last one is."""
    spent = [record["seconds"] for record in watcher.plans if record["seconds"] is not None]
    if not last or not spent:
        return "none yet"
    parts = [
        f"{seconds(spent[-1])} (median {seconds(statistics.median(spent))}, most {seconds(max(spent))})"
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
    return facts((key, _shortened(printable(text), width - 12)) for key, text in entries)


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _cut(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis" if _drawn() else "crop")
    return text
