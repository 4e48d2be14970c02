"""The state of a round: everything that the next plan depends on, as one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from optsched.arrays import FloatArray
from optsched.instance import Instance
from optsched.instance.cluster import UP, Cluster
from optsched.instance.documents import NODE_STATES
from optsched.rounds.ledger import Ledger
from optsched.rounds.policy import RoundPolicy
from optsched.rounds.service import Service
from optsched.solving.warm_start import WarmStart

RESERVED = NODE_STATES.index("reserved")


@dataclass(frozen=True)
class Reservation:
    """Nodes that take no work from ``start`` to ``end`` (seconds)."""

    nodes: tuple[str, ...]
    start: float
    end: float
    name: str = ""


@dataclass(frozen=True)
class RoundState:
    """What a round is decided from.

    Attributes
    ----------
    instance : Instance
        The jobs, what runs where (``running``), the nodes and their states, the clock and the length of a round.
    policy : RoundPolicy
    number : int
        Of the coming round.
    ledger : Ledger
        The allocation in force, with what is owed.
    service : Service
        What each job has had.
    warm : WarmStart, optional
        The basis that the last program ended in.
    reservations : tuple of Reservation
    """

    instance: Instance
    policy: RoundPolicy
    number: int
    ledger: Ledger
    service: Service
    warm: WarmStart | None = None
    reservations: tuple[Reservation, ...] = field(default=())

    @classmethod
    def first(
        cls,
        instance: Instance,
        policy: RoundPolicy | None = None,
        reservations: Sequence[Reservation] = (),
    ) -> RoundState:
        """The state before the first round: nobody is owed anything, and what runs has just begun to."""
        table = instance.jobs_table
        running = np.zeros(len(table), bool)
        running[table.places.job] = True
        return cls(
            instance,
            RoundPolicy() if policy is None else policy,
            0,
            Ledger.empty(len(table)),
            Service.new(table.arrival, running, instance.now),
            None,
            tuple(reservations),
        )

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> RoundState:
        """A state from its document, ``optsched-round/1``; raises `InvalidInput`.

        What it says of jobs that the instance does not have any more is left out, as after they are complete.
        """
        from optsched.rounds.state_document import read_state_document

        return read_state_document(document)

    def to_document(self) -> dict[str, Any]:
        """The state as a document that `from_document` reads back to an equal state: its plan is the same."""
        from optsched.rounds.state_document import state_document

        return state_document(self)

    @property
    def now(self) -> float:
        """Seconds."""
        return self.instance.now

    @property
    def until(self) -> float:
        """The end of the coming round."""
        return self.instance.now + self.instance.round

    def lead(self) -> FloatArray:
        """Seconds that each row of the ledger may be ahead of what it is owed."""
        rows = self.ledger
        cost = self.instance.jobs_table.restart_cost
        beside = np.where(rows.partner >= 0, cost[rows.partner], 0.0)
        return self.instance.round * (1.0 + self.policy.hysteresis) + np.maximum(
            cost[rows.job], beside
        )


def cluster_in_round(
    cluster: Cluster, reservations: Sequence[Reservation], now: float, until: float
) -> Cluster:
    """The cluster with the nodes that are reserved for some of this time marked as such."""
    names = {
        name
        for item in reservations
        if item.start < until and item.end > now
        for name in item.nodes
    }
    if not names:
        return cluster
    numbering = cluster.numbering
    nodes = np.array(
        sorted(numbering.by_name[name] for name in names if name in numbering.by_name), np.int64
    )
    pools = []
    for number, pool in enumerate(cluster.pools):
        rows = numbering.row[nodes[numbering.pool[nodes] == number]]
        if len(rows):
            state = pool.node_state.copy()
            state[rows[state[rows] == UP]] = RESERVED
            pool = replace(pool, node_state=state)
        pools.append(pool)
    return cluster.with_pools(tuple(pools))
