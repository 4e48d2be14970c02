"""``optsched top``."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

from optsched.cli import values
from optsched.cli.command import Argument, Option
from optsched.cli.options import OUTPUT, Json
from optsched.cli.shell import Shell, colourful
from optsched.errors import InvalidArgument, UsageError

if TYPE_CHECKING:
    from optsched.rounds.watching import Watcher

# Seconds between two looks.
EVERY = 1.0

EXAMPLES = """
    optsched top cluster.journal
    optsched top cluster.journal --once
    optsched top cluster.journal --interval 5s
    optsched top cluster.journal --prometheus > optsched.prom
"""


def top(
    shell: Shell,
    journal: Annotated[str, Argument("JOURNAL", "Folder of a scheduler's journal.")],
    once: Annotated[bool, Option("Show what there is, and end.")] = False,
    interval: Annotated[
        float,
        Option("Between two looks at the journal.", "TIME", read=values.duration, default="1s"),
    ] = EVERY,
    prometheus: Annotated[
        bool,
        Option("Print the figures as Prometheus reads them.", section=OUTPUT),
    ] = False,
    as_json: Json = False,
) -> int:
    """Watch a running scheduler by its journal: rounds, use of the pools, jobs, fallbacks, events.

    Nothing is planned again, and nothing is written: the scheduler does not notice. Ctrl-C ends the view. Without a
    terminal, and with --once, --json or --prometheus, what there is now is printed once.

    Exit codes: 0, also at Ctrl-C, 2 no such journal, 3 the journal is damaged.
    """
    if interval < 0.05:
        raise InvalidArgument("--interval", f"{interval:g}", "at least 0.05 s")
    if as_json and prometheus:
        raise UsageError("--json and --prometheus: one of them")
    from optsched.rounds.watching import Watcher

    with Watcher(journal) as watcher:
        if prometheus:
            shell.write(watcher.metrics.prometheus())
        elif as_json:
            shell.document(_document(watcher))
        elif not shell.quiet:
            _show(shell, watcher, interval, once or not colourful(sys.stdout))
    return 0


def _document(watcher: Watcher) -> dict[str, object]:
    """All figures, the last plan and the last events."""
    last = dict(watcher.plans[-1]) if watcher.plans else None
    if last is not None:
        last.pop("allocation", None)
    figures = {key: value for key, value in watcher.metrics.document().items() if key != "last"}
    events = list(watcher.events)[-20:]
    return {
        "journal": str(watcher.path),
        "policy": watcher.policy,
        **figures,
        "plan": last,
        "events": events,
    }


def _show(shell: Shell, watcher: Watcher, every: float, once: bool) -> None:
    from optsched.cli.top_view import top_view

    if once:
        shell.print(*top_view(watcher, time.time()))
        return
    from rich.console import Group
    from rich.live import Live

    def view() -> Group:
        return Group(*top_view(watcher, time.time(), live.console.width, live.console.height - 1))

    with Live(screen=True, auto_refresh=False) as live:
        try:
            while True:
                live.update(view(), refresh=True)
                time.sleep(every)
                watcher.poll()
        except KeyboardInterrupt:
            # That is how a view ends
            pass
