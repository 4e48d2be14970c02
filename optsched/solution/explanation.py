"""Explanations: which requirements conflict, in the user's words."""

from __future__ import annotations

from dataclasses import dataclass

from optsched.program import AllocationProgram


@dataclass(frozen=True)
class Conflict:
    """One requirement of a conflicting set: the row it is, and what it says."""

    block: str
    position: int
    words: str


def describe_row(program: AllocationProgram, block: str, position: int) -> Conflict:
    """A row of an allocation program in the user's words."""
    C = program.classes
    if block == "time":
        words = f"{C.job_name(position)} cannot run more than all the time"
    elif block == "capacity":
        words = resource_words(program, position)
    elif block == "levels":
        words = f"{C.job_name(position)} must reach the common level"
    else:
        side = next((rows for rows in program.side if rows.name == block), None)
        words = f"row {block}[{position}]" if side is None else side.describe(position)
    return Conflict(block, position, words)


def resource_words(program: AllocationProgram, position: int) -> str:
    """A capacity row in words."""
    resources = program.classes.resources
    name, capacity = resources.names[position], resources.capacity[position]
    if resources.pool[position] >= 0:
        return f"pool {name} has {capacity:g} usable GPU" + ("s" if capacity != 1 else "")
    return f"resource {name} has a capacity of {capacity:g}"
