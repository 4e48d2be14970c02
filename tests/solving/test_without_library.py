"""Where a library is not installed, everything that `auto` solves falls back on another one.

Each library is hidden in a fresh process, as one that is loaded already would still be found.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, NamedTuple

import pytest
from generation_cases import interference

pytestmark = pytest.mark.process

SCRIPT = """
import json, sys
document, hidden = json.load(sys.stdin)
for module in hidden:
    sys.modules[module] = None

import optsched
from optsched.generate import generate

solutions, others = {}, {}

def note(name, solution):
    assert solution.ok, name
    attempts = [attempt.name for attempt in solution.solver.attempts]
    solutions[name] = [str(solution.status), solution.objective, attempts]

impossible = [{"kind": "budget", "limit": 0.01}, {"kind": "deadlines"}]
machines = generate("unrelated", jobs=6, machines=2, seed=3).instance
fair = optsched.solve("@quickstart")
note("linear", fair)
note("whole jobs", optsched.solve("@packing", "max-throughput", integral=True))
proved = optsched.solve("@packing", "max-throughput", integral=True, prove=True)
note("proved", proved)
others["proof"] = proved.certificate.proof
note("conic", optsched.solve("@quickstart", "proportional-fairness"))
note("pairs on demand", optsched.solve(document, generate_columns=True))
note("timeline", optsched.solve(machines, "makespan-unrelated", program="timeline"))
infeasible = optsched.solve("@quickstart", constraints=impossible)
note("infeasible", infeasible)
others["conflicts"] = sorted(conflict.block for conflict in infeasible.conflicts)
others["rounds"] = optsched.realise(fair, "patterns").rounds.scale
others["held"] = optsched.whatif("@quickstart", add={"v100": 1}).changes[0].held.objective
ends = optsched.pareto("@quickstart", ("max-min-fairness", "max-throughput"), points=2).points
others["front"] = [point.objectives[0] for point in ends]
try:
    optsched.solve(document, "throughput-per-cost", objective="ratio", constraints=["deadlines"])
except optsched.errors.InvalidInput as error:
    others["probe"] = str(error)
print(json.dumps([solutions, others]))
"""


class Answers(NamedTuple):
    """What a process answers.

    Attributes
    ----------
    solutions : mapping
        Status, objective and names of the attempts.
    others : mapping
    """

    solutions: dict[str, tuple[str, float | None, list[str]]]
    others: dict[str, Any]


def answers(*hidden: str) -> Answers:
    """What a process without these modules answers."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps([document(), hidden]),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Answers(*json.loads(done.stdout))


def document() -> dict[str, Any]:
    """Jobs that gain by sharing GPUs, some of them on a pool that costs nothing."""
    rates = {"own": 2.0, "rented": 3.0}
    use = {"utilisation": {"P": 0.4, "Q": 0.3}}
    pools = [
        {"name": "own", "gpu": "P", "nodes": 1, "gpus_per_node": 2, "cost_per_gpu_hour": 0.0},
        {"name": "rented", "gpu": "Q", "nodes": 1, "gpus_per_node": 2, "cost_per_gpu_hour": 1.0},
    ]
    jobs = [
        {"id": f"j{j}", "workload": "w", "gpus": 1, "steps": 10.0 + j, "deadline": 1e6}
        for j in range(8)
    ]
    return {
        "format": "optsched-instance/1",
        "cluster": {"pools": pools},
        "workloads": {"w": {"throughput": rates}},
        "jobs": jobs,
        "performance": interference({"w": use}),
    }


@pytest.fixture(scope="module")
def usual() -> Answers:
    return answers()


def test_with_all_libraries_nothing_falls_back(usual: Answers) -> None:
    assert not any(attempts for _, _, attempts in usual.solutions.values())
    assert "cost_per_gpu_hour" in usual.others["probe"]
    assert usual.others["proof"] == "cross-checked"


LIBRARIES = {
    "highspy": {
        "linear": ["highs", "clarabel"],
        "whole jobs": ["highs", "scip"],
        "proved": ["highs", "scip"],
        "pairs on demand": ["highs"],  # no program is tried again: one session is opened
        "infeasible": ["highs", "clarabel"],
    },
    "clarabel": {"conic": ["clarabel", "scs"]},
    "ortools": {"timeline": ["cp-sat", "highs"], "proved": ["scip"]},
}
"""What is tried without a library."""


@pytest.mark.parametrize("library", LIBRARIES)
def test_another_library_gives_the_same_answers(library: str, usual: Answers) -> None:
    found = answers(library)
    for name, (status, objective, attempts) in found.solutions.items():
        assert (status, attempts) == (usual.solutions[name][0], LIBRARIES[library].get(name, []))
        if objective is not None:
            assert objective == pytest.approx(usual.solutions[name][1], rel=1e-6), name
    for name in ("rounds", "held", "front"):
        assert found.others[name] == pytest.approx(usual.others[name], rel=1e-6), name
    for name in ("conflicts", "probe"):
        assert found.others[name] == usual.others[name]
    # Without a second solver a claim stays a claim
    checked = "cross-checked" if library == "clarabel" else "claimed"
    assert found.others["proof"] == checked
