"""Gandiva's packing: pairs of jobs share GPUs where that is worth it;
pairs at random, by gain, or the best of all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Mapping
from typing import Literal

import numpy as np
from pydantic import Field

from formulations.pair_gains import Gains, Pairs, pair_ratios
from formulations.reference_rates import pool_gpus
from formulations.rule import LARGEST_SEED, Deciding, Rule
from formulations.slices import reference_slices, totals_alone
from optsched.arrays import EMPTY, FloatArray
from optsched.candidates import Candidates, Classes, classes_apart
from optsched.formulation.procedure import Auxiliary, Optimum, Step
from optsched.program import LinearProgram

Pairing = Generator[Step, Optimum, tuple[Pairs, tuple[float, str] | None]]


class _Packing(Rule):
    """Pairs of jobs that share GPUs,
    and slices of the pools for the pairs and for those left single.
    """

    reads = frozenset({"gang"})
    objective_words = "total gain of the pairs that share GPUs"

    class Options(Rule.Options):
        pack: Literal["when-needed", "always"] = "when-needed"

    def classes(self, candidates: Candidates) -> Classes:
        """Kinds: jobs that are paired are distinguished by that."""
        return candidates.classes(frozenset())

    @abstractmethod
    def pairs(self, K: Classes, gains: Gains, seed: int) -> Pairing:
        """Jobs to be paired, and a bound on the total gain where one was proved."""

    def decide(self, C: Classes, seed: int) -> Deciding:
        """Jobs of pairs are separate classes, the others of a kind are merged."""
        candidates = C.candidates
        K = candidates.by_kind().classes(frozenset())
        first, second, column, bound = EMPTY, EMPTY, EMPTY, None
        if self._needed(K):
            gains = Gains(K, pair_ratios(K).at_least(1.0))
            (first, second), bound = yield from self.pairs(K, gains, seed)
            first, second, column = gains.columns_of(first, second)
        C = classes_apart(candidates, frozenset(), EMPTY, (first, second, column))
        return self.decision(C, self._split(C), bound)

    def _needed(self, K: Classes) -> bool:
        return self.options.pack == "always" or float(K.gang @ K.count) > float(pool_gpus(K).sum())

    def _split(self, C: Classes) -> FloatArray:
        """x: an equal slice of each pool for every pair and every job that is single there."""
        paired = np.flatnonzero(~C.alone)
        a, b, pool = C.class_a[paired], C.class_b[paired], C.pool[paired]
        # Of two jobs that share on a pool one is counted there: pairs and single jobs.
        m = C.count.sum() - np.bincount(pool, minlength=len(C.instance.cluster.pools))
        column, y = reference_slices(C, 1.0 / np.maximum(m, 1.0))
        single = np.ones(y.shape, bool)
        single[a, pool] = single[b, pool] = False
        x = totals_alone(C, column, y, single)
        x[paired] = np.minimum(y[a, pool], y[b, pool])
        return self.build(C).repaired(x)

    def value(self, C: Classes, x: FloatArray) -> float:
        """Total gain of the pairs: they are the only ones that have columns."""
        return float(_gain(C).sum()) / 2

    def figures(self, C: Classes, x: FloatArray) -> Mapping[str, FloatArray]:
        """The gain of the pair that a job is in, 0 for a single one."""
        return {"gain": _gain(C)}

    def ideal(self, C: Classes) -> LinearProgram | None:
        """The largest total gain of fractions of pairs."""
        K = C.candidates.by_kind().classes(frozenset())
        if not self._needed(K):
            return None
        return Gains(K, pair_ratios(K).at_least(1.0)).matching(integral=False)


class Gandiva(_Packing):
    """Pair jobs of equal size that run better together than in turns,
    and split the cluster equally.

    Parameters
        T_ij throughput of job i on pool j at its gang s_i (its reference column); T_i(l)j while it
        shares those GPUs with l;  W_j GPUs
    Pairs
        ratio_ilj = T_i(l)j / T_ij + T_l(i)j / T_lj,  for jobs of equal size that both run on j
        alone
        sum_i s_i <= sum_j W_j  ->  there are no pairs (unless ``pack`` is ``always``): no job has to share
        otherwise ``random``: as often as there are jobs draw two of those left, and pair them if
        s_i = s_l;
                  ``greedy``: pair the two of those left whose gain is the largest, as long as it is
                  positive
        a pair is dropped on every pool where ratio_ilj < 1, and as a whole if no pool is left
    Rule
        m_j  = pairs that share on j + jobs that are single on j
        y_rj = W_j / (m_j s_r) for every pair or single job r on j that can run there,
               divided by max(1, sum_j W_j / (m_j s_r))
    Without pairs this is `formulations.isolated`. On a pool where a pair is dropped its two jobs
    are single.

    The objective reported is the total gain of the pairs over taking turns, the sum of max_j
    ratio_ilj - 1 >= 0; each job's figure ``gain`` is that of its pair. ``matching`` has the largest
    total, ``greedy`` at least half of it.

    Options
        pairing    ``random``, as published, or ``greedy``.
        seed       of the draws; by default that of the run.
        pack       ``when-needed``: only if more GPUs are requested than there are; ``always``.
        bound      bound of the linear relaxation of ``matching``.

    References
        W. Xiao et al., "Gandiva: Introspective Cluster Scheduling for Deep Learning", OSDI 2018. D.
        Narayanan et al., OSDI 2020, repository policy ``gandiva`` (there ratios are added up over
        pools before they are compared with 1, and pairs are kept from call to call).
    """

    name = "gandiva"

    class Options(_Packing.Options):
        """Options of Gandiva's packing."""

        pairing: Literal["random", "greedy"] = "random"
        seed: int | None = Field(default=None, ge=0, le=LARGEST_SEED)

    def pairs(self, K: Classes, gains: Gains, seed: int) -> Pairing:
        yield from ()
        if self.options.pairing == "greedy":
            return gains.jobs_of(gains.greedy()), None
        return _random_pairs(K, self.random(seed)), None


class Matching(_Packing):
    """Pair jobs for the largest total gain, exactly; otherwise as in `formulations.gandiva`.

    Sets
        a in K: kinds, n_a equal jobs each;
        E: pairs of kinds a <= b of equal size with w_ab > 0
    Parameters
        w_ab = max_j ratio_abj - 1, the gain of a job of a that shares GPUs with a job of b
    Variables
        z_ab: pairs of a job of a with a job of b
    Program
        maximise  sum_{ab in E} w_ab z_ab
        s.t.      sum_{b != a} z_ab + 2 z_aa <= n_a    for every kind a;   z >= 0 integer

    This is the maximum-weight matching of the graph with a vertex for every job, counted by kinds:
    one variable per two kinds, whatever the number of jobs.

    Options
        pack     as in `formulations.gandiva`.
        bound    the bound claimed by the solver, which is the objective.

    References
        J. Edmonds, "Maximum matching and a polyhedron with 0,1-vertices", J. Res. NBS 69B, 1965. W.
        Zhao et al., "Multi-Resource Interleaving for Deep Learning Training" (Muri), SIGCOMM 2022:
        matching as the way to choose which jobs share.
    """

    name = "matching"

    def pairs(self, K: Classes, gains: Gains, seed: int) -> Pairing:
        program = gains.matching(integral=True)
        if program is None:
            return gains.jobs_of(EMPTY), (0.0, "relaxation")
        z = yield Auxiliary(program, required=True, exact=True)
        assert z.x is not None and z.bound is not None
        return gains.jobs_of(z.x.astype(np.int64)), (z.bound, "solver")


def _random_pairs(K: Classes, random: np.random.Generator) -> Pairs:
    """Draw two of the jobs left, pair them if their sizes agree; as many draws as jobs."""
    left = np.flatnonzero(K.of_job >= 0).tolist()
    size = K.gang[K.of_job].tolist()
    first, second = [], []
    for u, v in random.random((len(left), 2)).tolist():
        if len(left) < 2:
            break
        i, j = int(u * len(left)), int(v * (len(left) - 1))
        # The second is drawn from all but the first.
        j += j >= i
        a, b = left[i], left[j]
        if size[a] == size[b]:
            first.append(a)
            second.append(b)
            # The last job fills each gap. The higher place goes first, so that the lower one is
            # still right.
            for place in (max(i, j), min(i, j)):
                left[place] = left[-1]
                left.pop()
    return np.array(first, np.int64), np.array(second, np.int64)


def _gain(C: Classes) -> FloatArray:
    """Gain of the pair that a job of each class is in, shape (K,); 0 for single jobs."""
    pairs, best = pair_ratios(C), np.ones(len(C))
    for side in (C.class_a, C.class_b):
        np.maximum.at(best, side[pairs.column], pairs.ratio)
    return best - 1.0
