"""Bounded moves: jobs that run now mostly stay where they are."""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy.sparse as sp
from pydantic import model_validator

from formulations.constraints.names import Amount, Share
from optsched.arrays import IntArray
from optsched.candidates import Classes
from optsched.formulation import SHOWN, ConstraintOptions, Infeasible, SideConstraint
from optsched.instance import Instance
from optsched.instance.documents import refused
from optsched.instance.staying import Running
from optsched.program import SideRows
from optsched.solution import Conflict

NOT_RUNNING = -1


class Moves(SideConstraint):
    """At most so many running jobs are moved or stopped, or each stays for a fraction of the time.

    Let R be the classes of the program that run now (``running``), S_k the columns that continue
    class k: those in its present pool and, with ``gpus``, on as many GPUs. With M the limit and a
    the fraction:

        sum_{k in R} ( n_k - sum_{c in S_k} member_kc x_c )  <=  M                   (moves)
        sum_{c in S_k} member_kc x_c  >=  n_k a              for every k in R        (moves, with ``keep``)

    The first row counts the jobs that are moved or stopped (with fractions of time, the expected
    number at a random instant). The placement chooses nodes and moves as few GPUs as possible. A
    job that no column continues counts as moved; more than M of these, or one with ``keep``, are
    infeasible.

    Options
        limit   M, a number of jobs; this or ``keep``, or both.
        keep    a, the fraction of the time that each of them stays.
        gpus    whether another number of GPUs in the same pool is a move.

    References
        H. Gog et al., "Firmament", OSDI 2016 (costs of preemption and migration); G. Aggarwal et
        al., "The load rebalancing problem", SPAA 2003 (at most k moves).
    """

    kind = "moves"
    also_reads = frozenset({"running"})
    single = True

    class Options(ConstraintOptions):
        """Options of the bounded moves."""

        limit: Amount | None = None
        keep: Share | None = None
        gpus: bool = True

        @model_validator(mode="after")
        def _some_bound(self) -> Moves.Options:
            if self.limit is None and self.keep is None:
                raise refused(
                    "neither",
                    "limit (a number of jobs), keep (a fraction of the time), or both",
                )
            return self

    options: Options

    def labels(self, instance: Instance) -> IntArray | None:
        """Where a job runs: a number for every pool, or pool and number of GPUs."""
        _, _, label = self._now(instance)
        return label

    def rows(self, C: Classes) -> SideRows | None:
        pool, gpus, label = self._now(C.instance)
        running = np.flatnonzero(C.common(label) != NOT_RUNNING)
        if len(running) == 0:
            return None
        pool, gpus = pool[C.first], gpus[C.first]
        member = C.member.tocoo()
        stays = (C.pool[member.col] == pool[member.row]) & (pool[member.row] != NOT_RUNNING)
        if self.options.gpus:
            stays &= C.gpus[member.col] == gpus[member.row]
        stay = sp.csr_matrix(
            (member.data[stays], (member.row[stays], member.col[stays])), shape=member.shape
        )
        self._refuse_impossible(C, running[np.diff(stay.indptr)[running] == 0])

        M, a, n = self.options.limit, self.options.keep, C.count
        parts = []
        if M is not None:
            # The first row turned around: at least n - M of the jobs stay.
            parts.append((sp.csr_matrix(stay.sum(axis=0)), np.array([n[running].sum() - M])))
        if a is not None:
            parts.append((stay[running], a * n[running]))
        lower = np.concatenate([side for _, side in parts])
        return SideRows(
            name="moves",
            matrix=sp.csr_matrix(sp.vstack([matrix for matrix, _ in parts])),
            lower=lower,
            upper=np.full(len(lower), np.inf),
            describe=partial(self._words, C, running),
        )

    def _words(self, C: Classes, running: IntArray, row: int) -> str:
        """The row of the limit is the first one, if there is one; then each class has a row."""
        M, a = self.options.limit, self.options.keep
        if M is None:
            stays = self._stays(C, int(running[row]))
        elif row == 0:
            jobs = C.count[running].sum()
            return (
                f"of the {jobs:g} jobs that run now at most {M:g} are moved or stopped, "
                "on average (moves)"
            )
        else:
            stays = self._stays(C, int(running[row - 1]))
        return f"{stays} at least {100 * (a or 0.0):g} % of the time (moves)"

    def _now(self, instance: Instance) -> tuple[IntArray, IntArray, IntArray]:
        """Present pool and number of GPUs of each job, and its label;
        pool and label of jobs that wait are `NOT_RUNNING`.
        """
        running = Running.of(instance)
        label = running.pool
        if self.options.gpus:
            both = running.pool + len(instance.cluster.pools) * running.gpus
            label = np.where(running.runs, both, NOT_RUNNING)
        return running.pool, running.gpus, label

    def _refuse_impossible(self, C: Classes, stranded: IntArray) -> None:
        """Classes that nothing continues, if there are more than may move."""
        M = self.options.limit
        too_many = M is not None and C.count[stranded].sum() > M * (1 + 1e-9)
        if len(stranded) and (too_many or (self.options.keep or 0.0) > 0):
            raise Infeasible(
                [
                    Conflict(
                        self.kind, -1, f"{self._stays(C, k)} (moves), but cannot run so any more"
                    )
                    for k in stranded[:SHOWN].tolist()
                ]
            )

    def _stays(self, C: Classes, k: int) -> str:
        pool, gpus, _ = C.instance.jobs_table.running[int(C.first[k])]
        many = f" on {len(gpus)} GPU" + ("s" if len(gpus) > 1 else "") if self.options.gpus else ""
        return f"{C.job_name(k)} is to stay in {C.instance.cluster.pools[pool].name}{many}"
