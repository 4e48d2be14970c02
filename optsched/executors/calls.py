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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Generic, TypeVar

from optsched.errors import OptschedError, SolverCrashed, UsageError
from optsched.executors.protocol import Executor, RunLimits, Slot, SweepWork, address_of
from optsched.executors.running import LOCAL, executor_of, finished
from optsched.executors.task import Row, Task
from optsched.executors.worker import Prepare

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
    calls = Calls(function, shared, processes=processes, executor=executor, threads=threads)
    with closing(calls):
        yield from calls.results_of(items, on_begin, last=True)


def all_results_of(
    function: Callable[[tuple[Any, ...], Any], Result],
    shared: tuple[Any, ...],
    items: Sequence[Any],
    **how: Any,
) -> list[Result]:
    """The results of `results_of` in the order of the items; the first error that comes is raised."""
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
    """Calls of one function in lots: what they share is sent once, and processes are kept.

    `close` ends the processes. Parameters are as of `results_of`.

    Parameters
    ----------
    prepare : callable, optional
        Imports what the calls need, in each process once; see `optsched.executors.SweepWork`.
    """

    def __init__(
        self,
        function: Callable[[tuple[Any, ...], Any], Result],
        shared: tuple[Any, ...],
        *,
        processes: int = 1,
        executor: str = LOCAL,
        threads: int = 1,
        prepare: Prepare | None = None,
    ) -> None:
        self._function, self._shared = function, shared
        self._name, self._prepare = executor, prepare
        self._limits = RunLimits.of(processes, threads, None, None)
        self._executor: Executor | None = None
        self._slots: Sequence[Slot] = ()

    def results_of(
        self,
        items: Sequence[Any],
        on_begin: Callable[[int], None] | None = None,
        *,
        last: bool = False,
    ) -> Iterator[tuple[int, Result | OptschedError]]:
        """One lot: see `results_of`; all of its results must be taken before the next one.

        Processes that have nothing left to do stay for the next lot, unless this is the ``last``.
        """
        begin = on_begin or (lambda number: None)
        if self._name == LOCAL and self._limits.processes == 1:
            for number, item in enumerate(items):
                begin(number)
                yield number, _result_of(self._function, self._shared, item)
            return
        with _only_what_can_be_sent():
            packed = [b64encode(_packed(item, self._shared)).decode() for item in items]
        left = deque(
            Task.of({"number": number, "item": text}) for number, text in enumerate(packed)
        )
        if not left:
            return
        executor = self._opened()
        told = finished(
            executor, self._slots, left, lambda task: begin(task.spec["number"]), keep=not last
        )
        for task, row in told:
            yield task.spec["number"], _result_in(row, self._shared)

    def _opened(self) -> Executor:
        """The executor, with slots that know what is shared."""
        if self._executor is None:
            address_of(self._function)  # refuses what other processes cannot import
            with _only_what_can_be_sent():
                content = pickle.dumps((self._function, self._shared), pickle.HIGHEST_PROTOCOL)
            work = SweepWork.of(call, self._prepare, self._limits, content)
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


@contextmanager
def _only_what_can_be_sent() -> Iterator[None]:
    """Refuse arguments that cannot be pickled."""
    try:
        yield
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(f"what is to be sent to other processes cannot be: {error}") from None


def call(content: Any, spec: Mapping[str, Any]) -> Row:
    """The worker: one call, its result as text."""
    function, shared = content
    found = _result_of(function, shared, _unpacked(spec["item"], shared))
    return {"result": b64encode(_packed(found, shared)).decode()}


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


def _result_in(row: Row, shared: tuple[Any, ...]) -> Any:
    """The result of a call by its row, or the error that took its place."""
    if row["status"] != "ok":
        return SolverCrashed(str(row["error"]))
    return _unpacked(row["result"], shared)


def _unpacked(text: str, shared: tuple[Any, ...]) -> Any:
    """What was packed, with the shared objects of this process in their places."""

    class Unpacker(pickle.Unpickler):
        """Puts the shared objects in their places."""

        def persistent_load(self, pid: Any) -> Any:
            return shared[pid]

    return Unpacker(io.BytesIO(b64decode(text))).load()
