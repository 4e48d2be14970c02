"""Boosted trees on Sia's step times: errors on what they have not seen, beside the bars that were set for them.

Errors are absolute percentage errors of the seconds of a step: their mean over rows, their median, and the mean of the
means of 30 pairs of a job and a GPU type. The naive figure is that of a step that takes as long as on one GPU. Run it
by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sia import few_shot, few_shot_middle, load
from sia import pairs as groups

from optsched.performance.learned.boosted import Boosted
from optsched.performance.learned.combined import Blend, Conformal
from optsched.performance.profiles import Profiles
from optsched.performance.times import TimeModel

SEEDS = 2


@dataclass(frozen=True)
class Row:
    """One task and model: the bar, our mean over rows, the naive one, and ours by group and as a median, in %."""

    task: str
    model: str
    bar: float | None
    ours: float
    baseline: float
    by_group: float
    median: float


def at_random(share: float) -> Callable[[Profiles, int], np.ndarray]:
    return lambda profiles, seed: np.random.default_rng(seed).random(len(profiles)) < share


def few_gpus(profiles: Profiles, seed: int) -> np.ndarray:
    """At most 4 GPUs."""
    return profiles.ways.gpus <= 4


TASKS: Mapping[str, tuple[float, int, Callable[[Profiles, int], np.ndarray]]] = {
    "random 50 %": (4.7, SEEDS, at_random(0.5)),
    "random 10 %": (7.1, SEEDS, at_random(0.1)),
    "few-shot, placements drawn": (12.9, SEEDS, few_shot),
    "few-shot, middle placements": (12.9, 2, few_shot_middle),
    "k <= 4, then k > 4": (16.2, 1, few_gpus),
}


MODELS: Mapping[str, tuple[type[TimeModel], Mapping[str, Any]]] = {
    "boosted alone": (Boosted, {}),
    "on pollux": (Boosted, {"of": {"model": "pollux"}}),
    "on shared-link": (Boosted, {"of": {"model": "shared-link", "anchored": True}}),
    "blend": (Blend, {}),
}


def rows() -> Iterator[Row]:
    """All tasks and models."""
    profiles = load()
    for task, (bar, seeds, split) in TASKS.items():
        for name, (model, options) in MODELS.items():
            errors: list[list[np.ndarray]] = [[], [], []]
            for seed in range(seeds):
                seen = split(profiles, seed)
                said = (
                    model.fit(profiles.take(np.flatnonzero(seen)), options)
                    .times(profiles.ways)
                    .seconds
                )
                told = ~seen & np.isfinite(said)
                assert (
                    told.sum() > 0.99 * (~seen).sum()
                )  # of a group without a measurement nothing is known
                errors[0].append(np.abs(said / profiles.seconds - 1)[told])
                errors[1].append(np.abs(_as_on_one(profiles, seen) / profiles.seconds - 1)[told])
                by_group = [np.abs(said / profiles.seconds - 1)[told & (groups(profiles) == group)].mean()
                            for group in np.unique(groups(profiles)[told])]  # fmt: skip
                errors[2].append(np.array(by_group))
            ours, naive, group = (100 * np.concatenate(each) for each in errors)
            yield Row(
                task, name, bar, ours.mean(), naive.mean(), group.mean(), float(np.median(ours))
            )


def _as_on_one(profiles: Profiles, seen: np.ndarray) -> np.ndarray:
    """Seconds of the seen step of the same group with the fewest GPUs and the nearest batch."""
    told, samples = np.empty(len(profiles)), np.log(profiles.ways.samples)
    for group in np.unique(groups(profiles)):
        own = np.flatnonzero(groups(profiles) == group)
        known = own[seen[own]]
        if len(known) == 0:
            told[own] = np.nan
            continue
        known = known[profiles.ways.gpus[known] == profiles.ways.gpus[known].min()]
        told[own] = profiles.seconds[
            known[np.abs(samples[own][:, np.newaxis] - samples[known]).argmin(axis=1)]
        ]
    return told


def coverage(level: float = 0.9) -> Iterator[Row]:
    """Steps inside their conformal intervals, in %; the median is the factor of half an interval."""
    profiles = load()
    for task, (_, seeds, split) in TASKS.items():
        inside, factors = [], []
        for seed in range(min(seeds, 1)):
            seen = split(profiles, seed)
            model = Conformal.fit(
                profiles.take(np.flatnonzero(seen)), {"of": {"model": "boosted"}, "level": level}
            )
            hidden = profiles.take(np.flatnonzero(~seen))
            least, most = model.intervals(hidden.ways)
            known = np.isfinite(least)
            inside.append(((least <= hidden.seconds) & (hidden.seconds <= most))[known])
            factors.append(np.exp(model.radius.radius))
        found = 100 * float(np.concatenate(inside).mean())
        yield Row(
            f"conformal {task}",
            "alone",
            100 * level,
            found,
            np.nan,
            np.nan,
            float(np.mean(factors)),
        )


def show(found: Iterator[Row]) -> None:
    for row in found:
        print(
            f"{row.task:30} {row.model:15} bar {row.bar:5.1f}  ours {row.ours:5.1f}  naive {row.baseline:5.1f}  "
            f"by group {row.by_group:5.1f}  median {row.median:5.2f}",
            flush=True,
        )


if __name__ == "__main__":
    show(rows())
    show(coverage())
