"""``optsched simulate``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args

from optsched.cli import values
from optsched.cli.command import Argument, Option
from optsched.cli.options import OUTPUT, Json, ModelFile
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, check_target, written_to
from optsched.cli.simulate_options import Conditions, PolicyChoice, check_options, options_of
from optsched.cli.sweep_options import (
    RowsFile,
    SweepRunning,
    run_sweep,
    sweep_exit_code,
    write_rows,
)
from optsched.errors import UsageError
from optsched.processes import few_threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from optsched.benchmarking.simulations import Simulations
    from optsched.instance import Instance

LIMIT = 5
PAGES = (".html", ".svg", ".png", ".pdf")

EXAMPLES = """
    optsched simulate trace.json --policy max-min-fairness --policy srtf --policy tiresias
    optsched simulate trace.json -p water-filling:hysteresis=0.5 --seeds 5 --noise 0.1 --jobs 2 -o results.csv
    optsched simulate trace.json -p finish-time-fairness --mode gavel --json
    optsched simulate trace.json -p max-min-fairness -p srtf --failures 100 --keep runs --page runs.html
"""


def prepare() -> None:
    """Set the number of threads of libraries before numpy is loaded: workers can then be forked."""
    few_threads()


def ratio(text: str, option: str) -> str:
    """A kind of finish-time ratio."""
    from optsched.simulation.options import RHO

    return values.choice(*get_args(RHO))(text, option)


@dataclass(frozen=True)
class RunningSimulations(SweepRunning):
    """How the simulations are run."""

    time_limit: Annotated[
        float | None, Option("Of a simulation.", "TIME", read=values.duration)
    ] = None
    memory_limit: Annotated[float | None, Option("Of a simulation.", "SIZE", read=values.size)] = (
        None
    )


@dataclass(frozen=True)
class ResultOptions:
    """What is measured and kept."""

    section: ClassVar = OUTPUT

    rho: Annotated[
        Any,
        Option(
            "Finish-time ratio: isolated (Themis), contention (Sia) or static (Shockwave).",
            "KIND",
            read=ratio,
        ),
    ] = "isolated"
    unfair: Annotated[float, Option("A larger ratio is unfair.", "R", default="1")] = 1.0
    output: RowsFile = None
    keep: Annotated[str | None, Option("Keep every simulation there (npz).", "FOLDER")] = None
    page: Annotated[
        str | None,
        Option(
            "FILE.html: tables and pictures; .svg, .png or .pdf: pictures. Of what --keep keeps.",
            "FILE",
        ),
    ] = None

    def check_page(self) -> None:
        """Refuse a page that cannot be made, before anything is simulated."""
        if self.page is None:
            return
        from optsched.report.pictures import require_matplotlib

        if Path(self.page).suffix.lower() not in PAGES:
            endings = ", ".join(PAGES)
            raise UsageError(f"--page: {self.page}: expected a name that ends in {endings}")
        if self.keep is None:
            raise UsageError(
                "--page needs --keep FOLDER: it is made of the simulations that are kept there"
            )
        check_target(self.page)
        require_matplotlib()

    @property
    def folder(self) -> str | None:
        """The folder for simulations, made if it does not exist."""
        if self.keep is None:
            return None
        try:
            Path(self.keep).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--keep: {self.keep}: {error.strerror}") from None
        check_target(str(Path(self.keep) / "x.npz"))
        return self.keep


def simulate(
    shell: Shell,
    trace: Annotated[
        str, Argument("TRACE", "Trace or instance: file (json, yaml, npz), or @name.")
    ],
    simulated: PolicyChoice,
    *,
    model: ModelFile = None,
    conditions: Conditions,
    running: RunningSimulations,
    results: ResultOptions,
    as_json: Json = False,
) -> int:
    """Let policies schedule the jobs of a trace, from the first arrival to the last end, and compare what comes of it.

    The same command goes on where it was interrupted or killed, and ends with the same table.

    Exit codes: 0 every simulation came to its end, else the code of the first that failed, 5 if that hit --time-limit;
    130 interrupted; what there is is kept.
    """
    if trace == "-":
        raise UsageError(
            "TRACE: every simulation reads it anew, so it cannot be standard input: write it to a file"
        )
    options, policies = options_of(simulated, conditions), simulated.documents
    results.check_page()
    from optsched.benchmarking.simulations import Simulations
    from optsched.benchmarking.sources import seeds_of
    from optsched.benchmarking.table import rows_document
    from optsched.cli.simulate_view import simulate_view
    from optsched.traces import load_trace

    with progress(shell, "reading"):
        loaded = load_trace(trace)
    models = {"performance": model, "truth": conditions.truth}
    simulations = Simulations(
        loaded,
        trace,
        policies,
        seeds_of(simulated.seeds, 0, "--seeds"),
        options,
        {name: file for name, file in models.items() if file},
        results.rho,
        results.unfair,
        results.folder,
        running.time_limit,
        running.memory_limit,
    )
    # Refused by the names of the command line, before any task starts
    check_options(options)
    sweep = run_sweep(shell, simulations, running, results.output)
    rows: list[dict[str, Any]] = [dict(row) for row in sweep.rows]
    write_rows(rows, results.output, running.append)
    written = []
    # Pictures of a part of the sweep would be taken for those of all
    if results.page is not None and not sweep.interrupted:
        _draw(simulations, rows, results.page)
        written += ["", f"{results.page} written"]
    written += written_to(results=results.output if rows else None)
    shell.answer(
        as_json,
        lambda: rows_document(rows),
        simulate_view(loaded, rows),
        _notes(loaded.instance, policies),
        written,
    )
    failures = [
        LIMIT if row["status"] == "limit" else int(row.get("exit_code") or 1)
        for row in rows
        if row["status"] != "ok"
    ]
    return sweep_exit_code(shell, sweep, len(simulations.tasks()), results.output, failures)


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
