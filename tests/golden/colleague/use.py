"""What users of that package do, in a process of its own: prints each objective."""

import json
import sys

import numpy as np

import optsched

LIMIT = {"kind": "tenant-limit", "tenant": "vision", "pool": "v100", "gpus": 0.1}
NAMED = {"kind": "named-limit", "jobs": ["gpt-2-small-6", "lstm-11"], "gpus": 1.5}
FLEET = {
    "format": "optsched-instance/1",
    "cluster": {"pools": [{"name": "v100", "nodes": 1, "gpus_per_node": 4}]},
    "performance": {"model": "peak", "tflops": {"v100": 15.7}, "efficiency": 0.5},
    "workloads": {"net": {"parameters": {"tflop": 2.0}}},
    "jobs": [{"id": "a", "workload": "net", "gpus": 2}, {"id": "b", "throughput": {"v100": 1.0}}],
}


def own_row(lp, variables, classes):
    """All jobs together hold at most five GPUs."""
    lp.constrain(classes.gpus[np.newaxis, :] @ variables["x"] <= 5.0, name="own")


solutions = {
    "formulation": optsched.solve("@quickstart", "least-slowdown"),
    "options": optsched.solve("@quickstart", "least-slowdown", weighted=False),
    "constraint": optsched.solve("@quickstart", "least-slowdown", constraints=[LIMIT]),
    "constraint without classes": optsched.solve(
        "@quickstart", "least-slowdown", constraints=[LIMIT], classes=False
    ),
    "labels": optsched.solve("@quickstart", "max-throughput", constraints=[NAMED]),
    "own row": optsched.solve("@quickstart", "max-throughput", extend=own_row),
    "model": optsched.solve(optsched.Instance.from_document(FLEET), "max-throughput"),
    "solver": optsched.solve("@packing", "makespan", solver="scipy"),
    "all": optsched.solve(
        "@quickstart", "least-slowdown", constraints=[LIMIT, NAMED], solver="scipy"
    ),
}
assert all(
    solution.status == "optimal" and solution.certificate.ok for solution in solutions.values()
)
state = optsched.RoundState.first(
    optsched.load("@quickstart"), optsched.RoundPolicy(ranking="longest-wait")
)
plan = optsched.solve_round(state)
objectives = {name: solution.objective for name, solution in solutions.items()}
json.dump(objectives | {"starts": len(plan.start)}, sys.stdout)
