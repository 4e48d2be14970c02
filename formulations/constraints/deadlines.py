"""Deadlines as rows: every job with one keeps pace with it."""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.candidates import Absence, Classes
from optsched.formulation import ConstraintOptions, Infeasible, SideConstraint
from optsched.program import Assumption, SideRows
from optsched.solution import Conflict


class Deadlines(SideConstraint):
    """Every job with a deadline gets the throughput that meets it.

    For every class k with a (hard) deadline D_k, steps left N_k, and now:

        sum_c T_kc x_c  >=  n_k N_k / (D_k - now)                                    (deadlines)

    The rows require more than a deadline: a steady pace from now on. `lease` decides deadlines that
    jobs can only meet in turns.

    T is the throughput at the option ``quantile`` of the formulation (by default the median): a job
    in one column keeps its deadline with that probability.

    Infeasible without ``give_way``: deadlines that cannot all be met at a constant rate, and a hard
    one (with ``soft`` also a soft one) that has passed or whose job can run nowhere. With
    ``give_way`` the misses are minimised first:

        minimise  sum_k p_k n_k s_k   s.t.  sum_c T_kc x_c >= n_k (1 - s_k) N_k / (D_k - now),  the rows of the program

    with the weights p. Then the s are fixed, and the formulation is solved. Missed deadlines are
    named.

    Options
        soft      also rows for soft deadlines (else ignored).
        give_way  ``none``: infeasible; ``shortfall``: least total shortfall of the pace; ``count``:
                  s_k is 0 or 1, the fewest (weighted) missed deadlines (a MILP; every job is its
                  own class).

    References
        D. Narayanan et al., OSDI 2020, section 4.2 (SLO constraints).
    """

    kind = "deadlines"
    single = True
    reads = frozenset({"steps_left", "deadline", "soft_deadline"})
    hard_deadlines = True
    assumes = Assumption(
        "at a constant rate from now on",
        "whether jobs that take turns meet their deadlines is for the formulation lease to decide, "
        "in whole rounds",
    )

    class Options(ConstraintOptions):
        """Options of the deadlines."""

        soft: bool = False
        give_way: Literal["none", "shortfall", "count"] = "none"

    def __init__(self, options: ConstraintOptions) -> None:
        super().__init__(options)
        if self._way != "none":
            self.reads = Deadlines.reads | {"weight"}
        self.per_job = self._way == "count"
        self.declinable = self._way == "none"

    @property
    def _way(self) -> str:
        return str(getattr(self.options, "give_way", "none"))

    def rows(self, C: Classes) -> SideRows | None:
        impossible = [conflict for _, conflict in self.impossible(C)]
        if impossible and self._way == "none":
            raise Infeasible(impossible)
        soft = getattr(self.options, "soft", False)
        k = np.flatnonzero(
            np.isfinite(C.deadline) & (soft | ~C.soft_deadline) & (C.deadline > C.instance.now)
        )
        k = k[~self.declines(C.first[k])]
        if len(k) == 0 and not impossible:
            return None
        N, D, now = C.steps_left[k], C.deadline[k], C.instance.now
        pace = N / (D - now)
        return SideRows(
            name="deadlines",
            matrix=C.sure_throughput[k],
            lower=C.count[k] * pace * self.asked_of(C, k),
            upper=np.full(len(k), np.inf),
            describe=partial(_words, C, k),
            relax=self._way,
            weight=C.count[k] * self._weight(C, k),
            broken=tuple(f"{conflict.words}: is given up" for conflict in impossible),
            of_class=k if self._way == "none" else None,
        )

    def _weight(self, C: Classes, k: IntArray) -> FloatArray:
        """The weight of a class that falls short of its pace: with more time left it can catch
        up.
        """
        if self._way == "none":
            return C.instance.round / (C.deadline[k] - C.instance.now)
        return C.weight[k]

    def impossible(self, C: Classes) -> list[tuple[int, Conflict]]:
        """Jobs whose deadlines no allocation can meet: they have passed, or the job runs
        nowhere.
        """
        instance = C.instance
        table, now = instance.jobs_table, instance.now
        soft = getattr(self.options, "soft", False)
        absence = C.candidates.absence
        active = np.isfinite(table.deadline) & (soft | ~table.soft_deadline)
        active &= ~self.declines(np.arange(len(table)))
        late = (
            active
            & (table.deadline <= now)
            & np.isin(absence, (Absence.PRESENT, Absence.NO_COLUMN))
        )
        nowhere = active & (absence == Absence.NO_COLUMN) & ~late
        conflicts = [
            (
                job,
                Conflict(
                    "deadlines",
                    -1,
                    f"job {table.names[job]} has {table.steps_left[job]:g} steps left and its "
                    f"deadline, {table.deadline[job]:g} s, is not after now ({now:g} s)",
                ),
            )
            for job in np.flatnonzero(late).tolist()
        ]
        for job in np.flatnonzero(nowhere).tolist():
            why = C.candidates.why_no_column(int(C.candidates.kinds.of_job[job]))
            words = f"job {table.names[job]} has a deadline, {table.deadline[job]:g} s, but {why}"
            conflicts.append((job, Conflict("deadlines", -1, words)))
        return conflicts


def _words(C: Classes, of_row: IntArray, row: int) -> str:
    """What a deadline requires, in GPU hours of each pool where the job is fastest per GPU."""
    k, now = int(of_row[row]), C.instance.now
    steps, deadline = float(C.steps_left[k]), float(C.deadline[k])
    pools = C.instance.cluster.pools
    columns = np.flatnonzero(C.alone & (C.class_a == k) & (C.pool >= 0) & (C.rate_a > 0))
    hours = steps / (C.rate_a[columns] * C.sure_factor[columns]) * C.gpus[columns] / 3600.0
    best: dict[str, float] = {}
    for column, need in zip(columns.tolist(), hours.tolist(), strict=True):
        name = pools[C.pool[column]].name
        best[name] = min(best.get(name, np.inf), need)
    cheapest = sorted(best.items(), key=lambda item: item[1])[:3]
    needs = " or ".join(f"{need:.3g} GPU h of {name}" for name, need in cheapest)
    each = " each" if C.count[k] > 1 else ""
    hours_left = (deadline - now) / 3600
    quantile = C.candidates.quantile
    each += "" if quantile is None else f" (to be {100 * quantile:g} % sure)"
    return (
        f"{C.job_name(k)} needs {needs or f'{steps:g} steps'}{each} by {deadline:g} s (in "
        f"{hours_left:.3g} h)"
    )
