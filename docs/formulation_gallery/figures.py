"""What a formulation or side constraint makes of a small instance that ships: the program, and a small picture."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optsched
from optsched.api import make_formulation, write_atomically
from optsched.errors import OptschedError, UsageError
from optsched.formulation import Formulation
from optsched.program import AllocationProgram, LexicographicMinimum, Minimum, Ratio, Total
from optsched.report import topology_picture
from optsched.report.palette import INK, TITLE
from optsched.report.plots import solution_picture
from optsched.solution.plan import LinearPlan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from PIL.Image import Image

INSTANCES = (
    "quickstart",
    "packing",
    "topology",
    "leases",
    "smd",
    "unrelated",
    "knapsack",
    "assignment",
)
"""Instances that are tried in this order: the first that the formulation solves is drawn."""
RESOLUTION = 75
"""Dots per inch of the pictures."""
COLOURS = 64
WIDE = 600
"""Pixels from which two pictures stand one above the other, not side by side."""


@dataclass(frozen=True)
class Hint:
    """What shows a formulation or side constraint better than the defaults do.

    Attributes
    ----------
    instance : str
        Tried first.
    options : mapping
        Of a side constraint those that it needs.
    with_formulation : str
        What a side constraint is shown with.
    more : tuple of str
        Further arguments of `optsched solve`, one example each.
    """

    instance: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    with_formulation: str = "max-throughput"
    more: tuple[str, ...] = ()


HINTS: dict[str, Hint] = {
    "alpha-fairness": Hint(more=("-O alpha=0.5",)),
    "anti-affinity": Hint(
        "topology", {"jobs": ["transformer-8", "resnet-18-9"]}, "max-min-fairness"
    ),
    "budget": Hint(options={"limit": 15}),
    "cells": Hint(options={"tenant": "language", "owns": {"1": 1, "2": 1}}),
    "cost": Hint(more=("-C minimum-service:fraction=0.25",)),
    "deadline-elastic": Hint("leases", more=("-O admission=true",)),
    "deadline-fluid": Hint("leases", more=("-O admission=true",)),
    "deadlines": Hint(with_formulation="max-min-fairness"),
    "elasticflow": Hint("leases", more=("-O admission=true",)),
    "forbidden": Hint(options={"jobs": ["bert-base-2"], "pools": ["v100"]}),
    "gandiva": Hint("packing", more=("-O pairing=greedy",)),
    "gap": Hint("assignment"),
    "lease": Hint("leases"),
    "makespan": Hint(more=("-O agnostic=true -O reference_pool=v100",)),
    "makespan-unrelated": Hint("unrelated"),
    "matching": Hint("packing"),
    "max-min-fairness": Hint(more=("-O agnostic=true",)),
    "max-throughput": Hint(more=("-O integral=true", "-O normalise=best")),
    "mig-pack": Hint("services", more=("-O objective=cost",)),
    "minimum-service": Hint(options={"fraction": 0.25}),
    "minimum-share": Hint(options={"tenant": "language", "gpus": 10}),
    "minimum-throughput": Hint(options={"jobs": ["gpt-2-small-6", "bert-large-8"], "rate": 30}),
    "moves": Hint(options={"keep": 0.9}),
    "multiple-choice": Hint("smd"),
    "pinned": Hint(options={"jobs": ["bert-base-2"], "pools": ["p100"]}),
    "power": Hint(options={"limit": 3000, "idle": False}),
    "quota": Hint(options={"tenant": "vision", "gpus": 4}),
    "throughput-per-cost": Hint(more=("-O objective=ratio -C deadlines",)),
    "vector-bin-packing": Hint("packing"),
}
"""By name; whatever is not here is shown with its defaults, on the first instance that it solves."""


@dataclass(frozen=True)
class Shown:
    """An entry of the catalogue on an instance.

    Attributes
    ----------
    instance : str
    kind : str
        Kind of program.
    solutions : tuple of Solution
        Of a side constraint without and with it; none where there is no difference to be seen.
    formulation : str
    constraint : mapping or None
    placed : bool
        Whether what is shown is a placement.
    """

    instance: str
    kind: str
    solutions: tuple[optsched.Solution, ...]
    formulation: str
    constraint: Mapping[str, Any] | None = None
    placed: bool = False


def show_formulation(name: str) -> Shown | None:
    """A formulation on the first instance where something runs; without a picture where nothing ever does."""
    idle: Shown | None = None
    for instance in _instances(name):
        try:
            solution = optsched.solve(f"@{instance}", name)
            kind = kind_of(make_formulation(name), solution)
        except OptschedError:  # what the instance lacks, another may have
            continue
        if solution.ok and solution.allocation is not None:
            if solution.allocation.x.any():
                return Shown(instance, kind, (solution,), name)
            idle = idle or Shown(instance, kind, (), name)
    return idle


def show_constraint(kind: str, of_placement: bool) -> Shown | None:
    """An instance without and with a side constraint; None if it needs options that no hint gives.

    The first instance counts on which it changes the allocation; where it changes none, there is an instance without
    solutions to draw. A wrong hint raises.
    """
    hint = HINTS.get(kind, Hint())
    constraint = {"kind": kind, **hint.options}
    if kind not in HINTS:
        try:
            optsched.api.make_formulation(hint.with_formulation, constraints=[constraint])
        except UsageError:
            return None
    allowed: Shown | None = None
    for instance in _instances(kind):
        try:
            before = optsched.solve(f"@{instance}", hint.with_formulation)
            after = optsched.solve(f"@{instance}", hint.with_formulation, constraints=[constraint])
            pair = (_placed(before), _placed(after)) if of_placement else (before, after)
        except OptschedError:
            continue
        if before.allocation is None or after.allocation is None or not after.allocation.x.any():
            continue
        shown = Shown(instance, "", pair, hint.with_formulation, constraint, of_placement)
        if of_placement or abs(before.allocation.x - after.allocation.x).max() > 1e-6:
            return shown
        allowed = allowed or replace(shown, solutions=())
    if allowed is None and kind in HINTS:
        raise UsageError(f"the hint of {kind} fits no instance: {constraint}")
    return allowed


def _placed(solution: optsched.Solution) -> optsched.Solution:
    return optsched.place(optsched.realise(solution))


def _instances(name: str) -> tuple[str, ...]:
    first = HINTS.get(name, Hint()).instance
    return tuple(dict.fromkeys([first, *INSTANCES])) if first else INSTANCES


def kind_of(formulation: Formulation, solution: optsched.Solution) -> str:
    """What kind of program a formulation builds of the instance of a solution, in words."""
    if formulation.sense == "rule":
        unsolved = solution.solver.name in ("none", "closed form")
        return "rule: nothing is solved" if unsolved else "rule with a program"
    try:
        program = formulation.program(formulation.classes(solution.candidates))
    except OptschedError:
        return "several programs"
    if isinstance(program, LinearPlan):
        return (
            "integer program of a schedule"
            if program.program.arrays.is_integer
            else "linear program of a schedule"
        )
    if not isinstance(program, AllocationProgram):
        return "timeline program"
    utility = program.utility
    if program.integral:
        return "integer program"
    if program.concave:
        return "conic program" if isinstance(utility, Total) else "concave program, by tangents"
    if isinstance(utility, LexicographicMinimum):
        return "linear programs, level by level"
    if isinstance(utility, Ratio):
        return "linear-fractional program"
    return "linear program, max-min" if isinstance(utility, Minimum) else "linear program"


# --- pictures ------------------------------------------------------------------------------------------------------


def draw(shown: Shown, path: Path) -> None:
    """Write the picture of an entry: of a side constraint two, without and with it."""
    from PIL import Image

    parts = [
        _bitmap(_axes(solution, shown, place)) for place, solution in enumerate(shown.solutions)
    ]
    widths, heights = [part.width for part in parts], [part.height for part in parts]
    below = max(widths) > WIDE
    size = (max(widths), sum(heights)) if below else (sum(widths), max(heights))
    whole = Image.new("RGB", size, "white")
    for place, part in enumerate(parts):
        whole.paste(part, (0, sum(heights[:place])) if below else (sum(widths[:place]), 0))
    buffer = io.BytesIO()
    whole.quantize(COLOURS).save(buffer, format="png", optimize=True)
    write_atomically(path, buffer.getvalue())


def _axes(solution: optsched.Solution, shown: Shown, place: int) -> Axes:
    ax = topology_picture(solution) if shown.placed else solution_picture(solution)
    if shown.constraint is not None:
        title = f"{'with' if place else 'without'} {shown.constraint['kind']}"
        ax.set_title(title, loc="left", fontsize=TITLE, pad=20, color=INK)
    return ax


def _bitmap(ax: Axes) -> Image:
    from PIL import Image

    figure = ax.get_figure(root=True)
    assert figure is not None
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=RESOLUTION)
    return Image.open(buffer).convert("RGB")
