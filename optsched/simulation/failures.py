"""Nodes that fail and come back."""

from __future__ import annotations

import heapq

import numpy as np

from optsched.instance.documents import NODE_STATES
from optsched.instance.durations import HOUR
from optsched.simulation.options import SimulationOptions
from optsched.traces import Trace

AVAILABLE = "available"
"""A node can be used from now on (``available_from``), in the state that it is in."""


class NodeChanges:
    """What happens to nodes, in the order of time:
    the events of a trace, and failures drawn as time goes by.

    Parameters
    ----------
    trace : Trace
        Beside its events, nodes become available as its cluster says.
    start : float
        Seconds.
    options : SimulationOptions
        ``failures``, the mean hours between two failures of a node while it is up (exponential; None:
        there are none but those of the trace), ``repair``, the hours that it is down, and the seed.
    """

    def __init__(self, trace: Trace, start: float, options: SimulationOptions) -> None:
        cluster = trace.instance.cluster
        events = trace.node_events
        self._mean = None if options.failures is None else options.failures * HOUR
        self._repair = options.repair * HOUR
        # A stream of its own, so that failures do not change with what else is drawn from the seed.
        self._random = np.random.default_rng([options.seed, 1])
        # (when, number, node, state, drawn); numbers keep events of one time in their order.
        self._queue = [
            (float(at), place, node, state, False)
            for place, (at, node, state) in enumerate(
                zip(events.at, events.node, events.state, strict=True)
            )
        ]
        later = [
            (float(at), pool.node_name(row))
            for pool in cluster.pools
            for row, at in enumerate(pool.node_available_from)
            if at > start
        ]
        self._queue += [
            (at, len(self._queue) + place, node, AVAILABLE, False)
            for place, (at, node) in enumerate(later)
        ]
        self._number = len(self._queue)
        # The state that a node has, or has again once it is repaired.
        self._stated = {
            pool.node_name(row): NODE_STATES[int(pool.node_state[row])]
            for pool in cluster.pools
            for row in range(len(pool.node_gpus))
        }
        self._failed: set[str] = set()
        if self._mean is not None:
            names = list(self._stated)
            for name, wait in zip(
                names, self._random.exponential(self._mean, len(names)).tolist(), strict=True
            ):
                self._push(start + wait, name, "down")
        heapq.heapify(self._queue)

    def _push(self, at: float, node: str, state: str) -> None:
        heapq.heappush(self._queue, (at, self._number, node, state, True))
        self._number += 1

    @property
    def next(self) -> float:
        """When something happens next; inf if nothing does."""
        return self._queue[0][0] if self._queue else float("inf")

    @property
    def lies_ahead(self) -> bool:
        """Whether a node of the trace's events, or one that failed, still changes:
        failures alone never end.
        """
        return any(state != "down" or not drawn for _, _, _, state, drawn in self._queue)

    def ahead(self, until: float) -> list[tuple[float, str, str]]:
        """What happens up to ``until``, without taking it."""
        return sorted((at, node, state) for at, _, node, state, _ in self._queue if at <= until)

    def until(self, now: float) -> list[tuple[float, str, str]]:
        """Take what happens up to ``now``: (seconds, node, state)."""
        found = []
        while self._queue and self._queue[0][0] <= now:
            at, _, node, state, drawn = heapq.heappop(self._queue)
            if state == AVAILABLE:
                if node not in self._failed:
                    found.append((at, node, self._stated[node]))
            # An event of the trace: of a node that has failed it holds once that is repaired.
            elif not drawn:
                self._stated[node] = state
                if node not in self._failed:
                    found.append((at, node, state))
            elif state == "up":
                self._failed.discard(node)
                if self._stated[node] != "down":
                    found.append((at, node, self._stated[node]))
            elif self._stated[node] != "down":
                self._failed.add(node)
                found.append((at, node, state))
            if drawn and self._mean is not None:
                failed = node in self._failed
                # Each failure sets its repair, and each repair the next failure.
                wait = self._repair if failed else float(self._random.exponential(self._mean))
                self._push(at + wait, node, "up" if failed else "down")
        return found
