"""Many tasks or calls, in processes of this machine or on a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names

if TYPE_CHECKING:
    from optsched.executors.calls import Calls, all_results_of, in_order, results_of
    from optsched.executors.limits import LOCAL, check_executor
    from optsched.executors.machine import cores

# Loaded when used, so that `optsched.processes.few_threads` can be called before numpy is loaded.
_HOME = {
    "LOCAL": ".limits",
    "Calls": ".calls",
    "all_results_of": ".calls",
    "check_executor": ".limits",
    "cores": ".machine",
    "in_order": ".calls",
    "results_of": ".calls",
}

__all__ = [
    "LOCAL",
    "Calls",
    "all_results_of",
    "check_executor",
    "cores",
    "in_order",
    "results_of",
]

__getattr__ = lazy_names(__name__, _HOME)
