"""Loading: facades whose names load when used, methods that point upwards,
and a pause of the collector.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any, cast


def lazy_names(package: str, home: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package whose names live in other modules.

    Parameters
    ----------
    package : str
        The package, as ``__name__`` of its ``__init__``.
    home : mapping of str to str
        The module that defines each name, relative to the package or absolute; see
        `importlib.import_module`.
    """

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with no_collection():
            module = import_module(home[name], package)
        value = getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return load


@contextmanager
def no_collection() -> Iterator[None]:
    """Pause the cycle collector while something large is loaded that stays, as modules or a
    document, or while such a document is checked.

    Every few hundred new objects make the collector walk them, and now and then all objects of the
    process. A tree that was just parsed has no cycles, and nobody drops a module, so these walks
    find nothing.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # The next walk sees all that is new: 25 ms after the modules of a first solve. Frozen, what
        # is garbage of the caller by now would stay for ever; in the oldest generation all of it
        # would be walked at the exit of the process, which takes as long.
        if enabled:
            gc.enable()


@cache
def imported(address: str) -> Any:
    """The object at ``module:name``, imported."""
    module, _, name = address.partition(":")
    return getattr(import_module(module), name)


CONVENIENCES: Mapping[str, tuple[str, str]] = {
    "Formulation.solution": ("optsched.solving.procedures", "solution_of"),
    "Formulation.solve": ("optsched.solving.procedures", "solve_formulation"),
    "Instance.from_arrays": ("optsched.instance.from_arrays", "instance_from_arrays"),
    "Instance.from_document": ("optsched.instance.build", "build_instance"),
    "Instance.sha256": ("optsched.instance.write", "content_hash"),
    "Instance.to_document": ("optsched.instance.write", "instance_document"),
    "Instance.plot": ("optsched.report.topology", "topology_picture"),
    "Solution.fragmentation": ("optsched.placement.fragmentation", "fragmentation_metric"),
    "Solution.objective_words": ("optsched.registry", "objective_words"),
    "Solution.plot": ("optsched.report.plots", "plot_solution"),
    "Solution.write": ("optsched.api", "write_solution"),
    "Assignment.prices_of_jobs": ("optsched.decomposition.job_prices", "prices_of_jobs"),
    "PricedRows.relaxed": ("optsched.decomposition.priced_rows", "relaxed_rows"),
    "LinearPlan.by_parts": ("optsched.decomposition.by_parts", "solve_by_parts"),
    "LinearPlan.by_patterns": ("optsched.decomposition.by_patterns", "solve_by_patterns"),
    "LinearPlan.slices": ("optsched.placement.realisation", "slices_of"),
    "Comparison.plot": ("optsched.report.comparison", "comparison_picture"),
    "Sweep.plot": ("optsched.report.plots", "plot_sweep"),
    "Results.plot": ("optsched.report.plots", "plot_results"),
    "Allocation.plot": ("optsched.report.heatmap", "allocation_heatmap"),
    "Schedule.plot": ("optsched.report.gantt", "schedule_gantt"),
    "Prices.plot": ("optsched.report.prices", "price_bars"),
    "Rounds.plot": ("optsched.report.gantt", "rounds_gantt"),
    "Front.plot": ("optsched.report.front", "front_picture"),
    "Simulation.plot": ("optsched.report.plots", "plot_simulation"),
    "InstanceBuilder.add_constraint": ("optsched.assembly", "make_constraint"),
    "Trace.plot": ("optsched.report.plots", "plot_trace"),
    "Plan.plot": ("optsched.report.plots", "plot_plan"),
    "Plan.next_state": ("optsched.rounds.transitions", "next_state"),
    "Picture.save": ("optsched.report.pictures", "save_picture"),
    "Picture.to_svg": ("optsched.report.page", "inline_svg"),
}
"""Methods of plain values whose work is done in a module above: the module, and its function."""


def convenience(method: str) -> Callable[..., Any]:
    """The function that does the work of a method in `CONVENIENCES`.

    A plain value such as `Instance` is below the modules that read, write and draw it. A method
    that users expect on the value itself finds its function here, and nowhere else: so the imports
    have no circles, and this table lists every exception.
    """
    module, function = CONVENIENCES[method]
    return cast("Callable[..., Any]", getattr(import_module(module), function))
