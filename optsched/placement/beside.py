"""GPUs for rows that start, while all others stay where they are: no program, no bound, in the time of a round."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from optsched.arrays import IntArray
from optsched.candidates import Classes, JobRows
from optsched.placement.best_fit import best_fit
from optsched.placement.plain import Movable, is_plain, move_plain, place_plain
from optsched.placement.problem import Assignment, Problem
from optsched.placement.refusal import why_refused
from optsched.placement.requests import Requests
from optsched.placement.standing import Standing, refuse_standing


class Unseated(NamedTuple):
    """A row without a place.

    Attributes
    ----------
    row : int
        Row of the allocation.
    reason : str
        What it needs, and what is free.
    scattered : bool
        Its pool has as many free GPUs as it asks for, but not where it needs them: moving what
        stands may make room.
    """

    row: int
    reason: str
    scattered: bool


@dataclass(frozen=True)
class Seated:
    """GPUs of rows that start.

    Attributes
    ----------
    row : IntArray, shape (P,)
        Rows of the allocation that have a place, in the order in which they were wanted.
    gpus : tuple of tuples of str, length P
        GPUs of each, written ``node/index``.
    refused : tuple of Unseated
        Rows that found none, in that order.
    """

    row: IntArray
    gpus: tuple[tuple[str, ...], ...]
    refused: tuple[Unseated, ...]

    def __len__(self) -> int:
        return len(self.row)


def place_beside(
    classes: Classes,
    rows: JobRows,
    wanted: IntArray,
    standing: Standing,
    constraints: Iterable[Mapping[str, Any]] = (),
    *,
    barred: Sequence[Collection[str]] | None = None,
) -> Seated:
    """GPUs for rows that start, while everything that stands stays where it is.

    Best fit (`optsched.placement.best_fit`) on what is left: larger gangs first, of equal ones
    those that are wanted first; a gang without room may push smaller ones that start as well. A row
    that is refused fits nowhere beside what stands and what has got a place (where no node belongs
    to two of the resources of some nodes); another choice of places, or moving what stands
    (`optsched.placement.making_room`), may still have room for it.

    Parameters
    ----------
    classes : Classes
    rows : JobRows
        The allocation row by row.
    wanted : IntArray, shape (W,)
        Rows that start, the most important first; those without GPUs need no place and are left
        out.
    standing : Standing
        What stands. Nodes that take no work keep what stands on them and get nothing new.
    constraints : iterable of mappings
        Side constraints; those of kind ``anti-affinity`` are read, for what starts and what stands.
    barred : sequence of collections of str, length W, optional
        Names of nodes of which each row gets nothing.

    Returns
    -------
    Seated
        The same for the same arguments.

    Raises
    ------
    ValueError
        A job is wanted twice, or stands already.
    UsageError
        ``barred`` has another length, or names that are no nodes.
    """
    requests = Requests.of(classes, rows, np.asarray(wanted, np.int64), constraints, barred)
    jobs = requests.jobs_of_all
    once, count = np.unique(jobs, return_counts=True)
    if len(once) < len(jobs):
        raise ValueError(
            f"job {classes.instance.jobs_table.names[int(once[np.argmax(count)])]} is to be placed twice"
        )
    refuse_standing(standing, jobs)
    if is_plain(requests, standing):
        found = place_plain(requests, standing)
        if all(j in found for j in np.flatnonzero(requests.span > 1).tolist()):
            return _seated_plainly(classes, rows, requests, standing, found)
    problem = Problem.of(requests, np.unique(requests.pool).tolist(), standing)
    assignment = best_fit(problem, keep=True)
    names = problem.gpu_names(assignment)
    return Seated(
        requests.row[list(names)],
        tuple(names.values()),
        _unseated(requests, problem, assignment),
    )


def _unseated(requests: Requests, problem: Problem, assignment: Assignment) -> tuple[Unseated, ...]:
    return tuple(
        Unseated(int(requests.row[request]), words, scattered)
        for request, words, scattered in why_refused(problem, assignment)
    )


def moving(
    classes: Classes,
    rows: JobRows,
    wanted: IntArray,
    standing: Standing,
    movable: Movable,
    most: float,
) -> tuple[dict[int, tuple[str, ...]], dict[int, tuple[str, ...]]] | None:
    """Room for rows that `place_beside` refused, by moving gangs that stand (`optsched.placement.plain.move_plain`).

    Returns
    -------
    GPUs by row, and by the number of what is moved; None where the rows are not plain.
    """
    requests = Requests.of(classes, rows, np.asarray(wanted, np.int64))
    if not is_plain(requests, standing):
        return None
    placed, moved = move_plain(requests, standing, movable, most)
    return {int(requests.row[j]): gpus for j, gpus in placed.items()}, moved


def _seated_plainly(
    classes: Classes,
    rows: JobRows,
    requests: Requests,
    standing: Standing,
    found: Mapping[int, tuple[str, ...]],
) -> Seated:
    """Plain gangs, with words for those that are refused."""
    placed = sorted(found)
    row = requests.row[placed]
    gpus = tuple(found[j] for j in placed)
    left = np.array([j for j in range(len(requests)) if j not in found], np.int64)
    refused: tuple[Unseated, ...] = ()
    if len(left):
        rest = requests.take(left)
        beside = standing.and_also(Standing.of_rows(classes, rows, row, gpus))
        problem = Problem.of(rest, np.unique(rest.pool).tolist(), beside)
        refused = _unseated(rest, problem, {})
    return Seated(row, gpus, refused)
