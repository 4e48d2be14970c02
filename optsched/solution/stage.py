"""Stages: the programs of a method of several, each with its value and the duals that prove it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from optsched.arrays import FloatArray
from optsched.display import Displayed
from optsched.program import Assumption


@dataclass(frozen=True, repr=False, eq=False)
class Stage(Displayed):
    """One program of several that were solved one after the other;
    the last one is the solution's own.

    Attributes
    ----------
    name : str
        What it is for.
    value : float
        Its optimum, as later programs take it.
    bound : float or None
        What the duals prove.
    duals : mapping of name -> FloatArray, or None
        Row duals by block.
    kept : mapping of name -> FloatArray
        Further numbers that later programs are made of.
    words : tuple of str
        What it found, in the user's words.
    assumptions : tuple of Assumption
        What these words rest on. They follow from the side constraints, and are not written.
    """

    name: str
    value: float
    bound: float | None
    duals: Mapping[str, FloatArray] | None
    kept: Mapping[str, FloatArray] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    assumptions: tuple[Assumption, ...] = ()

    def to_record(self, with_duals: bool = True) -> dict[str, Any]:
        """The stage as in a solution file."""
        duals = self.duals if with_duals else None
        return {
            "name": self.name,
            "value": self.value,
            "bound": self.bound,
            "duals": None
            if duals is None
            else {name: block.tolist() for name, block in duals.items()},
            "kept": {name: numbers.tolist() for name, numbers in self.kept.items()},
            "words": list(self.words),
        }
