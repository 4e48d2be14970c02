"""``optsched replay``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from optsched.cli import values
from optsched.cli.command import Argument, Option
from optsched.cli.options import OUTPUT, Json
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, write_document, written_to
from optsched.errors import InvalidArgument, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

# Rounds in the list, at most.
SHOWN = 30

EXAMPLES = """
    optsched replay cluster.journal --list
    optsched replay cluster.journal
    optsched replay cluster.journal --round 812 -o plan.json --instance instance.json
    optsched replay cluster.journal --round 812 --state state.json
"""


def target_file(path: str, option: str) -> str:
    """A file that can be written; standard output is for the plan alone."""
    if path == "-":
        raise UsageError("expected a file to write; --json prints the plan")
    return values.target(path, option)


def replay(
    shell: Shell,
    journal: Annotated[str, Argument("JOURNAL", "Folder of a scheduler's journal.")],
    round: Annotated[int | None, Option("Which round.  [default: the last one]", "N")] = None,
    listing: Annotated[
        bool, Option("Only list the rounds that were planned.", flag="--list")
    ] = False,
    output: Annotated[
        str | None, Option("Write the plan.", "FILE", short="-o", section=OUTPUT, read=target_file)
    ] = None,
    instance: Annotated[
        str | None,
        Option(
            "Write the instance (json, yaml, npz) that was planned for.",
            "FILE",
            section=OUTPUT,
            read=target_file,
        ),
    ] = None,
    state: Annotated[
        str | None,
        Option(
            "Write the state that was planned from: `optsched round` takes it.",
            "FILE",
            section=OUTPUT,
            read=target_file,
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Plan a round of a journal again, and check that the plan is the one that was followed then.

    The journal is only read, and may be in use. Rounds before the oldest snapshot that was kept are gone.

    Exit codes: 0 the plan is the same, 2 no such journal or round, 3 the journal is damaged, 6 the plan is another one
    here, as with another version of a solver.
    """
    if listing:
        if round is not None or any(target is not None for target in (output, instance, state)):
            raise UsageError("--list only lists: give no round and no file with it")
        return _list(shell, journal, as_json)
    if round is not None and round < 0:
        raise InvalidArgument("--round", str(round), "0 or more")
    from optsched.api import write_atomically
    from optsched.cli.plan_view import plan_view
    from optsched.instance import instance_bytes
    from optsched.instance.files import kind_of
    from optsched.rounds.recovery import replay as planned_again

    # Refused before the round is planned again, which may take minutes
    kind = "" if instance is None else kind_of(Path(instance))
    with progress(shell, "replaying"):
        found = planned_again(journal, round)
    write_document(found.plan.to_document, output)
    if instance is not None:
        write_atomically(instance, instance_bytes(found.state.instance, kind))
    write_document(found.state.to_document, state)
    shell.answer(
        as_json,
        found.plan.to_document,
        plan_view(found.plan, found.state),
        written=written_to(plan=output, instance=instance, state=state),
    )
    return 0


FIELDS = (
    "round",
    "now",
    "jobs",
    "gpus",
    "gpus_in_use",
    "status",
    "objective",
    "gap",
    "fallback",
    "seconds",
    "digest",
)


def _list(shell: Shell, journal: str, as_json: bool) -> int:
    from optsched.rounds.watching import planned

    # The allocation of a round is large, and no part of a list
    rounds = [{key: record[key] for key in FIELDS} for record in planned(journal)]
    shell.answer(as_json, lambda: {"journal": journal, "rounds": rounds}, _view(journal, rounds))
    return 0


def _view(journal: str, rounds: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    from optsched.cli.tables import count, heading, number, seconds, table
    from optsched.cli.tables import name as named

    fell = sum(record["fallback"] is not None for record in rounds)
    yield heading(f"{named(journal)}: {count(len(rounds), 'round')}")
    yield f"{count(fell, 'fallback')} among them" if fell else "no fallbacks"
    if len(rounds) > SHOWN:
        yield f"the last {SHOWN} of them (--json tells all):"
    rows = []
    for record in rounds[-SHOWN:]:
        jobs, gpus = record["jobs"], record["gpus"]
        spent = record["seconds"]
        rows.append(
            [
                f"{record['round']:,}",
                number(record["now"]),
                f"{jobs['start']:,}",
                f"{jobs['keep']:,}",
                f"{jobs['move']:,}",
                f"{jobs['preempt']:,}",
                f"{jobs['hold']:,}",
                f"{record['gpus_in_use'] / gpus:.0%}" if gpus else "-",
                "-" if spent is None else seconds(spent),
                "fallback" if record["fallback"] is not None else record["status"] or "ranked",
            ]
        )
    columns = ("round", "clock", "start", "keep", "move", "stop", "wait", "GPUs", "time", "status")
    if rows:
        yield table(*columns, rows=rows, left=0)
