"""Slices of GPUs (MIG): which columns run in one, and the layouts that a GPU can have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from optsched.arrays import IntArray, constant
from optsched.candidates.classes import Classes
from optsched.errors import InvalidInput
from optsched.instance import Layouts, Pool
from optsched.instance.layouts import MIG
from optsched.instance.reading import show
from optsched.performance import partitions_of

NO_SLICE = -1
"""Profile of a column that is in no slice."""


@dataclass(frozen=True, eq=False)
class Slices:
    """Which columns run in slices.

    Attributes
    ----------
    profile : IntArray, shape (N,)
        Row of its profile among those of its pool, `NO_SLICE` for none.
    layouts : mapping from int to Layouts
        Layouts by pool: pools with a column in a slice, and pools that the caller asked for.
    """

    profile: IntArray
    layouts: Mapping[int, Layouts]

    @classmethod
    def of(cls, C: Classes, pools: Collection[int] = ()) -> Slices:
        """A column is a slice if its option has the attribute ``mig``.

        Parameters
        ----------
        C : Classes
        pools : collection of int
            Pools whose layouts are needed in any case.

        Raises
        ------
        InvalidInput
            The GPUs of a pool cannot be cut, or have no such profile.
        """
        table = C.configurations
        profile = constant(NO_SLICE, C.columns, np.int64)
        if not pools and not any(MIG in attributes for attributes in table.attribute_sets):
            return cls(profile, {})
        names = [attributes.get(MIG) for attributes in table.attribute_sets]
        profile = profile.copy()
        named = np.array([name is not None for name in names])
        sliced = np.flatnonzero((C.pool >= 0) & named[table.attributes[C.configuration]])
        wanted = sorted({*pools, *np.unique(C.pool[sliced]).tolist()})
        layouts = {pool: layouts_of(C.instance.cluster.pools[pool], pool) for pool in wanted}
        ways, first, way = np.unique(
            C.configuration[sliced], return_index=True, return_inverse=True
        )
        row = np.zeros(len(ways), np.int64)
        for number, configuration in enumerate(ways.tolist()):
            option = option_path(C, int(sliced[first[number]]))
            name = names[int(table.attributes[configuration])]
            legal = layouts[int(table.pool[configuration])]
            row[number] = legal.row(name, f"{option}.attributes.{MIG}")
        profile[sliced] = row[way]
        return cls(profile, layouts)

    def refuse_larger_shares(self, C: Classes) -> None:
        """Refuse options whose share is larger than their slice. Programs, placements and metrics
        count the share, so the slice must be at least as large.

        Raises
        ------
        InvalidInput
        """
        share = C.configurations.share[C.configuration]
        for pool, layouts in self.layouts.items():
            sliced = np.flatnonzero((C.pool == pool) & (self.profile != NO_SLICE))
            part = layouts.parts[self.profile[sliced]]
            larger = np.flatnonzero(share[sliced] > part * (1 + 1e-6))
            if len(larger):
                column = int(sliced[larger[0]])
                name = layouts.names[int(self.profile[column])]
                most = f"{part[larger[0]]:g}, the part of the memory slices that {name} has"
                path = f"{option_path(C, column)}.share"
                raise InvalidInput(path, f"{share[column]:g}", f"at most {most}")


def option_path(C: Classes, column: int) -> str:
    """Path of the option of a column in the instance."""
    job = int(C.first[C.class_a[column]])
    option = int(C.candidates.columns.option[C.kind_column[column]])
    first = int(C.instance.options.indptr[C.instance.jobs_table.options[job]])
    return f"jobs[{job}].options[{option - first}]"


def layouts_of(pool: Pool, row: int) -> Layouts:
    """The layouts of the GPUs of a pool, which is a row of the cluster's.

    Raises
    ------
    InvalidInput
        Its GPUs cannot be cut.
    """
    path = f"cluster.pools[{row}]"
    partitions = partitions_of(pool, f"{path}.gpu")
    if not partitions:
        found = f"{show(pool.gpu)}, which has no profiles"
        raise InvalidInput(f"{path}.gpu", found, "a GPU with MIG, or partitions of the pool")
    return Layouts(partitions, f"{path}.partitions")
