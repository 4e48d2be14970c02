"""The commands on rounds: ``optsched round``, ``optsched replay``, ``optsched top``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from optsched.cli import values
from optsched.cli.command import Argument, Option
from optsched.cli.derived import Fields
from optsched.cli.options import (
    NOTHING_FOUND,
    OUTPUT,
    PROBLEM,
    SOLVER,
    Json,
    ModelFile,
    constraints_option,
    formulation_option,
    given_fields,
    output_option,
    settings_option,
)
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, colourful, write_document, written_to
from optsched.cli.values import Constraints, JsonTarget, Kind, Name, Seconds, Settings
from optsched.errors import InvalidArgument, InvalidInput, UsageError

if TYPE_CHECKING:
    from optsched.rounds.plan import Plan
    from optsched.rounds.policy import RoundPolicy
    from optsched.rounds.state import RoundState
    from optsched.rounds.watching import Watcher
    from optsched.solvers.isolated import SolverProcess

Journal = Annotated[str, Argument("JOURNAL", "Folder of a scheduler's journal.")]


# --- policies -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RoundsPolicy:
    """The policy of the file or the state, with changes from options."""

    section: ClassVar = PROBLEM

    policy_file: Annotated[
        str | None,
        Option(
            "Policy (json, yaml) instead of the state's; further options change it.",
            "FILE",
            source=True,
        ),
    ] = None
    formulation: Annotated[
        Name | None, formulation_option("What the rounds follow: see `optsched formulations`.")
    ] = None
    ranking: Annotated[
        Name | None,
        Option("Follow an order of the jobs instead, such as fcfs or srtf; no program is solved."),
    ] = None
    options: Annotated[
        Settings | None,
        settings_option("Option of the formulation or the ranking. Can be repeated."),
    ] = None
    constraints: Annotated[
        Constraints | None,
        constraints_option(
            "Side constraint in addition to those of the instance. Can be repeated."
        ),
    ] = None

    def applied(self, policy: RoundPolicy, rules: dict[str, Any]) -> RoundPolicy:
        """A policy with these fields and rules; raises `UsageError` and `InvalidInput`."""
        from optsched.instance.reading import validate
        from optsched.rounds.policy import RoundPolicy

        if self.formulation is not None and self.ranking is not None:
            raise UsageError("--formulation and --ranking: a formulation or a ranking, not both")
        given = given_fields(self, "policy_file") | rules
        if self.policy_file is not None:
            policy = read_policy(self.policy_file)
        if not given:
            return policy
        # Keep fields unset that the file leaves out, so that they keep their defaults
        document = policy.model_dump(mode="json", exclude_unset=True)
        # Options belong to the formulation or ranking for which they were given
        if "formulation" in given or "ranking" in given:
            for name in ("formulation", "ranking", "options"):
                document.pop(name, None)
        return validate(RoundPolicy, document | given, "policy")


Rules = Annotated[
    dict[str, Any],
    Fields(
        "optsched.rounds.policy:RoundPolicy",
        {
            SOLVER: "solver seed time_limit work_limit gap threads memory_limit",
            "Policy": "hysteresis max_moves moves_per_hour patience",
        },
    ),
]


def read_policy(source: str) -> RoundPolicy:
    """A policy from a file; ``-`` is standard input."""
    from optsched.instance.files import read_document
    from optsched.instance.reading import show, validate
    from optsched.rounds.policy import RoundPolicy

    def policy_of(document: Any) -> RoundPolicy:
        if not isinstance(document, Mapping):
            raise InvalidInput("", show(document), "an object with the keys of a policy")
        return validate(RoundPolicy, document)

    return read_document(source, "policy", policy_of)


# --- optsched round -------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlanOutput:
    """Where the plan and the state after it go."""

    section: ClassVar = OUTPUT

    output: Annotated[JsonTarget | None, output_option("Write the plan.")] = None
    following: Annotated[
        JsonTarget | None,
        Option("Write the state after the plan is followed.", flag="--next", replaces=True),
    ] = None
    schema: Annotated[
        str | None,
        Option("Print the JSON Schema of a state or a plan instead."),
        Kind(values.choice("state", "plan"), "WHAT"),
    ] = None
    job: Annotated[
        str | None,
        Option("Show this job alone: what happens to it and why, its other configurations.", "ID"),
    ] = None
    as_json: Json = False

    def check(self) -> None:
        """Refuse two documents on standard output."""
        if self.following == "-" and (self.as_json or self.output == "-"):
            raise UsageError("the plan and the next state cannot both go to standard output")
        if self.job is not None and "-" in (self.following, self.output):
            raise UsageError("--job: one job is shown, so the plan and the next state go to files")

    def show(self, shell: Shell, state: RoundState, plan: Plan) -> None:
        """Write the requested files, and show the plan unless the next state is shown."""
        from optsched.cli.rounds_view import decision_view, plan_view
        from optsched.rounds.transitions import followed
        from optsched.study import explain_job

        after = None if self.following is None else followed(state, plan)
        write_document(plan.to_document, self.output)
        if after is not None:
            write_document(after.to_document, self.following)
            if self.following == "-":
                shell.document(after.to_document())
                return
        written = written_to(plan=self.output, next_state=self.following)
        if self.job is not None:
            decision = plan.decision(self.job)
            # Without a solution (under a ranking, for example) there are no other configurations to
            # explain
            found = None if plan.solution is None else explain_job(plan.solution, self.job)
            document = decision.to_document() | {"explanation": found and found.to_document()}
            view = decision_view(decision, found)
            shell.answer(self.as_json, lambda: document, view, written=written)
            return
        shell.answer(
            self.as_json or self.output == "-",
            plan.to_document,
            plan_view(plan, state),
            written=written,
        )


def plan_round(
    shell: Shell,
    policy: RoundsPolicy,
    rules: Rules,
    output: PlanOutput,
    state: Annotated[
        str | None,
        Argument(
            "STATE",
            "State of a round (json, yaml), or an instance before its first one; - for standard "
            "input, or @name.",
            source=True,
        ),
    ] = None,
    now: Annotated[
        str | None,
        Option(
            "When the round begins: seconds on the state's clock, or +6m after the state's time.",
            "TIME",
            section=PROBLEM,
        ),
    ] = None,
    model: ModelFile = None,
    require_optimal: Annotated[
        bool,
        Option("Exit 5 if the plan falls back, or optimality is not proven.", section=SOLVER),
    ] = False,
) -> int:
    """Plan one round: which jobs start, continue, move, are preempted or wait, and why.

    The same state gives the same plan. The file that --next writes is the STATE of the following
    round; its --now says how much time has passed. Where no solver answers in time, the plan
    follows the last allocation as far as that is possible, and says so.

    Exit codes: 0 there is a plan, 2 usage, 3 invalid input, 5 with --require-optimal: a fallback,
    or no proof of optimality, 130 interrupted.

    Examples:
        optsched round @quickstart
        optsched round @quickstart --next state.json
        optsched round state.json --now +6m -o plan.json --next state.json
        optsched round state.json --job bert-base-2
        optsched round @quickstart --ranking srtf --json | jq .start
        optsched round state.json -f makespan --max-moves 2 --time-limit 1s
        optsched round --schema state > optsched-round.schema.json
    """
    if output.schema is not None:
        return _print_schema(shell, output.schema)
    if state is None:
        raise UsageError("missing argument STATE")
    output.check()

    def applied(before: RoundPolicy) -> RoundPolicy:
        return policy.applied(before, rules)

    begun, plan = _plan(shell, state, applied, now, model)
    output.show(shell, begun, plan)
    if not require_optimal:
        return 0
    from optsched.solution import Status

    proven = plan.solution is not None and plan.solution.status is Status.OPTIMAL
    return 0 if proven and plan.fallback is None else NOTHING_FOUND


def _plan(
    shell: Shell,
    source: str,
    applied: Callable[[RoundPolicy], RoundPolicy],
    now: str | None,
    model: str | None,
) -> tuple[RoundState, Plan]:
    """The state from which the plan is made, and the plan; ``applied`` changes the policy of the
    state.
    """
    from optsched.assembly import load
    from optsched.registry import load_solver
    from optsched.rounds.state import state_of
    from optsched.solvers.isolated import SolverProcess, half_of_memory

    # Use a process, so that the plan survives a solver that hangs or runs out of memory
    with SolverProcess(load_solver, memory=half_of_memory()) as process:
        # Start the process now, so that it loads its solver while the state is read
        process.load("highs")
        process.start()
        given = state_of(source)
        if model is not None:
            given = replace(given, instance=load(given.instance, model))
        begun = _at(given, applied(given.policy), now)
        if begun.policy.memory_limit is not None:
            process.limit_memory(begun.policy.memory_limit)
        with progress(shell, "planning"):
            return begun, _planned(begun, process)


def _planned(state: RoundState, process: SolverProcess) -> Plan:
    """The plan, by solvers in a separate process that is killed when the time is up."""
    from optsched.rounds.allocation import check_policy
    from optsched.rounds.solve_round import solve_round

    check_policy(state.policy, state.instance, process.load)
    # Wait for the process, because a missing solver is an error, not a reason to fall back
    if state.policy.ranking is None:
        process.load("highs" if state.policy.solver == "auto" else state.policy.solver).version()
    return solve_round(state, load=process.load)


def _at(state: RoundState, policy: RoundPolicy, now: str | None) -> RoundState:
    """The state at the time of ``--now``, under a policy."""
    from optsched.instance.documents import LARGEST
    from optsched.rounds.changes import advanced

    if now is None:
        return state.under(policy)
    # +6m is relative to the time of the state; a plain number is a time on its clock
    if now.lstrip().startswith("+"):
        time = state.now + values.duration(now.lstrip()[1:], "--now")
    else:
        time = values.real(now, "--now")
    if time < state.now:
        raise InvalidArgument(
            "--now", f"{time:g}", f"at least {state.now:g}, the time of the state"
        )
    if time > LARGEST:
        raise InvalidArgument("--now", f"{time:g}", f"at most {LARGEST:g} s")
    return advanced(state, time).under(policy)


def _print_schema(shell: Shell, what: str) -> int:
    import json

    from optsched.rounds.plan_document import plan_schema
    from optsched.rounds.state import state_schema

    shell.write(json.dumps(state_schema() if what == "state" else plan_schema(), indent=1) + "\n")
    return 0


# --- optsched replay ------------------------------------------------------------------------------


def _file(path: str, option: str) -> str:
    """A file that can be written; standard output is reserved for the plan."""
    if path == "-":
        raise UsageError("expected a file to write; --json prints the plan")
    return values.target(path, option)


File = Annotated[str, Kind(_file, "FILE", writes=True)]


@dataclass(frozen=True)
class ReplayFiles:
    """What is written of the round."""

    section: ClassVar = OUTPUT

    output: Annotated[File | None, output_option("Write the plan.")] = None
    instance: Annotated[
        File | None, Option("Write the instance of the round (json, yaml, npz).")
    ] = None
    state: Annotated[
        File | None,
        Option("Write the state before the round, which `optsched round` reads."),
    ] = None


def replay(
    shell: Shell,
    journal: Journal,
    files: ReplayFiles,
    round: Annotated[int | None, Option("Which round.  [default: the last one]")] = None,
    listing: Annotated[
        bool,
        Option(
            "Only list the rounds that were planned, and what changed their rules.", flag="--list"
        ),
    ] = False,
    as_json: Json = False,
) -> int:
    """Plan a round of a journal again, and check that the plan is the same as then.

    The journal is only read, and may be in use. Rounds before the oldest snapshot that was kept are
    gone.

    Exit codes: 0 the plan is the same, 2 no such journal or round, 3 the journal is damaged, 6 the
    plan is different here, as with another version of a solver.

    Examples:
        optsched replay cluster.journal --list
        optsched replay cluster.journal
        optsched replay cluster.journal --round 812 -o plan.json --instance instance.json
        optsched replay cluster.journal --round 812 --state state.json
    """
    if listing:
        if round is not None or files != ReplayFiles():
            raise UsageError("--list only lists: give no round and no file with it")
        return _list(shell, journal, as_json)
    if round is not None and round < 0:
        raise InvalidArgument("--round", str(round), "0 or more")
    from optsched.api import write_atomically
    from optsched.cli.rounds_view import plan_view
    from optsched.instance import instance_bytes
    from optsched.instance.files import kind_of
    from optsched.rounds.recovery import replay as planned_again

    # Check this before planning the round again, which may take minutes
    kind = "" if files.instance is None else kind_of(Path(files.instance))
    with progress(shell, "replaying"):
        found = planned_again(journal, round)
    write_document(found.plan.to_document, files.output)
    if files.instance is not None:
        write_atomically(files.instance, instance_bytes(found.state.instance, kind))
    write_document(found.state.to_document, files.state)
    shell.answer(
        as_json,
        found.plan.to_document,
        plan_view(found.plan, found.state),
        written=written_to(plan=files.output, instance=files.instance, state=files.state),
    )
    return 0


# Fields of a round in a list; its allocation is too large for a list.
LISTED = (
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
    from optsched.cli.rounds_view import list_view
    from optsched.rounds.watching import planned

    rounds = []
    changes = []
    for record in planned(journal):
        if record["event"] == "plan":
            rounds.append({key: record[key] for key in LISTED})
        else:
            changes.append(record)
    document = {"journal": journal, "rounds": rounds, "changes": changes}
    shell.answer(as_json, lambda: document, list_view(journal, rounds, changes))
    return 0


# --- optsched top ---------------------------------------------------------------------------------


def top(
    shell: Shell,
    journal: Journal,
    once: Annotated[bool, Option("Show the current state once, and end.")] = False,
    interval: Annotated[
        Seconds, Option("Time between two looks at the journal.", default="1s")
    ] = 1.0,
    prometheus: Annotated[
        bool, Option("Print the figures in the format of Prometheus.", section=OUTPUT)
    ] = False,
    as_json: Json = False,
) -> int:
    """Watch a running scheduler by its journal: rounds, use of the pools, jobs, fallbacks, events.

    Nothing is planned again, and nothing is written: the scheduler is not disturbed. Ctrl-C ends
    the view. Without a terminal, and with --once, --json or --prometheus, the current state is
    printed once.

    Exit codes: 0, also at Ctrl-C, 2 no such journal, 3 the journal is damaged.

    Examples:
        optsched top cluster.journal
        optsched top cluster.journal --once
        optsched top cluster.journal --interval 5s
        optsched top cluster.journal --prometheus > optsched.prom
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
            shell.document(_watched(watcher))
        elif not shell.quiet:
            _show(shell, watcher, interval, once or not colourful(sys.stdout))
    return 0


def _watched(watcher: Watcher) -> dict[str, Any]:
    """All figures, the last plan and the last events."""
    last = dict(watcher.plans[-1]) if watcher.plans else None
    if last is not None:
        last.pop("allocation", None)
    figures = {key: value for key, value in asdict(watcher.metrics).items() if key != "last"}
    return {
        "journal": str(watcher.path),
        "policy": watcher.policy,
        **figures,
        "plan": last,
        "events": list(watcher.events)[-20:],
    }


def _show(shell: Shell, watcher: Watcher, every: float, once: bool) -> None:
    from optsched.cli.rounds_view import top_view

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
            # Ctrl-C is the normal end of the view
            pass
