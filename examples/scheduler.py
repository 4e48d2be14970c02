#!/usr/bin/env python
"""A scheduler: a day of 60 jobs, with a failing node and maintenance.

What you learn
--------------
- how to report events (`submit`, `complete`, `node_down`, `reserve`, ...) and ask for plans;
- what a plan says: which jobs start, run on, move and stop, on which GPUs;
- how a journal lets the scheduler go on after a crash, and any round be planned again.
"""

import logging
import random
import sys
import tempfile

import optsched

HOUR, ROUND = 3600.0, 1200.0
SPEED = {"v100": 1.0, "p100": 0.6, "k80": 0.25}  # steps/s of every job; 4 GPUs on each of 3 nodes
POOLS = [{"name": name, "nodes": 3, "gpus_per_node": 4} for name in SPEED]
HAPPENS = {
    6 * HOUR: lambda scheduler, now: scheduler.node_down("v100-1", now=now),
    8 * HOUR: lambda scheduler, now: scheduler.node_up("v100-1", now=now),
    9 * HOUR: lambda scheduler, now: scheduler.node_drain("k80-0", now=now),
    12 * HOUR: lambda scheduler, now: scheduler.node_up("k80-0", now=now),
    13 * HOUR: lambda scheduler, now: scheduler.reserve(
        "disks", ["p100-0"], 15 * HOUR, 17 * HOUR, now=now
    ),
}


def main() -> None:
    """Let the day pass, go on from the journal, and plan a round again."""
    logging.basicConfig(
        stream=sys.stdout, format="       %(message)s"
    )  # what the scheduler has to tell
    dice = random.Random(5)
    jobs = [
        {"id": f"job-{row:02}", "gpus": dice.choice((1, 1, 2, 4)), "throughput": SPEED}
        for row in range(60)
    ]
    left = {job["id"]: dice.uniform(0.5, 2.5) * HOUR for job in jobs}
    arrival = {job["id"]: dice.uniform(0, 14) * HOUR for job in jobs}
    for job in jobs:
        job |= {"steps": left[job["id"]], "restart_cost": 60.0, "preemptible": dice.random() < 0.9}
    empty = {
        "format": "optsched-instance/1",
        "round": ROUND,
        "cluster": {"pools": POOLS},
        "jobs": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        with optsched.Scheduler(empty, journal=f"{folder}/journal") as scheduler:
            for now in (ROUND * step for step in range(72)):
                HAPPENS.get(now, lambda *_: None)(scheduler, now)
                if new := [job for job in jobs if now - ROUND < arrival[job["id"]] <= now]:
                    scheduler.submit(new, now=now)
                plan = scheduler.solve(now)
                print(f"{now / HOUR:4.1f} h  {len(plan.start):2} start {len(plan.keep):3} run on "
                      f"{len(plan.move):2} move {len(plan.preempt):3} stop {len(plan.hold):3} wait")  # fmt: skip
                for item in (
                    *plan.start,
                    *plan.keep,
                    *plan.move,
                ):  # here the jobs would run until the next round
                    left[item.job] -= SPEED[item.pool] * ROUND
                    if left[item.job] <= 0:
                        scheduler.complete(item.job, now=now + ROUND)
        with optsched.Scheduler.recover(f"{folder}/journal") as scheduler:  # as after a crash
            print(
                f"recovered: {scheduler.metrics.completed} of 60 jobs are complete, {scheduler.metrics.moves} moves"
            )
        print(
            f"round 30 again: {len(optsched.replay(f'{folder}/journal', 30).plan.running)} jobs run"
        )


if __name__ == "__main__":
    main()
