"""``optsched whatif``: the same instance with other capacities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar

from optsched.cli import values
from optsched.cli.command import Option
from optsched.cli.options import (
    DEFAULT_FORMULATION,
    INFEASIBLE,
    NOT_CERTIFIED,
    NOTHING_FOUND,
    PROBLEM,
    Json,
    ManyOptions,
    ProblemOptions,
    Search,
    certificate_failed,
    exit_code,
    solved,
)
from optsched.cli.progress import progress
from optsched.cli.shell import Shell
from optsched.cli.values import Kind
from optsched.errors import InvalidArgument, UsageError

if TYPE_CHECKING:
    from optsched.sensitivity import WhatIf


def _amount(text: str, option: str) -> tuple[str, float]:
    """``v100:8`` as a resource and an amount of it."""
    name, colon, amount = text.rpartition(":")
    name = name.strip()
    if not colon or not name:
        raise InvalidArgument(option, repr(text), "name:amount, such as v100:8 or k80:-4")
    return name, values.real(amount.strip(), f"{option} {name}")


Amounts = Annotated[dict[str, float], Kind(values.by_name(_amount), "NAME:AMOUNT", many=True)]


@dataclass(frozen=True)
class Question:
    """What is asked; one of ``add``, ``ranging``, ``curve`` and ``make_room``."""

    section: ClassVar = PROBLEM

    add: Annotated[
        Amounts,
        Option(
            "GPUs of a pool, or units of a resource of the instance: budget:50 is of a resource "
            "called budget, not of the constraint -C budget. "
            "A negative amount is taken away. Can be "
            "repeated: all together."
        ),
    ] = field(default_factory=dict)
    each: Annotated[bool, Option("Try each --add by itself, in one table.")] = False
    ranging: Annotated[
        bool, Option("Show between which capacities the price of each resource holds.")
    ] = False
    curve: Annotated[
        str | None,
        Option(
            "Show the optimum over all capacities of one resource, with every breakpoint.",
            "RESOURCE",
        ),
    ] = None
    make_room: Annotated[
        str | None,
        Option(
            "Find the fewest, and of these the cheapest, migrations of running jobs that make room "
            "for a job that waits. No formulation is solved.",
            "JOB",
        ),
    ] = None

    def check(self) -> None:
        """Refuse zero or several questions."""
        if self.each and not self.add:
            raise UsageError("--each needs --add")
        asked = [bool(self.add), self.ranging, self.curve is not None, self.make_room is not None]
        if asked.count(True) != 1:
            raise UsageError(
                "expected one of --add NAME:AMOUNT (once or more), --ranging, --curve RESOURCE, "
                "--make-room JOB"
            )


def whatif(
    shell: Shell,
    problem: ProblemOptions,
    search: Search,
    question: Question,
    running: ManyOptions,
    as_json: Json = False,
) -> int:
    """Solve an instance with other capacities, and compare with what the prices predict; or find
    room for a job.

    "change" is the change of the objective when the instance is compiled again with the other
    cluster. "held" is the change when only the capacities differ and all coefficients stay, also
    normalisers that depend on the cluster. "by prices" is price x amount, an upper bound of the
    improvement "held". GPUs are added and removed in whole nodes.

    With --make-room running jobs keep their configurations; those that cannot be preempted stay.

    Exit codes: 0 solved with the other capacities (with --each: at least one of them), or room is
    made; 4 no migration makes room; 5 neither a plan nor a proof was found; else as for `optsched
    solve`.

    Examples:
        optsched whatif @quickstart --add v100:8
        optsched whatif @quickstart -f makespan --add v100:4 --add k80:-2
        optsched whatif @quickstart -f max-throughput --add v100:4 --add p100:4 --add k80:4 --each
        optsched whatif @quickstart -f max-throughput --ranging
        optsched whatif @quickstart -f makespan --curve v100
        optsched whatif cluster.json --make-room job-7
        optsched whatif cluster.json --add budget:50 --json | jq '.changes[0].difference'
    """
    question.check()
    if running != ManyOptions() and not question.each:
        raise UsageError("--jobs and --executor need --each: all else is one task")
    if question.make_room is not None:
        _refuse_formulation(problem)
        return _room(shell, problem, search, question.make_room, as_json)
    if question.add:
        return _changes(shell, problem, search, question, running, as_json)
    return _ranges(shell, problem, search, question.curve, as_json)


def _changes(
    shell: Shell,
    problem: ProblemOptions,
    search: Search,
    question: Question,
    running: ManyOptions,
    as_json: bool,
) -> int:
    from optsched import sensitivity
    from optsched.cli.comparison_view import whatif_view

    with progress(shell, "solving", shown=not search.solver_log) as on_progress:
        found = sensitivity.whatif(
            problem.instance,
            problem.formulation,
            add=question.add,
            each=question.each,
            processes=running.jobs,
            executor=running.executor,
            on_progress=on_progress,
            **problem.given,
            **search.limits,
        )
    code = _exit_code(shell, found)
    if code != NOT_CERTIFIED:
        shell.answer(as_json, found.to_document, whatif_view(found), found.base.notes)
    return code


def _refuse_formulation(problem: ProblemOptions) -> None:
    """Refuse options of a formulation, of which --make-room solves none."""
    given = {
        "-f": problem.formulation != DEFAULT_FORMULATION,
        "-O": bool(problem.options),
        "-C": bool(problem.constraints),
        "--no-classes": problem.no_classes,
    }
    if refused := [flag for flag, is_given in given.items() if is_given]:
        raise UsageError(f"--make-room solves no formulation: leave out {', '.join(refused)}")


def _room(shell: Shell, problem: ProblemOptions, search: Search, job: str, as_json: bool) -> int:
    from optsched.cli.comparison_view import room_view
    from optsched.study.room import make_room

    limits = {key: value for key, value in search.limits.items() if key != "prove"}
    with progress(shell, "searching", shown=not search.solver_log):
        found = make_room(problem.instance, job, performance=problem.model, **limits)
    shell.answer(as_json, found.to_document, room_view(found))
    return 0 if found.possible else INFEASIBLE if found.possible is False else NOTHING_FOUND


def _exit_code(shell: Shell, found: WhatIf) -> int:
    """6 if any certificate failed, else 0 if any change was solved, else the first change's."""
    changed = [change.solution for change in found.changes]
    held = [change.held for change in found.changes if change.held is not None]
    if certificate_failed(shell, found.base, *changed, *held):
        return NOT_CERTIFIED
    codes = [exit_code(solution) for solution in changed]
    return 0 if 0 in codes else codes[0]


def _ranges(
    shell: Shell, problem: ProblemOptions, search: Search, curve: str | None, as_json: bool
) -> int:
    from optsched import sensitivity
    from optsched.cli import comparison_view as view
    from optsched.solution import Status

    solution = solved(shell, problem, search)
    code = exit_code(solution)
    if certificate_failed(shell, solution):
        return code
    if solution.status is not Status.OPTIMAL:
        shell.complain(
            f"error: the solution is {solution.status}: only an optimal solution has prices"
        )
        return code or exit_code(solution, require_optimal=True)
    not_of_ranges = ("prove", "gap", "work_limit")
    given = {key: value for key, value in search.limits.items() if key not in not_of_ranges}
    with progress(shell, "ranging", shown=not search.solver_log):
        if curve is not None:
            drawn = sensitivity.capacity_curve(solution, curve, **given)
            document = view.curve_document(solution, drawn)
            shown = view.curve_view(solution, drawn)
        else:
            ranges = sensitivity.capacity_ranging(solution, **given)
            document = view.ranging_document(solution, ranges)
            shown = view.ranging_view(solution, ranges)
    shell.answer(as_json, lambda: document, shown, solution.notes)
    return 0
