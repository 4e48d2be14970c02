"""Sweeps: many tasks in parallel processes, resumable; benchmarks of formulations and solvers; what the rows tell."""

from optsched.benchmarking.results_file import ResultsFile, Row
from optsched.benchmarking.run import Progress, Sweep, run_tasks
from optsched.benchmarking.task import Task

__all__ = ["Progress", "ResultsFile", "Row", "Sweep", "Task", "run_tasks"]
