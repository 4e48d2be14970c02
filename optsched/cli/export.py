"""``optsched export``: programs for other solvers, and instances in another format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from optsched.cli.options import INFEASIBLE, ProblemOptions, formulation_option, output_option
from optsched.cli.progress import progress
from optsched.cli.shell import Shell
from optsched.cli.values import Name, Target
from optsched.errors import UsageError

if TYPE_CHECKING:
    from optsched.instance import Instance
    from optsched.program import LinearArrays, Units
    from optsched.traces import Trace


@dataclass(frozen=True)
class Exported(ProblemOptions):
    """What is to be written: a program with a formulation, the instance itself without."""

    formulation: Annotated[
        Name,
        formulation_option(
            "Write the program of this formulation (mps, lp). Default: write the instance."
        ),
    ] = ""


def export(
    shell: Shell,
    problem: Exported,
    output: Annotated[
        Target,
        output_option(
            "FILE.mps or FILE.lp for a program; FILE.json, .yaml or .npz for the instance; "
            "- for standard output."
        ),
    ],
) -> int:
    """Write the program of a formulation as MPS or LP, or the instance in another format.

    With a program, FILE.names.json is written, which says what its columns and rows mean: jobs,
    pools, requirements.

    Examples:
        optsched export cluster.json -f makespan -o makespan.mps
        optsched export @packing -f max-throughput -O integral=true -o packing.lp
        optsched export cluster.json -o cluster.npz
    """
    if problem.formulation:
        return _export_program(shell, problem, output)
    if problem.asks_to_solve:
        raise UsageError("-O, -C and --no-classes need a formulation: -f NAME")
    from optsched.api import load
    from optsched.formats.mps import SUFFIXES

    if Path(output).suffix.lower() in SUFFIXES:
        raise UsageError(f"{output} is a program: say of which formulation with -f NAME")
    kind = document_kind(output)
    write_instance(shell, load(problem.instance, problem.model), output, kind)
    return 0


def document_kind(output: str) -> str:
    """The format of an instance or a trace, by the suffix of its file; JSON for standard output."""
    from optsched.instance.files import kind_of

    return "json" if output == "-" else kind_of(Path(output))


def write_instance(shell: Shell, instance: Instance, output: str, kind: str) -> None:
    """Write an instance to a file, or to standard output for ``-``."""
    from optsched.instance import instance_bytes

    _write(shell, instance_bytes(instance, kind), output, instance)


def write_trace(shell: Shell, trace: Trace, output: str, kind: str) -> None:
    """Write a trace to a file, or to standard output for ``-``."""
    from optsched.traces import trace_bytes

    _write(shell, trace_bytes(trace, kind), output, trace.instance)


def _write(shell: Shell, data: bytes, output: str, instance: Instance) -> None:
    from optsched.api import write_atomically
    from optsched.display import count

    # Standard output gets only the data, so no summary line is printed
    if output == "-":
        shell.write(data.decode())
        return
    write_atomically(output, data)
    pools = instance.cluster.pools
    shell.tell(f"{output}: {count(len(instance.jobs_table), 'job')}, {count(len(pools), 'pool')}")


def _export_program(shell: Shell, problem: Exported, output: str) -> int:
    from optsched import api
    from optsched.display import count
    from optsched.formats.mps import (
        allocation_names,
        linear_program,
        names_document,
        program_kind,
        program_text,
    )
    from optsched.formulation import Infeasible
    from optsched.instance.files import pretty_json

    kind = "mps" if output == "-" else program_kind(Path(output))
    with progress(shell, "building"):
        instance = api.load(problem.instance, problem.model)
        formulation = api.formulation_for(
            instance, problem.formulation, problem.options, problem.constraints
        )
        candidates = api.compile_for(formulation, instance)
        candidates = candidates.per_job() if problem.no_classes else candidates
        # A rule is computed in closed form and has no program
        if formulation.sense == "rule":
            raise UsageError(
                f"{problem.formulation} is a rule: it has no program that could be exported"
            )
        try:
            program = formulation.program(formulation.classes(candidates))
        except Infeasible as error:
            for conflict in error.conflicts:
                rests = f" {conflict.assumption.words}" if conflict.assumption is not None else ""
                shell.complain(f"error: infeasible{rests}: {conflict.words}")
            return INFEASIBLE
        if len(program.classes) == 0:
            raise UsageError(
                "no job of this instance is in the program: there is nothing to export"
            )
        arrays = linear_program(program).arrays
        names = allocation_names(program, arrays)
        beside = None if output == "-" else Path(f"{output}.names.json")
        comments = _comments(candidates.instance, arrays, formulation, program.units, beside)
        text = program_text(arrays, names, kind, name=candidates.instance.name, comments=comments)
    if beside is None:
        shell.write(text.decode())
        return 0
    api.write_atomically(beside, pretty_json(names_document(program, arrays, names)).encode())
    api.write_atomically(output, text)
    rows, columns = arrays.shape
    integer = f" ({int(arrays.integer.sum()):,} integer)" if arrays.is_integer else ""
    shell.tell(
        f"{output}: {count(rows, 'row')}, {count(columns, 'column')}{integer}; names in {beside}"
    )
    return 0


def _comments(
    instance: Instance,
    arrays: LinearArrays,
    formulation: Any,
    units: Units,
    beside: Path | None,
) -> list[str]:
    """Comments at the beginning of the file: its origin and how to read it."""
    sense = "maximise" if arrays.maximise else "minimise"
    lines = [f"optsched: {formulation.name} of {instance.name}, sha256 {instance.sha256}"]
    lines += [f"options: {formulation.options.to_document()}"]
    lines += [f"constraint: {constraint.document()}" for constraint in formulation.constraints]
    lines += [f"{sense}; {arrays.shape[0]} rows, {arrays.shape[1]} columns"]
    reported = units.objective(1.0)
    if reported != 1.0:
        lines.append(
            f"an objective of 1 here is reported as {reported:.15g} ({formulation.objective_words})"
        )
    return lines + ([f"names: {beside.name}"] if beside is not None else [])
