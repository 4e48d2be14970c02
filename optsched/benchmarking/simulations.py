"""Sweeps of simulations: a trace x policies x seeds, as the tasks of a sweep, and their worker."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from optsched.api import write_atomically
from optsched.assembly import load
from optsched.benchmarking.run import Sweep, SweepOptions, run_tasks
from optsched.benchmarking.task import Task, canonical
from optsched.errors import UsageError, given_twice
from optsched.instance.durations import Duration, seconds_or_none
from optsched.registry import load_formulation, load_solver
from optsched.rounds.allocation import check_policy
from optsched.simulation import simulate
from optsched.simulation.files import simulation_bytes
from optsched.simulation.options import RHO, simulation_options
from optsched.simulation.simulate import check_heeded, label, policy_of
from optsched.traces import Trace, load_trace

LONGEST_NAME = 80
"""Letters of a policy in the name of a file."""


@dataclass(frozen=True)
class Simulations:
    """A sweep of simulations.

    Attributes
    ----------
    trace : Trace
    source : str
        What it is read from by the processes that simulate.
    policies : sequence of mappings
        Documents of `RoundPolicy`.
    seeds : sequence of int
    options : mapping
        `SimulationOptions`, apart from the seed.
    models : mapping
        ``performance`` and ``truth`` (`simulate`).
    rho : str
    unfair : float
        See `optsched.Simulation.metrics`.
    keep : str, optional
        Folder into which every simulation is written.
    time_limit, memory_limit : float, optional
        Seconds (or text such as ``"5m"``) and bytes of a simulation.
    """

    trace: Trace
    source: str
    policies: Sequence[Mapping[str, Any]]
    seeds: Sequence[int] = (0,)
    options: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, Any] = field(default_factory=dict)
    rho: RHO = "isolated"
    unfair: float = 1.0
    keep: str | None = None
    time_limit: Duration | None = None
    memory_limit: float | None = None

    def tasks(self) -> list[Task]:
        """The tasks in the order of the final table; raises `UsageError` and `InvalidInput`."""
        mode = simulation_options(self.options).mode
        for model in self.models.values():
            load(self.trace.instance, model)
        known = set()
        for policy in self.policies:
            made = policy_of(policy)
            if made.ranking is not None and mode != "rounds":
                raise UsageError(
                    f"mode {mode} takes a formulation; {made.ranking} is a ranking: use mode rounds"
                )
            check_heeded(made, mode)
            check_policy(made, self.trace.instance)
            if (text := canonical(dict(policy))) in known:
                raise given_twice("policy", label(made))
            known.add(text)
        return [self._task(policy, seed) for policy in self.policies for seed in self.seeds]

    def _task(self, policy: Mapping[str, Any], seed: int) -> Task:
        spec = {
            "trace": self.source,
            "sha256": self.trace.sha256,
            "policy": dict(policy),
            "options": {**self.options, "seed": seed},
            "models": dict(self.models),
            # A model file that changes makes another task, though its name is the same.
            "content": {name: _digest(model) for name, model in self.models.items()},
            "time_limit": seconds_or_none(self.time_limit, "time_limit"),
            "memory_limit": self.memory_limit,
            "rho": self.rho,
            "unfair": self.unfair,
            "keep": self.keep,
        }
        labels = {"trace": self.trace.name, "policy": words_of(policy), "seed": seed}
        return Task.of(spec, labels)

    def kept(self, rows: Sequence[Mapping[str, Any]]) -> list[Path]:
        """Files of the simulations that came to their end, in the order of the rows."""
        if self.keep is None:
            return []
        return [
            kept_file(self.keep, row["policy"], row["seed"])
            for row in rows
            if row["status"] == "ok"
        ]

    def run(
        self,
        *,
        threads: int = 1,
        **running: Unpack[SweepOptions],
    ) -> Sweep:
        """Do the tasks; see `run_tasks` for what is given."""
        return run_tasks(
            self.tasks(),
            simulate_task,
            prepare=prepare_simulation,
            kind="simulate",
            time_limit=seconds_or_none(self.time_limit, "time_limit"),
            memory_limit=self.memory_limit,
            threads=threads,
            **running,
        )


def _digest(model: Any) -> str:
    """Hash of a performance object, or of the file that holds it."""
    content = (
        canonical(dict(model)).encode() if isinstance(model, Mapping) else Path(model).read_bytes()
    )
    return hashlib.sha256(content).hexdigest()


def words_of(policy: Mapping[str, Any]) -> str:
    """A policy in a few words: its name, options, and what else is not as usual."""
    made = policy_of(policy)
    rest = {
        name: value
        for name, value in policy.items()
        if name not in ("formulation", "ranking", "options")
    }
    more = ",".join(f"{name}={value}" for name, value in rest.items())
    return label(made) + (f" [{more}]" if more else "")


def kept_file(folder: str | Path, policy: str, seed: int) -> Path:
    """The file of a simulation in a folder."""
    plain = "".join(
        letter if letter.isalnum() or letter in "-_=." else "_" for letter in policy
    ).strip("_")
    # With a digest, policies that begin alike have their own files.
    if len(plain) > LONGEST_NAME:
        plain = f"{plain[:LONGEST_NAME]}-{hashlib.sha256(policy.encode()).hexdigest()[:8]}"
    return Path(folder) / f"{plain}-{seed}.npz"


def prepare_simulation(spec: Mapping[str, Any]) -> None:
    """Import what a task needs."""
    policy = policy_of(spec["policy"])
    if policy.ranking is None:
        load_formulation(policy.formulation)
    load_solver("highs").version()


def simulate_task(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Do one simulation; `Simulations` makes the content."""
    trace = load_trace(spec["trace"])
    # The key of the task has the hash: a row of another trace must not stand under it.
    if trace.sha256 != spec["sha256"]:
        raise UsageError(f"{spec['trace']} has changed since the sweep began")
    policy = policy_of(spec["policy"])
    simulation = simulate(trace, policy, **spec["models"], **spec["options"])
    if spec["keep"] is not None:
        path = kept_file(spec["keep"], words_of(spec["policy"]), spec["options"]["seed"])
        write_atomically(path, simulation_bytes(simulation))
    table = trace.instance.jobs_table
    return {
        "sha256": spec["sha256"],
        "n": len(table),
        "m": len(trace.instance.cluster.pools),
        "mode": spec["options"].get("mode", "rounds"),
        "settings": canonical(
            {name: value for name, value in spec["options"].items() if name != "seed"}
        ),
        "status": "ok",
        **simulation.metrics(rho=spec["rho"], unfair=spec["unfair"]),
        "notices": "; ".join(simulation.notices),
    }
