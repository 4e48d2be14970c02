"""Gavel's table of pairs on one GPU, and the splits that models of pairs are judged by."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from optsched.performance.learned import PairModel, PairProfiles

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "perfmodel"
"""Beside the repository; not a part of it."""
FAULTY = "Recommendation"
"""Family whose rates alone are up to 12 times too low in the table."""


def load(without_faulty: bool = False) -> PairProfiles:
    """All pairs that ran together, with the features of their workloads."""
    alone: dict[tuple[str, str], float] = {}
    family, batch = {}, {}
    for row in _rows("gavel_simulation_isolated.csv"):
        if row["num_gpus"] != "1" or row["consolidated"] != "1":
            continue
        name = f"{row['model']}/{row['batch_size']}"
        alone[name, row["gpu_type"]] = float(row["steps_per_s_total"])
        family[name], batch[name] = row["model"], float(row["batch_size"])
    columns: dict[str, list[Any]] = {
        name: [] for name in ("gpu", "first", "second", "fraction_first", "fraction_second")
    }
    for row in _rows("gavel_pairs_1gpu.csv"):
        first, second = (f"{row[f'model_{which}']}/{row[f'batch_{which}']}" for which in "ab")
        rates = float(row["steps_per_s_a"]), float(row["steps_per_s_b"])
        if rates == (0.0, 0.0) or (without_faulty and FAULTY in (family[first], family[second])):
            continue
        each = [row["gpu_type"], first, second]
        each += [
            min(rate / alone[name, row["gpu_type"]], 1.0)
            for rate, name in zip(rates, each[1:], strict=True)
        ]
        for column, value in zip(columns.values(), each, strict=True):
            column.append(value)
    kept = {name for name in family if not (without_faulty and family[name] == FAULTY)}
    return PairProfiles.of(
        **columns,
        isolated={cell: rate for cell, rate in alone.items() if cell[0] in kept},
        family={name: family[name] for name in sorted(kept)},
        batch={name: batch[name] for name in sorted(kept)},
    )


def _rows(name: str) -> list[dict[str, str]]:
    with (SHARED / name).open(newline="") as file:
        return list(csv.DictReader(file))


@dataclass(frozen=True)
class Split:
    """Rows that are seen, and cells that are judged: rows, and which of their two jobs."""

    seen: np.ndarray
    asked: np.ndarray
    first: np.ndarray
    second: np.ndarray


def at_random(profiles: PairProfiles, share: float, seed: int) -> Split:
    """A share of the pairs is seen; both directions of the others are judged, of a job beside itself once."""
    order = np.random.default_rng(seed).permutation(len(profiles))
    count = round(share * len(profiles))
    asked = np.sort(order[count:])
    alone = profiles.pairs.first[asked] == profiles.pairs.second[asked]
    return Split(np.sort(order[:count]), asked, np.ones(len(asked), bool), ~alone)


def new_job(profiles: PairProfiles, job: int, share: float, seed: int) -> Split:
    """A share of a job's pairs is seen, and all of the others; the job's own fractions in the rest are judged."""
    return _without(profiles, np.array([job]), share, seed)


def new_family(profiles: PairProfiles, name: str) -> Split:
    """No pair of a family's jobs is seen; what they keep is judged."""
    return _without(profiles, np.flatnonzero(np.array(profiles.features.family) == name), 0.0, 0)


def _without(profiles: PairProfiles, jobs: np.ndarray, share: float, seed: int) -> Split:
    first, second = np.isin(profiles.pairs.first, jobs), np.isin(profiles.pairs.second, jobs)
    own = np.flatnonzero(first | second)
    shown = np.random.default_rng([seed, *jobs]).permutation(own)[: round(share * len(own))]
    seen = np.sort(np.concatenate((np.flatnonzero(~(first | second)), shown)))
    asked = np.setdiff1d(own, shown)
    alone = profiles.pairs.first[asked] == profiles.pairs.second[asked]
    return Split(seen, asked, first[asked], second[asked] & ~alone)


@dataclass(frozen=True)
class Judged:
    """Relative errors of the judged cells, and their logs over the standard deviations that the model told."""

    relative: np.ndarray
    log_error: np.ndarray
    log_sd: np.ndarray


def judge(model: PairModel, profiles: PairProfiles, split: Split) -> Judged:
    """How a model that was fitted to the seen pairs does on the others."""
    said = model.fractions(profiles.pairs.take(split.asked))
    told = np.concatenate((said.first[split.first], said.second[split.second]))
    true = np.concatenate(
        (profiles.first[split.asked][split.first], profiles.second[split.asked][split.second])
    )
    sd = np.concatenate((said.log_sd[split.first], said.log_sd[split.second]))
    return Judged(np.abs(told / true - 1), np.log(told / true), sd)
