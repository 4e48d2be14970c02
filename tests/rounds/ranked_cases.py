"""Jobs as a ranking sees them, and a simulation in rounds of what happens to jobs under a ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from optsched import Instance, solve_round
from optsched.ranking import RankedJobs
from optsched.rounds import Plan, RoundPolicy, RoundState, advanced, followed

# Private names: single rules and files of a round, without a scheduler
from optsched.rounds.changes import with_instance

Document = dict[str, Any]


def job(name: str, steps: float = 1.0, **more: Any) -> Document:
    """A job that makes a step a second."""
    return {"id": name, "steps": steps, "arrival": 0.0, "throughput": {"gpu": 1.0}, **more}


def instance(jobs: Sequence[Document], nodes: Sequence[int] = (1,), **more: Any) -> Instance:
    """Jobs on nodes with so many GPUs, in rounds of a second."""
    named = [{"name": f"n{row}", "gpus": gpus} for row, gpus in enumerate(nodes)]
    pool = {"name": "gpu", "nodes": named, "gpus_per_node": 1}
    document = {
        "format": "optsched-instance/1",
        "now": 0.0,
        "round": 1.0,
        "cluster": {"pools": [pool]},
    }
    return Instance.from_document({**document, **more, "jobs": list(jobs)})


def seen(**arrays: Any) -> RankedJobs:
    """What a ranking sees, with plain values for what a test does not care for."""
    count = max(len(np.atleast_1d(values)) for values in arrays.values())
    defaults = {
        "gpus": 1, "arrival": 0.0, "deadline": np.inf, "soft": False, "weight": 1.0, "remaining": 1.0, "executed": 0.0,
        "attained": 0.0, "waited": 0.0,
    }  # fmt: skip
    given = {
        name: np.broadcast_to(arrays.get(name, value), count) for name, value in defaults.items()
    }
    now = float(arrays.get("now", 0.0))
    return RankedJobs(
        instance([job(f"j{row}", arrival=min(now, 0.0)) for row in range(count)], now=now),
        np.arange(count, dtype=np.int64), **given,
    )  # fmt: skip


def order_of(keys: Sequence[np.ndarray], jobs: RankedJobs) -> list[int]:
    """Jobs in the order of some keys."""
    return sorted(
        range(len(jobs)), key=lambda row: (*(key[row] for key in keys), jobs.arrival[row], row)
    )


@dataclass
class Simulation:
    """Jobs that come, run and go, round by round.

    Attributes
    ----------
    jobs : list of documents
        Each with its arrival and the steps that it takes.
    policy : RoundPolicy
    nodes : sequence of int
    done : mapping of a job to when it was done
    history : list of (time, names of the jobs that run in the round, in the order of the jobs)
    """

    jobs: Sequence[Document]
    policy: RoundPolicy
    nodes: Sequence[int] = (1,)
    done: dict[str, float] = field(default_factory=dict)
    history: list[tuple[float, tuple[str, ...]]] = field(default_factory=list)
    steps: dict[str, float] = field(default_factory=dict)

    def run(self, rounds: int = 1000) -> Simulation:
        """All rounds until everything is done."""
        state = RoundState.first(instance([], self.nodes), self.policy)
        for _ in range(rounds):
            if len(self.done) == len(self.jobs):
                return self
            state = self.revised(state)
            plan = solve_round(state)
            assert plan.fallback is None
            self.see(plan)
            state = advanced(followed(state, plan), state.now + 1.0)
        raise AssertionError(
            f"after {rounds} rounds {len(self.jobs) - len(self.done)} jobs are not done"
        )

    def see(self, plan: Plan) -> None:
        """What runs in a round makes a step."""
        names = plan.instance.jobs_table.names
        running = tuple(names[row] for row in plan.running)
        self.history.append((plan.now, running))
        for name in running:
            self.steps[name] = self.steps.get(name, 0.0) + 1.0
        for one in self.jobs:
            if self.steps.get(one["id"], 0.0) >= one["steps"]:
                self.done.setdefault(one["id"], plan.until)

    def revised(self, state: RoundState) -> RoundState:
        """The state without what is done and with what has arrived."""
        table, now = state.instance.jobs_table, state.now
        gone = np.array([table.names[row] in self.done for row in range(len(table))], bool)
        state = state.stopped(gone)
        old = {table.names[row]: row for row in np.flatnonzero(~gone).tolist()}
        new = {
            one["id"]: one
            for one in self.jobs
            if one["arrival"] <= now and one["id"] not in self.done
        }
        names = [*old, *(name for name in new if name not in old)]
        rows = np.array(list(old.values()), np.int64)
        running = {
            names.index(table.names[row]): held
            for row, held in state.instance.jobs_table.running.items()
        }
        fresh = instance(
            [{**new[name], "steps_done": self.steps.get(name, 0.0)} for name in names], self.nodes
        )
        fresh = replace(fresh, now=now, jobs_table=replace(fresh.jobs_table, running=running))
        return with_instance(state, fresh, rows)


def simulated(
    jobs: Sequence[Document], ranking: str, nodes: Sequence[int] = (1,), /, **options: Any
) -> Simulation:  # fmt: skip
    """A simulation that has run."""
    return Simulation(jobs, RoundPolicy(ranking=ranking, options=options), nodes).run()


def planned(
    jobs: Sequence[Document], ranking: str, nodes: Sequence[int] = (1,), policy: Mapping[str, Any] | None = None,
    /, **more: Any,
) -> Plan:  # fmt: skip
    """The first plan for some jobs."""
    given = instance(jobs, nodes, **more)
    return solve_round(RoundState.first(given, RoundPolicy(ranking=ranking, **(policy or {}))))
