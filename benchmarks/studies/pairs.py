"""Models of pairs on Gavel's table: errors on what they have not seen, beside the bars that were set for them.

Errors are mean absolute percentage errors of the fractions of jobs beside others on one GPU. Both directions of a pair
are hidden together, and a model sees nothing of the hidden pairs; the hyperparameters of ``auto`` come from the
marginal likelihood of the pairs that it sees. Figures are means over seeds, jobs or families. Run it by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gavel_pairs import Split, at_random, judge, load, new_family, new_job

from optsched.performance.learned import PairProfiles, pair_class
from optsched.performance.learned.pair_models import ConformalPairs

SEEDS = 3
MODELS: Mapping[str, Mapping[str, Any]] = {
    "auto": {},
    "boosted-pairs": {},
    "row-column": {},
    "completion": {},
}
"""The first one is ours."""


@dataclass(frozen=True)
class Row:
    """One task: the bar, our figure, the naive one (the constant 0.5), and those of other models of ours, in %."""

    task: str
    bar: float | None
    ours: float
    baseline: float
    others: Mapping[str, float]


def compare(
    task: str,
    bar: float | None,
    profiles: PairProfiles,
    splits: Sequence[Split],
    names: Sequence[str] = tuple(MODELS),
) -> Row:
    """Errors of models over splits, each split counting its cells."""
    errors: dict[str, list[np.ndarray]] = {name: [] for name in (*names, "0.5")}
    for split in splits:
        for name in names:
            model = pair_class(name).fit(profiles.take(split.seen), MODELS[name])
            errors[name].append(judge(model, profiles, split).relative)
        true = (
            profiles.first[split.asked][split.first],
            profiles.second[split.asked][split.second],
        )
        errors["0.5"].append(np.abs(0.5 / np.concatenate(true) - 1))
    ours, *others = (
        (name, 100 * float(np.concatenate(parts).mean())) for name, parts in errors.items()
    )
    found = dict(others)
    return Row(task, bar, ours[1], found.pop("0.5"), found)


def rows(seeds: int = SEEDS) -> Iterator[Row]:
    """All tasks; a quarter of an hour."""
    for without, bars, words in (
        (False, (7.5, 9.5, 16.0), "all rows"),
        (True, (6.2, 8.1, 11.8), "no Recommendation"),
    ):
        profiles = load(without)
        for share, bar in zip((0.8, 0.5, 0.2), bars, strict=True):
            splits = [at_random(profiles, share, seed) for seed in range(seeds)]
            yield compare(f"pairs, {share:.0%} seen, {words}", bar, profiles, splits)
        if without:
            for share in (0.1, 0.05, 0.02):
                splits = [at_random(profiles, share, seed) for seed in range(seeds)]
                names = ("auto", "row-column")
                yield compare(f"pairs, {share:.0%} seen, {words}", None, profiles, splits, names)
    profiles = load()
    jobs = range(len(profiles.features.workloads))
    learnt = ("auto", "boosted-pairs", "row-column")
    for share, bar in ((0.2, 10.0), (0.0, 12.5)):
        splits = [new_job(profiles, job, share, 0) for job in jobs]
        yield compare(f"new job, {share:.0%} of its pairs seen", bar, profiles, splits, learnt)
    splits = [new_family(profiles, name) for name in sorted(set(profiles.features.family))]
    yield compare("new family", 23.0, profiles, splits, learnt)


def coverage(seeds: int = 5, level: float = 0.9, share: float = 0.5) -> Iterator[Row]:
    """Hidden fractions inside their conformal intervals, in %; ``others`` has the factor of half an interval."""
    profiles = load()
    for name in ("gaussian-pairs", "row-column", "boosted-pairs"):
        inside, widths = [], []
        for seed in range(seeds):
            split = at_random(profiles, share, seed)
            model = ConformalPairs.fit(
                profiles.take(split.seen), {"of": {"model": name}, "level": level}
            )
            inside.append(np.abs(judge(model, profiles, split).log_error) <= model.radius.radius)
            widths.append(np.exp(model.radius.radius))
        found = 100 * float(np.concatenate(inside).mean())
        task = f"conformal {level:.0%}, {name}, {share:.0%} seen"
        yield Row(task, 100 * level, found, 100 * level, {"factor": float(np.mean(widths))})


def show(found: Callable[[], Iterator[Row]]) -> None:
    for row in found():
        bar = "    -" if row.bar is None else f"{row.bar:5.1f}"
        others = "  ".join(f"{name} {value:.2f}" for name, value in row.others.items())
        print(
            f"{row.task:45} bar {bar}  ours {row.ours:5.2f}  naive {row.baseline:5.1f}  {others}",
            flush=True,
        )


if __name__ == "__main__":
    show(rows)
    show(coverage)
