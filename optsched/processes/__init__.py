"""Work in other processes:
start a child, send it requests, wait with a timeout, kill it with all it started.

`optsched.solvers.isolated` runs solvers so, `optsched.benchmarking` the tasks of a sweep. A child
is given the address ``module:function`` of a function that serves it; that function gets its end of
the `Wire`, and answers with `Reply`.
"""

from optsched.processes.child import STARTING, Child, TimedOut, Timeout, exit_text
from optsched.processes.forking import few_threads
from optsched.processes.memory import (
    half_of_memory,
    limit_memory,
    memory_in_use,
    peak_memory,
    size_text,
    tells_of_memory,
)
from optsched.processes.wire import Closed, Garbled, Reply, Unsendable, Wire

__all__ = [
    "STARTING",
    "Child",
    "Closed",
    "Garbled",
    "Reply",
    "TimedOut",
    "Timeout",
    "Unsendable",
    "Wire",
    "exit_text",
    "few_threads",
    "half_of_memory",
    "limit_memory",
    "memory_in_use",
    "peak_memory",
    "size_text",
    "tells_of_memory",
]
