"""``optsched simulate``: a trace under policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args

from optsched.cli import values
from optsched.cli.command import Argument, Option
from optsched.cli.derived import Fields
from optsched.cli.options import (
    DEFAULT_FORMULATION,
    NOTHING_FOUND,
    OUTPUT,
    PROBLEM,
    Json,
    ModelFile,
)
from optsched.cli.progress import progress
from optsched.cli.rounds import read_policy
from optsched.cli.shell import Shell, check_target, written_to
from optsched.cli.sweeps import RowsFile, TaskOptions, run_sweep, sweep_exit_code, write_rows
from optsched.cli.values import Bytes, Kind, Page, Seconds
from optsched.errors import InvalidArgument, InvalidInput, UsageError, did_you_mean, unknown_name
from optsched.processes import few_threads

if TYPE_CHECKING:
    from optsched.benchmarking.simulations import Simulations
    from optsched.instance import Instance

POLICY_FILES = (".json", ".yaml", ".yml")


def prepare() -> None:
    """Set the number of threads of libraries before numpy is loaded: workers can then be forked."""
    few_threads()


# --- what is simulated ----------------------------------------------------------------------------


def policy_document(text: str) -> dict[str, Any]:
    """``NAME``, ``NAME:key=value,...`` or a file, as a document of `RoundPolicy`."""
    from optsched.formulation.options import own_options, shared_options
    from optsched.registry import load, policy_kind
    from optsched.rounds.policy import RoundPolicy

    if Path(text).suffix.lower() in POLICY_FILES:
        return read_policy(text).model_dump(mode="json", exclude_unset=True)
    name, given = values.named(text, "--policy", "a formulation or a ranking")
    # A key that is not a field of a policy is an option of its formulation or ranking
    known = set(RoundPolicy.model_fields) - {"formulation", "ranking", "options"}
    try:
        kind = policy_kind(name, also=", or a policy file")
    except UsageError as error:
        raise UsageError(f"--policy: {error}") from None
    document: dict[str, Any] = {kind: name}
    if own := {key: value for key, value in given.items() if key not in known}:
        owner = load(kind, name)
        for key in own:
            if key not in owner.Options.model_fields:
                options = [*own_options(owner), *shared_options(owner), *sorted(known)]
                problem = f"--policy: {name} has no option {key!r}"
                hint = did_you_mean(key, [*owner.Options.model_fields, *known])
                raise unknown_name(f"option of {name}", key, options, problem, hint)
        document["options"] = own
    return document | {key: value for key, value in given.items() if key in known}


def _ratio(text: str, option: str) -> str:
    """A kind of finish-time ratio."""
    from optsched.simulation.options import RHO

    return values.choice(*get_args(RHO))(text, option)


Policies = Annotated[
    list[dict[str, Any]],
    Kind(lambda texts, option: [policy_document(text) for text in texts], values.NAMED, many=True),
]


@dataclass(frozen=True)
class SimulatedPolicies:
    """The policies, and how often they are simulated."""

    section: ClassVar = PROBLEM

    policies: Annotated[
        Policies,
        Option(
            "A formulation or a ranking, with its own options or those of rounds "
            "(hysteresis=0.5); or a policy file. Can be repeated.  [default: max-min-fairness]",
            flag="--policy",
            short="-p",
        ),
    ] = field(default_factory=list)
    seeds: Annotated[
        values.Json,
        Option(
            "Seeds of noise, failures and random choices: how many, or which (3..7).",
            "N",
            default="1",
        ),
    ] = "1"


WORLD = "World"
Simulated = Annotated[
    dict[str, Any],
    Fields(
        "optsched.simulation.options:SimulationOptions",
        {
            PROBLEM: "mode round replan warm_up cool_down until reset_interval pool_order",
            WORLD: "noise observe failures repair checkpoint restart_cost",
        },
    ),
]


@dataclass(frozen=True)
class SimulationTasks(TaskOptions):
    """How the simulations are run."""

    time_limit: Annotated[Seconds | None, Option("Time limit of a simulation.")] = None
    memory_limit: Annotated[Bytes | None, Option("Memory limit of a simulation.")] = None


@dataclass(frozen=True)
class ResultOptions:
    """What is measured and kept."""

    section: ClassVar = OUTPUT

    rho: Annotated[
        Any,
        Option("Finish-time ratio: isolated (Themis), contention (Sia) or static (Shockwave)."),
        Kind(_ratio, "KIND"),
    ] = "isolated"
    unfair: Annotated[
        float, Option("A job with a larger ratio is treated unfairly.", "R", default="1")
    ] = 1.0
    output: RowsFile = None
    keep: Annotated[
        str | None, Option("Write every simulation (npz) to this folder.", "FOLDER")
    ] = None
    page: Annotated[
        Page | None,
        Option("FILE.html: tables and pictures; .svg, .png or .pdf: pictures. It needs --keep."),
    ] = None

    def check(self) -> None:
        """Refuse a page without the simulations of which it is made."""
        if self.page is not None and self.keep is None:
            raise UsageError(
                "--page needs --keep FOLDER: it is made of the simulations that are kept there"
            )

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


# --- the command ----------------------------------------------------------------------------------


def simulate(
    shell: Shell,
    trace: Annotated[
        str, Argument("TRACE", "Trace or instance: file (json, yaml, npz), or @name.")
    ],
    policy: SimulatedPolicies,
    *,
    options: Simulated,
    truth: Annotated[
        str | None,
        Option("Performance model by which jobs really run.", "FILE", section=WORLD, source=True),
    ] = None,
    model: ModelFile = None,
    running: SimulationTasks,
    results: ResultOptions,
    as_json: Json = False,
) -> int:
    """Simulate how policies schedule the jobs of a trace, and compare the outcomes.

    A simulation goes from the first arrival to the end of the last job. The same command continues
    where it was interrupted or killed, and ends with the same table.

    Exit codes: 0 every simulation reached its end, else the code of the first that failed, 5 if
    that hit --time-limit; 130 interrupted; the results so far are kept.

    Examples:
        optsched simulate trace.json --policy max-min-fairness --policy srtf --policy tiresias
        optsched simulate trace.json -p water-filling:hysteresis=0.5 --seeds 5 --noise 0.1 --jobs 2 -o results.csv
        optsched simulate trace.json -p finish-time-fairness --mode gavel --json
        optsched simulate trace.json -p max-min-fairness -p srtf --failures 100 --keep runs --page runs.html
    """
    if trace == "-":
        raise UsageError(
            "TRACE: every simulation reads it anew, so it cannot be standard input: "
            "write it to a file"
        )
    # The mode is always a part of a task, because earlier results are found by their tasks
    options = {"mode": "rounds", **options}
    policies = policy.policies or [policy_document(DEFAULT_FORMULATION)]
    results.check()
    from optsched.benchmarking.simulations import Simulations
    from optsched.benchmarking.sources import seeds_of
    from optsched.benchmarking.table import rows_document
    from optsched.cli.sweep_view import simulate_view
    from optsched.traces import load_trace

    with progress(shell, "reading"):
        loaded = load_trace(trace)
    models = {"performance": model, "truth": truth}
    simulations = Simulations(
        loaded,
        trace,
        policies,
        seeds_of(policy.seeds, 0, "--seeds"),
        options,
        {name: file for name, file in models.items() if file},
        results.rho,
        results.unfair,
        results.folder,
        running.time_limit,
        running.memory_limit,
    )
    # Check before any task starts, and report names of options
    _check_options(options)
    sweep = run_sweep(shell, simulations, running, results.output)
    rows = [dict(row) for row in sweep.rows]
    write_rows(rows, results.output, running.append)
    written = []
    # Do not draw an incomplete sweep, which could be mistaken for the whole one
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
        NOTHING_FOUND if row["status"] == "limit" else int(row.get("exit_code") or 1)
        for row in rows
        if row["status"] != "ok"
    ]
    return sweep_exit_code(shell, sweep, len(simulations.tasks()), results.output, failures)


def _check_options(options: dict[str, Any]) -> None:
    """Check the options of a simulation; errors name the flags."""
    from optsched.simulation.options import simulation_options

    try:
        simulation_options(options)
    except InvalidInput as error:
        name = error.path.split(".")[1].replace("_", "-")
        raise InvalidArgument(f"--{name}", error.found, error.expected) from None


def _notes(instance: Instance, policies: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A note for every policy that does not read all that the trace states."""
    from optsched.assembly import formulation_for
    from optsched.formulation.notes import OF_SIMULATIONS, unread_note
    from optsched.simulation.simulate import policy_of

    for policy in map(policy_of, policies):
        if policy.ranking is not None:
            name = policy.ranking
            read = policy.made_ranking().reads
        else:
            name = policy.formulation
            formulation = formulation_for(instance, name, policy.options, policy.constraints)
            read = formulation.all_reads
        if read is not None and (note := unread_note(name, read | OF_SIMULATIONS, instance)):
            yield note


def _draw(sweep: Simulations, rows: list[dict[str, Any]], page: str) -> None:
    """Draw the page or the pictures of the completed simulations."""
    from optsched.report import write_simulation_page, write_simulation_picture
    from optsched.simulation.files import read_simulation

    kept = [read_simulation(path) for path in sweep.kept(rows)]
    if not kept:
        raise UsageError("--page: no simulation reached its end: there is nothing to draw")
    if page.lower().endswith(".html"):
        write_simulation_page(kept, page, rho=sweep.rho, unfair=sweep.unfair)
    else:
        write_simulation_picture(kept, page)
