"""The worker of a benchmark:
reads an instance or a program, solves it, and says everything in a row.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from optsched.api import compile_for, formulation_for, load, solve
from optsched.arrays import finite
from optsched.formats.mps import read_program
from optsched.generate.catalogue import generate
from optsched.instance import Instance
from optsched.instance.durations import Timer
from optsched.registry import load_formulation, load_solver
from optsched.solution import Solution, Status
from optsched.study.direct import ProgramSolution, solve_program

NOT_CERTIFIED = 6
NEXT_NOTE = " / "
"""Between the notes on one answer."""
STAGES = ("load", "compile", "build", "solve", "certify")


def prepare_solve(spec: Mapping[str, Any]) -> None:
    """Import what a task needs, so that its times are those of its work."""
    if spec["formulation"] is not None:
        load_formulation(spec["formulation"])
    load_solver("highs" if spec["solver"] == "auto" else spec["solver"]).version()


def solve_task(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Do one task of a benchmark; `optsched.benchmarking.sweep` makes the content.

    The time limit is that of the whole task: the solver has what reading and compiling leave of it.
    """
    timer = Timer.after(spec["time_limit"])
    row_of = _program_row if spec["formulation"] is None else _instance_row
    return row_of(spec, timer, time.perf_counter())


def _instance_row(spec: Mapping[str, Any], timer: Timer, started: float) -> dict[str, Any]:
    instance = _instance(spec["instance"])
    loaded = time.perf_counter()
    named = (spec["formulation"], spec["options"], spec["constraints"])
    formulation = formulation_for(instance, *named)
    size = {
        "sha256": instance.sha256,
        "n": len(instance.jobs_table),
        "m": len(instance.cluster.pools),
    }
    candidates = compile_for(formulation, instance)
    compiled = time.perf_counter()
    spent = {"load": loaded - started, "compile": compiled - loaded}
    # Compiling may have taken it all: no solver is called with nothing left.
    if timer.left <= 0:
        return {**size, **_too_late(spent)}
    solution = solve(
        candidates,
        spec["formulation"],
        options=spec["options"],
        constraints=spec["constraints"],
        **_search(spec, timer),
    )
    if solution.allocation is not None:
        # Of the solution: some formulations leave columns out, or make more on demand.
        classes = solution.allocation.classes
        size |= {"classes": len(classes), "columns": classes.columns}
    row = {**size, **_answer(solution, spent, time.perf_counter() - started)}
    return {**row, "notes": NEXT_NOTE.join(solution.notes)} if solution.notes else row


def _program_row(spec: Mapping[str, Any], timer: Timer, started: float) -> dict[str, Any]:
    program = read_program(spec["instance"]["file"])
    loaded = time.perf_counter()
    rows, columns = program.arrays.shape
    size = {"sha256": spec["instance"]["sha256"], "n": columns, "m": rows, "columns": columns}
    if timer.left <= 0:
        return {**size, **_too_late({"load": loaded - started})}
    solution = solve_program(program, **_search(spec, timer))
    return {**size, **_answer(solution, {"load": loaded - started}, time.perf_counter() - started)}


def _instance(content: Mapping[str, Any]) -> Instance:
    if "generate" in content:
        return generate(content["generate"], **content["options"]).instance
    return load(f"@{content['shipped']}" if "shipped" in content else content["file"])


def _search(spec: Mapping[str, Any], timer: Timer) -> dict[str, Any]:
    given = {
        key: spec[key]
        for key in ("solver", "work_limit", "gap", "threads", "seed", "solver_options")
    }
    return {**given, "time_limit": timer}


def _too_late(spent: Mapping[str, float]) -> dict[str, Any]:
    return {
        "status": str(Status.LIMIT),
        "error": "the time limit was over before the solver could begin",
        **_seconds(spent, sum(spent.values())),
    }


def _answer(
    solution: Solution | ProgramSolution, spent: Mapping[str, float], total: float
) -> dict[str, Any]:
    """What every answer tells, of an instance or of a program."""
    certificate = solution.certificate
    row = {
        "solver_used": solution.solver.name,
        "solver_version": solution.solver.version,
        "status": str(solution.status),
        "termination": str(solution.termination),
        "objective": finite(solution.objective),
        "sense": _sense(solution),
        "bound": finite(solution.bound),
        "proof": certificate.proof,
        "gap": solution.gap,
        "iterations": solution.solver.iterations,
        "nodes": solution.solver.nodes,
        **_seconds({**solution.timings, **spent}, total),
    }
    # A point that breaks a row is no answer, whatever the solver claims.
    if not certificate.ok:
        words = f"the certificate failed: {'; '.join(certificate.problems)}"
        row |= {"status": str(Status.ERROR), "error": words, "exit_code": NOT_CERTIFIED}
    return row


def _sense(solution: Solution | ProgramSolution) -> str:
    if isinstance(solution, ProgramSolution):
        return "max" if solution.arrays.maximise else "min"
    return solution.sense


def _seconds(timings: Mapping[str, float], total: float) -> dict[str, float | None]:
    seconds = {f"{stage}_s": timings.get(stage) for stage in STAGES} | {"total_s": total}
    return {key: None if value is None else round(value, 6) for key, value in seconds.items()}
