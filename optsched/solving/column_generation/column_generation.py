"""Column generation: programs with too many columns to be written down, of which few are used."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from optsched.candidates import Classes
from optsched.program import AllocationProgram
from optsched.solution.plan import Plan
from optsched.solving.column_generation.configuration_generation import generate_configurations
from optsched.solving.column_generation.pair_generation import generate_pairs
from optsched.solving.column_generation.pricing import Build, refuse
from optsched.solving.engine import Engine
from optsched.solving.outcome import SolvedProgram

log = logging.getLogger("optsched")


@dataclass(frozen=True)
class CheckedBuild:
    """Builds programs over classes with more columns, and refuses programs whose columns cannot be
    priced.
    """

    build: Build

    def __call__(self, classes: Classes) -> AllocationProgram | Plan:
        # A constraint without rows over the first columns may have rows over generated ones.
        made = self.build(classes)
        if isinstance(made, AllocationProgram):
            refuse(made, gone=False, concave=True)
        return made


def generate_columns(engine: Engine, program: AllocationProgram, build: Build) -> SolvedProgram:
    """Solve the program over all columns by generating those with a positive reduced cost.

    Where jobs can share GPUs these are pairs of jobs, and all configurations of jobs alone are
    columns; elsewhere they are configurations of jobs that have a choice of GPU counts.

    Parameters
    ----------
    engine : Engine
    program : AllocationProgram
        Over classes of candidates that were compiled on demand, each with its own column.
    build : callable
        The program over classes with more columns.

    Raises
    ------
    UsageError
        For programs whose columns cannot be priced by the levels of jobs.
    """

    checked = CheckedBuild(build)
    if program.classes.candidates.elastic is not None:
        return generate_configurations(engine, program, checked)
    log.info(
        "jobs can share GPUs: columns are generated of pairs, "
        "and all configurations of jobs alone are columns"
    )
    return generate_pairs(engine, program, checked)
