"""Round to round: a scheduler with 1 % of its jobs replaced between plans, against planning anew and against cvxpy.

A plan is the whole call: compile, program, solver, certificate, who runs, GPUs on nodes, check. ``cold`` is the call of
a scheduler without a basis; ``auto`` is what ``optsched.solve`` takes for the allocation alone, by the solver that
`auto` picks where no basis is wanted; ``cvxpy`` is a vectorised script with Clarabel for the allocation alone. All in
one process and one thread; medians, and peak memory beyond the imports. ``--long`` adds 10,000 rounds, for the memory.

``--large 100000x4`` plans so many distinct jobs on so many pools instead: the first round of a scheduler and the five
after it, each twice from the same state, without the prices that the round before has left (cold) and with them (warm).
All in one process in which such rounds were planned before, so that all is loaded and compiled; medians of three
schedulers. ``from arrays`` and ``with events`` count what comes before a plan, too: the instance and the scheduler are
made from arrays, and the jobs that leave and come are told. The rows after the allocation are parts of it.

``--events 100000`` lets 1,000 events happen one by one between two rounds of so many jobs of 200 kinds: a third each of
jobs that complete, that are observed and that come. ``ms`` are medians of single calls; ``ratio`` is the time of all of
them with the next plan, to that of the same plan of a scheduler whose state was asked for before. Once all events are
at the time of the plan, once they are spread over the round before it, and once they are three calls with lists.

``--seats 100000`` plans 20 rounds of so many gangs of 200 kinds on nodes of 8 GPUs, .1 % of them replaced between
rounds: the median round, the longest one, and the same where every GPU needs CPUs and memory of its node.

``--recovery`` plans nine rounds of 100,000 jobs of 200 kinds, .1 % of them replaced between rounds, by two schedulers
in turns: one keeps a journal that survives a loss of power, the other none. Medians of the rounds after the first; then
what the folder takes, and `Scheduler.recover` of it in a process of its own.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from arguments import count, size
from measure import measure, peak_mb
from spine import distinct_rows

if TYPE_CHECKING:
    from optsched import Instance

CASES = (
    ("2,000 distinct", 2000, 0),
    ("2,000 of 26 kinds", 2000, 26),
    ("10,000 of 200 kinds", 10_000, 200),
)
ROUND = 360.0
PARTS = {3: (0.2, 0.35, 0.45), 4: (0.1, 0.2, 0.3, 0.4)}
"""Of the GPUs that all jobs ask for together, times 1/8 of a node, by the number of pools."""
CPUS = (3, 5, 8, 12)
"""CPUs per GPU of jobs that need some; a node of 8 GPUs has 64."""
ROWS = ("first", "cold", "warm")
LARGE = ("max-min-fairness", "proportional-fairness")


@dataclass
class Churn:
    """A scheduler some of whose jobs are replaced each round."""

    jobs: int
    kinds: int
    seed: int = 0
    pool_count: int = 3
    formulation: str = "max-min-fairness"
    part: float = 0.01
    journal: Path | None = None
    needs: bool = False

    def __post_init__(self) -> None:
        import optsched
        from optsched.rounds.scheduler import Scheduler

        self.random = np.random.default_rng(self.seed)
        self.rows = distinct_rows(self.kinds or 4 * self.jobs, self.pool_count)
        picked = (
            self.random.integers(0, len(self.rows["gpus"]), self.jobs)
            if self.kinds
            else np.arange(self.jobs)
        )
        gpus = self.rows["gpus"][picked]
        self.pools = [
            {"name": f"pool{j}", "nodes": max(1, int(part * gpus.sum() / 64)), "gpus_per_node": 8}
            for j, part in enumerate(PARTS[self.pool_count])
        ]
        self.live = [f"j{i}" for i in range(self.jobs)]
        self.next = self.jobs
        started = time.perf_counter()
        if self.needs:
            instance = self._with_needs(picked)
        else:
            instance = optsched.Instance.from_arrays(
                pools=self.pools, ids=self.live, throughput=self.rows["throughput"][picked], gpus=gpus,
                weight=self.rows["weight"][picked], steps=1e9,
            )  # fmt: skip
        self.now = 0.0
        policy = {"formulation": self.formulation}
        self.scheduler = Scheduler(
            instance, policy, clock=lambda: self.now, isolate=False, journal=self.journal
        )
        self.seconds = time.perf_counter() - started  # for what happened before the next plan

    def _with_needs(self, picked: Any) -> Instance:
        """The same jobs, of workloads that need CPUs and memory: fewer than a node has for 8 GPUs, or more."""
        import optsched

        nodes = {"cpus_per_node": 64, "memory_per_node": 512}
        workloads = {
            f"needs{cpus}": {"throughput": {}, "demand": {"cpu": cpus, "memory": 8.0 * cpus}}
            for cpus in CPUS
        }
        return optsched.Instance.from_document(
            {
                "format": "optsched-instance/1",
                "round": ROUND,
                "cluster": {"pools": [{**pool, **nodes} for pool in self.pools]},
                "workloads": workloads,
                "jobs": self._documents(self.live, picked),
            }
        )

    def replace(self) -> None:
        """Some of the jobs are complete, as many others come."""
        count = int(self.jobs * self.part)
        leave, jobs = self.leaving(count), self.coming(count)
        started = time.perf_counter()
        self.scheduler.complete(leave)
        self.scheduler.submit(jobs)
        self.seconds = time.perf_counter() - started
        self.now += ROUND

    def leaving(self, count: int) -> list[str]:
        """Names of so many jobs, which are no more."""
        gone = set(self.random.choice(len(self.live), count, replace=False).tolist())
        leave = [self.live[i] for i in sorted(gone)]
        self.live = [name for i, name in enumerate(self.live) if i not in gone]
        return leave

    def coming(self, count: int) -> list[dict[str, Any]]:
        """Documents of so many other jobs, which are there from now on."""
        names = [f"j{self.next + i}" for i in range(count)]
        rows = self.random.integers(0, len(self.rows["gpus"]), count)
        jobs = self._documents(names, rows)
        self.live += names
        self.next += count
        return jobs

    def _documents(self, names: list[str], rows: Any) -> list[dict[str, Any]]:
        """Documents of jobs of some kinds."""
        return [
            {
                "id": name,
                "gpus": int(self.rows["gpus"][row]),
                "weight": float(self.rows["weight"][row]),
                "steps": 1e9,
                "throughput": {
                    pool["name"]: float(rate)
                    for pool, rate in zip(self.pools, self.rows["throughput"][row], strict=True)
                    if rate > 0
                },
                **({"workload": f"needs{CPUS[row % len(CPUS)]}"} if self.needs else {}),
            }
            for name, row in zip(names, rows.tolist(), strict=True)
        ]

    def plan(self) -> tuple[float, Any]:
        """Seconds of a plan, and the plan."""
        started = time.perf_counter()
        plan = self.scheduler.solve()
        spent = time.perf_counter() - started
        assert plan.fallback is None
        return spent, plan


def rounds(jobs: int, kinds: int, count: int = 20) -> Callable[[], Any]:
    churn = Churn(jobs, kinds)
    cold = churn.plan()[0]

    def run() -> Any:
        import optsched

        warm, moved, plan, auto = [], [], None, []
        for _ in range(count):
            churn.replace()
            spent, plan = churn.plan()
            warm.append(spent)
            moved.append(int((plan.verdict == 1).sum() + (plan.verdict == 3).sum()))
        instance = churn.scheduler.instance
        for _ in range(5):
            started = time.perf_counter()
            assert optsched.solve(instance, "max-min-fairness").ok
            auto.append(time.perf_counter() - started)
        assert plan is not None
        return {
            "warm": statistics.median(warm[2:]), "cold": cold, "auto": statistics.median(auto),
            "moved": statistics.median(moved), "running": len(plan.running), "started": plan.started_from,
            "cvxpy": _cvxpy(instance),
        }  # fmt: skip

    return run


def large(
    jobs: int, pools: int, formulation: str, schedulers: int = 3, count: int = 5
) -> Callable[[], Any]:
    """Seconds of a first round and of those after it (all, plan, work of the processor, allocation), and passes."""

    def first(seed: int) -> tuple[Churn, list[float]]:
        churn = Churn(jobs, 0, seed, pools, formulation)
        return churn, planned(churn)

    def planned(churn: Churn) -> list[float]:
        spent, plan = churn.plan()
        return [churn.seconds + spent, *figures_of(plan)]

    def figures_of(plan: Any) -> list[float]:
        assert plan.solution is not None and plan.solution.certificate.ok
        told = plan.timings
        stages = sum(told[name] for name in ("compile", "build", "solve", "certify"))
        return [
            told["total"],
            told["allocate"],
            stages,
            told["solve"],
            plan.solution.solver.iterations,
        ]

    def without_prices(churn: Churn) -> list[float]:
        from optsched.rounds.changes import advanced
        from optsched.rounds.solve_round import solve_round

        plan = solve_round(replace(advanced(churn.scheduler.state, churn.now), warm=None))
        return [np.nan, *figures_of(plan)]

    churn = first(schedulers)[0]
    churn.replace()
    churn.plan()

    def run() -> Any:
        begun, cold, warm = [], [], []
        for seed in range(schedulers):
            churn, figures = first(seed)
            begun.append(figures)
            for _ in range(count):
                churn.replace()
                cold.append(without_prices(churn))
                warm.append(planned(churn))
        return {
            name: np.median(some, axis=0).tolist()
            for name, some in zip(ROWS, (begun, cold, warm), strict=True)
        }

    return run


def _print_large(jobs: int, pools: int) -> None:
    for formulation in LARGE:
        found = measure(
            "rounds", "large", repeat=1, jobs=jobs, pools=pools, formulation=formulation
        )
        print(f"{jobs:,} distinct jobs x {pools} pools, {formulation}, {found.megabytes:.0f} MB")
        print(f"{'':34} {'first ms':>9} {'cold ms':>8} {'warm ms':>8} {'/cold':>6}")
        names = (
            "from arrays, with events",
            "plan",
            "its allocation",
            "compile, program, solve, certify",
            "solve",
            "passes",
        )
        for name, *row in zip(names, *(found.result[each] for each in ROWS), strict=True):
            begun, cold, warm = (float(each) * (1.0 if name == "passes" else 1e3) for each in row)
            print(
                f"  {name:32} {begun:9.0f} {cold:8.0f} {warm:8.0f} {warm / cold:6.2f}", flush=True
            )


def events(jobs: int, count: int = 1000, repeat: int = 9) -> Callable[[], Any]:
    """Milliseconds of single events by their kind, and ratios of events with a plan to the plan.

    Of the processor, as the ratio is of two schedulers that take turns.
    """
    told, asked = (Churn(jobs, 200) for _ in range(2))
    for churn in (told, asked):
        churn.plan()
        churn.now += ROUND
        churn.plan()

    def between(churn: Churn, spread: float, length: int) -> dict[str, list[float]]:
        """Seconds of the events of a round, of which each call reports ``length``."""
        third = count // 3
        leave, come, stay = churn.leaving(third), churn.coming(third), churn.live[:third]
        calls: list[tuple[str, Callable[[float], None]]] = []
        for start in range(0, third, length):
            gone, seen, new = (each[start : start + length] for each in (leave, stay, come))
            calls += [
                ("complete", partial(_complete, churn.scheduler, gone)),
                ("observe", partial(_observe, churn.scheduler, seen)),
                ("submit", partial(_submit, churn.scheduler, new)),
            ]
        spent: dict[str, list[float]] = {name: [] for name, _ in calls}
        for place, (name, call) in enumerate(calls):
            now = churn.now + ROUND - spread * (1.0 - place / len(calls))
            started = time.process_time()
            call(now)
            spent[name].append(time.process_time() - started)
        churn.now += ROUND
        return spent

    def planned(churn: Churn) -> float:
        started = time.process_time()
        churn.plan()
        return time.process_time() - started

    def run() -> Any:
        found: dict[str, Any] = {}
        cases = (("at once", 0.0, 1), ("spread", ROUND / 2, 1), ("in lists", 0.0, count))
        for name, spread, length in cases:
            single: dict[str, list[float]] = {}
            both, alone = [], []
            for _ in range(repeat):
                spent = between(told, spread, length)
                both.append(sum(map(sum, spent.values())) + planned(told))
                for kind, seconds in spent.items():
                    single.setdefault(kind, []).extend(seconds)
                between(asked, spread, length)
                asked.scheduler.state  # noqa: B018 (the events have happened before the plan)
                alone.append(planned(asked))
            found[name] = {
                **{kind: 1e3 * statistics.median(seconds) for kind, seconds in single.items()},
                "plan": 1e3 * statistics.median(alone),
                "ratio": statistics.median(both) / statistics.median(alone),
            }
        return found

    return run


def _complete(scheduler: Any, jobs: list[str], now: float) -> None:
    scheduler.complete(jobs, now=now)


def _observe(scheduler: Any, jobs: list[str], now: float) -> None:
    scheduler.observe([{"job": job, "steps": 100.0} for job in jobs], now=now)


def _submit(scheduler: Any, jobs: list[dict[str, Any]], now: float) -> None:
    scheduler.submit(jobs, now=now)


def _print_events(jobs: int) -> None:
    found = measure("rounds", "events", repeat=1, jobs=jobs)
    print(f"{jobs:,} jobs, 1,000 events between two plans, {found.megabytes:.0f} MB")
    print(
        f"{'events':8} {'complete ms':>11} {'observe ms':>11} {'submit ms':>10} {'plan ms':>8} {'ratio':>6}"
    )
    for name, it in found.result.items():
        print(
            f"{name:8} {it['complete']:11.3f} {it['observe']:11.3f} {it['submit']:10.3f} "
            f"{it['plan']:8.0f} {it['ratio']:6.2f}",
            flush=True,
        )


def seats(jobs: int, needs: bool, count: int = 20) -> Callable[[], Any]:
    """Seconds of rounds of gangs of 200 kinds, after the first one."""
    churn = Churn(jobs, 200, part=0.001, needs=needs)
    churn.plan()

    def run() -> Any:
        spent = []
        for _ in range(count):
            churn.replace()
            spent.append(churn.plan()[0])
        return {"median": statistics.median(spent), "longest": max(spent)}

    return run


def _print_seats(jobs: int) -> None:
    print(f"rounds of {jobs:,} gangs of 200 kinds, .1 % replaced between rounds")
    print(f"{'':24} {'median ms':>10} {'longest ms':>11} {'/median':>8} {'/GPUs':>6} {'MB':>6}")
    alone = 0.0
    for name, needs in (("GPUs alone", False), ("with CPUs and memory", True)):
        found = measure("rounds", "seats", repeat=1, jobs=jobs, needs=needs)
        median, longest = found.result["median"], found.result["longest"]
        alone = alone or median
        print(
            f"  {name:22} {1e3 * median:10.0f} {1e3 * longest:11.0f} {longest / median:8.2f} "
            f"{median / alone:6.2f} {found.megabytes:6.0f}",
            flush=True,
        )


def with_journal(jobs: int, kinds: int, count: int, part: float, folder: str) -> Callable[[], Any]:
    """Seconds of plans without and with a journal, in turns; two schedulers that plan the same."""
    both = [Churn(jobs, kinds, part=part, journal=path) for path in (None, Path(folder))]

    def run() -> Any:
        spent: list[list[float]] = [[], []]
        for number in range(count):
            plans = []
            for churn, seconds in zip(both, spent, strict=True):
                if number:
                    churn.replace()
                found, plan = churn.plan()
                seconds.append(found)
                plans.append(plan.id)
            assert plans[0] == plans[1]
        for churn in both:
            churn.scheduler.close()
        return {"seconds": spent, "digest": plans[1]}

    return run


def recovered(folder: str) -> Callable[[], Any]:
    """The digest of the last plan of a journal."""
    from optsched.rounds.scheduler import Scheduler

    def run() -> Any:
        with Scheduler.recover(folder, isolate=False) as scheduler:
            assert scheduler.plan is not None
            return scheduler.plan.id

    return run


def _print_recovery(jobs: int = 100_000, kinds: int = 200, count: int = 9) -> None:
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "journal")
        given = {"jobs": jobs, "kinds": kinds, "count": count, "part": 0.001}
        made = measure("rounds", "with_journal", repeat=1, folder=str(folder), **given)
        found = measure("rounds", "recovered", repeat=3, folder=str(folder))
        assert found.result == made.result["digest"]
        size = {
            kind: sum(file.stat().st_size for file in folder.glob(f"{kind}-*")) / 2**20
            for kind in ("events", "snapshot")
        }
    without, kept = (statistics.median(seconds[1:]) for seconds in made.result["seconds"])
    print(f"{count} rounds of {jobs:,} jobs of {kinds} kinds, .1 % replaced between rounds")
    print(f"  round without a journal, s     {without:8.3f}")
    print(f"  round with a journal, s        {kept:8.3f}   {kept / without:.3f} times")
    print(f"  recovery, s                    {found.seconds:8.3f}")
    print(f"  recovery, MB beyond imports    {found.megabytes:8.0f}")
    print(f"  records, MB                    {size['events']:8.1f}")
    print(f"  snapshots, MB                  {size['snapshot']:8.1f}", flush=True)


def _cvxpy(instance: Any) -> float:
    """Seconds of a vectorised cvxpy script for the same allocation, job by job."""
    import cvxpy as cp

    import optsched
    from optsched.api import make_formulation

    program = make_formulation("max-min-fairness").program(
        make_formulation("max-min-fairness").classes(optsched.compile(instance).per_job())
    )
    C, spent = program.classes, []
    for _ in range(3):
        started = time.perf_counter()
        x, t = cp.Variable(C.columns, nonneg=True), cp.Variable()
        rows = [program.levels @ x >= t, C.member @ x <= 1, C.usage @ x <= C.capacity]
        cp.Problem(cp.Maximize(t), rows).solve(solver="CLARABEL")
        spent.append(time.perf_counter() - started)
    return statistics.median(spent)


def memory(jobs: int, kinds: int, count: int) -> list[tuple[int, float]]:
    """Resident memory (MB) over many rounds of churn."""
    churn, seen = Churn(jobs, kinds), []
    for number in range(count + 1):
        if number % (count // 10) == 0:
            with open("/proc/self/statm") as file:
                seen.append((number, int(file.read().split()[1]) * resource.getpagesize() / 2**20))
        churn.replace()
        churn.plan()
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="also 10,000 rounds, for the memory")
    parser.add_argument(
        "--large", type=size, metavar="JOBSxPOOLS", help="only first rounds and those after them"
    )
    parser.add_argument(
        "--events", type=count, metavar="JOBS", help="only 1,000 events and the plan after them"
    )
    parser.add_argument(
        "--seats", type=count, metavar="JOBS", help="only rounds of gangs, with and without CPUs"
    )
    parser.add_argument(
        "--recovery", action="store_true", help="only rounds with a journal, and its recovery"
    )
    given = parser.parse_args()
    long = given.long
    if given.recovery:
        _print_recovery()
        return
    if given.seats:
        _print_seats(given.seats)
        return
    if given.events:
        _print_events(given.events)
        return
    if given.large:
        jobs, pools = map(int, given.large.split("x"))
        if pools not in PARTS:
            parser.error(
                f"argument --large: found {pools} pools, expected {' or '.join(map(str, PARTS))}"
            )
        _print_large(jobs, pools)
        return
    head = f"{'case':22} {'plan ms':>8} {'cold ms':>8} {'auto ms':>8} {'cvxpy ms':>9} {'/cold':>6} {'/cvxpy':>7}"
    print(head + f" {'starts':>7} {'run':>6} {'MB':>6}")
    for name, jobs, kinds in CASES:
        found = measure("rounds", "rounds", repeat=3, jobs=jobs, kinds=kinds)
        it = found.result
        print(
            f"{name:22} {1e3 * it['warm']:8.1f} {1e3 * it['cold']:8.1f} {1e3 * it['auto']:8.1f} "
            f"{1e3 * it['cvxpy']:9.1f} {it['warm'] / it['cold']:6.2f} {it['warm'] / it['cvxpy']:7.3f} "
            f"{it['moved']:7.0f} {it['running']:6d} {found.megabytes:6.0f}",
            flush=True,
        )
    if long:
        print("resident MB over 10,000 rounds of 500 distinct jobs:")
        for number, megabytes in memory(500, 0, 10_000):
            print(f"  {number:6d} {megabytes:8.1f}", flush=True)
        print(f"  peak {peak_mb():.1f}")


if __name__ == "__main__":
    main()
