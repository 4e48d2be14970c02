"""A Pareto front as people read it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from optsched.cli.solution_view import changed_options, cluster_words, conflicts, status_text
from optsched.cli.tables import (
    bullets,
    count,
    facts,
    heading,
    name,
    number,
    optional,
    rounded,
    share,
    table,
)
from optsched.sensitivity import Front
from optsched.sensitivity.front import Axis

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text


def pareto_view(front: Front) -> Iterator[RenderableType]:
    """The axes, the points, and what is to be known of them."""
    first, second = front.axes
    yield heading(f"{name(front.instance.name)}: {first.formulation} against {second.formulation}")
    yield cluster_words(front.instance)
    yield ""
    yield facts(
        (label, f"{_label(axis)}: {axis.title}")
        for label, axis in zip(("1st", "2nd"), front.axes, strict=True)
    )
    if front.points:
        yield from _points(front)
    yield from _ends(front)
    yield ""
    yield bullets(_notes(front))


def _label(axis: Axis) -> str:
    """The formulation with options that are not at their defaults."""
    options = ",".join(changed_options(axis.formulation, axis.options))
    return f"{axis.formulation}:{options}" if options else axis.formulation


def _points(front: Front) -> Iterator[RenderableType]:
    rows: list[list[str | Text]] = []
    for place, point in enumerate(front.points, 1):
        rows.append(
            [
                str(place),
                status_text(point.solution.status),
                *(_number(value) for value in point.objectives),
                optional(point.exchange, rounded),
                optional(point.solution.gap, share),
            ]
        )
    for label, corner in (("ideal", front.ideal), ("nadir", front.nadir)):
        if corner is not None:
            rows.append([label, "", *(_number(value) for value in corner), "", ""])
    yield table("", "status", "1st", "2nd", "exchange", "gap", rows=rows, left=2)


def _number(value: float) -> str:
    return number(value) if np.isfinite(value) else "none"


def _ends(front: Front) -> Iterator[RenderableType]:
    """Why there are no points: an end without an optimum."""
    if front.points:
        return
    for axis, end in zip(front.axes, front.ends, strict=False):
        yield f"{axis.formulation}: {end.status}"
    if front.ends:
        yield from conflicts(front.ends[0])


def _notes(front: Front) -> Iterator[str]:
    if any(point.exchange is not None for point in front.points):
        yield "exchange: what the next unit of improvement of the 2nd costs of the 1st, from the duals"
    if len(front.points) == 1:
        yield "both objectives agree: one allocation is best for both"
    if any(not np.isfinite(value) for point in front.points for value in point.objectives):
        yield "none: the objective does not exist, as some job gets nothing"
    yield from front.notes
    if front.removed:
        yield f"{count(front.removed, 'point was', 'points were')} repeated or dominated, and left out"
    if front.missing:
        yield f"{count(front.missing, 'point is', 'points are')} missing"
    if front.runs:
        session = f"{count(front.runs, 'run')} of two sessions, changed in place"
        yield (
            f"{count(front.runs, 'run')}: {'; '.join(front.rebuilt)}" if front.rebuilt else session
        )
