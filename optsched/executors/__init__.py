"""Where what is many is done: tasks and calls in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names

if TYPE_CHECKING:
    from optsched.executors.calls import Calls, all_results_of, in_order, results_of
    from optsched.executors.machine import cores, here
    from optsched.executors.protocol import Executor, RunLimits, Slot, SweepWork
    from optsched.executors.running import LOCAL, check_executor, executor_of, finished
    from optsched.executors.task import Row, Task
    from optsched.executors.worker import Prepare, Work

# Loaded when used, so that `optsched.processes.few_threads` can be called before numpy is loaded.
_HOME = {
    "LOCAL": ".running",
    "Calls": ".calls",
    "Executor": ".protocol",
    "Prepare": ".worker",
    "Row": ".task",
    "RunLimits": ".protocol",
    "Slot": ".protocol",
    "SweepWork": ".protocol",
    "Task": ".task",
    "Work": ".worker",
    "all_results_of": ".calls",
    "check_executor": ".running",
    "cores": ".machine",
    "executor_of": ".running",
    "finished": ".running",
    "here": ".machine",
    "in_order": ".calls",
    "results_of": ".calls",
}

__all__ = [
    "LOCAL",
    "Calls",
    "Executor",
    "Prepare",
    "Row",
    "RunLimits",
    "Slot",
    "SweepWork",
    "Task",
    "Work",
    "all_results_of",
    "check_executor",
    "cores",
    "executor_of",
    "finished",
    "here",
    "in_order",
    "results_of",
]

__getattr__ = lazy_names(__name__, _HOME)
