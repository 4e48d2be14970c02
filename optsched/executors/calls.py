"""Calls of one function with many arguments, on an executor.

What all calls share is sent once to each worker, or inherited by a forked one (on a Ray cluster it
is put into the object store once), and does not come back: where a result has one of the shared
objects in it, it has the caller's own.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Generic, TypeVar

from optsched.errors import OptschedError, SolverCrashed
from optsched.executors.limits import LOCAL, RunLimits
from optsched.executors.protocol import (
    OK,
    Executor,
    SharedWork,
    Slot,
    TaskEnd,
    address_of,
    only_what_can_be_sent,
)
from optsched.executors.running import executor_of, finished

Result = TypeVar("Result")


def results_of(
    function: Callable[[tuple[Any, ...], Any], Result],
    shared: tuple[Any, ...],
    items: Sequence[Any],
    *,
    processes: int = 1,
    executor: str = LOCAL,
    threads: int = 1,
    time_limit: float | None = None,
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
    time_limit : float, optional
        Seconds that a call keeps to by itself. Another process that has not answered after twice as
        long and a minute is killed, and the call is made again as where it was killed by others.
    on_begin : callable, optional
        Called with the number of each item when its call begins.

    Yields
    ------
    number, result
        An `OptschedError` that a call raised is its result, and `SolverCrashed` that of a call that
        failed in another way in another process, whose process crashed, or was killed three times
        in a row (`optsched.executors.running.RETRIES`).

    Raises
    ------
    UsageError, SolverUnavailable
        Arguments that cannot be pickled; else as of `optsched.benchmarking.run_tasks`.
    """
    calls = Calls(function, shared, processes=processes, executor=executor, threads=threads)
    with closing(calls):
        yield from calls.results_of(items, on_begin, time_limit=time_limit, last=True)


def all_results_of(
    function: Callable[[tuple[Any, ...], Any], Result],
    shared: tuple[Any, ...],
    items: Sequence[Any],
    **how: Any,
) -> list[Result]:
    """The results of `results_of` in the order of the items; the first error that comes is
    raised.
    """
    return in_order(results_of(function, shared, items, **how))


def in_order(results: Iterable[tuple[int, Result | OptschedError]]) -> list[Result]:
    """Numbered results in the order of their numbers; the first error that comes is raised."""
    found: dict[int, Result] = {}
    for number, result in results:
        if isinstance(result, OptschedError):
            raise result
        found[number] = result
    return [found[number] for number in range(len(found))]


class Calls(Generic[Result]):
    """Calls of one function, in batches: what they share is sent once, and the processes stay
    between batches.

    `close` ends the processes. Parameters are as of `results_of`.
    """

    def __init__(
        self,
        function: Callable[[tuple[Any, ...], Any], Result],
        shared: tuple[Any, ...],
        *,
        processes: int = 1,
        executor: str = LOCAL,
        threads: int = 1,
    ) -> None:
        self._function, self._shared = function, shared
        self._name, self._limits = executor, RunLimits.of(processes, threads, None, None)
        self._executor: Executor | None = None
        self._slots: Sequence[Slot] = ()
        self._most = 0  # items of the largest lot so far

    def results_of(
        self,
        items: Sequence[Any],
        on_begin: Callable[[int], None] | None = None,
        *,
        time_limit: float | None = None,
        last: bool = False,
    ) -> Iterator[tuple[int, Result | OptschedError]]:
        """One lot: see `results_of`; all of its results must be taken before the next one.

        Processes that have nothing left to do stay for the next lot, unless this is the ``last``.
        An item is pickled when its call begins.
        """
        if self._name == LOCAL and self._limits.processes == 1:
            for number, item in enumerate(items):
                if on_begin is not None:
                    on_begin(number)
                yield number, _result_of(self._function, self._shared, item)
            return
        if not items:
            return

        def content_of(number: int) -> bytes:
            with only_what_can_be_sent():
                return _packed(items[number], self._shared)

        executor = self._opened()
        # A worker that never had a task would start for nothing. Those of a larger lot stay.
        self._most = max(self._most, len(items))
        for number, end in finished(
            executor,
            self._slots[: self._most],
            len(items),
            content_of,
            on_begin,
            time_limit=time_limit,
            keep=not last,
        ):
            yield number, _result_in(end, self._shared)

    def _opened(self) -> Executor:
        """The executor, with slots that know what is shared and have not started anything yet."""
        if self._executor is None:
            address_of(self._function)  # refuses what other processes cannot import
            work = SharedWork.of(call, None, self._limits, (self._function, self._shared))
            self._executor = executor_of(self._name)
            self._slots = self._executor.slots(work, self._limits.processes)
        return self._executor

    def close(self) -> None:
        """End the processes; the next lot would start new ones."""
        executor, self._executor = self._executor, None
        if executor is not None:
            with closing(executor):
                for slot in self._slots:
                    slot.stop()


def call(work: tuple[Callable[..., Any], tuple[Any, ...]], item: bytes) -> bytes:
    """The worker: one call."""
    function, shared = work
    return _packed(_result_of(function, shared, _unpacked(item, shared)), shared)


def _result_of(
    function: Callable[[tuple[Any, ...], Any], Result], shared: tuple[Any, ...], item: Any
) -> Result | OptschedError:
    try:
        return function(shared, item)
    except OptschedError as error:
        return error


def _packed(content: Any, shared: tuple[Any, ...]) -> bytes:
    """An item or a result, pickled without what is shared."""
    place = {id(part): number for number, part in enumerate(shared)}

    class Packer(pickle.Pickler):
        """Has places for shared objects."""

        def persistent_id(self, obj: Any) -> int | None:
            return place.get(id(obj))

    buffer = io.BytesIO()
    Packer(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(content)
    return buffer.getvalue()


def _result_in(end: TaskEnd, shared: tuple[Any, ...]) -> Any:
    """The result of a call by its end, or the error that took its place."""
    if end.status != OK:
        return SolverCrashed(end.words)
    return _unpacked(pickle.loads(end.answer), shared)


def _unpacked(data: bytes, shared: tuple[Any, ...]) -> Any:
    """What was packed, with the shared objects of this process in their places."""

    class Unpacker(pickle.Unpickler):
        """Puts the shared objects in their places."""

        def persistent_load(self, pid: Any) -> Any:
            return shared[pid]

    return Unpacker(io.BytesIO(data)).load()
