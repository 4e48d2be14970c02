"""`Benchmark`: instances x formulations x solvers x seeds, as the tasks of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Unpack

from optsched.api import DEFAULT_FORMULATION, make_constraint, make_formulation, make_limits
from optsched.arrays import finite
from optsched.benchmarking.run import Sweep, SweepOptions, run_tasks
from optsched.benchmarking.solve_task import prepare_solve, solve_task
from optsched.benchmarking.sources import ProblemSource
from optsched.benchmarking.task import Task, canonical
from optsched.display import Displayed, count
from optsched.errors import InvalidArgument, UsageError, given_twice
from optsched.executors.machine import cores
from optsched.instance.durations import Duration, seconds_or_none
from optsched.instance.reading import first_repeated
from optsched.registry import load_solver

# `optsched bench` reads its options by the names of these types.
Names = Sequence[str]
Seeds = Sequence[int]
Settings = Mapping[str, Any]
Bytes = float

OWN = ""
"""In the place of a formulation: the one that belongs to each problem."""
GRACE_SHARE, GRACE = 0.1, 5.0
"""A task is killed when it has had its time limit, this share of it, and so many seconds more."""


@dataclass(frozen=True, repr=False)
class Benchmark(Displayed):
    """What is to be solved, with what, and how long.

    Attributes
    ----------
    sources : sequence of ProblemSource
        Instances and programs. Programs are solved as they are: formulations and constraints are
        not for them.
    formulations : sequence of (name, options)
        Without a name (the default) that of a library file or generator, else max-min-fairness.
    constraints : sequence of mappings
        Side constraints of all formulations, beside those of the instances.
    solvers : sequence of str
        See `optsched solvers`; by default auto.
    seeds : sequence of int
        Seeds of the solvers; 0 by default.
    repeat : int
        Solve each N times, to measure times.
    threads : int
        Threads of the solver; 0: all cores.
    time_limit : float, str or None
        Time of each task, reading included: 90s, 5m, 2h. It is for compiling and certifying too; a
        solver that does not stop is killed a little later. A number is in seconds.
    memory_limit : float or None
        Memory of each task: 500MB, 4GB (Linux). In bytes; about 100 MB of it are for imports.
    work_limit : int or None
        Stop after N iterations, nodes or conflicts; unlike a time limit, reproducible.
    gap : float or None
        Relative gap at which an integer program may stop.
    solver_options : mapping
        Option of the solver, under the solver's own name.
    """

    sources: Sequence[ProblemSource]
    formulations: Sequence[tuple[str, Mapping[str, Any]]] = ((OWN, {}),)
    constraints: Sequence[Mapping[str, Any]] = ()
    solvers: Names = ("auto",)
    seeds: Seeds = (0,)
    repeat: int = 1
    threads: int = 1
    time_limit: Duration | None = None
    memory_limit: Bytes | None = None
    work_limit: int | None = None
    gap: float | None = None
    solver_options: Settings = field(default_factory=dict)

    def _headline(self) -> str:
        parts = (
            count(len(self.sources), "problem"),
            count(len(self.formulations), "formulation"),
            count(len(self.solvers), "solver"),
            count(len(self.seeds), "seed"),
        )
        return ", ".join(parts) + (f", {self.repeat} times" if self.repeat > 1 else "")

    def tasks(self) -> list[Task]:
        """The tasks in the order of the final table.

        Raises
        ------
        UsageError
            Nothing to do, a name or an option that does not exist, something given twice, or limits
            without sense.
        SolverUnavailable
            A solver that does not exist.
        """
        self._check()
        found = []
        for source in self.sources:
            plain: list[tuple[str | None, Mapping[str, Any]]] = [(None, {})]
            for given, options in plain if source.program else self.formulations:
                name = source.formulation if given == OWN else given
                for solver, seed in product(self.solvers, self.seeds):
                    found += [
                        self._task(source, name, options, solver, seed, turn)
                        for turn in range(self.repeat)
                    ]
        return found

    def run(self, **running: Unpack[SweepOptions]) -> Sweep:
        """Do the tasks; see `run_tasks` for what is given."""
        # The task keeps its limit by itself; it is killed only where that fails.
        seconds = seconds_or_none(self.time_limit, "time_limit")
        limit = None if seconds is None else (1 + GRACE_SHARE) * seconds + GRACE
        return run_tasks(
            self.tasks(),
            solve_task,
            prepare=prepare_solve,
            threads=self.threads or cores(),
            time_limit=limit,
            memory_limit=self.memory_limit,
            kind="bench",
            **running,
        )

    # --- how --------------------------------------------------------------------------------------

    def _task(
        self,
        source: ProblemSource,
        name: str | None,
        options: Mapping[str, Any],
        solver: str,
        seed: int,
        turn: int,
    ) -> Task:
        constraints = [] if name is None else [dict(item) for item in self.constraints]
        spec = {
            "instance": source.content,
            "formulation": name,
            "options": dict(options),
            "constraints": constraints,
            "solver": solver,
            "seed": seed,
            "repeat": turn,
            "threads": self.threads,
            "time_limit": seconds_or_none(self.time_limit, "time_limit"),
            # 60 and 60.0 are the same limit, and make the same task
            "memory_limit": finite(self.memory_limit),
            "work_limit": self.work_limit,
            "gap": finite(self.gap),
            "solver_options": dict(self.solver_options),
        }
        # In one column: their own columns would be empty in nearly all tables.
        rare = ("memory_limit", "work_limit", "gap", "solver_options")
        settings = {key: spec[key] for key in rare if spec[key] not in (None, {})}
        labels = {
            "instance": source.name,
            "formulation": name,
            "options": canonical(options) if options else None,
            "constraints": canonical(constraints) if constraints else None,
            **{key: spec[key] for key in ("solver", "seed", "repeat", "threads")},
            "time_limit_s": spec["time_limit"],
            "settings": canonical(settings) if settings else None,
        }
        return Task.of(spec, labels)

    def _check(self) -> None:
        if not self.sources:
            raise UsageError("there is nothing to be solved: no instance is given")
        for what, given in (
            ("formulation", [canonical([*item]) for item in self.formulations]),
            ("solver", self.solvers),
            ("seed", self.seeds),
        ):
            if not given:
                raise UsageError(f"there is nothing to be done: no {what} is given")
            if (twice := first_repeated(given)) is not None:
                raise given_twice(what, str(twice))
        if self.repeat < 1:
            raise InvalidArgument("repeat", str(self.repeat), "1 or more")
        of_sources = sorted({source.formulation for source in self.sources if not source.program})
        for given, options in self.formulations:
            for name in (of_sources or [DEFAULT_FORMULATION]) if given == OWN else [given]:
                constraints = [make_constraint(item) for item in self.constraints]
                make_formulation(name, options, constraints)
        for solver in self.solvers:
            if solver != "auto":
                load_solver(solver)
        make_limits(
            self.time_limit, self.work_limit, self.gap, threads=self.threads, seed=max(self.seeds)
        )
