"""Names of the columns and rows of a program, and their meaning: jobs, pools, requirements."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optsched.display import Displayed
from optsched.errors import wrong_ending
from optsched.program import AllocationProgram, Block, LinearArrays, LinearProgram
from optsched.program.time_indexed import time_indexed
from optsched.solution.plan import LinearPlan, Plan

SUFFIXES = {".mps": "mps", ".lp": "lp"}
FORBIDDEN = re.compile(r"[^A-Za-z0-9_]+")
# Most characters of each part of a name; CBC accepts names of up to 100.
LONGEST = 40
# Reserved words: keywords of the formats, and names that HiGHS uses for the objective and the
# right-hand side.
RESERVED = re.compile(
    r"bin(ary|aries)?|bounds?|end|free|gen(erals?)?|int(egers?)?|(max|min)(imi[sz]e|imum)?|name|obj|ranges|rhs(_v)?"
    r"|s|sec|semi|sos|st|subject|such|to",
    re.IGNORECASE,
)
# Beginnings that readers of LP files take for numbers: HiGHS reads ``info`` as infinity.
NUMBER_LIKE = re.compile(r"[^a-z]|e\d|inf|nan", re.IGNORECASE)


@dataclass(frozen=True, repr=False)
class ProgramNames(Displayed):
    """A unique name of every column and row."""

    columns: tuple[str, ...]
    rows: tuple[str, ...]


def program_kind(path: Path) -> str:
    """``mps`` or ``lp`` by suffix; raises `UsageError`."""
    if path.suffix.lower() not in SUFFIXES:
        raise wrong_ending(path, f"{' or '.join(SUFFIXES)} for a program")
    return SUFFIXES[path.suffix.lower()]


def program_names(
    arrays: LinearArrays, words: Mapping[str, Sequence[str]] | None = None
) -> ProgramNames:
    """Names that every reader of MPS and LP files takes:
    ``x_12``, ``time_3``, ``capacity_v100``, ``t``.

    Parameters
    ----------
    arrays : LinearArrays
    words : mapping, optional
        Words for the rows of some blocks (such as the resources of ``capacity``), used instead of
        numbers where they make valid names that differ.
    """
    given = words or {}
    return ProgramNames(
        _unique([name for block in arrays.columns for name in _block_names(block, None)]),
        _unique(
            [name for block in arrays.rows for name in _block_names(block, given.get(block.name))]
        ),
    )


def _block_names(block: Block, words: Sequence[str] | None) -> list[str]:
    stem = FORBIDDEN.sub("_", block.name)[:LONGEST].strip("_") or "block"
    # In LP files a name that begins like a number is read as a number
    if NUMBER_LIKE.match(stem):
        stem = f"b_{stem}"
    if words is not None:
        ends = [FORBIDDEN.sub("_", word)[:LONGEST].strip("_") for word in words]
        # If words become equal when forbidden characters are replaced, use numbers, so that rows
        # can be distinguished
        if all(ends) and len(set(ends)) == len(ends):
            return [f"{stem}_{end}" for end in ends]
    if len(block) == 1 and not RESERVED.fullmatch(stem):
        return [stem]
    return [f"{stem}_{number}" for number in range(len(block))]


def _unique(names: list[str]) -> tuple[str, ...]:
    """Make names unique: if names become equal because forbidden characters were replaced, a number
    is appended.
    """
    used = set()
    for place, name in enumerate(names):
        free = name
        again = 1
        while free in used:
            again += 1
            free = f"{name}_v{again}"
        used.add(free)
        names[place] = free
    return tuple(names)


# --- the meaning of names ---------------------------------------------------------------------


def linear_program(program: AllocationProgram | Plan) -> LinearProgram:
    """The linear program to write; for a timeline, its time-indexed program."""
    if isinstance(program, AllocationProgram):
        return program.to_linear()
    return (
        program.program
        if isinstance(program, LinearPlan)
        else time_indexed(program.timeline).program
    )


def allocation_names(program: AllocationProgram | Plan, arrays: LinearArrays) -> ProgramNames:
    """`program_names` with resources by name."""
    known = (
        {"capacity": program.classes.resources.names}
        if isinstance(program, AllocationProgram)
        else {}
    )
    return program_names(arrays, known)


def names_document(
    program: AllocationProgram | Plan, arrays: LinearArrays, names: ProgramNames
) -> dict[str, Any]:
    """The meaning of every name of an exported program.

    Columns of ``x`` (of a ratio: ``y``, x times ``tau``) have job (and partner), pool, gpus, nodes;
    rows have the job, the resource with its capacity, or the text of the requirement. A class of
    equal jobs is given by its first job and ``jobs``, their number. Of plans only linear ones
    describe their rows.
    """
    if not isinstance(program, AllocationProgram):
        return _plan_document(program, arrays, names)
    requirements = {side.name: side.describe for side in program.side}

    def column(block: Block, number: int) -> dict[str, Any]:
        return _column(program, number) if block.name in ("x", "y") else {}

    def row(block: Block, number: int) -> dict[str, Any]:
        if block.name in ("time", "levels"):
            return _class(program, number)
        if block.name == "capacity":
            return _resource(program, number)
        return (
            {"requirement": requirements[block.name](number)} if block.name in requirements else {}
        )

    return {
        "columns": _described(arrays.columns, names.columns, column),
        "rows": _described(arrays.rows, names.rows, row),
    }


def _plan_document(plan: Plan, arrays: LinearArrays, names: ProgramNames) -> dict[str, Any]:
    def row(block: Block, number: int) -> dict[str, Any]:
        return (
            {"requirement": plan.describe(block.name, number)}
            if isinstance(plan, LinearPlan)
            else {}
        )

    return {
        "columns": _described(arrays.columns, names.columns, lambda *_: {}),
        "rows": _described(arrays.rows, names.rows, row),
    }


def _described(
    blocks: Sequence[Block], names: Sequence[str], words: Callable[[Block, int], dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    return {
        names[block.start + number]: {"block": block.name, "number": number} | words(block, number)
        for block in blocks
        for number in range(len(block))
    }


def _class(program: AllocationProgram, number: int) -> dict[str, Any]:
    C = program.classes
    return {"job": C.instance.jobs_table.names[int(C.first[number])], "jobs": int(C.count[number])}


def _column(program: AllocationProgram, number: int) -> dict[str, Any]:
    C = program.classes
    row = int(C.configuration[number])
    partner = int(C.class_b[number])
    pool = int(C.configurations.pool[row])
    column = _class(program, int(C.class_a[number]))
    if partner >= 0:
        column["partner"] = C.instance.jobs_table.names[int(C.first[partner])]
    return column | {
        "pool": None if pool < 0 else C.instance.cluster.pools[pool].name,
        "gpus": int(C.configurations.gpus[row]),
        "nodes": int(C.configurations.nodes[row]),
    }


def _resource(program: AllocationProgram, number: int) -> dict[str, Any]:
    resources = program.classes.resources
    return {"resource": resources.names[number], "capacity": float(resources.capacity[number])}
