"""Calls of one function with many arguments, on an executor: results are objects, not rows.

What all calls share is sent once to each worker (on a Ray cluster it is put into the object store
once), and does not come back: where a result has one of the shared objects in it, it has the
caller's own.
"""

from __future__ import annotations

import io
import pickle
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeVar

from optsched.errors import OptschedError, SolverCrashed, UsageError
from optsched.executors.protocol import RunLimits, SweepWork, address_of
from optsched.executors.running import LOCAL, executor_of, finished
from optsched.executors.task import Row, Task
from optsched.lazy import imported

Result = TypeVar("Result")


def results_of(
    function: Callable[[tuple[Any, ...], Any], Result],
    shared: tuple[Any, ...],
    items: Sequence[Any],
    *,
    processes: int = 1,
    executor: str = LOCAL,
    threads: int = 1,
    on_begin: Callable[[int], None] | None = None,
) -> Iterator[tuple[int, Result | OptschedError]]:
    """``function(shared, item)`` of each item, as (number of the item, result), in any order.

    Parameters
    ----------
    function : callable
        At the top of a module, as other processes import it.
    shared : tuple
        Arguments of all calls.
    items : sequence
        One argument of each call.
    processes : int
        Calls at a time; with 1, in processes of this machine, there is no other process.
    executor : str
        As of `optsched.benchmarking.run_tasks`.
    threads : int
        Threads that libraries may start in each process.
    on_begin : callable, optional
        Called with the number of each item when its call begins.

    Yields
    ------
    number, result
        An `OptschedError` that a call raised is its result, and `SolverCrashed` that of a call that
        failed in another way in another process, or whose process ended.

    Raises
    ------
    UsageError, SolverUnavailable
        Arguments that cannot be pickled; else as of `optsched.benchmarking.run_tasks`.
    """
    limits = RunLimits.of(processes, threads, None, None)
    if executor == LOCAL and processes == 1:
        for number, item in enumerate(items):
            if on_begin is not None:
                on_begin(number)
            yield number, _result_of(function, shared, item)
        return
    try:
        content = pickle.dumps((address_of(function), shared, list(items)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(f"what is to be sent to other processes cannot be: {error}") from None
    work = SweepWork.of(call, None, limits, content)

    def begin(task: Task) -> None:
        if on_begin is not None:
            on_begin(task.spec["number"])

    left = deque(Task.of({"number": number}) for number in range(len(items)))
    with closing(executor_of(executor)) as where:
        slots = where.slots(work, min(processes, len(left)))
        try:
            for task, row in finished(where, slots, left, begin):
                yield task.spec["number"], _unpacked(row, shared)
        finally:
            for slot in slots:
                slot.stop()


def all_results_of(
    function: Callable[[tuple[Any, ...], Any], Result],
    shared: tuple[Any, ...],
    items: Sequence[Any],
    **how: Any,
) -> list[Result]:
    """The results of `results_of` in the order of the items; the first error that comes is raised."""
    found: dict[int, Result] = {}
    for number, result in results_of(function, shared, items, **how):
        if isinstance(result, OptschedError):
            raise result
        found[number] = result
    return [found[number] for number in range(len(items))]


def call(content: Any, spec: Mapping[str, Any]) -> Row:
    """The worker: one call, its result as text."""
    address, shared, items = content
    found = _result_of(imported(address), shared, items[spec["number"]])
    return {"result": b64encode(_packed(found, shared)).decode()}


def _result_of(
    function: Callable[[tuple[Any, ...], Any], Result], shared: tuple[Any, ...], item: Any
) -> Result | OptschedError:
    try:
        return function(shared, item)
    except OptschedError as error:
        return error


def _packed(result: Any, shared: tuple[Any, ...]) -> bytes:
    """A result, pickled without what is shared."""
    place = {id(part): number for number, part in enumerate(shared)}

    class Packer(pickle.Pickler):
        """Has places for shared objects."""

        def persistent_id(self, obj: Any) -> int | None:
            return place.get(id(obj))

    buffer = io.BytesIO()
    Packer(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(result)
    return buffer.getvalue()


def _unpacked(row: Row, shared: tuple[Any, ...]) -> Any:
    if row["status"] != "ok":
        return SolverCrashed(str(row["error"]))

    class Unpacker(pickle.Unpickler):
        """Puts the caller's objects in their places."""

        def persistent_load(self, pid: Any) -> Any:
            return shared[pid]

    return Unpacker(io.BytesIO(b64decode(row["result"]))).load()
