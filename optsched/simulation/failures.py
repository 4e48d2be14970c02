"""Nodes that fail and come back."""

from __future__ import annotations

import heapq

import numpy as np

from optsched.instance.documents import NODE_STATES
from optsched.instance.durations import HOUR
from optsched.simulation.options import SimulationOptions
from optsched.traces import Trace

AVAILABLE = "available"
"""Event of a node whose time ``available_from`` has come."""


class NodeChanges:
    """Changes of nodes in the order of time: the events of a trace, and random failures and
    repairs.

    Parameters
    ----------
    trace : Trace
        Its events count, and ``available_from`` of the nodes of its cluster.
    start : float
        Seconds.
    options : SimulationOptions
        ``failures``, the mean hours between two failures of a node while it is up (exponential;
        None: no random failures), ``repair``, the hours that it is down, and the seed.
    """

    def __init__(self, trace: Trace, start: float, options: SimulationOptions) -> None:
        cluster = trace.instance.cluster
        events = trace.node_events
        self._mean = None if options.failures is None else options.failures * HOUR
        self._repair = options.repair * HOUR
        # A separate random stream: other draws from the same seed (such as noise) do not change the
        # failures.
        self._random = np.random.default_rng([options.seed, 1])
        # (time, number, node, state, is random); the numbers keep the order of events at the same
        # time.
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
        # The state of each node apart from random failures: it returns to this state when it is
        # repaired.
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
        """Time of the next change, in seconds; inf if there is none."""
        return self._queue[0][0] if self._queue else float("inf")

    @property
    def lies_ahead(self) -> bool:
        """Whether an event of the trace or a repair is still to come. Random failures do not count:
        there is always a next one.
        """
        return any(state != "down" or not drawn for _, _, _, state, drawn in self._queue)

    def ahead(self, until: float) -> list[tuple[float, str, str]]:
        """The changes up to ``until``: (seconds, node, state). They stay in the queue."""
        return sorted((at, node, state) for at, _, node, state, _ in self._queue if at <= until)

    def until(self, now: float) -> list[tuple[float, str, str]]:
        """Take the changes up to ``now`` from the queue: (seconds, node, state)."""
        found = []
        while self._queue and self._queue[0][0] <= now:
            at, _, node, state, drawn = heapq.heappop(self._queue)
            if state == AVAILABLE:
                if node not in self._failed:
                    found.append((at, node, self._stated[node]))
            # An event of the trace. If the node is down by a random failure, the event takes effect
            # after the repair.
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
