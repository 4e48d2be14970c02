"""How much of its GPUs each job may use while others leave them idle: between its share and its
limit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.candidates import Classes
from optsched.placement.occupied import Occupied


def granted_shares(
    classes: Classes, column: IntArray, gpus: Sequence[Sequence[str]], beside: Occupied
) -> FloatArray | None:
    """Share of each of its GPUs that each row may use.

    A row has at least its share and at most its limit. What is left of a GPU goes to those who have
    least (max-min fairness, by progressive filling). A row has the same share of all of its GPUs.

    Parameters
    ----------
    classes : Classes
    column : IntArray, shape (P,)
        Of the rows, all of which run at once.
    gpus : sequence of sequences of str, length P
        ``node/index``.
    beside : Occupied
        GPUs of jobs that are in none of these rows. Each of these jobs keeps its share and gets no
        more.

    Returns
    -------
    FloatArray or None, shape (P,)
        None where no option has a limit above its share.

    References
    ----------
    T.-A. Yeh, H.-H. Chen, J. Chou, "KubeShare: a framework to manage GPUs as first-class and shared
    resources in container cloud", HPDC 2020; D. Bertsekas, R. Gallager, "Data Networks", 1992,
    section 6.5.2.
    """
    low = classes.configurations.share[classes.configuration[column]]
    high = np.maximum(low, _limits(classes, column))
    if not (high > low).any():
        return None
    # GPUs of which someone may use more, and who has them
    number = {gpu: -1 for i in np.flatnonzero(low < high).tolist() for gpu in gpus[i]}
    number = {name: place for place, name in enumerate(number)}
    held = [
        (number[gpu], i) for i, held_gpus in enumerate(gpus) for gpu in held_gpus if gpu in number
    ]
    gpu, row = np.array(held, np.int64).T
    capacity = 1.0 - beside.load[classes.instance.cluster.numbering.numbers(number)]
    of_gpu = np.split(row[np.argsort(gpu, kind="stable")], np.cumsum(np.bincount(gpu))[:-1])
    low = low.copy()
    while (low < high).any():
        level = np.array(
            [
                _level(low[held_gpus], high[held_gpus], room)
                for held_gpus, room in zip(of_gpu, capacity.tolist(), strict=True)
            ]
        )
        row_level = np.full(len(column), np.inf)
        np.minimum.at(row_level, row, level[gpu])
        # A GPU settles its rows, unless another one holds some of them back more.
        elsewhere = (low < high)[row] & (row_level[row] < level[gpu])
        settles = np.bincount(gpu, elsewhere) == 0
        settled = row[settles[gpu]]
        low[settled] = high[settled] = np.clip(row_level, low, high)[settled]
    return low


def _limits(classes: Classes, column: IntArray) -> FloatArray:
    """Limits of the options of columns, shape (columns,); 0 for what is no option."""
    option = classes.candidates.columns.option[classes.kind_column[column]]
    return np.append(classes.instance.options.limit, 0.0)[option]


def _level(low: FloatArray, high: FloatArray, capacity: float) -> float:
    """The level to which rows on one GPU rise between their bounds until their sum is the capacity;
    inf if it never is.
    """
    points = np.unique(np.concatenate([low, high]))
    total = np.clip(points[:, np.newaxis], low, high).sum(axis=1)
    if total[-1] <= capacity:
        return np.inf
    above = int(np.searchsorted(total, capacity, side="right"))
    if above == 0:
        return float(points[0])
    rising = (capacity - total[above - 1]) / (total[above] - total[above - 1])
    return float(points[above - 1] + rising * (points[above] - points[above - 1]))
