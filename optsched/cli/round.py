"""``optsched round``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from optsched.cli import values
from optsched.cli.command import Argument, Option
from optsched.cli.options import OUTPUT, PROBLEM, SOLVER, Json, ModelFile, output_option
from optsched.cli.policy_options import PolicyOptions
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, write_document, written_to
from optsched.errors import InvalidArgument, UsageError

if TYPE_CHECKING:
    from optsched.rounds.plan import Plan
    from optsched.rounds.policy import RoundPolicy
    from optsched.rounds.state import RoundState
    from optsched.solvers.isolated import SolverProcess

NOT_PROVEN = 5

EXAMPLES = """
    optsched round @quickstart
    optsched round @quickstart --next state.json
    optsched round state.json --now +6m -o plan.json --next state.json
    optsched round @quickstart --ranking srtf --json | jq .start
    optsched round state.json -f makespan --max-moves 2 --time-limit 1s
    optsched round --schema state > optsched-round.schema.json
"""


@dataclass(frozen=True)
class PlanOutput:
    """Where the plan and the state after it go."""

    section: ClassVar = OUTPUT

    output: Annotated[str | None, output_option("Write the plan.")] = None
    following: Annotated[
        str | None,
        Option(
            "Write the state after the plan is followed.",
            "FILE",
            flag="--next",
            read=values.target,
        ),
    ] = None
    schema: Annotated[
        str | None,
        Option(
            "Print the JSON Schema of a state or a plan instead.",
            "WHAT",
            read=values.choice("state", "plan"),
        ),
    ] = None
    as_json: Json = False

    def check(self) -> None:
        """Refuse two documents on standard output."""
        if self.following == "-" and (self.as_json or self.output == "-"):
            raise UsageError("the plan and the next state cannot both go to standard output")

    def show(self, shell: Shell, state: RoundState, plan: Plan) -> None:
        """Write the files that were asked for, and show the plan where the next state is not shown."""
        from optsched.cli.plan_view import plan_view
        from optsched.rounds.transitions import followed

        after = None if self.following is None else followed(state, plan)
        write_document(plan.to_document, self.output)
        if after is not None:
            write_document(after.to_document, self.following)
            if self.following == "-":
                shell.document(after.to_document())
                return
        shell.answer(
            self.as_json or self.output == "-",
            plan.to_document,
            plan_view(plan, state),
            written=written_to(plan=self.output, next_state=self.following),
        )


def plan_round(
    shell: Shell,
    policy: PolicyOptions,
    output: PlanOutput,
    state: Annotated[
        str | None,
        Argument(
            "STATE",
            "State of a round (json, yaml), or an instance before its first one; - for standard input, or @name.",
            source=True,
        ),
    ] = None,
    now: Annotated[
        str | None,
        Option(
            "When the round begins: s on the state's clock, or +6m after the state's time.",
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
    """Plan one round: what starts, runs on, moves, stops and waits, and why.

    The same state gives the same plan. Give --next back as the STATE of the following round, with --now: what ran has
    then received the time between. Where no solver answers in time, the plan follows the last allocation as far as that
    is possible, and says so.

    Exit codes: 0 there is a plan, 2 usage, 3 invalid input, 5 with --require-optimal: a fallback, or no proof of
    optimality, 130 interrupted.
    """
    if output.schema is not None:
        return _print_schema(shell, output.schema)
    if state is None:
        raise UsageError("missing argument STATE")
    output.check()
    begun, plan = _plan(shell, state, policy, now, model)
    output.show(shell, begun, plan)
    return exit_code(plan, require_optimal)


def _plan(
    shell: Shell, source: str, policy: PolicyOptions, now: str | None, model: str | None
) -> tuple[RoundState, Plan]:
    """The state as it is planned from, and its plan."""
    from optsched.assembly import load
    from optsched.registry import load_solver
    from optsched.rounds.state import state_of
    from optsched.solvers.isolated import SolverProcess, half_of_memory

    # A solver that hangs or runs out of memory must not take the plan with it
    with SolverProcess(load_solver, memory=half_of_memory()) as process:
        # The process loads its solver while the state is read here
        process.load("highs")
        process.start()
        given = state_of(source)
        if model is not None:
            given = replace(given, instance=load(given.instance, model))
        begun = _at(given, policy.applied(given.policy), now)
        if begun.policy.memory_limit is not None:
            process.limit_memory(begun.policy.memory_limit)
        with progress(shell, "planning"):
            return begun, _planned(begun, process)


def _planned(state: RoundState, process: SolverProcess) -> Plan:
    """The plan, by solvers in a process of their own, which is killed when the time of the round is up."""
    from optsched.rounds.policy_checks import check_policy
    from optsched.rounds.solve_round import solve_round

    check_policy(state.policy, state.instance, process.load)
    # Wait for the process: a solver that is missing is an error, and no reason to fall back
    if state.policy.ranking is None:
        process.load("highs" if state.policy.solver == "auto" else state.policy.solver).version()
    return solve_round(state, load=process.load)


def _at(state: RoundState, policy: RoundPolicy, now: str | None) -> RoundState:
    """The state at the time of ``--now``, under a policy."""
    from optsched.instance.documents import LARGEST
    from optsched.rounds.transitions import advanced

    state = replace(state, policy=policy)
    if now is None:
        return state
    # +6m counts from the state's time; a bare number is on its clock
    if now.lstrip().startswith("+"):
        time = state.now + (values.duration(now.lstrip()[1:], "--now") or 0.0)
    else:
        time = values.real(now, "--now") or 0.0
    if time < state.now:
        raise InvalidArgument(
            "--now", f"{time:g}", f"at least {state.now:g}, the time of the state"
        )
    if time > LARGEST:
        raise InvalidArgument("--now", f"{time:g}", f"at most {LARGEST:g} s")
    return advanced(state, time)


def exit_code(plan: Plan, require_optimal: bool) -> int:
    """The exit code that a plan stands for."""
    if not require_optimal:
        return 0
    from optsched.solution import Status

    proven = plan.solution is not None and plan.solution.status is Status.OPTIMAL
    return 0 if proven and plan.fallback is None else NOT_PROVEN


def _print_schema(shell: Shell, what: str) -> int:
    import json

    from optsched.rounds.plan_document import plan_schema
    from optsched.rounds.state_document import state_schema

    shell.write(json.dumps(state_schema() if what == "state" else plan_schema(), indent=1) + "\n")
    return 0
