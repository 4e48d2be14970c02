"""Figures of formulations: of classes in programs, of jobs in files."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from optsched.arrays import FloatArray
from optsched.candidates import Classes


def by_job(C: Classes, figures: Mapping[str, FloatArray]) -> dict[str, dict[str, float]]:
    """Figures of classes as figures of jobs, by name; those that are infinite are left out."""
    if not figures:
        return {}
    names, jobs = C.instance.jobs_table.names, np.flatnonzero(C.of_job >= 0)
    return {
        name: {
            names[job]: float(value)
            for job, value in zip(jobs.tolist(), figure[C.of_job[jobs]], strict=True)
            if np.isfinite(value)
        }
        for name, figure in figures.items()
    }


def by_class(C: Classes, figures: Mapping[str, Mapping[str, float]]) -> dict[str, FloatArray]:
    """Figures of jobs, by name, as figures of classes: those of the first job;
    NaN where there is none.
    """
    if not figures:
        return {}
    names = C.instance.jobs_table.names
    first = [names[job] for job in C.first.tolist()]
    return {
        name: np.array([figure.get(job, np.nan) for job in first], np.float64)
        for name, figure in figures.items()
    }
