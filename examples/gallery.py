#!/usr/bin/env python
"""The pictures of docs/how-to/pictures.md: one instance of each kind, solved, realised, placed and drawn.

What you learn
--------------
- which formulation goes with which kind of instance: fractions of time, whole jobs, schedules;
- how fractions become rounds, and a round a placement on nodes;
- that each result can be drawn from Python in one call.

Usage: gallery.py [FOLDER]
"""

import sys
from pathlib import Path

import optsched
from optsched.generate import generate
from optsched.report import (
    ProgressLines,
    ProgressRecorder,
    allocation_heatmap,
    front_picture,
    price_bars,
    progress_picture,
    rounds_gantt,
    save_picture,
    schedule_gantt,
    topology_picture,
)


def main(folder: Path) -> None:
    """Solve, draw, tell."""
    folder.mkdir(parents=True, exist_ok=True)
    fair = optsched.solve("@quickstart", "max-min-fairness")
    front = optsched.pareto("@quickstart", ("makespan", "cost"))
    rounds = optsched.place(optsched.realise(fair))
    whole = optsched.place(optsched.solve("@topology", "max-throughput", integral=True))
    machines = optsched.solve("@unrelated", "makespan-unrelated", prove=True)
    leases = optsched.solve("@leases", "lease", prove=True)
    recorder, hard = ProgressRecorder(), generate("knapsack", jobs=60, resources=8).instance
    search = optsched.solve(hard, "multiple-choice", time_limit=3.0, on_progress=recorder)
    pictures = {
        "allocation": (fair, allocation_heatmap(fair)),
        "prices": (fair, price_bars(fair)),
        "front": (front.points[0].solution, front_picture(front)),
        "rounds": (rounds, rounds_gantt(rounds)),
        "topology": (whole, topology_picture(whole)),
        "machines": (machines, schedule_gantt(machines)),
        "leases": (leases, schedule_gantt(leases)),
        "progress": (search, progress_picture(ProgressLines.of_solution(search, recorder.events))),
    }
    for name, (solution, ax) in pictures.items():
        save_picture(ax, folder / f"{name}.png")
        print(
            f"{name:<12}{solution.instance.name:<14}{solution.formulation:<20}{solution.objective:.6g}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
