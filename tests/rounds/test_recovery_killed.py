"""A scheduler that is killed at any moment has lost nothing that it had acknowledged, and goes on as if nothing was."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

PROGRAM = """
import logging, os, sys
logging.disable(logging.CRITICAL)
from pathlib import Path
from optsched.instance import Instance
from optsched.rounds import Scheduler
from storm_world import document

folder, until, where = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
options = {"snapshot_every": 3, "isolate": False, "clock": lambda: 0.0}

RULES = {
    19: lambda s, now: s.set_tenants([{"name": "red", "weight": 3.0}, {"name": "green"}], now=now),
    22: lambda s, now: s.set_workloads(
        {"small": {"throughput": {"v100": 7.0, "k80": 1.0}, "restart_cost": {"v100": {"1": 3.0}}}}, now=now
    ),
    31: lambda s, now: s.set_policy(
        {"formulation": "max-throughput", "max_moves": 2, "grace_time": 25.0, "checkpoint_interval": "1m"}, now=now
    ),
    46: lambda s, now: s.set_constraints([{"kind": "quota", "tenant": "red", "gpus": 2}], now=now),
    55: lambda s, now: s.set_policy({"ranking": "srtf", "grace_time": 70.0}, now=now),
}

def deed(scheduler, n):
    '''The n-th thing that happens; plans are told with their digest.'''
    now, kind = 20.0 * n, n % 3
    if kind == 2:
        return scheduler.solve(now).id
    names = [scheduler.instance.jobs_table.names[row] for row in range(len(scheduler.instance.jobs_table))]
    if kind == 0 or not names:
        workload = ("small", "light", "wide")[n % 7 % 3]
        more = {"preemptible": False} if n % 5 == 0 else {}
        scheduler.submit({"id": f"j{n}", "workload": workload, "steps": 1e4 + n, **more}, now=now)
    elif n in RULES:
        RULES[n](scheduler, now)
    elif n % 4 == 0 and len(names) > 6:
        scheduler.complete(names[n % len(names)], now=now)
    elif n % 4 == 1:
        scheduler.observe(names[n % len(names)], steps=float(n % 100), throughput=1.0 + n / 100, now=now)
    elif n % 4 == 2:
        scheduler.reserve(f"r{n}", ["v1"], now + 30.0, now + 100.0, now=now)
    else:
        (scheduler.node_down if n % 8 == 3 else scheduler.node_up)("v2", now=now)
    return "-"

if (folder / "journal.json").exists():
    scheduler = Scheduler.recover(folder, **options)
else:
    policy = {"formulation": "max-min-fairness"}
    scheduler = Scheduler(Instance.from_document(document()), policy, journal=folder, **options)
from optsched.rounds.journal import records
n = sum(1 for _ in records(folder))
os.write(1, f"from {n}\\n".encode())
while n < until:
    told = deed(scheduler, n)
    n += 1
    os.write(1, f"{n} {told}\\n".encode())
"""
DEEDS = 75


def started(folder: Path, until: int = DEEDS) -> subprocess.Popen[bytes]:
    here = Path(__file__).parent
    paths = os.pathsep.join(map(str, (here.parents[1], here.parent, here)))
    arguments = [sys.executable, "-c", PROGRAM, str(folder), str(until), "here"]
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )


def said(out: bytes) -> tuple[int, dict[int, str]]:
    """From where a process went on, and what it acknowledged: digests by the number of what was done."""
    lines = [line.split() for line in out.decode().splitlines(keepends=True) if line.endswith("\n")]
    first = int(lines[0][1]) if lines else -1
    return first, {int(number): digest for number, digest in lines[1:]}


def killed(folder: Path, kills: int) -> int:
    whole = started(folder / "whole")
    out, err = whole.communicate()
    assert whole.returncode == 0, err.decode()
    _, expected = said(out)
    moments, acknowledged, hits = random.Random(kills), 0, 0
    journal = folder / "killed"
    while hits < kills:
        process = started(journal)
        assert process.stdout is not None
        first = process.stdout.readline()  # it is under way
        time.sleep(moments.random() * 0.4)
        process.send_signal(signal.SIGKILL)
        rest, err = process.communicate()
        begun, found = said(first + rest)
        if begun < 0:
            assert not err, err.decode()
            continue
        assert acknowledged <= begun <= acknowledged + 1
        assert all(expected[number] == digest for number, digest in found.items())
        acknowledged, hits = max(found, default=begun), hits + 1
        if acknowledged >= DEEDS - 1:
            shutil.rmtree(journal)
            acknowledged = 0
    return hits


def test_killed_at_random_moments_it_plans_on_as_if_it_never_was(tmp_path: Path) -> None:
    assert killed(tmp_path, 3) == 3


@pytest.mark.study
def test_killed_a_hundred_times(tmp_path: Path) -> None:
    assert killed(tmp_path, 100) == 100
