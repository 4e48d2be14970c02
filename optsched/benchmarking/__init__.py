"""Sweeps: many tasks in parallel processes or on a cluster, resumable;
benchmarks of formulations and solvers; what the rows tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names

if TYPE_CHECKING:
    from optsched.benchmarking.best_known import with_best_known
    from optsched.benchmarking.results import Results
    from optsched.benchmarking.results_file import ResultsFile, Row
    from optsched.benchmarking.run import Sweep, SweepProgress, run_tasks
    from optsched.benchmarking.sources import from_names
    from optsched.benchmarking.sweep import Benchmark
    from optsched.benchmarking.task import Task

# Loaded when used, so that `optsched.processes.few_threads` can be called before numpy is loaded.
_HOME = {
    "Benchmark": ".sweep",
    "SweepProgress": ".run",
    "Results": ".results",
    "ResultsFile": ".results_file",
    "Row": ".results_file",
    "Sweep": ".run",
    "Task": ".task",
    "from_names": ".sources",
    "run_tasks": ".run",
    "with_best_known": ".best_known",
}

__all__ = [
    "Benchmark",
    "Results",
    "ResultsFile",
    "Row",
    "Sweep",
    "SweepProgress",
    "Task",
    "from_names",
    "run_tasks",
    "with_best_known",
]

__getattr__ = lazy_names(__name__, _HOME)
