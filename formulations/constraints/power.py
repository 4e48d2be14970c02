"""A cap on the power that GPUs draw."""

from __future__ import annotations

import numpy as np

from formulations.constraints.holdings import first_names, gpus_held, sum_row, usable_gpus
from formulations.constraints.names import Amount, Names, pool_rows
from optsched.arrays import FloatArray, IntArray
from optsched.candidates import Classes
from optsched.errors import InvalidArgument
from optsched.formulation import ConstraintOptions, Infeasible, SideConstraint
from optsched.instance import Instance
from optsched.program import SideRows
from optsched.solution import Conflict

IDLE = "watts_idle"


class Power(SideConstraint):
    """The GPUs draw at most so much power, on average over time.

    With g_c the GPUs of column c on the pools j that count, w_j and v_j the power of a busy and an
    idle GPU of pool j in W (``watts_per_gpu``, ``watts_idle``), W_j usable GPUs, and P the limit in
    W:

        sum_c g_c (w_j - v_j) x_c  +  sum_j v_j W_j  <=  P                           (power)

    GPUs (or shares of them) that a job holds are busy. Without ``idle`` v_j = 0. A pool that does
    not state its power is refused.

    Options
        limit   P, W.
        idle    whether idle GPUs draw ``watts_idle``.
        pools   pools that count, such as those behind one fuse; without it all.

    References
        C. Lefurgy et al., "Power capping: a prelude to power shifting", Cluster Computing 11(2),
        2008.
    """

    kind = "power"

    class Options(ConstraintOptions):
        """Options of the cap."""

        limit: Amount
        idle: bool = True
        pools: Names | None = None

    options: Options

    def check(self, instance: Instance) -> None:
        """The pools must exist, and, where there is no job, at least one must state its power."""
        pools = pool_rows(self.kind, self.options.pools, instance).tolist()
        silent = all(instance.cluster.pools[row].watts_per_gpu is None for row in pools)
        if pools and silent and not len(instance.jobs_table):
            raise _unstated(pools[0], "watts_per_gpu")

    def rows(self, C: Classes) -> SideRows | None:
        P, idle = self.options.limit, self.options.idle
        j = pool_rows(self.kind, self.options.pools, C.instance)
        W = usable_gpus(C, j)
        counts = np.isin(C.pool, j)
        used = j[np.isin(j, C.pool)]
        # A pool must state what busy GPUs draw where jobs can run, and what idle ones draw where
        # GPUs are.
        w = self._watts(C, "watts_per_gpu", used)
        v = self._watts(C, IDLE, j[W > 0]) if idle else np.zeros(len(C.instance.cluster.pools))
        g = np.where(counts, gpus_held(C), 0.0)
        at_rest = float(v[j] @ W)
        draw = np.where(counts, g * (w - v)[C.pool], 0.0)
        names = (
            "all pools"
            if self.options.pools is None
            else first_names([C.instance.cluster.pools[i].name for i in j])
        )
        of_that = f", of which they draw {at_rest:g} W idle" if idle else " while in use"
        words = f"the GPUs of {names} draw at most {P:g} W{of_that} (power)"
        # Where busy GPUs draw less than idle ones, running jobs may still bring the sum below the
        # limit.
        if at_rest > P and (draw >= 0).all():
            raise Infeasible(
                [Conflict("power", -1, f"{words}: more than allowed before any job runs")]
            )
        return sum_row(self.kind, draw, words, most=P - at_rest)

    def _watts(self, C: Classes, field: str, needed: IntArray) -> FloatArray:
        """W per GPU of each pool by field; 0 for pools that are not needed;
        raises `InvalidArgument` for one that is.
        """
        watts = np.zeros(len(C.instance.cluster.pools))
        for row in needed.tolist():
            stated = getattr(C.instance.cluster.pools[row], field)
            if stated is None:
                error = _unstated(row, field)
                there = C.member[:, np.flatnonzero(C.pool == row)].sum(axis=1) > 0
                raise error if field == IDLE else error.of_jobs(C.jobs_among(there))
            watts[row] = stated
        return watts


def _unstated(pool: int, field: str) -> InvalidArgument:
    """The error of a pool that does not state its power."""
    way_out = ", or idle=false" if field == IDLE else ""
    expected = f"what a GPU draws in W, as power is limited{way_out}"
    return InvalidArgument(f"cluster.pools[{pool}].{field}", "nothing", expected)
