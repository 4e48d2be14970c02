"""Deadlines kept on Chronus' traces and on drawn sets: a bound, the best of some rules, and `deadline-elastic`.

A job that is done by one of its deadlines is worth the value of that deadline, divided by the largest value that it can
have: a job with one deadline counts 1. Plans are made at events and every 15 min. A restart takes 30 s; the first start
of a job is free. The bound is that of `deadline-fluid` for somebody who knows all arrivals: jobs may change their GPUs
at any moment without cost, and gangs and nodes do not count.

Chronus' traces (W. Gao et al., SoCC 2021) are three, with strict deadlines (``SLO``), strict ones and best effort
(``MIX1``), and soft ones of four values beside these (``MIX2``); here their first 200 jobs. The drawn sets have three
pools; their jobs are gangs of 1 to 8 GPUs (``gangs``), or run on 1, 2, 4 or 8 of them (``elastic``).

Run it by hand: it prints the rows of a table in Markdown, and draws them with ``--picture FILE``. ``--only`` takes
parts of names of sets.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import optsched
from formulations.horizon import column_deadlines, column_values, each_deadline
from optsched.arrays import FloatArray, IntArray
from optsched.assembly import compile_for, make_formulation
from optsched.formats import import_chronus
from optsched.report.palette import LINE, line_style
from optsched.simulation import simulate
from optsched.traces import Trace

SHARED = Path(__file__).resolve().parents[3] / "shared"
CHRONUS = SHARED / "data" / "chronus"
JOBS = 200
FLUID = "deadline-fluid"
RESTART, ROUND = 30.0, 900.0
RULES: dict[str, Mapping[str, Any]] = {
    f"{name}:{options}": {
        "ranking": name,
        "options": dict(one.split("=") for one in options.split(",")),
    }
    for name, options in (
        ("edf", "gpus=fastest"),
        ("edf", "gpus=deadline"),
        ("edf", "gpus=deadline,late=hopeless"),
        ("slack-first", "gpus=deadline"),
    )
}
PROGRAMS: dict[str, Mapping[str, Any]] = {
    "deadline-elastic": {"formulation": "deadline-elastic"},
    "without promises": {"formulation": "deadline-elastic", "options": {"guarantee": 0.0}},
}


# --- the sets -----------------------------------------------------------------------------------


def chronus(trace: str, nodes: int) -> Trace:
    """The first jobs of a trace of Chronus, on nodes of 8 GPUs."""
    document = import_chronus(CHRONUS / f"trace_job_Philly_{trace}.csv", {"gpu": (nodes, 8)})
    return loaded(document | {"jobs": document["jobs"][:JOBS]})


POOLS = {"fast": (2, 4, 1.0), "middle": (2, 8, 0.6), "slow": (2, 8, 0.4)}
"""Nodes, GPUs of a node, and rate of one GPU."""
SIZES = {1: 0.5, 2: 0.2, 4: 0.2, 8: 0.1}
"""Shares of gangs by their GPUs."""
SCALING = 0.85
"""An elastic job runs g**SCALING times as fast on g GPUs."""
DRAWN = 150


def drawn(load: float, elastic: bool, seed: int = 0) -> Trace:
    """150 jobs on three pools that arrive so fast that they ask for ``load`` times what there is."""
    random = np.random.default_rng([seed, int(elastic)])
    seconds = np.clip(random.lognormal(np.log(3600.0), 1.0, DRAWN), 300.0, 12 * 3600.0)
    size = random.choice(list(SIZES), DRAWN, p=list(SIZES.values()))
    slack = random.uniform(1.2, 3.0, DRAWN)
    there = sum(nodes * gpus * rate for nodes, gpus, rate in POOLS.values())
    gap = float(size @ seconds) / there / load / DRAWN
    arrival = np.cumsum(random.exponential(gap, DRAWN))
    jobs = []
    for row in range(DRAWN):
        gpus = [1, 2, 4, 8] if elastic else [int(size[row])]
        rate = {
            pool: {
                str(g): speed * (g / size[row]) ** SCALING for g in gpus if g <= nodes * per_node
            }
            for pool, (nodes, per_node, speed) in POOLS.items()
        }
        due = arrival[row] + slack[row] * seconds[row] / POOLS["middle"][2]
        jobs.append(
            {
                "id": f"job-{row}",
                "arrival": arrival[row],
                "steps": seconds[row],
                "throughput": rate,
                "deadline": due,
            }
            | {"gpus": {"min": 1, "max": 8, "levels": gpus} if elastic else gpus[0]}
        )
    pools = [
        {"name": name, "nodes": nodes, "gpus_per_node": gpus}
        for name, (nodes, gpus, _) in POOLS.items()
    ]
    return loaded(
        {"format": "optsched-instance/1", "now": 0.0, "cluster": {"pools": pools}, "jobs": jobs}
    )


def loaded(document: Mapping[str, Any]) -> Trace:
    """A set of jobs as a trace."""
    return optsched.load_trace(optsched.Instance.from_document(document))


SETS: dict[str, Callable[[], Trace]] = {
    **{
        f"{trace}/{8 * nodes}": partial(chronus, trace, nodes)
        for trace in ("SLO", "MIX1", "MIX2")
        for nodes in (12, 8)
    },
    **{
        f"{kind}/{load:g}": partial(drawn, load, kind == "elastic")
        for kind in ("gangs", "elastic")
        for load in (1.0, 2.0)
    },
}


# --- what is kept -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Worth:
    """What jobs are worth by the time at which they are done.

    Attributes
    ----------
    job : IntArray, shape (deadlines,)
    due, value : FloatArray, shape (deadlines,)
        Seconds on the clock, and what it is worth to be done by then.
    whole : float
        The largest value of a job, which is that of all jobs.
    bound : float
        No plan keeps more jobs.
    """

    job: IntArray
    due: FloatArray
    value: FloatArray
    whole: float
    bound: float

    @classmethod
    def of(cls, trace: Trace, seconds: float) -> Worth:
        """That of the jobs of a trace, with a bound that is found within some seconds."""
        formulation = make_formulation(FLUID, {}, [])
        C = formulation.classes(compile_for(formulation, trace.instance).per_job())
        column = np.flatnonzero(C.alone & np.isfinite(column_deadlines(C)))
        job, due, value = each_deadline(
            C.first[C.class_a[column]], column_deadlines(C)[column], column_values(C)[column]
        )
        most = np.zeros(len(trace.instance.jobs_table))
        np.maximum.at(most, job, value)
        whole = float(most.max())
        if not np.isin(most, [0.0, whole]).all():
            raise ValueError("jobs are worth different amounts")
        options = {"admission": True}
        lost = optsched.solve(trace.instance, FLUID, options=options, time_limit=seconds).bound
        if lost is None:
            raise RuntimeError(f"no bound within {seconds:g} s")
        return cls(job, due, value, whole, float(most.sum() - lost) / whole)

    @property
    def jobs(self) -> int:
        """Jobs with a deadline."""
        return len(np.unique(self.job))

    def kept(self, finish: FloatArray) -> float:
        """Whole jobs' worth of jobs that end then, shape (jobs,); NaN: never."""
        in_time = np.flatnonzero(finish[self.job] <= self.due * (1 + 1e-12))
        best = np.zeros(len(finish))
        np.maximum.at(best, self.job[in_time], self.value[in_time])
        return float(best.sum()) / self.whole


@dataclass(frozen=True)
class Row:
    """What is kept of a set.

    Attributes
    ----------
    name : str
    jobs : int
        With a deadline.
    bound : float
    kept : mapping of str to float
        By rules and programs.
    """

    name: str
    jobs: int
    bound: float
    kept: Mapping[str, float]

    @classmethod
    def of(cls, name: str, seconds: float) -> Row:
        """That of a set, simulated; ``seconds`` for the bound."""
        trace = SETS[name]()
        worth = Worth.of(trace, seconds)
        kept = {
            policy: worth.kept(
                simulate(
                    trace, how, replan="events", round=ROUND, restart_cost=RESTART, segments=False
                ).jobs.finish
            )
            for policy, how in {**RULES, **PROGRAMS}.items()
        }
        return cls(name, worth.jobs, worth.bound, kept)

    @property
    def rule(self) -> str:
        """The best rule."""
        return max(RULES, key=lambda name: self.kept[name])

    @property
    def shown(self) -> dict[str, float]:
        """The columns of the table."""
        best = {"best rule": self.kept[self.rule]}
        return {"bound": self.bound, **best, **{name: self.kept[name] for name in PROGRAMS}}

    def line(self) -> str:
        """As a row of a table in Markdown."""
        cells = [f"{value:.1f}".removesuffix(".0") for value in self.shown.values()]
        cells[1] += f" (`{self.rule}`)"
        return f"| {self.name} | {self.jobs} | {' | '.join(cells)} |"


def draw(rows: Sequence[Row], path: Path) -> None:
    """A line for each set, with parts of its jobs that the bound, the rule and the programs keep."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 0.9 + 0.36 * len(rows)), layout="constrained")
    axes = figure.subplots()
    markers = dict(zip(rows[0].shown, ("|", "s", "o", "D"), strict=True))
    for place, (column, marker) in enumerate(markers.items()):
        x = [row.shown[column] / row.jobs for row in rows]
        colour, _ = line_style(place)
        axes.plot(x, range(len(rows)), marker, color=colour, label=column, ms=14 - 3 * place)
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("value kept, part of all jobs with a deadline")
    axes.grid(axis="x", color=LINE)
    axes.legend(ncols=len(markers), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the rows as they come, and draw them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[""], help="parts of names of sets")
    parser.add_argument("--picture", type=Path, help="file of the picture")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each bound")
    given = parser.parse_args(arguments)
    rows = []
    for name in SETS:
        if any(part in name for part in given.only):
            rows.append(Row.of(name, given.seconds))
            print(rows[-1].line(), flush=True)
    if given.picture is not None:
        draw(rows, given.picture)


if __name__ == "__main__":
    main()
