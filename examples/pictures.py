#!/usr/bin/env python
"""Every picture of the quickstart instance, written to the current folder.

What you learn
--------------
- how to draw each picture with one call, on your own matplotlib axes if you like;
- how to record the progress of a solver and draw it;
- that equal solutions give equal files, byte for byte.
"""

from pathlib import Path

import optsched
from optsched.report import (
    ProgressLines,
    ProgressRecorder,
    allocation_heatmap,
    price_bars,
    progress_picture,
    save_picture,
    topology_picture,
)


def main() -> None:
    """Solve, draw, tell."""
    instance = optsched.load("@quickstart")
    solution = optsched.solve(instance, "max-min-fairness")
    recorder = ProgressRecorder()
    search = optsched.solve(instance, "max-throughput", integral=True, on_progress=recorder)

    pictures = {
        "allocation.png": allocation_heatmap(solution),
        "cluster.png": topology_picture(
            instance
        ),  # of a solution with a placement: who holds which GPU
        "prices.png": price_bars(solution),
        "search.png": progress_picture(ProgressLines.of_solution(search, recorder.events)),
    }
    for name, ax in pictures.items():
        save_picture(ax, name)
        print(f"{name:<16}{ax.get_title(loc='left')}")
    print(
        f"the small search sent {len(recorder.events)} progress events; its end is drawn all the same"
    )

    for name in ("one.svg", "two.svg"):
        save_picture(price_bars(optsched.solve(instance, "max-min-fairness")), name)
    print(
        f"drawn as svg twice, equal bytes: {Path('one.svg').read_bytes() == Path('two.svg').read_bytes()}"
    )


if __name__ == "__main__":
    main()
