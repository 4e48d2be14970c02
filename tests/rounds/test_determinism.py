"""The same events give the same plans in any process, however dictionaries are ordered and wherever solvers run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

PROGRAM = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from storm_world import Storm
from test_storm import POLICIES

storm = Storm(7, POLICIES[sys.argv[1]], options={"isolate": sys.argv[2] == "apart"})
for _ in range(int(sys.argv[3])):
    storm.rounds(1)
    document = storm.plan.to_document()
    assert storm.plan.fallback is None and document["reproducible"], storm.plan.fallback
    print(storm.plan.id, json.dumps({**document, "timings": 0}))
storm.scheduler.close()
"""


def told(policy: str, where: str, seed: int, rounds: int = 5) -> str:
    here = Path(__file__).parent
    paths = os.pathsep.join(map(str, (here.parents[1], here.parent, here)))
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": paths}
    arguments = [sys.executable, "-c", PROGRAM, policy, where, str(rounds)]
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("policy", ["max-min"])
def test_the_same_events_give_the_same_bytes(policy: str) -> None:
    first = told(policy, "here", 1)
    assert first.count("\n") == 5
    assert told(policy, "apart", 3) == first
