"""``optsched simulate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from optsched.cli import values
from optsched.cli.options import OUTPUT, Json, ModelFile, check_inputs
from optsched.cli.shell import INTERRUPTED, Shell, check_target
from optsched.cli.simulate_options import (
    Conditions,
    Simulated,
    check_options,
    options_of,
    policies_of,
)
from optsched.cli.sweep_options import (
    RUNNING,
    RowsFile,
    Running,
    begin_anew,
    interrupted_words,
    lines_file,
    table_rows,
)
from optsched.errors import InvalidArgument, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from optsched.benchmarking.simulations import Simulations
    from optsched.instance import Instance
    from optsched.simulation.options import RHO

LIMIT = 5
PAGES = (".html", ".svg", ".png", ".pdf")
EXAMPLES = """
    optsched simulate trace.json --policy max-min-fairness --policy srtf --policy tiresias
    optsched simulate trace.json -p water-filling:hysteresis=0.5 --seeds 5 --noise 0.1 --jobs 2 -o results.csv
    optsched simulate trace.json -p finish-time-fairness --mode gavel --json
    optsched simulate trace.json -p max-min-fairness -p srtf --failures 100 --keep runs --page runs.html
"""


def simulate(
    shell: Shell,
    trace: Annotated[
        str, typer.Argument(metavar="TRACE", help="Trace or instance: file (json, yaml, npz), or @name.")
    ],
    simulated: Simulated,
    conditions: Conditions,
    running: Running,
    model: ModelFile = None,
    time_limit: Annotated[
        str | None, typer.Option(metavar="TIME", help="Of a simulation.", rich_help_panel=RUNNING)
    ] = None,
    memory_limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Of a simulation.", rich_help_panel=RUNNING)
    ] = None,
    rho: Annotated[
        str,
        typer.Option(
            metavar="KIND", rich_help_panel=OUTPUT, show_default=True,
            help="Finish-time ratio: isolated (Themis), contention (Sia) or static (Shockwave).",
        ),
    ] = "isolated",
    unfair: Annotated[
        str, typer.Option(metavar="R", help="A larger ratio is unfair.", rich_help_panel=OUTPUT, show_default=True)
    ] = "1",
    output: RowsFile = None,
    keep: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Keep every simulation there (npz).", rich_help_panel=OUTPUT),
    ] = None,
    page: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", rich_help_panel=OUTPUT,
            help="FILE.html: tables and pictures; .svg, .png or .pdf: pictures. Of what --keep keeps.",
        ),
    ] = None,
    as_json: Json = False,
) -> int:  # fmt: skip
    """Let policies schedule the jobs of a trace, from the first arrival to the last end, and compare what comes of it.

    The same command goes on where it was interrupted or killed, and ends with the same table.

    Exit codes: 0 every simulation came to its end, else the code of the first that failed, 5 if that hit --time-limit;
    130 interrupted; what there is is kept.
    """
    from optsched.benchmarking.forking import few_threads

    few_threads()  # before numpy is loaded
    if trace == "-":
        raise UsageError(
            "TRACE: every simulation reads it anew, so it cannot be standard input: write it to a file"
        )
    check_inputs(trace=trace, model=model, truth=conditions.truth)
    processes = values.whole(running.jobs, "--jobs") or 0
    options, policies = options_of(simulated, conditions), policies_of(simulated.policy)
    lines = lines_file(output)
    _check_page(page, keep)
    from optsched.benchmarking.simulations import Simulations
    from optsched.benchmarking.sources import seeds_of
    from optsched.benchmarking.table import rows_document, write_table
    from optsched.cli.progress import progress
    from optsched.cli.simulate_view import simulate_view
    from optsched.cli.sweep_progress import sweep_line
    from optsched.traces import load_trace

    with progress(shell, "reading"):
        loaded = load_trace(trace)
    models = {
        name: value
        for name, value in (("performance", model), ("truth", conditions.truth))
        if value
    }
    sweep_of = Simulations(
        loaded, trace, policies, seeds_of(values.value(simulated.seeds), 0, "--seeds"), options, models,
        _kind_of_ratio(rho), values.real(unfair, "--unfair") or 0.0, _folder(keep),
        values.duration(time_limit, "--time-limit"), values.size(memory_limit, "--memory-limit"),
    )  # fmt: skip
    check_options(options)
    tasks = sweep_of.tasks()
    if lines is not None and not running.resume:
        begin_anew(lines)
    with sweep_line(shell) as line:
        sweep = sweep_of.run(
            processes=processes, results_file=lines, append=running.append, retry=running.retry,
            on_start=line.on_start,
        )  # fmt: skip
    rows: list[dict[str, Any]] = [dict(row) for row in sweep.rows]
    if output is not None and not output.endswith(".jsonl") and rows:
        write_table(table_rows(rows, lines, running.append), output)
    if page is not None and not sweep.interrupted:
        _draw(sweep_of, rows, page)
    if as_json:
        shell.document(rows_document(rows))
    elif not shell.quiet:
        shell.print(*simulate_view(loaded, rows))
        shell.note(_notes(loaded.instance, policies))
        if page is not None and not sweep.interrupted:
            shell.tell("")
            shell.tell(f"{page} written")
        if output is not None and rows:
            shell.tell("")
            shell.tell(f"results written to {output}")
    if sweep.interrupted:
        shell.complain(interrupted_words(len(rows), len(tasks), output))
        return INTERRUPTED
    codes = [
        LIMIT if row["status"] == "limit" else int(row.get("exit_code") or 1)
        for row in rows
        if row["status"] != "ok"
    ]
    return codes[0] if codes else 0


def _notes(instance: Instance, policies: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A note for every policy that does not read all that the trace states."""
    from optsched.assembly import constraints_in_force, make_formulation
    from optsched.formulation.notes import OF_SIMULATIONS, unread_note
    from optsched.simulation.simulate import policy_of

    for policy in map(policy_of, policies):
        if policy.ranking is not None:
            name, read = policy.ranking, policy.made_ranking().reads
        else:
            in_force = constraints_in_force(instance, policy.constraints)
            formulation = make_formulation(policy.formulation, policy.options, in_force)
            name, read = policy.formulation, formulation.all_reads
        if read is not None and (note := unread_note(name, read | OF_SIMULATIONS, instance)):
            yield note


def _check_page(page: str | None, keep: str | None) -> None:
    """Refuse a page that cannot be made, before anything is simulated."""
    if page is None:
        return
    from pathlib import Path

    from optsched.report.pictures import require_matplotlib

    if Path(page).suffix.lower() not in PAGES:
        raise UsageError(f"--page: {page}: expected a name that ends in {', '.join(PAGES)}")
    if keep is None:
        raise UsageError(
            "--page needs --keep FOLDER: it is made of the simulations that are kept there"
        )
    check_target(page)
    require_matplotlib()


def _draw(sweep: Simulations, rows: list[dict[str, Any]], page: str) -> None:
    """The page, or the pictures, of what came to its end."""
    from optsched.report import write_simulation_page, write_simulation_picture
    from optsched.simulation.files import read_simulation

    kept = [read_simulation(path) for path in sweep.kept(rows)]
    if not kept:
        raise UsageError("--page: no simulation came to its end: there is nothing to draw")
    if page.lower().endswith(".html"):
        write_simulation_page(kept, page, rho=sweep.rho, unfair=sweep.unfair)
    else:
        write_simulation_picture(kept, page)


def _kind_of_ratio(text: str) -> RHO:
    from typing import cast, get_args

    from optsched.simulation.options import RHO

    if text not in get_args(RHO):
        raise InvalidArgument("--rho", repr(text), f"one of {', '.join(get_args(RHO))}")
    return cast("RHO", text)


def _folder(keep: str | None) -> str | None:
    """The folder for simulations, made if it is not there."""
    if keep is None:
        return None
    from pathlib import Path

    try:
        Path(keep).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--keep: {keep}: {error.strerror}") from None
    check_target(str(Path(keep) / "x.npz"))
    return keep
