"""Profiles of Sia's and Pollux's simulators:
times of steps, and gradient noise over the course of a training.

The folder of an application has, for each kind of machine G, ``placements-G.csv``
(``placement,local_bsz,step_time, sync_time``; a digit for each node, its GPUs) and
``scalability-G.csv`` (``num_nodes,num_replicas,local_bsz,step_time, sync_time``), times in seconds;
and for some batch sizes B ``validation-B.csv``, a line for each epoch:
``progress,iteration,metric,grad_sqr,grad_var``. The smallest B is the first batch M0; progress
counts steps of M0.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy.interpolate import LinearNDInterpolator
from scipy.spatial import QhullError

from optsched.arrays import FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.formats.tables import Kind, Table, read_table
from optsched.instance.reading import listed, show
from optsched.performance.batches import GradientNoise

VALIDATION = re.compile(r"validation-([1-9]\d{0,8})\.csv", re.ASCII)
EPOCH: dict[str, Kind] = dict.fromkeys(
    ("progress", "iteration", "metric", "grad_sqr", "grad_var"), "number"
)
PLACED: dict[str, Kind] = {
    "placement": "text",
    "local_bsz": "number",
    "step_time": "number",
    "sync_time": "number",
}
SPREAD: dict[str, Kind] = {
    "num_nodes": "whole",
    "num_replicas": "whole",
    "local_bsz": "number",
    "step_time": "number",
    "sync_time": "number",
}
# Marks names of applications whose replicas are pipelines over several GPUs, as in Sia's simulator.
PIPELINE = "pmp"
DIGITS = re.compile("[1-9]+", re.ASCII)
# The simulators look up larger numbers of nodes as this number.
MOST_NODES = 16


@dataclass(frozen=True)
class Training:
    """A training that was measured with several batch sizes.

    Attributes
    ----------
    batch : FloatArray, shape (B,)
        Batch sizes, ascending; the first is M0.
    progress : FloatArray, shape (E,)
        Steps of M0 done at the end of each epoch: the minimum over batch sizes, as in the
        simulators.
    sqr, var : FloatArray, shape (B, E)
        |G|^2 and the variance of its estimate at M0, in each epoch.
    """

    batch: FloatArray
    progress: FloatArray
    sqr: FloatArray
    var: FloatArray

    def gain(self, epoch: IntArray, batch: FloatArray) -> FloatArray:
        """Progress of a step with a batch, in steps of M0, elementwise; statistics are interpolated
        linearly between batch sizes.
        """
        low = np.clip(
            np.searchsorted(self.batch, batch, side="right") - 1, 0, max(len(self.batch) - 2, 0)
        )
        high = np.minimum(low + 1, len(self.batch) - 1)
        width = np.maximum(self.batch[high] - self.batch[low], 1e-300)
        part = np.clip((batch - self.batch[low]) / width, 0.0, 1.0)
        sqr, var = (
            (1 - part) * of[low, epoch] + part * of[high, epoch] for of in (self.sqr, self.var)
        )
        gain: FloatArray = (var + sqr) / (var * self.batch[0] / batch + sqr)
        return gain


@dataclass(frozen=True)
class EpochNoise(GradientNoise):
    """The noise of a training in the epochs of E rows,
    for `optsched.performance.batches.best_batches`.
    """

    training: Training
    epoch: IntArray

    @classmethod
    def in_epochs(cls, training: Training, epoch: IntArray) -> EpochNoise:
        """The noise in these epochs."""
        return cls(
            training.sqr[0, epoch],
            training.var[0, epoch],
            np.full(len(epoch), training.batch[0]),
            training,
            epoch,
        )

    def gain(self, batch: object) -> FloatArray:
        """Progress of one step with a batch, in steps of M0, with the statistics of that batch
        size.
        """
        return self.training.gain(self.epoch, np.asarray(batch, np.float64))


@dataclass(frozen=True)
class StepTimes:
    """Times of steps on one kind of machine, looked up as the simulators do.

    Attributes
    ----------
    placed : mapping from str to FloatArray, shape (N, 3)
        By placement (nodes sorted by GPUs): samples of a GPU (ascending), seconds of a step, and
        seconds of its gradient exchange.
    spread : FloatArray, shape (S, 5)
        Nodes, GPUs, samples of a GPU, and the two times, ignoring the placement.
    """

    placed: dict[str, FloatArray]
    spread: FloatArray

    @property
    def least(self) -> float:
        """Fewest samples of a GPU."""
        return min(float(points[0, 0]) for points in self.placed.values())

    @cached_property
    def _between(self) -> LinearNDInterpolator | None:
        """Linear interpolation between the points of both tables (means of equal ones); None if
        there are too few points.
        """
        rows = [
            np.column_stack(
                [np.full((len(points), 2), (len(digits), sum(map(int, digits)))), points]
            )
            for digits, points in self.placed.items()
        ]
        points, place = np.unique(np.concatenate(rows)[:, :3], axis=0, return_inverse=True)
        count = np.bincount(place)
        means = [
            np.bincount(place, weights=np.concatenate(rows)[:, column]) / count for column in (3, 4)
        ]
        values = np.concatenate([np.column_stack(means), self.spread[:, 3:]])
        try:
            return LinearNDInterpolator(np.concatenate([points, self.spread[:, :3]]), values)
        except QhullError:  # points that span no volume
            return None

    def at(self, gpus: int, per_node: int, samples: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Seconds of a step and of its exchange on the fewest nodes; NaN if unknown."""
        digits = placement(gpus, per_node)
        if digits in self.placed:
            points = self.placed[digits]
            step, sync = (
                np.interp(samples, points[:, 0], points[:, column], left=np.nan, right=np.nan)
                for column in (1, 2)
            )
            return step, sync
        if self._between is None:
            return np.full(len(samples), np.nan), np.full(len(samples), np.nan)
        where = np.column_stack(
            [
                np.full((len(samples), 2), (min(-(-gpus // per_node), MOST_NODES), gpus), float),
                samples,
            ]
        )
        found = self._between(where)
        return found[:, 0], found[:, 1]

    def most(self, gpus: int, per_node: int) -> float:
        """Most samples per GPU measured on this number of GPUs or more; NaN if there are no such
        measurements.
        """
        digits = placement(gpus, per_node)
        if digits in self.placed:
            return float(self.placed[digits][-1, 0])
        # A number of samples that fits per GPU on more GPUs also fits on these
        as_wide = (self.spread[:, 0] >= -(-gpus // per_node)) & (self.spread[:, 1] >= gpus)
        return float(self.spread[as_wide, 2].max()) if as_wide.any() else math.nan


def placement(gpus: int, per_node: int) -> str:
    """Placement of GPUs on the fewest nodes: a digit per node, the smallest first; 12 GPUs on nodes
    of 8 give ``48``.
    """
    rest = [str(gpus % per_node)] if gpus % per_node else []
    return "".join(rest + [str(per_node)] * (gpus // per_node))


def read_training(folder: Path) -> Training:
    """Read the ``validation-B.csv`` of an application;
    epochs that not all of them have are left out.

    Raises
    ------
    InvalidInput
        With file, line and column, or naming the folder.
    """
    files = {
        int(match[1]): path
        for path in sorted(folder.glob("validation-*.csv"))
        if (match := VALIDATION.match(path.name))
    }
    if not files:
        raise InvalidInput(
            "", f"no file validation-B.csv in {folder}", "profiles of an application"
        )
    tables = []
    for batch in sorted(files):
        table = read_table(
            files[batch],
            "",
            EPOCH,
            ("progress", "grad_sqr", "grad_var"),
        )
        progress = table.numbers["progress"]
        table.refuse(
            "progress", np.diff(progress, prepend=0.0) <= 0, "more steps than in the epoch before"
        )
        for column in ("grad_sqr", "grad_var"):
            table.refuse(column, ~(table.numbers[column] >= 0), "a number of at least 0")
        both = table.numbers["grad_sqr"] + table.numbers["grad_var"]
        table.refuse("grad_var", both == 0, "grad_sqr and grad_var that are not both 0")
        tables.append(table)
    # Batch sizes may have different numbers of epochs; keep the common ones
    epochs = min(map(len, tables))
    columns = [
        np.array([table.numbers[name][:epochs] for table in tables])
        for name in ("grad_sqr", "grad_var")
    ]
    progress = np.array([table.numbers["progress"][:epochs] for table in tables]).min(axis=0)
    return Training(np.array(sorted(files), float), progress, *columns)


def read_step_times(folder: Path, machine: str) -> StepTimes:
    """Read ``placements-G.csv`` and ``scalability-G.csv`` of an application.

    Raises
    ------
    InvalidInput
        With file, line and column; also for a kind of machine that has no file.
    """
    path = folder / f"placements-{machine}.csv"
    if not path.is_file():
        known = [
            other.stem.removeprefix("placements-")
            for other in sorted(folder.glob("placements-*.csv"))
        ]
        raise InvalidInput(
            "", f"no file {path}", f"one of a pool's own kind of machine: {listed(known)}"
        )
    table = read_table(path, "", PLACED, PLACED)
    cells = table.cells["placement"]
    table.refuse(
        "placement",
        np.array([DIGITS.fullmatch(cell) is None for cell in cells]),
        "for each node a digit, its GPUs",
    )
    columns = _checked(table)
    # The simulators look placements up with the smallest node first
    sorted_digits = np.array(["".join(sorted(cell)) for cell in cells])
    placed: dict[str, FloatArray] = {}
    for digits in dict.fromkeys(sorted_digits.tolist()):
        rows = np.flatnonzero(sorted_digits == digits)
        # Other orders of the same nodes are never looked up
        kept = [row for row in rows.tolist() if cells[row] == digits]
        if kept:
            samples, first = np.unique(columns[kept, 0], return_index=True)
            placed[digits] = np.column_stack([samples, columns[kept][first, 1:]])
    path = folder / f"scalability-{machine}.csv"
    spread = np.zeros((0, 5))
    if path.is_file():
        table = read_table(path, "", SPREAD, SPREAD)
        counts = [
            table.whole(name, 1, "a whole number of at least 1")
            for name in ("num_nodes", "num_replicas")
        ]
        spread = np.column_stack([*counts, _checked(table)])
    return StepTimes(placed, spread)


def _checked(table: Table) -> FloatArray:
    """Samples, seconds of a step and of its exchange, shape (N, 3)."""
    samples, step, sync = (table.numbers[name] for name in ("local_bsz", "step_time", "sync_time"))
    table.refuse("local_bsz", ~(samples >= 1), "samples of a GPU, at least 1")
    table.refuse("step_time", ~(step > 0), "seconds above 0")
    table.refuse("sync_time", ~((sync >= 0) & (sync <= step)), "seconds from 0 to the step's own")
    return np.column_stack([samples, step, sync])


def applications_of(folder: Path) -> tuple[str, ...]:
    """Names of the applications that a folder of profiles has."""
    return (
        tuple(sorted(path.name for path in folder.iterdir() if path.is_dir()))
        if folder.is_dir()
        else ()
    )


def application_folder(folder: Path, name: str, place: str) -> Path:
    """The folder of an application;
    raises `InvalidInput` at ``place`` for an unknown application or a pipeline.
    """
    known = applications_of(folder)
    if PIPELINE in name:
        raise InvalidInput(
            place,
            show(name),
            "an application that every GPU has whole, not a pipeline over several",
        )
    if name not in known:
        raise InvalidInput(
            place, show(name), f"an application with profiles in {folder}: {listed(known)}"
        )
    return folder / name
