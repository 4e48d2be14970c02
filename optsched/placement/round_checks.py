"""`check_rounds`: slices checked against the allocation and the capacities, independently of how they were made."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.candidates import Classes
from optsched.placement.shares import Shares
from optsched.solution import Rounds
from optsched.solution.certificate import FEASIBILITY

RELATIVE = 1e-9
ABSOLUTE = 1e-11
"""Rows run for what they should up to this, relative to it or as a share of the window."""
CLOSED = 1e-7
"""Largest distance of bound and scale where nothing is left to search."""
REPORTED = 20
"""Flaws of one sort that are reported."""


class RoundsFlaw(NamedTuple):
    """What is wrong with rounds: the field, as a path inside of `rounds` in a solution file, and words."""

    field: str
    words: str


def check_rounds(rounds: Rounds, classes: Classes) -> list[RoundsFlaw]:
    """What is wrong with rounds; nothing if they are right.

    Every slice keeps every renewable resource, has whole GPUs for its shares, and has no job twice;
    slices have no negative length and fill at most the window; every row runs for ``scale`` times
    its fraction (by the priority rule: for at least as much, and one of them for no more, unless
    ``scale`` is 1).
    """
    problems = [*_check_length(rounds), *_check_share(rounds)]
    shape = (len(rounds), len(rounds.rows))
    if rounds.runs.shape != shape or not (rounds.runs.data == 1).all():
        return [
            *problems,
            RoundsFlaw("slices", f"expected a 0/1 matrix of {shape[0]} slices x {shape[1]} rows"),
        ]
    problems += [*_check_jobs(rounds, classes), *_check_capacity(rounds, classes)]
    return [
        *problems,
        *([] if problems else _check_packing(rounds, classes)),
        *_check_received(rounds),
    ]


def _check_length(rounds: Rounds) -> list[RoundsFlaw]:
    wrong = np.flatnonzero(~(rounds.length >= 0)).tolist()
    problems = [
        RoundsFlaw(
            f"slices[{number}].duration",
            f"found {rounds.length[number]:.9g} of the window, expected 0 or more",
        )
        for number in wrong[:REPORTED]
    ]
    total = float(rounds.length.sum())
    if not total <= 1 + RELATIVE:
        problems.append(
            RoundsFlaw(
                "slices", f"they last {total:.12g} of the window together, expected at most 1"
            )
        )
    return problems


def _check_share(rounds: Rounds) -> list[RoundsFlaw]:
    problems = []
    if not 0 <= rounds.scale <= 1:
        problems.append(
            RoundsFlaw("scale", f"found {rounds.scale!r}, expected a number from 0 to 1")
        )
    if not rounds.scale - RELATIVE <= rounds.bound <= 1 + RELATIVE:
        problems.append(
            RoundsFlaw("bound", f"found {rounds.bound!r}, expected a number from the scale to 1")
        )
    elif rounds.finished and rounds.method != "priority" and rounds.bound - rounds.scale > CLOSED:
        text = f"expected {rounds.scale!r}, the scale: the search is said to be finished"
        problems.append(RoundsFlaw("bound", f"found {rounds.bound!r}, {text}"))
    if not rounds.finished and rounds.method != "patterns":
        problems.append(
            RoundsFlaw(
                "finished", f"found false, expected true: {rounds.method} has no search to stop"
            )
        )
    return problems


def _check_jobs(rounds: Rounds, classes: Classes) -> list[RoundsFlaw]:
    rows = rounds.rows
    names = classes.instance.jobs_table.names
    number = np.arange(len(rows))
    shared = number[rows.partner >= 0]
    where = (np.concatenate([number, shared]), np.concatenate([rows.job, rows.partner[shared]]))
    takes_part = sp.csr_matrix((np.ones(len(where[0])), where), shape=(len(rows), len(names)))
    running = sp.coo_matrix(rounds.runs.astype(np.float64) @ takes_part)
    twice = np.flatnonzero(running.data > 1)
    return [
        RoundsFlaw(
            f"slices[{running.row[entry]}].run",
            f"job {names[int(running.col[entry])]} runs twice at a time",
        )
        for entry in twice[np.lexsort((running.col[twice], running.row[twice]))][:REPORTED].tolist()
    ]


def _check_capacity(rounds: Rounds, classes: Classes) -> list[RoundsFlaw]:
    resources = classes.resources
    usage = sp.csr_matrix(classes.usage[:, rounds.rows.column])
    used = np.asarray((rounds.runs.astype(np.float64) @ usage.T).todense()).reshape(
        len(rounds), len(resources)
    )
    over = (used > resources.capacity * (1 + FEASIBILITY)) & resources.renewable
    return [
        RoundsFlaw(
            f"slices[{number}].run",
            f"it takes {used[number, resource]:.9g} of {resources.names[resource]}, "
            f"expected at most {resources.capacity[resource]:.9g}",
        )
        for number, resource in np.argwhere(over)[:REPORTED].tolist()
    ]


def _check_packing(rounds: Rounds, classes: Classes) -> list[RoundsFlaw]:
    """Slices of which the shares of GPUs don't fit into whole GPUs, or are not known to."""
    shares = Shares.of(classes, rounds.rows.column)
    if shares is None:
        return []
    problems = []
    for number in range(len(rounds)):
        fits = shares.fits(rounds.running(number))
        if fits is not True:
            how = "do not fit" if fits is False else "are not known to fit"
            words = f"its shares of GPUs {how} into the whole GPUs of their pools, expected rows that do"
            problems.append(RoundsFlaw(f"slices[{number}].run", words))
    return problems[:REPORTED]


def _check_received(rounds: Rounds) -> list[RoundsFlaw]:
    """Rows that run for another time than they should; of a wrong scale, where all the others agree, just that."""
    fraction = rounds.rows.fraction
    received = rounds.received
    wanted = fraction > 0
    if not wanted.any() or not np.isfinite(rounds.scale):
        return []
    share = np.divide(received, fraction, out=np.zeros_like(received), where=wanted)
    if rounds.method == "priority":
        least = float(min(1.0, share[wanted].min()))
        return (
            []
            if abs(least - rounds.scale) <= RELATIVE
            else [
                RoundsFlaw(
                    "scale",
                    f"found {rounds.scale!r}, expected {least!r}: the smallest share that a row receives",
                )
            ]
        )
    large = fraction >= 0.1 * fraction.max()  # what rounding is to these tells nothing else
    actual = float(np.median(share[large]))
    problems = []
    scale = rounds.scale
    if not abs(actual - scale) <= RELATIVE + 10 * ABSOLUTE / fraction.max():
        problems.append(
            RoundsFlaw(
                "scale", f"found {scale!r}, but the rows run for {actual!r} of their fractions"
            )
        )
        scale = actual
    expected = scale * fraction
    wrong = np.flatnonzero(~(np.abs(received - expected) <= RELATIVE * expected + ABSOLUTE))
    return problems + [
        RoundsFlaw(
            "slices",
            f"allocation[{row}] runs for {received[row]:.12g} of the window, "
            f"expected {expected[row]:.12g}: scale x fraction",
        )
        for row in wrong[:REPORTED].tolist()
    ]
