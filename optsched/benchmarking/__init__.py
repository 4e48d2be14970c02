"""Sweeps: many tasks in parallel processes, resumable; benchmarks of formulations and solvers; what the rows tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names

if TYPE_CHECKING:
    from optsched.benchmarking.results_file import ResultsFile, Row
    from optsched.benchmarking.run import Progress, Sweep, run_tasks
    from optsched.benchmarking.task import Task

# Loaded when used, so that `optsched.processes.few_threads` can be called before numpy is loaded.
_HOME = {"ResultsFile": ".results_file", "Row": ".results_file", "Task": ".task"} | dict.fromkeys(
    ("Progress", "Sweep", "run_tasks"), ".run"
)

__all__ = ["Progress", "ResultsFile", "Row", "Sweep", "Task", "run_tasks"]

__getattr__ = lazy_names(__name__, _HOME)
