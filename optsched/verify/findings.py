"""Findings: errors in a solution file, by the path of the field."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from optsched.display import DisplayedTable, TableColumns
from optsched.instance.reading import join, show

BoundVerdict = Literal["verified", "consistent", "not verifiable"]

SHOWN = 20
"""Findings that the text of a verification lists."""
RELATIVE = 1e-9
"""Largest relative difference of two numbers that are the same up to rounding."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One error.

    Attributes
    ----------
    field : str
        Path in the solution file, e.g. ``allocation[3].fraction``; empty for the file as a whole.
    message : str
        The value in the file, and the expected one.
    """

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


@dataclass(frozen=True, repr=False)
class Verification(DisplayedTable):
    """The outcome of `optsched.verify`.

    Attributes
    ----------
    findings : tuple of Finding
        Empty if the file is right.
    bound : str
        ``verified``: recomputed by us, from the duals or by the rule; ``consistent``: only the
        solver's claim, or none, and not contradicted, or what a rule knew when its time was over;
        ``not verifiable``: the duals that it needs are not in the file, or the file is wrong.
    notes : tuple of str
        What a file that is right says of itself, recomputed here, and that limits what it is good
        for: rows of which it is not known whether all fit into whole GPUs.
    has_bound : bool
        Whether the file states a bound.
    """

    findings: tuple[Finding, ...]
    bound: BoundVerdict
    notes: tuple[str, ...] = ()
    has_bound: bool = True

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def __str__(self) -> str:
        if self.ok:
            return "; ".join(["the solution is right", f"bound: {self.bound}", *self.notes])
        count = len(self.findings)
        lines = [f"the solution is refused: {count} finding" + ("s" if count != 1 else "")]
        lines += [f"  {finding}" for finding in self.findings[:SHOWN]]
        if count > SHOWN:
            lines.append(f"  ... and {count - SHOWN} more")
        return "\n".join(lines)

    def _headline(self) -> str:
        return str(self).partition("\n")[0]

    def to_columns(self, first: int | None = None) -> TableColumns:
        findings = self.findings[:first]
        return {
            "field": [finding.field for finding in findings],
            "message": [finding.message for finding in findings],
        }


@dataclass
class Findings:
    """Collects findings; each comparison returns whether it holds."""

    items: list[Finding] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.items)

    def add(self, path: str, message: str) -> None:
        """Add one, unless it is there already."""
        finding = Finding(path, message)
        # Checks of one field may have the same finding. To compare with all findings would take the
        # square of their number.
        if finding not in self.items[-SHOWN:]:
            self.items.append(finding)

    def same(self, path: str, found: object, expected: object, why: str = "") -> bool:
        """Add a finding where the file differs at all."""
        # In Python True equals 1; in a file they differ.
        holds = found == expected and isinstance(found, bool) == isinstance(expected, bool)
        if not holds:
            self.differ(path, found, expected, why)
        return holds

    def differ(self, path: str, found: object, expected: object, why: str = "") -> None:
        """Add a finding: the file has one value, another one was expected."""
        because = f": {why}" if why else ""
        self.add(path, f"found {show(found)}, expected {show(expected)}{because}")

    def close(
        self,
        path: str,
        found: float | None,
        expected: float | None,
        why: str = "",
        *,
        relative: float = RELATIVE,
        absolute: float = 0.0,
    ) -> bool:
        """Compare numbers up to rounding; null is equal to null alone."""
        if found is None or expected is None:
            return self.same(path, found, expected, why)
        try:
            allowed = max(relative * max(abs(found), abs(expected)), absolute)
            holds = math.isfinite(found) and abs(found - expected) <= allowed
        except OverflowError:  # an integer beyond every float
            holds = False
        if not holds:
            self.differ(path, found, expected, why)
        return holds

    def alike(
        self,
        path: str,
        found: Any,
        expected: Any,
        why: str = "",
        *,
        absolute: float = 0.0,
    ) -> None:
        """Compare plain data: keys and texts exactly, numbers up to rounding;
        each difference at its own path.
        """
        if isinstance(found, Mapping) and isinstance(expected, Mapping):
            # Missing entries come first, then unexpected ones, then differences.
            for key in [key for key in expected if key not in found]:
                self.add(join(path, [key]), f"found nothing, expected {show(expected[key])}")
            for key in [key for key in found if key not in expected]:
                self.add(join(path, [key]), f"found {show(found[key])}, expected no such entry")
            for key in [key for key in expected if key in found]:
                self.alike(join(path, [key]), found[key], expected[key], why, absolute=absolute)
        elif _is_list(found) and _is_list(expected):
            if len(found) != len(expected):
                self.add(path, f"found {len(found)} entries, expected {len(expected)}")
            else:
                for index, pair in enumerate(zip(found, expected, strict=True)):
                    self.alike(join(path, [index]), *pair, why, absolute=absolute)
        elif _is_number(found) and _is_number(expected):
            self.close(path, found, expected, why, absolute=absolute)
        else:
            self.same(path, found, expected, why)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)
