"""Timeline programs in CP-SAT:
optional intervals, cumulative resources, and the load rows that bound the makespan.

The load rows are redundant: what the chosen modes take of a resource over all their duration fits
into capacity x makespan. Without them CP-SAT has no bound on unrelated machines (30 jobs on 5: not
proven in 12 s; with them 0.3 s).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.arrays.values import replace
from optsched.errors import SolverCrashed, UsageError
from optsched.instance.durations import UNLIMITED, OutOfTime, Timer
from optsched.program.timeline import TimelineProgram, split_point
from optsched.solution.values import PointStatus, Termination, Values
from optsched.solvers.base import Limits, Progress
from optsched.solvers.new_thread import run_stoppable


class TimelineModel:
    """A timeline program as a model of CP-SAT."""

    def __init__(self, program: TimelineProgram, timer: Timer = UNLIMITED) -> None:
        """Raises `OutOfTime`: each interval is a call, of which a large program has 100,000."""
        from ortools.sat.python import cp_model

        self.program = program
        self.model = cp_model.CpModel()
        self.starts: list[Any] = []
        self.ends: list[Any] = []
        self.chosen: list[Any] = []
        """One literal per mode; the constant 1 where an activity has one mode."""
        self.intervals: list[Any] = []
        for activity in timer.watching(range(len(program))):
            self._add_activity(activity)
        self._add_resources()
        timer.check()
        self._add_budgets()
        # Ends are expressions of starts and modes: no column of their own is needed.
        for a, b in program.precedence.tolist():
            self.model.add(self.ends[a] <= self.starts[b])
        self.makespan = self._add_makespan() if program.cost.makespan else None
        objective = self._objective()
        if program.most is not None:
            self.model.add(objective <= program.most)
        self.model.minimize(objective)

    def _add_activity(self, activity: int) -> None:
        """Start, end, and one interval for each mode."""
        model, program = self.model, self.program
        modes = range(int(program.first_mode[activity]), int(program.first_mode[activity + 1]))
        low, high = int(program.release[activity]), int(program.deadline[activity])
        shortest = int(program.duration[modes.start : modes.stop].min())
        if high - shortest < low:
            # An empty domain would be refused as a malformed model; what it means is that nothing
            # is feasible.
            model.add_bool_or([])
            high = low + shortest
        start = model.new_int_var(low, high - shortest, f"start{activity}")
        self.starts.append(start)
        if len(modes) == 1:
            self.chosen.append(model.new_constant(1))
            self.intervals.append(
                model.new_fixed_size_interval_var(start, shortest, f"run{activity}")
            )
            self.ends.append(start + shortest)
            return
        literals = [model.new_bool_var(f"mode{mode}") for mode in modes]
        model.add_exactly_one(literals)
        end = start
        for mode, literal in zip(modes, literals, strict=True):
            duration = int(program.duration[mode])
            self.intervals.append(
                model.new_optional_fixed_size_interval_var(
                    start, duration, literal, f"run{activity}_{mode}"
                )
            )
            end = end + duration * literal
        self.chosen += literals
        model.add(end <= high)
        self.ends.append(end)

    def _add_resources(self) -> None:
        """No more than the capacity at any time; a calendar is an interval that always runs."""
        model, program = self.model, self.program
        usage = program.usage.tocsr()
        for resource, capacity in enumerate(program.capacity.tolist()):
            row = usage[resource].tocoo()
            intervals = [self.intervals[mode] for mode in row.col.tolist()]
            demands = np.round(row.data).astype(np.int64).tolist()
            for number, (_, begin, stop, lost) in enumerate(
                program.closed[program.closed[:, 0] == resource].tolist()
            ):
                if stop > begin and lost > 0:
                    name = f"closed{resource}_{number}"
                    intervals.append(model.new_fixed_size_interval_var(begin, stop - begin, name))
                    demands.append(lost)
            if capacity == 1 and set(demands) <= {1}:
                model.add_no_overlap(intervals)
            elif intervals:
                model.add_cumulative(intervals, demands, capacity)

    def _add_budgets(self) -> None:
        program = self.program
        if program.budget_usage is None:
            return
        usage = program.budget_usage.tocsr()
        for row, limit in enumerate(program.budget.tolist()):
            entries = usage[row].tocoo()
            literals = [self.chosen[mode] for mode in entries.col.tolist()]
            amounts = np.round(entries.data).astype(np.int64).tolist()
            self.model.add(
                sum(a * literal for a, literal in zip(amounts, literals, strict=True)) <= limit
            )

    def _add_makespan(self) -> Any:
        """The makespan, above every end,
        and above the load of every resource per unit of capacity.
        """
        program, model = self.program, self.model
        least = min(program.least_makespan, program.horizon)
        makespan = model.new_int_var(least, program.horizon, "makespan")
        for end in self.ends:
            model.add(end <= makespan)
        usage = program.usage.tocsr()
        for resource, capacity in enumerate(program.capacity.tolist()):
            row = usage[resource].tocoo()
            if not row.nnz:
                continue
            users = np.unique(program.activity[row.col])
            earliest = int(program.release[users].min())
            work = (np.round(row.data).astype(np.int64) * program.duration[row.col]).tolist()
            load = sum(
                w * self.chosen[mode] for w, mode in zip(work, row.col.tolist(), strict=True)
            )
            model.add(load <= capacity * (makespan - earliest))
        return makespan

    def _objective(self) -> Any:
        cost, terms = self.program.cost, []
        if self.makespan is not None:
            terms.append(cost.makespan * self.makespan)
        for weights, variables in (
            (cost.start, self.starts),
            (cost.end, self.ends),
            (cost.mode, self.chosen),
        ):
            if weights is not None:
                terms += [w * v for w, v in zip(weights.tolist(), variables, strict=True) if w]
        if cost.tardiness is not None and cost.due is not None:
            for activity, (weight, due) in enumerate(
                zip(cost.tardiness.tolist(), cost.due.tolist(), strict=True)
            ):
                if weight:
                    late = self.model.new_int_var(
                        0, max(self.program.horizon - due, 0), f"late{activity}"
                    )
                    self.model.add(late >= self.ends[activity] - due)
                    terms.append(weight * late)
        return sum(terms)

    def hint(self, start: IntArray, mode: IntArray) -> None:
        """Begin the search near a schedule."""
        for variable, value in zip(self.starts, start.tolist(), strict=True):
            self.model.add_hint(variable, value)
        chosen = set(mode.tolist())
        for number, literal in enumerate(self.chosen):
            if literal.name:  # constants have none
                self.model.add_hint(literal, int(number in chosen))


def solve_timeline(
    program: TimelineProgram, limits: Limits, parameters: str, start: FloatArray | None = None
) -> Values:
    """Solve in a new thread, so that Ctrl-C can stop it."""
    from ortools.sat.python import cp_model

    began = time.perf_counter()
    try:
        model = TimelineModel(program, Timer.after(limits.time))
    except OutOfTime as error:
        seconds = time.perf_counter() - began
        return Values(Termination.TIME_LIMIT, seconds=seconds, words=str(error))
    if start is not None:
        model.hint(*split_point(program, start))
    solver = cp_model.CpSolver()
    if not solver.parameters.merge_text_format(parameters):
        raise UsageError(f"cp-sat refused its options: {parameters}")
    left = limits.after(time.perf_counter() - began).time
    if left is not None:
        solver.parameters.max_time_in_seconds = left
    watcher = _watcher(model, limits, began)
    solver.best_bound_callback = watcher.on_bound
    status, interrupted = run_stoppable(
        "cp-sat", lambda: solver.solve(model.model, watcher), solver.stop_search
    )
    words = str(status.name)
    return _values(solver, model, words, interrupted, time.perf_counter() - began)


def _watcher(model: TimelineModel, limits: Limits, began: float) -> Any:
    from ortools.sat.python import cp_model

    class IncumbentWatcher(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        """Passes incumbents and bounds on."""

        def __init__(self) -> None:
            super().__init__()
            self.incumbent: float | None = None

        def on_solution_callback(self) -> None:
            self.incumbent = float(self.objective_value)
            self.report(float(self.best_objective_bound))
            if limits.on_point is not None:
                limits.on_point(_point(model, self))

        def on_bound(self, bound: float) -> None:
            self.report(float(bound))

        def report(self, bound: float) -> None:
            if limits.on_progress is not None:
                limits.on_progress(Progress(time.perf_counter() - began, self.incumbent, bound))

    return IncumbentWatcher()


def _values(
    solver: Any, model: TimelineModel, words: str, interrupted: bool, seconds: float
) -> Values:
    if words == "MODEL_INVALID":
        raise SolverCrashed(
            f"cp-sat refused the model: {model.model.validate() or solver.solution_info()}"
        )
    claimed = Values(
        Termination.INFEASIBLE, seconds=seconds, words=words, nodes=int(solver.num_branches)
    )
    if words == "INFEASIBLE":
        return claimed
    # CP-SAT has one status for all limits.
    stopped = Termination.TIME_LIMIT
    if interrupted:
        stopped = Termination.INTERRUPTED
    elif solver.num_conflicts >= solver.parameters.max_number_of_conflicts:
        stopped = Termination.WORK_LIMIT
    bound = float(solver.best_objective_bound)
    if words == "UNKNOWN":
        return replace(claimed, termination=stopped, bound=bound)
    objective = float(solver.objective_value)
    end = stopped
    if words == "OPTIMAL":
        # Objectives are whole numbers: a larger distance is the gap that was asked for.
        end = Termination.GAP_LIMIT if objective > bound + 0.5 else Termination.OPTIMAL
    return replace(
        claimed,
        termination=end,
        primal=PointStatus.FEASIBLE,
        x=_point(model, solver),
        objective=objective,
        bound=bound,
    )


def _point(model: TimelineModel, found: Any) -> FloatArray:
    """Starts and modes of a solution, as one array."""
    start = np.array([found.value(variable) for variable in model.starts], np.float64)
    mode = np.flatnonzero([found.value(literal) for literal in model.chosen]).astype(np.float64)
    return np.concatenate([start, mode])
