"""Parts of a program that are solved side by side, in this process or in others
(`optsched.executors`).

Each part has its own engine, with the settings of the engine of the whole and the rest of its time.
The latter adds up the totals of their runs in the order of the parts, so that neither the answer
nor its record depends on where parts were solved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from optsched.arrays.values import replace
from optsched.errors import NOTHING_YET, Interrupted
from optsched.executors import Calls, in_order
from optsched.instance.durations import Timer
from optsched.solution import Attempt
from optsched.solvers import Limits, Solver
from optsched.solving.engine import Engine

Result = TypeVar("Result")


class RunTotals(NamedTuple):
    """Totals of the runs of one part, and their solver; see `SolverRuns`."""

    chosen: type[Solver] | None
    reason: str
    timings: Mapping[str, float]
    iterations: int
    nodes: int
    rebuilt: Sequence[str]
    attempts: Sequence[Attempt]
    missing: Sequence[Attempt]
    by_clock: bool
    start_used: bool

    @classmethod
    def of(cls, engine: Engine) -> RunTotals:
        return cls(**{name: getattr(engine, name) for name in cls._fields})

    def count_in(self, engine: Engine) -> None:
        """Add them to those of an engine."""
        if self.chosen is not None:
            engine.chosen, engine.reason = self.chosen, self.reason
        for stage, seconds in self.timings.items():
            engine.spend(stage, seconds)
        engine.iterations += self.iterations
        engine.nodes += self.nodes
        engine.rebuilt += self.rebuilt
        engine.attempts += self.attempts
        engine.missing += self.missing
        engine.by_clock |= self.by_clock
        engine.start_used |= self.start_used


@dataclass(frozen=True)
class EngineSettings:
    """What makes the engine of a part; see `SolverRuns`."""

    load: Callable[[str], type[Solver]]
    solver: str
    limits: Limits
    prove: bool
    known_points: bool
    explains: bool
    reason: str
    inside: bool
    vertex: bool

    @classmethod
    def of(cls, engine: Engine) -> EngineSettings:
        return cls(
            engine.load,
            engine.solver,
            engine.limits,
            engine.prove,
            engine.known_points,
            engine.explains,
            engine.reason,
            engine.inside,
            engine.vertex,
        )

    def engine(self, timer: Timer) -> Engine:
        """An engine with what is left of the time."""
        seconds = None if timer.seconds is None else max(timer.left, 0.0)
        limits = replace(self.limits, time=seconds)
        return Engine(
            self.load,
            self.solver,
            limits,
            self.prove,
            known_points=self.known_points,
            explains=self.explains,
            reason=self.reason,
            inside=self.inside,
            vertex=self.vertex,
        )


class SideBySide(Generic[Result]):
    """Calls of ``solve(engine, shared, item)``, each with an engine for its part.

    `close` ends the processes.

    Parameters
    ----------
    engine : Engine
        Of the whole program. It says how many processes there are, and where.
    solve : callable
        At the top of a module, as other processes import it.
    shared : tuple
        What all calls get.
    """

    def __init__(
        self,
        engine: Engine,
        solve: Callable[[Engine, tuple[Any, ...], Any], Result],
        shared: tuple[Any, ...],
    ) -> None:
        settings = EngineSettings.of(engine)
        if engine.elsewhere:  # nobody hears there
            limits = replace(engine.limits, on_progress=None, on_log=None, on_point=None)
            settings = replace(settings, limits=limits)
        engine.in_parts = True
        self._engine, self._settings = engine, settings
        self._calls = Calls(
            _solved,
            (solve, settings, *shared),
            processes=engine.processes,
            executor=engine.executor,
            threads=engine.limits.threads,
        )

    def results(self, items: Sequence[Any]) -> list[Result]:
        """The results in the order of the items.

        Raises
        ------
        Interrupted
            Also where Ctrl-C comes while other processes solve. In this one it stays a
            KeyboardInterrupt.
        UsageError, SolverUnavailable, SolverCrashed
        """
        engine = self._engine
        timer = Timer.after(None if engine.timer.seconds is None else max(engine.time_left, 0.0))
        timed = [(timer, item) for item in items]
        try:
            found = in_order(self._calls.results_of(timed, time_limit=timer.seconds))
        except KeyboardInterrupt:
            if not engine.elsewhere:
                raise
            raise Interrupted(NOTHING_YET) from None
        for _, totals in found:
            totals.count_in(engine)
        return [result for result, _ in found]

    def close(self) -> None:
        """End the processes of the executor."""
        self._calls.close()


def _solved(shared: tuple[Any, ...], item: tuple[Timer, Any]) -> tuple[Any, RunTotals]:
    """One part, with what its runs took."""
    (solve, settings, *own), (timer, content) = shared, item
    engine = settings.engine(timer)
    return solve(engine, tuple(own), content), RunTotals.of(engine)
