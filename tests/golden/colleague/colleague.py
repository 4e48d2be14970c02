"""A package of somebody else, as docs/extending.md and docs/rankings.md said how to write one when this was recorded.

It must work unchanged with every later version of optsched: so it imports what these pages import, and is not edited.
"""

import time

import numpy as np
import scipy
import scipy.sparse as sp
from scipy.optimize import linprog

from optsched.candidates import Classes
from optsched.errors import InvalidInput, SolverCrashed, UsageError
from optsched.formulation import ConstraintOptions, Formulation, FormulationOptions, SideConstraint
from optsched.performance import Feasibility, Prediction, Source
from optsched.program import AllocationProgram, Minimum, SideRows
from optsched.ranking import RankedJobs, Ranking
from optsched.solution import Termination, Values
from optsched.solvers import Capability, Session, Solver

FORMULATIONS = {"least-slowdown": "colleague:LeastSlowdown"}
CONSTRAINTS = {"tenant-limit": "colleague:TenantLimit", "named-limit": "colleague:NamedLimit"}
MODELS = {"peak": "colleague:Peak"}
RANKINGS = {"longest-wait": "colleague:LongestWait"}
SOLVERS = {"scipy": "colleague:Scipy"}


class LeastSlowdown(Formulation):
    """Maximise the smallest share of its best rate that a job gets."""

    name = "least-slowdown"
    reads = frozenset({"weight"})
    sense = "max"
    objective_words = "smallest share of the best rate, per weight"

    class Options(FormulationOptions):
        """Options of the formulation."""

        weighted: bool = True

    def build(self, C: Classes) -> AllocationProgram:
        p = C.weight if self.options.weighted else np.ones(len(C))
        best = np.zeros(len(C))
        np.maximum.at(best, C.class_a, np.where(C.alone, C.rate_a, 0.0))
        levels = sp.csr_matrix(sp.diags_array(1.0 / (p * best)) @ C.throughput)
        return AllocationProgram(C, Minimum(), levels)


class TenantLimit(SideConstraint):
    """A tenant's jobs hold at most so many GPUs of a pool, on average over time."""

    kind = "tenant-limit"
    reads = frozenset({"tenant"})

    class Options(ConstraintOptions):
        tenant: str
        pool: str
        gpus: float

    def rows(self, C: Classes) -> SideRows | None:
        wanted = self.options
        tenants = [tenant.name for tenant in C.instance.tenants]
        if wanted.tenant not in tenants or wanted.pool not in C.instance.cluster.pool_index:
            raise UsageError(
                f"tenant-limit: no tenant {wanted.tenant!r} or no pool {wanted.pool!r}"
            )
        theirs = C.tenant == tenants.index(wanted.tenant)
        here = C.pool == C.instance.cluster.pool_index[wanted.pool]
        gpus = np.where(theirs[C.class_a] & here, C.gpus, 0.0)
        words = f"tenant {wanted.tenant} holds at most {wanted.gpus:g} GPUs of {wanted.pool}"
        limit, nothing = np.array([wanted.gpus]), np.array([-np.inf])
        return SideRows(
            "tenant-limit", sp.csr_matrix(gpus[np.newaxis, :]), nothing, limit, lambda row: words
        )


class NamedLimit(SideConstraint):
    """Jobs that are named hold at most so many GPUs together: with `check`, `labels` and `common`."""

    kind = "named-limit"

    class Options(ConstraintOptions):
        jobs: list[str]
        gpus: float

    def check(self, instance):
        unknown = set(self.options.jobs) - {job.id for job in instance.jobs}
        if unknown:
            raise UsageError(f"named-limit: no job {min(unknown)!r}")

    def labels(self, instance):
        return np.array([job.id in self.options.jobs for job in instance.jobs], dtype=np.int64)

    def rows(self, C: Classes) -> SideRows | None:
        named = C.common(self.labels(C.instance)) > 0
        gpus = sp.csr_matrix(np.where(named[C.class_a], C.gpus, 0.0)[np.newaxis, :])
        limit = np.array([self.options.gpus])
        return SideRows("named-limit", gpus, -np.inf * limit, limit, lambda row: "the named jobs")


class LongestWait(Ranking):
    """The job that has waited longest goes first, and what runs goes on: nobody is stopped for another."""

    name = "longest-wait"

    def keys(self, jobs: RankedJobs) -> tuple[np.ndarray, ...]:
        return (jobs.waited > 0, -jobs.waited)


class Peak:
    """rate = efficiency x GPUs x peak of the GPU type / work of a step; ``parameters.tflop`` is the work."""

    name = "peak"

    def __init__(self, instance, tflops, efficiency):
        self.version = 0
        work = [float(workload.parameters.get("tflop", np.inf)) for workload in instance.workloads]
        speed = [float(tflops.get(pool.gpu, 0.0)) for pool in instance.cluster.pools]
        self._work = np.array([*work, np.inf])  # the last one stands for row -1, no workload
        self._speed = efficiency * np.array([*speed, 0.0])

    @classmethod
    def from_instance(cls, instance, options):
        unknown = set(options) - {"tflops", "efficiency"}
        if unknown:
            raise InvalidInput(
                f"performance.{min(unknown)}", "an unknown key", "tflops or efficiency"
            )
        return cls(instance, options.get("tflops", {}), options.get("efficiency", 0.4))

    def predict(self, jobs, configurations, *, edges=None):
        if edges is None:
            job, configuration = np.indices((len(jobs), len(configurations)))
        else:
            job, configuration = edges
        speed = self._speed[configurations.pool[configuration]] * configurations.gpus[configuration]
        rate = speed / self._work[jobs.workload[job]]
        return Prediction(
            rate=rate,
            log_sd=np.full(rate.shape, 0.3),
            feasible=np.where(rate > 0, Feasibility.OK, Feasibility.NO_RATE).astype(np.uint8),
            source=np.full(rate.shape, Source.PARAMETRIC, np.uint8),
        )

    def observe(self, observations):
        return set()


class ScipySession(Session):
    def run(self, limits):
        if limits.options:
            raise UsageError(f"scipy takes no options, found {', '.join(limits.options)}")
        reasons, program, started = self._take_reasons(), self.arrays, time.perf_counter()
        sign = -1.0 if program.maximise else 1.0
        above, below = np.isfinite(program.row_upper), np.isfinite(program.row_lower)
        result = linprog(
            sign * program.cost,
            A_ub=sp.vstack([program.by_rows[above], -program.by_rows[below]]),
            b_ub=np.concatenate([program.row_upper[above], -program.row_lower[below]]),
            bounds=np.column_stack([program.lower, program.upper]),
            options={} if limits.time is None else {"time_limit": limits.time},
        )
        seconds = time.perf_counter() - started
        if result.status == 4:
            raise SolverCrashed(f"scipy: {result.message}")
        ends = (
            Termination.OPTIMAL,
            Termination.TIME_LIMIT,
            Termination.INFEASIBLE,
            Termination.UNBOUNDED,
        )
        end = ends[result.status]
        if end is not Termination.OPTIMAL:
            return Values(end, seconds=seconds, words=result.message, rebuilt=reasons)
        y = np.zeros(len(program.row_upper))  # derivatives of the optimum by the right-hand sides
        y[above] += sign * result.ineqlin.marginals[: above.sum()]
        y[below] -= sign * result.ineqlin.marginals[above.sum() :]
        objective = program.objective(result.x)
        return Values(
            end,
            x=result.x,
            y=y,
            objective=objective,
            seconds=seconds,
            iterations=result.nit,
            rebuilt=reasons,
        )


class Scipy(Solver):
    name = "scipy"
    capabilities = frozenset({Capability.CONTINUOUS, Capability.DUALS})

    @classmethod
    def version(cls):
        return scipy.__version__

    def open(self, program):
        if program.is_integer:
            self.require(Capability.INTEGER, "an integer program")
        return ScipySession(program)
