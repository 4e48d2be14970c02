"""``optsched round``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from optsched.cli import values
from optsched.cli.command import Argument, Option
from optsched.cli.options import OUTPUT, PROBLEM, SOLVER, Json, ModelFile, output_option
from optsched.cli.policy_options import PolicyOptions
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, write_document
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


def plan_round(
    shell: Shell,
    policy: PolicyOptions,
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
    output: Annotated[str | None, output_option("Write the plan.")] = None,
    following: Annotated[
        str | None,
        Option(
            "Write the state after the plan is followed.",
            "FILE",
            flag="--next",
            section=OUTPUT,
            read=values.target,
        ),
    ] = None,
    schema: Annotated[
        str | None,
        Option(
            "Print the JSON Schema of a state or a plan instead.",
            "WHAT",
            section=OUTPUT,
            read=values.choice("state", "plan"),
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Plan one round: what starts, runs on, moves, stops and waits, and why.

    The same state gives the same plan. Give --next back as the STATE of the following round, with --now: what ran has
    then received the time between. Where no solver answers in time, the plan follows the last allocation as far as that
    is possible, and says so.

    Exit codes: 0 there is a plan, 2 usage, 3 invalid input, 5 with --require-optimal: a fallback, or no proof of
    optimality, 130 interrupted.
    """
    if schema is not None:
        return _print_schema(shell, schema)
    if state is None:
        raise UsageError("missing argument STATE")
    if following == "-" and (as_json or output == "-"):
        raise UsageError("the plan and the next state cannot both go to standard output")
    from optsched.assembly import load
    from optsched.cli.plan_view import plan_view
    from optsched.registry import load_solver
    from optsched.rounds.state import state_of
    from optsched.rounds.transitions import followed
    from optsched.solvers.isolated import SolverProcess, half_of_memory

    with SolverProcess(load_solver, memory=half_of_memory()) as process:
        process.load("highs")
        process.start()  # while the state is read
        given = state_of(state)
        if model is not None:
            given = replace(given, instance=load(given.instance, model))
        begun = _at(given, policy.applied(given.policy), now)
        if begun.policy.memory_limit is not None:
            process.limit_memory(begun.policy.memory_limit)
        with progress(shell, "planning"):
            plan = _planned(begun, process)
    after = None if following is None else followed(begun, plan)
    written = []
    if output is not None and output != "-":
        write_document(plan.to_document(), output)
        written.append(f"plan written to {output}")
    if following is not None and following != "-" and after is not None:
        write_document(after.to_document(), following)
        written.append(f"next state written to {following}")
    if following == "-" and after is not None:
        shell.document(after.to_document())
    else:
        shell.answer(
            as_json or output == "-",
            plan.to_document,
            plan_view(plan, begun),
            written=["", *written] if written else (),
        )
    return exit_code(plan, require_optimal)


def _planned(state: RoundState, process: SolverProcess) -> Plan:
    """The plan, by solvers in a process of their own, which is killed when the time of the round is up."""
    from optsched.rounds.policy_checks import check_policy
    from optsched.rounds.solve_round import solve_round

    check_policy(state.policy, state.instance, process.load)
    if (
        state.policy.ranking is None
    ):  # wait for the process; a solver that is missing is no reason to fall back
        process.load("highs" if state.policy.solver == "auto" else state.policy.solver).version()
    return solve_round(state, load=process.load)


def _at(state: RoundState, policy: RoundPolicy, now: str | None) -> RoundState:
    """The state at the time of ``--now``, under a policy."""
    from optsched.instance.documents import LARGEST
    from optsched.rounds.transitions import advanced

    state = replace(state, policy=policy)
    if now is None:
        return state
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
