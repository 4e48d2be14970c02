"""Programs over the columns to start with and some configurations more."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from optsched.arrays import FloatArray, IntArray, group_rows
from optsched.arrays.matrices import scaled_rows
from optsched.candidates import Classes
from optsched.candidates.classes import JobGroups, alone_columns, assemble
from optsched.program import AllocationProgram
from optsched.solving.column_generation.configuration_pricing import Chosen, ConfigurationPricing


@dataclass(frozen=True)
class Restricted:
    """A program over the columns to start with and over configurations of classes.

    Attributes
    ----------
    program : AllocationProgram
    order : IntArray, shape (N,)
        Which of its columns each is: those to start with come first, then the configurations as they were given.
    """

    program: AllocationProgram
    order: IntArray

    def totals(self, x: FloatArray) -> FloatArray:
        """Totals of the columns as they were given, of totals of the program's."""
        given = np.empty(len(x))
        given[self.order] = x
        return given


def restricted(pricing: ConfigurationPricing, chosen: Chosen) -> Restricted:
    """The program with columns for these configurations; levels are throughputs times numbers of the classes."""
    classes, order = with_configurations(pricing, chosen)
    levels = scaled_rows(classes.throughput, pricing.scale)
    return Restricted(replace(pricing.program, classes=classes, levels=levels), order)


def with_configurations(pricing: ConfigurationPricing, chosen: Chosen) -> tuple[Classes, IntArray]:
    """The classes with columns for these configurations, and which each of their columns is, as in `Restricted`."""
    C, table = pricing.classes, pricing.table
    cells, which = np.unique(chosen.cell, return_inverse=True)
    grown = C.candidates.with_configurations(cells)
    columns, curve = grown.columns, table.curve_of(cells)
    plain = np.flatnonzero((columns.option < 0) & (columns.workers == 0))
    ways = table.way[cells]
    theirs = (
        table.kind[curve],
        table.ways.pool[ways],
        table.ways.gpus[ways],
        table.ways.nodes[ways],
    )
    mine = (columns.kind[plain], columns.pool[plain], columns.gpus[plain], columns.nodes[plain])
    same = group_rows(
        [np.concatenate(pair) for pair in zip(mine, theirs, strict=True)], len(plain) + len(cells)
    )
    column = plain[same.first[same.inverse[len(plain) :]]]
    first = np.ones(len(columns), bool)
    first[column] = False
    start = np.flatnonzero(first)
    first_columns, owner, _ = alone_columns(
        columns.take(start), pricing.classes.kind, len(grown.kinds)
    )
    kind_column = np.concatenate(
        [start if first_columns is None else start[first_columns], column[which]]
    )
    owner = np.concatenate([owner, chosen.klass])
    order = np.argsort(owner * len(columns) + kind_column)
    alone = (kind_column[order], owner[order], np.full(len(order), -1, np.int64))
    nobody = np.zeros(0, np.int64)
    groups = JobGroups(C.of_job, C.first, C.count.astype(np.int64))
    return assemble(grown, C.reads, groups, alone, (nobody, nobody, nobody)), order
