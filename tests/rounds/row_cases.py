"""Rows of a round by hand."""

from __future__ import annotations

import numpy as np

from optsched.candidates import JobRows


def rows(*jobs: tuple[int, int], fraction: float = 0.5) -> JobRows:
    """Rows of (job, partner); a row's column is its place."""
    job, partner = np.array(jobs, np.int64).reshape(-1, 2).T
    part = np.full(len(job), fraction)
    return JobRows(job, partner, np.arange(len(job)), part, part * 0 + 1.0, part * 0 + 1.0)


def mask(*values: int) -> np.ndarray:
    return np.array(values, bool)
