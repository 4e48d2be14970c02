"""What a Gantt diagram shows: stretches of a schedule or of rounds, on an axis with a readable unit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import BoolArray, FloatArray
from optsched.errors import UsageError
from optsched.instance import Instance
from optsched.report.answers import Answer, count, headline
from optsched.report.parts import Runs, schedule_of, slices_of
from optsched.report.pictures import time_unit


@dataclass(frozen=True)
class GanttRows:
    """What a Gantt diagram shows.

    Attributes
    ----------
    instance : Instance
    runs : Runs
        In the unit of the axis.
    unit : str
        ``s``, ``min``, ``h``, ``days`` or ``%``.
    deadline : FloatArray, shape (S,)
        Of the job of each stretch, in the unit of the axis; inf for none, and for all but the job's last stretch.
    now : float or None
        On the axis.
    cuts : FloatArray
        Ends of slices on the axis.
    title, subtitle, axis : str
    """

    instance: Instance
    runs: Runs
    unit: str
    deadline: FloatArray
    now: float | None
    cuts: FloatArray
    title: str
    subtitle: str
    axis: str

    @classmethod
    def of_schedule(cls, answer: Answer) -> GanttRows:
        """The schedule of a solution or of a solution file, on an axis that counts from now."""
        runs, instance = schedule_of(answer), answer.instance
        if not len(runs):
            raise UsageError("the schedule is empty: there is nothing to draw")
        scale, unit = time_unit(
            float(max(runs.end.max(), instance.now) - min(runs.start.min(), instance.now))
        )
        last = _last_of_job(runs)
        deadline = np.where(last, instance.jobs_table.deadline[runs.job], np.inf)
        missed, due = int((runs.end > deadline + 1e-6).sum()), int(np.isfinite(deadline).sum())
        told = [_amounts(runs), f"{missed} of {count(due, 'deadline')} missed" if due else ""]
        return cls(
            instance, _moved(runs, instance.now, scale), unit, (deadline - instance.now) / scale, 0.0, np.zeros(0),
            f"{instance.name}: what runs when", headline(answer, *told), f"time from now, {unit}",
        )  # fmt: skip

    @classmethod
    def of_rounds(cls, answer: Answer) -> GanttRows:
        """The rounds of a solution or of a solution file: seconds where the window is known, else percent of it."""
        slices, instance = slices_of(answer), answer.instance
        if not len(slices.runs):
            raise UsageError("nothing runs in the rounds: there is nothing to draw")
        end = float(slices.cuts[-1]) if slices.window is None else slices.window
        scale, unit = (0.01, "%") if slices.window is None else time_unit(end)
        realised = f"{100 * slices.scale:.4g} % of every fraction is realised"
        axis = "part of the window, %" if slices.window is None else f"time in the window, {unit}"
        return cls(
            instance, _moved(slices.runs, 0.0, scale), unit, np.full(len(slices.runs), np.inf), None,
            slices.cuts / scale, f"{instance.name}: rounds of the allocation",
            headline(answer, _amounts(slices.runs), count(len(slices.cuts), "slice"), realised), axis,
        )  # fmt: skip


def _moved(runs: Runs, origin: float, scale: float) -> Runs:
    start, end = (runs.start - origin) / scale, (runs.end - origin) / scale
    return Runs(runs.job, runs.partner, runs.pool, runs.gpus, start, end)


def _last_of_job(runs: Runs) -> BoolArray:
    """Whether a stretch is the last of its job."""
    order = np.lexsort((runs.end, runs.job))
    last = np.zeros(len(runs), bool)
    last[order[np.diff(runs.job[order], append=-1) != 0]] = True
    return last


def _amounts(runs: Runs) -> str:
    jobs = len(np.unique(np.concatenate((runs.job, runs.partner[runs.partner >= 0]))))
    stretches = f", {count(len(runs), 'stretch', 'stretches')}" if len(runs) > jobs else ""
    return count(jobs, "job") + stretches
