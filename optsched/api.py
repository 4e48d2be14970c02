"""The functions that most users call: load, compile, solve, write."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from optsched.assembly import (
    DEFAULT_FORMULATION,
    InstanceSource,
    Performance,
    compile,
    compile_for,
    constraints_in_force,
    default_formulation,
    formulation_for,
    formulation_of,
    load,
    make_constraint,
    make_constraints,
    make_formulation,
    model_of,
    own_constraints,
    reserves_cells,
)
from optsched.candidates import Candidates
from optsched.candidates.compile import not_compiled
from optsched.errors import (
    InvalidArgument,
    OptschedError,
    UsageError,
    cannot_write,
    checks_keywords,
    did_you_mean,
)
from optsched.executors import LOCAL, check_executor
from optsched.formulation import Extend, Formulation
from optsched.formulation.notes import notes_on
from optsched.formulation.promises import (
    notes_after_placement,
    notes_after_rounds,
    notes_on_promises,
)
from optsched.instance import Instance
from optsched.instance.arguments import checks_arguments
from optsched.instance.durations import Duration, OutOfTime, Timer
from optsched.instance.reading import show
from optsched.lazy import no_collection
from optsched.performance import PerformanceModel
from optsched.performance.files import model_bytes
from optsched.registry import load_formulation, load_solver
from optsched.solution import Solution, Status
from optsched.solvers import Progress
from optsched.solvers.interrupt import delayed_interrupt
from optsched.solving.engine import Engine
from optsched.solving.limits import make_limits, timer_of
from optsched.solving.procedures import cut_off

if TYPE_CHECKING:
    from optsched.program.space import TenantCells
    from optsched.solution.solution import Packed
    from optsched.verify.starts import StartSource

log = logging.getLogger("optsched")

MOST_PLACED = 5_000_000
"""Most GPUs of a cluster on which rows are placed: each takes about 60 bytes of memory, used or
not.
"""


@checks_arguments
def solve(
    instance: InstanceSource | Candidates,
    formulation: str | Formulation | None = None,
    *,
    solver: str = "auto",
    constraints: Sequence[Any] = (),
    extend: Extend | None = None,
    model: PerformanceModel | None = None,
    performance: Performance | None = None,
    classes: bool = True,
    time_limit: Duration | Timer | None = None,
    work_limit: int | None = None,
    gap: float | None = None,
    tolerance: float = 1e-9,
    threads: int = 1,
    seed: int = 0,
    start: StartSource | None = None,
    solver_options: Mapping[str, Any] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    prove: bool = False,
    generate_columns: bool = False,
    processes: int = 1,
    executor: str = LOCAL,
    solutions: int = 1,
    on_log: Callable[[str], None] | None = None,
    options: Mapping[str, Any] | None = None,
    **formulation_options: Any,
) -> Solution:
    """Solve an instance with a formulation and certify the answer.

    Parameters
    ----------
    instance : Instance, Candidates, or what `load` takes
    formulation : str or Formulation, optional
        Registry name (default: what a file of a benchmark library belongs to, else
        max-min-fairness), or a formulation with its options and constraints.
    solver : str
        Registry name or ``auto``.
    constraints : sequence
        Side constraints beside those of the instance, or in their place (`SideConstraint.single`):
        kinds, documents or objects.
    extend : callable, optional
        ``extend(program, variables, classes)`` adds extra rows to the lowered linear
        program.
    model : PerformanceModel, optional
        What the throughputs come from, as an object (default: the model that the instance asks
        for).
    performance : mapping or path, optional
        A performance object, or a file that `optsched model fit` wrote, in the place of the
        instance's own.
    classes : bool
        Merge equal jobs (the optimum is the same without).
    time_limit : float or str or Timer, optional
        Seconds from the call, or text such as ``"5m"``, of everything: reading, compiling,
        building, solving, the certificate, and the analysis of what cannot be met. The best that is
        known then is returned. Reading a document and single steps of a solver are counted, but not
        interrupted. Where too little is left for a solver, the status is ``limit``, and ``notes``
        say what took the time.
    work_limit : int, optional
        Iterations, nodes, or conflicts (CP-SAT): stops reproducibly.
    gap : float, optional
        Relative gap at which an integer program may stop.
    start : Solution, file or array, optional
        What the solver starts from: a solution of this or a similar instance (or its file), a
        ``.sol`` file with the names of `optsched export`, or the totals of the class columns. What
        no longer exists is left out. A chosen solver that takes no start is an error; ``auto``
        takes HiGHS. Water filling (``drf`` too), concave totals and fair finish times solve
        programs of their own that no start fits: a warning says that it was not used.
    tolerance : float
        What the solver is asked for; the certificate has its own limits.
    threads : int
        Of the solver.
    seed : int
        Of the solver.
    solver_options : mapping, optional
        Options in the solver's own names.
    on_progress : callable, optional
        Receives a `optsched.solvers.Progress` as the solver runs.
    on_log : callable, optional
        Receives each line of the solver's own log.
    prove : bool
        Try claims of optimality again with another solver or search (`optsched.solving.proof`); the
        certificate then says ``cross-checked``.
    generate_columns : bool
        Leave pairs of jobs that share GPUs, or else configurations of elastic jobs, to column
        generation: only those that are worth it become columns, and the bound is that of all. For
        thousands of different jobs.
    processes : int
        Parts of the program that are solved at a time, each in its own process: those of the
        option ``parts``, and those of ``generate_columns`` where thousands of jobs share GPUs. The
        answer is the same. Other programs are solved in this process.
    executor : str
        Where these are, see `optsched.benchmarking.run_tasks`.
    solutions : int
        How many different solutions to keep of programs in whole jobs and of schedules: the answer,
        and in ``Solution.alternatives`` the best others that the search came across, which may be
        fewer.
    options : mapping, optional
        Options of the formulation, also those whose names are parameters here.
    **formulation_options
        Options of the formulation.

    Returns
    -------
    Solution
        Also for infeasible instances (``status``), with the conflicting requirements; look at
        ``certificate.ok``.

    Raises
    ------
    UsageError, InvalidInput, SolverUnavailable, SolverCrashed, Interrupted
    """
    timer = timer_of(time_limit)
    limits = make_limits(
        timer, work_limit, gap, tolerance, threads, seed, solver_options, on_progress, on_log
    )
    check_executor(executor, processes)
    if solutions < 1:
        raise InvalidArgument("solutions", show(solutions), "a whole number of at least 1")
    if formulation is None:
        instance, formulation = default_formulation(instance)
    if not isinstance(formulation, Formulation):
        _check_options(formulation, options, formulation_options)
    elif options or formulation_options or constraints or extend is not None:
        raise UsageError("a formulation has its options and constraints: give none beside it")
    clock = timer.clock
    started = clock()
    given = _loaded(instance, model, performance)
    loaded = clock()
    timings = {"load": loaded - started}
    read = given.instance if isinstance(given, Candidates) else given
    # The number of jobs is known only now; the time for the caller's answer is estimated from it.
    timer = timer.keeping(len(read.jobs_table)).after_reading()
    if isinstance(formulation, Formulation):
        chosen = formulation
    else:
        wanted = {**(options or {}), **formulation_options}
        chosen = formulation_for(read, formulation, wanted, constraints, extend)
    try:
        candidates = _candidates_for(chosen, given, model, generate_columns, classes, timer)
    except OutOfTime:
        timings |= {"compile": clock() - loaded, "total": clock() - started}
        # No candidates and no solver: a solution with the status `limit`, not an error.
        return cut_off(chosen, not_compiled(read, chosen.plans_ahead), timer, timings)
    timings["compile"] = clock() - loaded
    engine = Engine(
        load_solver,
        solver,
        limits,
        prove,
        timings=timings,
        timer=timer,
        processes=processes,
        executor=executor,
    )
    engine.keep_points(solutions)
    if start is not None:
        from optsched.verify.starts import start_point

        engine.start = start_point(start, chosen, candidates)
    solution = chosen.solve(candidates, engine)
    if generate_columns and _lacks_columns(solution):
        # A job without any of the first columns may have others. They also decide the reasons.
        everything = _candidates_for(chosen, given, model, False, classes, timer)
        solution = chosen.solve(everything, engine)
    _warn_of_unused(engine, chosen.name)
    packed = _packed(solution)
    timings["total"] = clock() - started
    notes = _notes(solution, chosen, wanted=solutions, extended=extend is not None)
    solution = replace(solution, packed=packed, notes=notes, timings=timings)
    # A program that knows nodes has found a placement with its answer.
    knows_nodes = solution.allocation is not None and solution.allocation.seats is not None
    return place(solution, time_limit=timer) if knows_nodes else solution


def _check_options(
    formulation: str, options: Mapping[str, Any] | None, keywords: Iterable[str]
) -> None:
    """Refuse keywords that are neither parameters of `solve` nor options of the formulation."""
    known = load_formulation(formulation).Options.model_fields
    for name in keywords:
        if name not in known:
            hint = did_you_mean(name, [*known, *signature(solve).parameters])
            raise InvalidArgument(
                f"option of {formulation}",
                repr(name),
                f"one of {', '.join(known)}",
                sentence=f"solve has no parameter and {formulation} no option {name!r}{hint}",
            )
    if options is not None and not isinstance(options, Mapping):
        raise InvalidArgument("options", show(options), f"options of {formulation} by name")


def _loaded(
    source: InstanceSource | Candidates,
    model: PerformanceModel | None,
    performance: Performance | None,
) -> Instance | Candidates:
    """The instance of a source; instances and candidates are returned as they are."""
    if performance is not None and (model is not None or isinstance(source, Candidates)):
        raise UsageError(
            "performance replaces the instance's own: give no model or candidates beside it"
        )
    if isinstance(source, Candidates) or (performance is None and isinstance(source, Instance)):
        return source
    return load(source, performance)


def _candidates_for(
    formulation: Formulation,
    given: Instance | Candidates,
    model: PerformanceModel | None,
    generate_columns: bool,
    classes: bool,
    timer: Timer,
) -> Candidates:
    """The candidates that were given, or those of the instance; raises `OutOfTime`."""
    if not isinstance(given, Candidates):
        timer.check()
        found = _compiled(formulation, given, model, generate_columns, timer)
    elif generate_columns:
        raise UsageError(
            "generate_columns needs an instance: candidates have the columns that they have"
        )
    else:
        found = given
    return found if classes else found.per_job()


def _compiled(
    formulation: Formulation,
    instance: Instance,
    model: PerformanceModel | None,
    generate_columns: bool,
    timer: Timer,
) -> Candidates:
    """The candidates of an instance. They are kept in `Instance.compiled` for its next solve, if
    the rates are those that the instance states and all columns are made.

    The rates of other models may change in between, as their files do. Formulations that count on
    future jobs or nodes have other candidates.
    """
    if model is not None or generate_columns or instance.performance != {"model": "table"}:
        return compile_for(formulation, instance, model, generate_columns, timer)
    view = formulation.plans_ahead, formulation.awaits_nodes
    kept: Candidates | None = instance.compiled.get(view)
    if kept is None:
        candidates = compile_for(formulation, instance, timer=timer)
        # Kept without the instance: in a circle of references both would wait for the collector.
        kept = instance.compiled[view] = replace(candidates, instance=None)  # type: ignore[arg-type]
    # A formulation may write into the capacities of an answer: the next solve has its own.
    capacity = kept.resources.capacity.copy()
    return replace(kept, instance=instance, resources=replace(kept.resources, capacity=capacity))


def _lacks_columns(solution: Solution) -> bool:
    """Whether a rule over the first columns calls the instance infeasible: other columns may
    help.
    """
    without_solver = solution.certificate.proof in ("rule", "counted")
    return solution.status is Status.INFEASIBLE and without_solver


def _warn_of_unused(engine: Engine, formulation: str) -> None:
    """Warn of a start or of processes that the solve could not use."""
    if engine.start is not None and not engine.start_used:
        log.warning(
            "the start was of no use: %s was solved without a run that takes one", formulation
        )
    if engine.elsewhere and not engine.in_parts:
        log.warning(
            "other processes were of no use: the program of %s was not solved in parts", formulation
        )


def _notes(
    solution: Solution, formulation: Formulation, *, wanted: int, extended: bool
) -> tuple[str, ...]:
    """The notes of a solution, of which so many were wanted; ``extended`` as of `notes_on`."""
    notes = [*solution.notes, *notes_on(formulation, solution.candidates, extended=extended)]
    if wanted > 1 and not solution.alternatives:
        notes.append("no other solution in whole jobs or of a schedule was found on the way")
    return (*notes, *notes_on_promises(solution))


def _packed(solution: Solution) -> Packed | None:
    """Whether the rows that run at once fit on whole GPUs; None if no row has a share of a GPU."""
    allocation = solution.allocation
    if allocation is None or not (allocation.classes.configurations.share < 1.0).any():
        return None
    from optsched.placement import packed

    with delayed_interrupt():  # Ctrl-C must not lose the answer any more
        return packed(allocation, solution.schedule)


@checks_arguments
@checks_keywords
def realise(
    solution: Solution,
    method: str = "auto",
    *,
    rounds: int | None = None,
    solver: str = "auto",
    time_limit: Duration | Timer | None = None,
    threads: int = 1,
    seed: int = 0,
) -> Solution:
    """Cut the allocation of a solution into slices in which whole jobs run side by side.

    Parameters
    ----------
    solution : Solution
    method : str
        ``auto``, ``open-shop``, ``patterns`` or ``priority``; see `optsched.placement.realise`.
    rounds : int, optional
        Rounds that the window lasts.
    solver : str
        Of the programs of ``patterns``.
    time_limit : float or str, optional
        Seconds, or text such as ``"5m"``; the best slices so far are returned, or where patterns
        had too little time rows side by side, the longest first. ``Rounds.finished`` is false, and
        ``notes`` says so.
    threads, seed
        Of the solver.

    Returns
    -------
    Solution
        The same with ``rounds``; `Rounds.scale` says which share of the allocation they realise.

    Raises
    ------
    UsageError, SolverUnavailable, SolverCrashed
    """
    from optsched.placement import realise as cut

    timer = timer_of(time_limit)
    limits = make_limits(timer, threads=threads, seed=seed)
    if solution.allocation is None:
        raise UsageError(
            f"the solution has no allocation to cut into rounds: its status is {solution.status}"
        )
    if solution.schedule is not None:
        raise UsageError(
            "the solution has a schedule, which says already what runs when: "
            "it cannot be cut into rounds"
        )
    started = time.perf_counter()
    timer = timer.keeping(len(solution.instance.jobs_table))
    engine = Engine(load_solver, solver, limits, timer=timer)
    cells = _reserved_cells(solution)
    made = cut(solution.allocation, engine, method, rounds, solution.constraints, cells)
    spent = time.perf_counter() - started
    total = solution.timings.get("total", 0.0) + spent
    notes = notes_after_rounds(solution.notes)
    if not made.finished and engine.time_left <= 0:
        notes += (f"the time limit of {timer.seconds:g} s stopped the search for rounds",)
    timings = {**solution.timings, "rounds": spent, "total": total}
    return replace(solution, rounds=made, notes=notes, timings=timings)


@checks_arguments
def place(
    solution: Solution,
    rows: Sequence[int] | None = None,
    *,
    time_limit: Duration | Timer | None = None,
) -> Solution:
    """Put what runs first on GPUs of nodes (`optsched.placement.problem` states the rules and the
    objective).

    Parameters
    ----------
    solution : Solution
    rows : sequence of int, optional
        Rows of the allocation (`Allocation.rows`) that run at the same time. By default those of
        the first slice of ``solution.rounds``; without rounds all rows, if they fit at once.
    time_limit : float or str, optional
        Seconds, or text such as ``"5m"``, of the bounds and the exact search. The best placement so
        far is returned, at least that of best fit, and ``exact`` among its figures is 0.

    Returns
    -------
    Solution
        With its ``placement``: GPUs by row, rows refused with the reason, and figures with their
        bounds. Without a time limit the same solution gives the same placement: searches stop after
        `optsched.placement.WORK` nodes, never by the clock.

    Raises
    ------
    UsageError
        There is no allocation, it has no such row, the solution decides layouts of GPUs (MIG), its
        rows take turns and are not realised in rounds, or the cluster has more than 5 million GPUs.
    """
    from optsched.instance.staying import must_stay
    from optsched.placement import WORK, bind_cells, place_rows, runs_first

    started = time.perf_counter()
    if solution.schedule is not None and solution.schedule.layouts is not None:
        raise UsageError(
            f"{solution.formulation} decides the layouts of GPUs, which a placement does not know: "
            "optsched.slices says which slice each job runs in"
        )
    check_placeable(solution.instance)
    timer = timer_of(time_limit)
    limits = make_limits(timer)
    if rows is None:
        wanted = runs_first(solution)
    else:
        count = 0 if solution.allocation is None else len(solution.allocation.rows)
        whole = (int, np.integer)
        wrong = [row for row in rows if not isinstance(row, whole) or not 0 <= row < count]
        if wrong:
            raise InvalidArgument(
                "rows", show(wrong[0]), f"rows of the allocation, which has {count}"
            )
        wanted = np.unique(np.array(rows, np.int64))
    assert solution.allocation is not None
    allocation = solution.allocation
    cells = _reserved_cells(solution)
    bound = bind_cells(solution.instance, cells, must_stay(solution.instance)) if cells else None
    placement = place_rows(
        allocation.classes,
        allocation.rows,
        wanted,
        Engine(load_solver, limits=limits, timer=timer),
        solution.constraints,
        work=WORK,
        seats=allocation.seats,
        cells=bound if allocation.seats is None else None,
    )
    spent = time.perf_counter() - started
    # A second placement replaces the first one, and its time.
    timings = dict(solution.timings)
    total = timings.pop("total", 0.0) - timings.pop("place", 0.0) + spent
    timings |= {"place": spent, "total": total}
    formulation = formulation_of(solution)
    # Placing reads fields that the formulation does not: its notes are made again, others stay.
    before = notes_on(formulation, solution.candidates, extended=solution.extended)
    notes = [note for note in solution.notes if note not in before]
    notes += notes_on(formulation, solution.candidates, placed=True, extended=solution.extended)
    solution = replace(solution, placement=placement, timings=timings, notes=tuple(notes))
    return replace(solution, notes=notes_after_placement(solution))


def _reserved_cells(solution: Solution) -> list[TenantCells]:
    """Cells that the side constraints of a solution reserve for tenants."""
    made = make_constraints(list(filter(reserves_cells, solution.constraints)))
    cells = (constraint.reserves(solution.instance) for constraint in made)
    return [one for one in cells if one is not None]


def check_placeable(instance: Instance) -> None:
    """Refuse a cluster of more GPUs than rows are placed on."""
    gpus = instance.cluster.size
    if gpus > MOST_PLACED:
        raise InvalidArgument(
            "place", f"a cluster of {gpus:,} GPUs", f"at most {MOST_PLACED:,} GPUs of nodes"
        )


@checks_arguments
def write_solution(solution: Solution, path: str | Path, all_duals: bool = False) -> None:
    """Write a solution file: the whole file, or nothing of it.

    Parameters
    ----------
    solution : Solution
    path : str or path
    all_duals : bool
        Write the duals of blocks of more than 100,000 rows too.

    Raises
    ------
    UsageError
        The file cannot be written.
    """
    from optsched.instance.files import pretty_json

    with no_collection():  # a record of each row, and no cycles
        write_atomically(path, pretty_json(solution.to_document(all_duals)).encode())


@checks_arguments
def write_model(document: Mapping[str, Any], path: str | Path) -> None:
    """Write a performance object as a file of a model, atomically; equal objects give equal bytes.

    Parameters
    ----------
    document : mapping
        A performance object, such as `fit_model` returns.
    path : str or path

    Raises
    ------
    UsageError
        The file cannot be written.
    """
    write_atomically(path, model_bytes(document))


def write_atomically(path: str | Path, data: bytes) -> None:
    """Replace a file as a whole, or leave it as it was.

    A link is followed. A device or a pipe is written to, never replaced. An existing file keeps its
    permissions.
    """
    try:
        target = Path(os.path.realpath(path))
    except ValueError as error:  # a null character, or half a surrogate pair
        raise cannot_write(show(str(path)), str(error)) from None
    try:
        # For a directory, the rename below raises the error.
        if target.exists() and not target.is_file() and not target.is_dir():
            target.write_bytes(data)
            return
        mode = target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask()
        # Beside the target, since a file is renamed in one step only within a file system.
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                # On disk before the rename: else a power cut may leave an empty file.
                os.fsync(file.fileno())
            # mkstemp makes files that only their owner may read.
            os.chmod(temporary, mode)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise cannot_write(target, error.strerror) from None


def _umask() -> int:
    # There is no way to read the mask but to set it.
    mask = os.umask(0)
    os.umask(mask)
    return mask


__all__ = [
    "DEFAULT_FORMULATION",
    "InstanceSource",
    "OptschedError",
    "Performance",
    "compile",
    "compile_for",
    "constraints_in_force",
    "default_formulation",
    "formulation_for",
    "load",
    "make_constraint",
    "make_formulation",
    "make_limits",
    "model_of",
    "own_constraints",
    "place",
    "realise",
    "solve",
    "write_atomically",
    "write_model",
    "write_solution",
]
