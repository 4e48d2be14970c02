"""Explanations: which requirements conflict, in the user's words."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from optsched.program.some_time import SOME_TIME

if TYPE_CHECKING:
    from optsched.program import AllocationProgram, Assumption


class Conflict(NamedTuple):
    """One requirement of a conflicting set:
    the row it is, what it says, and what it takes for granted.
    """

    block: str
    position: int
    words: str
    assumption: Assumption | None = None


def assumptions_of(conflicts: Sequence[Conflict]) -> tuple[Assumption, ...]:
    """What the requirements of a conflict take for granted, each once."""
    return tuple(
        dict.fromkeys(item.assumption for item in conflicts if item.assumption is not None)
    )


def under(assumptions: Sequence[Assumption], statement: str) -> str:
    """A statement with what it rests on before it:
    ``at a constant rate from now on, this cannot be met``.
    """
    return ", ".join([*(assumption.words for assumption in assumptions), statement])


def conflict_statement(conflicts: Sequence[Conflict], proof: str) -> str:
    """What is shown of conflicting requirements, without the requirements.

    Rows of a program conflict with each other. Those that no solver was needed for (the proof is
    ``rule``) can be met by nothing, each for itself.
    """
    statement = "these requirements cannot all hold"
    if proof == "rule":
        statement = (
            "this cannot be met"
            if len(conflicts) == 1
            else "none of these can be met, each for itself"
        )
    return under(assumptions_of(conflicts), statement)


class Explanation(StrEnum):
    """How small a set of conflicting requirements is known to be."""

    IRREDUCIBLE = "irreducible"
    """Without any one of them the others can hold."""
    REDUCED = "reduced"
    """The search for a smaller set ended at its bound of work, or where a solver failed."""
    CUT_OFF = "cut off"
    """The search ended with the time, or the user stopped it."""


def describe_row(
    program: AllocationProgram, block: str, position: int, whole: bool = False
) -> Conflict:
    """A row of an allocation program in the user's words.

    ``whole``: that it conflicts with others was shown of whole jobs alone.
    """
    from optsched.program import Assumption  # most programs have nothing to explain

    # Fractions of jobs would keep the rows.
    C, usual = program.classes, Assumption("with whole jobs") if whole else None
    if block == "time":
        words = f"{C.job_name(position)} cannot run more than all the time"
    elif block == "capacity":
        words = resource_words(program, position)
    elif block == "levels":
        words = f"{C.job_name(position)} must reach the common level"
    elif block == SOME_TIME:
        words = f"{C.job_name(position)} must have some time, or the objective is infinite"
    elif program.space is not None and program.space.has_rows(block):
        words = "jobs are only on nodes that have room for all of their GPUs"
    else:
        side = next((rows for rows in program.side if rows.name == block), None)
        words = f"row {block}[{position}]" if side is None else side.describe(position)
        own = None if side is None else side.assumption
        return Conflict(block, position, words, own or usual)
    return Conflict(block, position, words, usual)


def resource_words(program: AllocationProgram, position: int) -> str:
    """A capacity row as text."""
    resources = program.classes.resources
    name, capacity = resources.names[position], resources.capacity[position]
    if resources.pool[position] >= 0:
        return f"pool {name} has {capacity:g} usable GPU" + ("s" if capacity != 1 else "")
    return f"resource {name} has a capacity of {capacity:g}"
