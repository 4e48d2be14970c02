"""The front between two objectives: `Front`, its points, and its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from optsched.arrays import finite
from optsched.display import Displayed, DisplayedTable, TableColumns, amount, count, number
from optsched.display.columns import DURATION, ColumnFormat
from optsched.display.picture import Picture
from optsched.formulation import Formulation
from optsched.instance import Instance
from optsched.lazy import convenience
from optsched.registry import objective_words
from optsched.solution import Solution

FORMAT = "optsched-pareto/1"
# Points closer than this in both objectives, relative to the range of the front, are one.
APART = 1e-7
# Differences below this part of an objective are rounding.
NOISE = 1e-8


@dataclass(frozen=True, repr=False)
class Axis(Displayed):
    """One of the two objectives.

    Attributes
    ----------
    formulation : str
    options : mapping
        All options of the formulation, defaults included.
    sense : str
        ``max`` or ``min``.
    words, unit : str
        What the objective is; the unit may be empty.
    """

    formulation: str
    options: dict[str, Any]
    sense: str
    words: str
    unit: str

    @classmethod
    def of(cls, formulation: Formulation) -> Axis:
        """The objective of a formulation."""
        words, unit = objective_words(formulation.name)
        return cls(
            formulation.name, formulation.options.to_document(), formulation.sense, words, unit
        )

    @property
    def title(self) -> str:
        """What the objective is, with its unit and which way is better."""
        unit = f", {self.unit}" if self.unit else ""
        return f"{self.words}{unit} ({'less' if self.sense == 'min' else 'more'} is better)"


@dataclass(frozen=True, repr=False)
class FrontPoint(Displayed):
    """One compromise.

    Attributes
    ----------
    objectives : (float, float)
        Of both formulations, recomputed from the allocation; inf where one does not exist (a
        makespan in which some job gets nothing).
    values : (float, float)
        Values of both programs, which are maximised; the front is concave in these if both are
        linear.
    solution : Solution
        Certified: the first objective optimised, while the second keeps its level (a side row named
        ``second``).
    exchange : float or None
        What one unit of improvement of the second objective costs of the first here, from the dual
        of that row; None at the ends and without duals.
    """

    objectives: tuple[float, float]
    values: tuple[float, float]
    solution: Solution
    exchange: float | None = None

    def _headline(self) -> str:
        first, second = map(amount, self.objectives)
        cost = "" if self.exchange is None else f", exchange {amount(self.exchange)}"
        return f"{first} and {second}{cost}"

    def to_document(self) -> dict[str, Any]:
        """The point as plain data; what does not exist is null."""
        solution = self.solution
        document = solution.to_document()
        kept = (
            "status",
            "bound",
            "gap",
            "termination",
            "reproducible",
            "certificate",
            "allocation",
            "metrics",
        )
        return {
            "objectives": [finite(value) for value in self.objectives],
            "exchange": self.exchange,
            **{key: document[key] for key in kept},
        }


@dataclass(frozen=True, repr=False)
class Front(DisplayedTable):
    """Compromises between two objectives, the best for the first one first.

    Attributes
    ----------
    instance : Instance
    axes : (Axis, Axis)
    ends : tuple of Solution
        The optimum of each objective alone, or what came in its place: an infeasible instance has
        no points.
    points : tuple of FrontPoint
        None of them dominates or repeats another.
    removed : int
        Points that did.
    missing : int
        Points that a limit prevented.
    runs : int
        Runs of both sessions.
    rebuilt : tuple of str
        Why a session was rebuilt or something solved anew; empty if both were only changed in
        place.
    notes : tuple of str
        What is to be known of the front, as text.
    """

    instance: Instance
    axes: tuple[Axis, Axis]
    ends: tuple[Solution, ...]
    points: tuple[FrontPoint, ...] = ()
    removed: int = 0
    missing: int = 0
    runs: int = 0
    rebuilt: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ideal(self) -> tuple[float, float] | None:
        """The optimum of each objective alone, which no point has at once unless they agree."""
        best = [end.objective for end in self.ends]
        return (
            (best[0], best[1])
            if self.points and best[0] is not None and best[1] is not None
            else None
        )

    @property
    def nadir(self) -> tuple[float, float] | None:
        """The worst of both objectives on the front."""
        return (
            (self.points[-1].objectives[0], self.points[0].objectives[1]) if self.points else None
        )

    def to_document(self) -> dict[str, Any]:
        """The front in the format ``optsched-pareto/1``; what does not exist is null."""
        return {
            "format": FORMAT,
            "instance": self.instance.identity,
            "constraints": [dict(item) for item in self.ends[0].constraints] if self.ends else [],
            "axes": [
                {
                    "formulation": axis.formulation,
                    "options": axis.options,
                    "sense": axis.sense,
                    "words": axis.words,
                    "unit": axis.unit,
                }
                for axis in self.axes
            ],
            "ends": [
                {
                    "status": str(end.status),
                    "objective": finite(end.objective),
                    "gap": end.gap,
                    "conflicts": [conflict.words for conflict in end.conflicts],
                }
                for end in self.ends
            ],
            "ideal": _both(self.ideal),
            "nadir": _both(self.nadir),
            "points": [point.to_document() for point in self.points],
            "removed": self.removed,
            "missing": self.missing,
            "session": {"runs": self.runs, "rebuilt": list(self.rebuilt)},
            "notes": list(self.notes),
        }

    def plot(self) -> Picture:
        """The points in the plane of both objectives."""
        return Picture(convenience("Front.plot")(self))

    def _headline(self) -> str:
        first, second = (axis.formulation for axis in self.axes)
        return (
            f"of {self.instance.name}: {count(len(self.points), 'point')} between {first} and "
            f"{second}"
        )

    def _facts(self) -> Mapping[str, str]:
        facts = {
            f"{label} objective": axis.title
            for label, axis in zip(("first", "second"), self.axes, strict=True)
        }
        # From one end of the front to the other; the middle point is a compromise to look at first.
        for label, row in (
            ("at one end", 0),
            ("in the middle", len(self.points) // 2),
            ("at the other", -1),
        ):
            if self.points:
                first, second = self.points[row].objectives
                facts[label] = f"{amount(first)} and {amount(second)}"
        if not self.points:
            facts["no points"] = ", ".join(f"{end.formulation}: {end.status}" for end in self.ends)
        left_out = f"{count(self.removed, 'point')} dominated or repeated" if self.removed else ""
        missing = f"{count(self.missing, 'point')} by a limit" if self.missing else ""
        return facts | {
            "left out": left_out,
            "missing": missing,
            "notes": "; ".join(self.notes),
        }

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The points: both objectives, and what a unit of the second costs of the first."""
        points = self.points[:first]
        one, other = self._objective_columns()
        return {
            one: [point.objectives[0] for point in points],
            other: [point.objectives[1] for point in points],
            "exchange": [point.exchange for point in points],
        }

    def _objective_columns(self) -> tuple[str, str]:
        one, other = (axis.formulation for axis in self.axes)
        # One formulation with two sets of options
        return (f"{one} (first)", f"{other} (second)") if one == other else (one, other)

    def _kinds(self) -> Mapping[str, ColumnFormat]:
        # The cost of an allocation is per hour; that of a simulation, which has the same name, is
        # not
        return {
            name: DURATION if axis.unit == "s" else ColumnFormat(number, axis.unit)
            for name, axis in zip(self._objective_columns(), self.axes, strict=True)
        }


def efficient(points: list[FrontPoint]) -> list[FrontPoint]:
    """The points that no other dominates, each once, the best for the first objective first.

    Of points that agree in both objectives up to rounding, the first stays.
    """
    values = np.array([point.values for point in points]).reshape(-1, 2)
    span = np.ptp(values, axis=0) if len(values) else np.zeros(2)
    close = np.maximum(APART * span, NOISE * np.abs(values).max(axis=0, initial=0.0))
    kept = []
    for row, point in enumerate(values):
        as_good = (values >= point - close).all(axis=1)
        better = (values > point + close).any(axis=1)
        # Of points that are alike up to rounding each is as good as the other: the first stays.
        better[:row] = True
        if not (as_good & better).any():
            kept.append(row)
    kept.sort(key=lambda row: (-values[row, 0], values[row, 1]))
    return [points[row] for row in kept]


def _both(pair: tuple[float, float] | None) -> list[float | None] | None:
    return None if pair is None else [finite(value) for value in pair]
