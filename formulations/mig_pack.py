"""MIG packing: which layout each GPU has, and which jobs run in its slices, on the fewest GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
import scipy.sparse as sp
from pydantic import Field

from formulations.all_assigned import without_pairs
from formulations.machines import rank
from optsched.arrays import FloatArray, IntArray
from optsched.arrays.matrices import sum_by
from optsched.candidates import NO_SLICE, Candidates, Classes, Slices, option_path
from optsched.errors import InvalidArgument, InvalidInput, UsageError
from optsched.formulation import Formulation, FormulationOptions
from optsched.instance import Instance, Layouts
from optsched.instance.layouts import MIG
from optsched.instance.reading import show
from optsched.program import LinearProgram, SideRows
from optsched.solution import Schedule
from optsched.solution.plan import LinearPlan, Plan

Held = Mapping[str, Mapping[str, Annotated[int, Field(ge=0, le=2**31)]]]


class MigPack(Formulation):
    """Run enough replicas in slices of GPUs to meet all demands; use as few GPUs as possible.

    Sets
        k in K: classes of n_k equal jobs, the replicas of services;  c in C_k: their columns, each
        a slice of profile p(c) on a GPU of pool g(c), or a whole GPU there (no p);
        l in L_g: layouts of a GPU of pool g: the largest multisets of profiles that fit beside each
        other
    Parameters
        cnt_lp    slices of profile p in layout l;   N_g GPUs of pool g
        w_g       1; with ``objective=cost`` USD/h of a GPU
        old_gl    GPUs that have layout l now;   r cost, in GPUs, of each GPU that a layout gains or
                  loses
        T_kc      steps/s of class k in column c (a step may be a request)
    Variables
        x_c       jobs that run in column c;   n_gl GPUs in layout l;   d_gl change of n_gl
    Program
        minimise  sum_gl w_g (n_gl + r d_gl)  +  sum_{c: whole} w_g(c) x_c
        one     sum_{c in C_k} x_c  <=  n_k                                            every class k
        slices  sum_{c: g(c) = g, p(c) = p} x_c  <=  sum_l cnt_lp n_gl                 every g and p
        gpus    sum_l n_gl  +  sum_{c: g(c) = g, whole} x_c  <=  N_g                   every g
        change  d_gl  >=  n_gl - old_gl,   d_gl  >=  old_gl - n_gl                     every g and l
        uses    sum_c u_rc x_c  <=  b_r                                                other resources r
        x, n >= 0 integer

    and the rows of the side constraints over x. The demand of a service is one of them:

        minimum-throughput    sum_{k of the service} sum_c T_kc x_c  >=  demand

    Without demands nothing runs. A slice is an option of a job on one GPU with the attribute
    ``mig``, the name of a profile of its pool: ``{"pool": "a100", "gpus": 1, "share": 0.125,
    "attributes": {"mig": "1g.5gb"}}`` and a throughput. ``share`` is what other formulations count:
    at most the part of the memory slices. Profiles are those of the pool's ``partitions``, else of
    the GPU that its type names. Legal layouts are enumerated from the starts of the profiles
    (`optsched.instance.Layouts`). Gangs of several GPUs are refused; CPUs and other resources are
    limited in total, not node by node.

    Options
        objective   ``gpus``: their number; ``cost``: USD/h.
        layouts     {pool: {layout: GPUs}}: what is there now, such as {"a100": {"3g.20gb+4g.20gb": 2}}.
        change      r: cost, in GPUs, of each GPU that a layout gains or loses; needs ``layouts``.

    References
        C. Tan et al., "Serving DNN Models with Multi-Instance GPUs: A Case of the Reconfigurable
        Machine Scheduling Problem", arXiv:2109.11067 (the problem; heuristics there, the integer
        program here).
    """

    name = "mig-pack"
    also_reads = frozenset({"partitions"})
    reads_pairs = False
    sense = "min"
    leaves_idle = True
    objective_words = "GPUs in use"

    class Options(FormulationOptions):
        """Options of MIG packing."""

        objective: Literal["gpus", "cost"] = "gpus"
        layouts: Held = Field(default_factory=dict)
        change: Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)] = 0.0

    @property
    def integral(self) -> bool:
        """Counts of replicas are whole numbers."""
        return True

    def check(self, instance: Instance) -> None:
        """Pools of ``layouts`` must exist."""
        for pool in self.options.layouts:
            if pool not in instance.cluster.pool_index:
                names = ", ".join(instance.cluster.pool_index)
                raise InvalidArgument("mig-pack: layouts", show(pool), f"one of the pools {names}")

    def classes(self, candidates: Candidates) -> Classes:
        """Classes without columns of two jobs."""
        return super().classes(without_pairs(candidates))

    def build(self, C: Classes) -> LinearPlan:
        return self._packing(C).plan(())

    def program(self, C: Classes) -> Plan:
        """The program with the rows of the side constraints, which are rows over x."""
        if self.extend is not None:
            raise self.no_rows
        return self._packing(C).plan(self.side_rows(C))

    def _packing(self, C: Classes) -> _PackProgram:
        self.check(C.instance)
        return _PackProgram(C, self.options.layouts, self.options.change, self.options.objective)


@dataclass(frozen=True)
class _PackProgram:
    """The sets and parameters of one program."""

    C: Classes
    held: Held
    change: float
    objective: str

    # --- sets -------------------------------------------------------------------------------------

    @cached_property
    def slices(self) -> Slices:
        """p(c), and legal layouts of the pools in which some column is a slice or something is
        held.
        """
        index = self.C.instance.cluster.pool_index
        return Slices.of(self.C, [index[pool] for pool in self.held])

    @property
    def profile(self) -> IntArray:
        """p(c): row of the profile among those of its pool, `NO_SLICE` for none; shape (N,)."""
        return self.slices.profile

    @property
    def layouts(self) -> Mapping[int, Layouts]:
        """Legal layouts by the row of the pool."""
        return self.slices.layouts

    @cached_property
    def old(self) -> dict[int, list[tuple[IntArray, int]]]:
        """Slices of each profile, and GPUs, of the layouts that each pool has now."""
        index = self.C.instance.cluster.pool_index
        found: dict[int, list[tuple[IntArray, int]]] = {}
        for pool, held in self.held.items():
            layouts = self.layouts[index[pool]]
            path = f"mig-pack: layouts.{pool}"
            try:
                parts = [(layouts.read(text, path), gpus) for text, gpus in held.items()]
            except InvalidInput as error:
                raise InvalidArgument(path, error.found, error.expected) from error
            found[index[pool]] = parts
        return found

    @cached_property
    def kinds(self) -> tuple[tuple[int, IntArray, int], ...]:
        """(g, cnt_l, old_gl) of each n_gl: in each pool the current layouts first, then all
        others.
        """
        found: list[tuple[int, IntArray, int]] = []
        for pool, layouts in self.layouts.items():
            there = {tuple(counts.tolist()): 0 for counts, _ in self.old.get(pool, [])}
            for counts, gpus in self.old.get(pool, []):
                there[tuple(counts.tolist())] += gpus
            for counts in layouts.counts:
                there.setdefault(tuple(counts.tolist()), 0)
            found += [(pool, np.array(counts, np.int64), gpus) for counts, gpus in there.items()]
        return tuple(found)

    @cached_property
    def weight(self) -> FloatArray:
        """Weights w_g of the pools, shape (pools,)."""
        pools = self.C.instance.cluster.pools
        if self.objective == "gpus":
            return np.ones(len(pools))
        used = np.unique(self.C.pool[self.C.pool >= 0]).tolist()
        for pool in used:
            if pools[pool].cost_per_gpu_hour is None:
                path = f"cluster.pools[{pool}].cost_per_gpu_hour"
                raise InvalidInput(path, "nothing", "a price in USD, as cost is to be minimised")
        return np.array([pool.cost_per_gpu_hour or 0.0 for pool in pools])

    @property
    def _charges_for_changes(self) -> bool:
        return self.change > 0 and bool(self.held)

    # --- the program ------------------------------------------------------------------------------

    def plan(self, side: Sequence[SideRows]) -> LinearPlan:
        """The program that `MigPack` states."""
        C, kinds, w = self.C, self.kinds, self.weight
        self._refuse(side)
        pools = len(C.instance.cluster.pools)
        of_pool = np.array([pool for pool, _, _ in kinds], np.int64)
        old = np.array([gpus for _, _, gpus in kinds], np.float64)
        whole = (self.profile == NO_SLICE) & (C.pool >= 0)
        N = np.append(C.instance.cluster.gpus(C.instance.now), 0).astype(np.float64)

        lp = LinearProgram()
        x = lp.variables(C.columns, name="x", upper=C.limit, integer=True)
        # These bounds follow from the row `gpus`. As implied bounds they stay out of conflicts,
        # which then name that row.
        most = np.maximum(N[of_pool], old)
        n = lp.variables(len(kinds), name="n", implied=(0.0, most), integer=True)
        lp.constrain(C.member @ x <= C.count, name="one")
        asked, supplied = self._slices()
        lp.constrain(asked @ x - supplied @ n <= 0.0, name="slices")
        in_pool = sum_by(of_pool, 1.0, pools)
        runs_whole = sum_by(np.where(whole, C.pool, pools), 1.0, pools + 1)[:pools]
        lp.constrain(in_pool @ n + runs_whole @ x <= N[:pools], name="gpus")
        others = np.flatnonzero(C.resources.pool < 0)
        lp.constrain(sp.csr_matrix(C.usage.tocsr()[others]) @ x <= C.capacity[others], name="uses")
        for rows in side:
            lp.constrain((rows.matrix @ x).between(rows.lower, rows.upper), name=rows.name)
        gpus = w[of_pool][np.newaxis, :] @ n
        gpus = gpus + np.where(whole, w[C.pool], 0.0)[np.newaxis, :] @ x
        if self._charges_for_changes:
            d = lp.variables(len(kinds), name="d", implied=(0.0, most))
            lp.constrain(d - n >= -old, name="gained")
            lp.constrain(d + n >= old, name="lost")
            gpus = gpus + (self.change * w[of_pool])[np.newaxis, :] @ d
        lp.minimise(gpus)
        words = {rows.name: rows.describe for rows in side}

        def describe(block: str, position: int) -> str:
            return words[block](position) if block in words else self._describe(block, position)

        counts = self.objective == "gpus" and not self._charges_for_changes
        return LinearPlan(C, lp, self._read, self._complete, describe, step=1.0 if counts else None)

    def _slices(self) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        """Slices of each pool and profile that columns need, and that layouts have."""
        C = self.C
        pools = range(len(C.instance.cluster.pools))
        first = np.cumsum([0, *(len(self._profiles_of(pool)) for pool in pools)])
        some = np.flatnonzero((self.profile != NO_SLICE) & (C.pool >= 0))
        row = first[C.pool[some]] + self.profile[some]
        asked = sp.csr_matrix((np.ones(len(some)), (row, some)), shape=(int(first[-1]), C.columns))
        supplied = np.zeros((int(first[-1]), len(self.kinds)))
        for kind, (pool, counts, _) in enumerate(self.kinds):
            supplied[first[pool] : first[pool + 1], kind] = counts
        return asked, sp.csr_matrix(supplied)

    def _refuse(self, side: Sequence[SideRows]) -> None:
        """Refuse what this program cannot model."""
        C = self.C
        several = np.flatnonzero((C.pool >= 0) & (C.gpus != 1))
        if len(several):
            column = int(several[0])
            raise UsageError(
                f"mig-pack counts slices and single GPUs: {C.job_name(int(C.class_a[column]))} "
                f"asks for {C.gpus[column]} GPUs"
            )
        self.slices.refuse_larger_shares(C)
        # A share below 1 must be a MIG slice: layouts contain no other shares.
        share = C.configurations.share[C.configuration]
        other = np.flatnonzero((C.pool >= 0) & (self.profile == NO_SLICE) & (share < 1.0))
        if len(other):
            path = f"{option_path(C, int(other[0]))}.attributes.{MIG}"
            raise InvalidInput(
                path, "nothing", "a MIG profile, because the share of the option is below 1"
            )
        for rows in side:
            if rows.relax != "none":
                raise UsageError(
                    f"mig-pack: {rows.name} cannot be relaxed: mig-pack keeps all of its rows"
                )

    def _describe(self, block: str, position: int) -> str:
        C, pools = self.C, self.C.instance.cluster.pools
        if block == "one":
            return f"{C.job_name(position)} runs in one slice or GPU at most"
        if block == "gpus":
            gpus = int(C.instance.cluster.gpus(C.instance.now)[position])
            return f"pool {pools[position].name} has {gpus} GPUs"
        if block == "slices":
            return (
                f"jobs cannot use more slices than the layouts have: {self._slice_name(position)}"
            )
        return f"row {block}[{position}]"

    def _slice_name(self, position: int) -> str:
        for row, pool in enumerate(self.C.instance.cluster.pools):
            names = self._profiles_of(row)
            if position < len(names):
                return f"{names[position]} on {pool.name}"
            position -= len(names)
        raise IndexError(position)

    def _profiles_of(self, pool: int) -> Sequence[str]:
        """Names of the profiles of a pool; none where its GPUs are not cut."""
        return self.layouts[pool].names if pool in self.layouts else ()

    # --- schedules and points ---------------------------------------------------------------------

    @cached_property
    def _names(self) -> list[tuple[str, str]]:
        """Pool and layout of each n_gl as text."""
        pools = self.C.instance.cluster.pools
        names = []
        for pool, counts, _ in self.kinds:
            names.append((pools[pool].name, self.layouts[pool].words(counts)))
        return names

    def _read(self, point: FloatArray) -> Schedule:
        """The jobs that run in this round, and the layouts of the GPUs."""
        C = self.C
        running = np.round(point[: C.columns]).astype(np.int64)
        column = np.repeat(np.arange(C.columns), running)
        start = np.full(len(column), C.instance.now)
        end = start + C.instance.round
        schedule = Schedule.of_members(C, column, rank(C.class_a[column]), start, end)
        gpus = np.round(point[C.columns :][: len(self.kinds)]).astype(np.int64).tolist()
        layouts: dict[str, dict[str, int]] = {}
        for (pool, layout), number in zip(self._names, gpus, strict=True):
            if number:
                layouts.setdefault(pool, {})[layout] = number
        return replace(schedule, layouts=layouts)

    def _complete(self, schedule: Schedule) -> FloatArray:
        """The point of a schedule; d is what follows from n."""
        C = self.C
        now = C.instance.now
        wrong = (schedule.start != now) | (schedule.end != now + C.instance.round)
        if wrong.any():
            raise ValueError("a replica does not run in exactly this round")
        x = np.bincount(schedule.column, minlength=C.columns).astype(np.float64)
        given = {
            (pool, layout): number
            for pool, of_pool in (schedule.layouts or {}).items()
            for layout, number in of_pool.items()
        }
        n = np.array([given.pop(name, 0) for name in self._names], np.float64)
        if given:
            pool, layout = next(iter(given))
            raise ValueError(f"pool {pool} has no layout {layout} in the program")
        if self._charges_for_changes:
            old = np.array([gpus for _, _, gpus in self.kinds], np.float64)
            return np.concatenate([x, n, np.abs(n - old)])
        return np.concatenate([x, n])
