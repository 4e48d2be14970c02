"""Where what is many is done: tasks and calls in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names

if TYPE_CHECKING:
    from optsched.executors.calls import all_results_of, results_of
    from optsched.executors.machine import cores, here
    from optsched.executors.protocol import Executor, RunLimits, Slot, SweepWork
    from optsched.executors.running import LOCAL, executor_of, finished
    from optsched.executors.task import Row, Task
    from optsched.executors.worker import Prepare, Work

# Loaded when used, so that `optsched.processes.few_threads` can be called before numpy is loaded.
_HOME = {
    "LOCAL": ".running",
    "Executor": ".protocol",
    "Prepare": ".worker",
    "Row": ".task",
    "RunLimits": ".protocol",
    "Slot": ".protocol",
    "SweepWork": ".protocol",
    "Task": ".task",
    "Work": ".worker",
    "all_results_of": ".calls",
    "cores": ".machine",
    "executor_of": ".running",
    "finished": ".running",
    "here": ".machine",
    "results_of": ".calls",
}

__all__ = [
    "LOCAL",
    "Executor",
    "Prepare",
    "Row",
    "RunLimits",
    "Slot",
    "SweepWork",
    "Task",
    "Work",
    "all_results_of",
    "cores",
    "executor_of",
    "finished",
    "here",
    "results_of",
]

__getattr__ = lazy_names(__name__, _HOME)
