"""The published simulation of ElasticFlow, and how many of the 195 deadlines of Fig. 8(a) its rules cost.

D. Gu et al., "ElasticFlow: An elastic serverless training platform for distributed deep learning", ASPLOS 2023:
0.728 on 16 nodes of 4 T4. The rules are those of the authors' scheduler (pkusys/ElasticFlow, commit 0d29ad9, schedule
`ef-accessctrl`); the code is our own.

A plan has three steps:

- Admission: newcomers with whom some job finds no share are declined for good.
- Shares: jobs come by deadline. The share of a job is its least level for which there is a period such that the job is
  in time if it has the share from then on, and the level below before, or the largest level below these that is free.
- Expansion: GPUs that are free now go to jobs, one level at a time: first to jobs without GPUs, then to those whose GPU
  time grows most by each GPU more.

`PublishedRules` has the others: 143 jobs are in time, 49 are declined and 3 late. Three rules are not here: a job loses
only 2 s where some job had just its GPUs before; after every sixtieth plan the others lose 27 s more; expansion counts
the period in which a job ends as a whole. With all three of these, too, the numbers are the authors': 142, 50 and 3.

Run it by hand: it prints a table in Markdown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from optsched.formats import import_elasticflow

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "elasticflow"
TRACE = DATA / "traces_for_ElasticFlow" / "elasticVpollux_e.csv"
TABLES = DATA / "throughputs_T4"

NODES, GPUS_PER_NODE = 16, 4
GPUS = NODES * GPUS_PER_NODE
SLOT = 60
"""Seconds of a slot, and of the least time between two plans."""
MOST_GPUS = {"bert/384": 16, "cifar10/2048": 16, "cifar10/4096": 16, "yolov3/64": 4, "ncf/32768": 1}
"""The authors' largest levels, where their tables of throughputs have larger ones."""


@dataclass(frozen=True)
class PublishedRules:
    """Rules of the authors' simulator that can be left out; each says what holds with it."""

    loss: bool = True
    """After each plan a job on g GPUs makes no progress for 4 + 2 log2(g) s."""
    distance: bool = True
    """Plans are at least 60 s apart; arrivals and ends wait for the next plan."""
    slots: bool = True
    """Planned ends and deadlines are rounded up to slots, which begin with the plan; without to whole seconds."""
    together: bool = True
    """Newcomers of one plan are admitted or declined together."""
    bounds: bool = True
    """Some models have a largest level (`MOST_GPUS`); without the largest of each is its fastest."""
    planned_finish: bool = True
    """A job is in time if its last share did its work in time: before it lost time, and before rounding up."""


Steps = Mapping[float, int]
"""GPUs from each time on until the next one; times ascend."""


@dataclass(frozen=True)
class Period:
    """A time in which the number of free GPUs does not change."""

    begin: float
    end: float
    free: int


@dataclass(frozen=True)
class PlannedRun:
    """What a plan gives to a job."""

    gpus: Steps
    """None from its end on."""
    finish: float
    """When its work is done."""
    end: float
    """When its GPUs are free again."""

    @property
    def gpus_now(self) -> int:
        return next(iter(self.gpus.values()))

    @property
    def gpu_time(self) -> float:
        times = list(self.gpus)
        return sum(
            gpus * (end - begin)
            for (begin, gpus), end in zip(self.gpus.items(), times[1:], strict=False)
        )

    @property
    def next_change(self) -> float:
        return next(time for time, gpus in self.gpus.items() if gpus != self.gpus_now)


NO_RUN = PlannedRun({0.0: 0, math.inf: 0}, math.inf, math.inf)


@dataclass
class ElasticJob:
    """A job of the trace, and how far it is."""

    name: str
    arrival: float
    deadline: float
    rates: Mapping[int, float]
    """Steps per second by level; levels ascend."""
    left: float
    """Steps."""
    run: PlannedRun = NO_RUN
    share_finish: float = math.inf
    """When the share of the last plan does its work, without expansion."""
    lost: float = 0.0
    """Seconds without progress after the last plan."""
    done: float = math.inf
    """When its work is done if it keeps the GPUs of the last plan."""

    @property
    def end(self) -> float:
        return self.run.end + self.lost

    def level(self, gpus: int) -> int:
        """The largest level up to a number of GPUs; 0 if there is none."""
        return max((level for level in self.rates if level <= gpus), default=0)


# --- free GPUs ----------------------------------------------------------------------------------


def added(first: Steps, second: Steps, sign: int = 1) -> Steps:
    """The sum or the difference of two numbers of GPUs; it has no step where it does not change."""
    change: Counter[float] = Counter()
    for steps, factor in ((first, 1), (second, sign)):
        before = 0
        for time, gpus in steps.items():
            change[time] += factor * (gpus - before)
            before = gpus
    total: dict[float, int] = {}
    gpus = 0
    for time in sorted(change):
        gpus += change[time]
        if change[time] or not total:
            total[time] = gpus
    return total


def periods(free: Steps, due: float) -> Iterator[Period]:
    """Periods of equal free GPUs, also cut at ``due``."""
    for (begin, gpus), end in zip(free.items(), [*list(free)[1:], math.inf], strict=True):
        for part in (Period(begin, min(end, due), gpus), Period(max(begin, due), end, gpus)):
            if part.begin < part.end:
                yield part


def rounded_up(time: float, start: float, rules: PublishedRules) -> float:
    slot = SLOT if rules.slots else 1
    return start + math.ceil((time - start) / slot) * slot


# --- plans --------------------------------------------------------------------------------------


def share(
    job: ElasticJob, free: Steps, rules: PublishedRules, first: int | None = None
) -> PlannedRun:
    """The run with the least share that is in time; without one, the run at the largest levels.

    With ``first`` the job has that level until the number of free GPUs changes.
    """
    now = min(free)
    due = max(now, rounded_up(job.deadline, now, rules))  # the end of the slot of the deadline
    ahead = list(periods(free, due))
    fixed = [] if first is None else [(ahead.pop(0), first)]
    left = job.left - sum(_work(job, period, level) for period, level in fixed)
    early = [period for period in ahead if period.end <= due]
    below = [0] * len(early)
    for most in job.rates if left > 0 else ():
        levels = [job.level(min(most, period.free)) for period in early]
        work = 0.0
        for turn in reversed(range(len(early))):
            work += _work(job, early[turn], levels[turn])
            if work >= left:
                chosen = zip(early, below[:turn] + levels[turn:], strict=True)
                return _until_done(job, [*fixed, *chosen], rules)
        below = levels
    largest = [(period, job.level(period.free)) for period in ahead]
    return _until_done(job, [*fixed, *largest], rules)


def _work(job: ElasticJob, period: Period, level: int) -> float:
    """Steps in a period; none after the deadline in a period that begins before."""
    end = min(period.end, job.deadline) if period.begin < job.deadline else period.end
    return (end - period.begin) * job.rates[level] if level else 0.0


def _until_done(
    job: ElasticJob, levels: Sequence[tuple[Period, int]], rules: PublishedRules
) -> PlannedRun:
    """The run that has a level in each period, until the work is done."""
    gpus: dict[float, int] = {}
    left = job.left
    for period, level in levels:
        gpus[period.begin] = level
        work = _work(job, period, level)
        if level and work >= left:
            finish = period.begin + math.ceil(left / job.rates[level])
            end = rounded_up(finish, period.begin, rules)
            return PlannedRun({**gpus, end: 0}, finish, end)
        left -= work
    raise AssertionError(f"{job.name}: the last period has no end, and all GPUs are free in it")


def plan_shares(
    jobs: Sequence[ElasticJob], now: float, rules: PublishedRules
) -> tuple[list[PlannedRun], Steps]:
    """The shares of jobs, which come by deadline, and the GPUs that are left."""
    free: Steps = {now: GPUS}
    runs = []
    for job in jobs:
        run = share(job, free, rules)
        free = added(free, run.gpus, -1)
        runs.append(run)
    return runs, free


def expand(jobs: Sequence[ElasticJob], free: Steps, rules: PublishedRules) -> None:
    """Give GPUs that are free now to jobs, one level at a time."""
    while True:
        best: tuple[float, ElasticJob, PlannedRun] | None = None
        for job in jobs:
            held = job.run.gpus_now
            level = min((level for level in job.rates if level > held), default=GPUS + 1)
            if level - held > next(iter(free.values())):
                continue
            run = share(job, added(free, job.run.gpus), rules, level)
            gain = (run.gpu_time - job.run.gpu_time) / (level - held) if held else math.inf
            if best is None or gain > best[0]:
                best = gain, job, run
        if best is None:
            return
        _, job, run = best
        free = added(added(free, job.run.gpus), run.gpus, -1)
        job.run = run


# --- the simulation -----------------------------------------------------------------------------


@dataclass
class JobsByOutcome:
    """Names of the jobs that are admitted and in time, declined, or admitted and late."""

    in_time: list[str] = field(default_factory=list)
    declined: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)


def simulate(jobs: Sequence[ElasticJob], rules: PublishedRules) -> JobsByOutcome:
    """Plan at arrivals, at ends and where a plan changes the GPUs of a job."""
    waiting = sorted(jobs, key=lambda job: job.arrival)
    active: list[ElasticJob] = []
    outcome = JobsByOutcome()
    now = waiting[0].arrival
    while waiting or active:
        active = without_ended(active, now, rules, outcome)
        newcomers = [job for job in waiting if job.arrival <= now]
        waiting = waiting[len(newcomers) :]
        for group in [newcomers] if rules.together else [[job] for job in newcomers]:
            active = admit(active, group, now, rules, outcome)
        runs, free = plan_shares(active, now, rules)
        for job, run in zip(active, runs, strict=True):
            job.run, job.share_finish, job.lost = run, run.finish, 0.0
        expand(active, free, rules)
        # A change of GPUs counts only before the next event, and before ends are later by losses.
        soon = next_event(waiting, active)
        change = min((job.run.next_change for job in active), default=math.inf)
        for job in active:
            if rules.loss and (gpus := job.run.gpus_now):
                job.lost = 4.0 + 2.0 * math.log2(gpus)
        then = change if change < soon else next_event(waiting, active)
        if rules.distance:
            then = max(then, now + SLOT)
        for job in active:
            work_until(job, now, then)
        now = then
    return outcome


def next_event(waiting: Sequence[ElasticJob], active: Sequence[ElasticJob]) -> float:
    """The next arrival or end."""
    ends = (job.end for job in active if job.run.gpus_now)
    return min([*ends, *(job.arrival for job in waiting[:1])], default=math.inf)


def without_ended(
    active: Sequence[ElasticJob], now: float, rules: PublishedRules, outcome: JobsByOutcome
) -> list[ElasticJob]:
    """The jobs that go on. Those whose planned end has come do not, even if work is left."""
    goes_on = []
    for job in active:
        if not job.run.gpus_now or (job.left > 0 and job.end > now):
            goes_on.append(job)
        elif (job.share_finish if rules.planned_finish else job.done) <= job.deadline:
            outcome.in_time.append(job.name)
        else:
            outcome.late.append(job.name)
    return goes_on


def admit(
    active: list[ElasticJob],
    newcomers: list[ElasticJob],
    now: float,
    rules: PublishedRules,
    outcome: JobsByOutcome,
) -> list[ElasticJob]:
    """Active jobs and newcomers by deadline, or only the former if some job would be late."""
    jobs = sorted([*active, *newcomers], key=lambda job: job.deadline)
    runs, _ = plan_shares(jobs, now, rules)
    if all(run.finish <= job.deadline for job, run in zip(jobs, runs, strict=True)):
        return jobs
    outcome.declined += [job.name for job in newcomers]
    return active


def work_until(job: ElasticJob, now: float, then: float) -> None:
    """The work of a job until the next plan; it stops when its share would have done it."""
    if gpus := job.run.gpus_now:
        rate = job.rates[gpus]
        job.done = now + job.lost + job.left / rate
        job.left -= rate * max(0.0, min(then, job.share_finish) - now - job.lost)


# --- Fig. 8(a) ----------------------------------------------------------------------------------


def fig_8a(rules: PublishedRules) -> list[ElasticJob]:
    """Its 195 jobs."""
    document = import_elasticflow({"t4": TABLES}, TRACE, {"t4": (NODES, GPUS_PER_NODE)})
    jobs = []
    for row in document["jobs"]:
        workload = row["workload"]
        table = document["workloads"][workload]["throughput"]["t4"]
        rates = {int(gpus): float(rate) for gpus, rate in table.items()}
        fastest = max(rates, key=lambda gpus: rates[gpus])
        most = MOST_GPUS.get(workload, GPUS) if rules.bounds else fastest
        levels = {gpus: rate for gpus, rate in rates.items() if gpus <= most}
        jobs.append(ElasticJob(row["id"], row["arrival"], row["deadline"], levels, row["steps"]))
    return jobs


def main() -> None:
    print("| rules | in time | part | declined | late |\n|---|---|---|---|---|")
    ways = {"all": PublishedRules()}
    ways |= {
        f"without `{rule.name}`": replace(PublishedRules(), **{rule.name: False})
        for rule in fields(PublishedRules)
    }
    for name, rules in ways.items():
        jobs = fig_8a(rules)
        found = simulate(jobs, rules)
        kept, declined, late = (len(part) for part in (found.in_time, found.declined, found.late))
        print(f"| {name} | {kept} | {kept / len(jobs):.3f} | {declined} | {late} |")


if __name__ == "__main__":
    main()
