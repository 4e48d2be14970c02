"""Gangs on nodes: `place_rows` with its bounds, against a naive first fit; `place_beside` in a round.

One thread, medians of fresh processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from measure import measure

HERE = "placement"


def case(jobs: int, nodes: int, *, load: float, running: float, seed: int = 0) -> Any:
    """Gangs that ask for ``load`` of the nodes of 8 GPUs; some run already, on nodes drawn at random."""
    import optsched
    from optsched.candidates import JobRows

    random = np.random.default_rng([seed, jobs, nodes])
    sizes, chance = np.array([1, 2, 3, 4, 5, 6, 8, 12, 16]), np.array([55, 18, 5, 9, 2, 2, 6, 1, 2])
    gpus = random.choice(sizes, jobs, p=chance / chance.sum())
    while (excess := gpus.sum() - round(load * nodes * 8)) > 0:  # some gangs shrink until all fit
        j = random.integers(jobs)
        gpus[j] = max(1, gpus[j] - excess)
    gpus[np.flatnonzero(gpus == 1)[:-excess]] += 1  # and some grow until they fill what they should
    pool = {
        "name": "p",
        "nodes": nodes,
        "gpus_per_node": 8,
        "bandwidth": {"intra_node": 300, "node": 25},
    }
    free = np.full(nodes, 8)
    documents: list[dict[str, Any]] = []
    for j in range(jobs):
        document: dict[str, Any] = {"id": f"j{j}", "gpus": int(gpus[j]), "throughput": {"p": 1.0}}
        node = random.integers(nodes)
        if gpus[j] <= free[node] and random.random() < running:
            first = 8 - free[node]
            held = [f"p-{node}/{first + i}" for i in range(gpus[j])]
            document["running"] = {"pool": "p", "gpus": held}
            free[node] -= gpus[j]
        documents.append(document)
    instance = optsched.Instance.from_document(
        {"format": "optsched-instance/1", "cluster": {"pools": [pool]}, "jobs": documents}
    )
    classes = optsched.compile(instance).per_job().classes(frozenset())
    column = np.arange(classes.columns)
    ones = np.ones(jobs)
    return classes, JobRows(classes.first, np.full(jobs, -1), column, ones, ones, ones)


def ours(jobs: int, nodes: int, load: float, running: float) -> Callable[[], Any]:
    from optsched.placement import place_rows
    from optsched.registry import load_solver
    from optsched.solving.engine import Engine

    classes, rows = case(jobs, nodes, load=load, running=running)
    small = case(4, 2, load=1.0, running=0.0)
    place_rows(*small, np.arange(4), Engine(load_solver))  # load everything

    def run() -> Any:
        return place_rows(classes, rows, np.arange(jobs), Engine(load_solver)).figures

    return run


def first_fit(jobs: int, nodes: int, load: float, running: float) -> Callable[[], Any]:
    """In order of arrival, on the first node with room; a gang of several nodes on the first whole nodes."""
    classes, _ = case(jobs, nodes, load=load, running=running)
    gpus, span = classes.gpus, classes.configurations.nodes[classes.configuration]
    held = classes.instance.jobs_table.running

    def run() -> Any:
        free = [8] * nodes
        placed = spanned = moved = 0
        for job, (gang, most) in enumerate(zip(gpus.tolist(), span.tolist(), strict=True)):
            pieces, rest = [], gang
            for node in range(nodes):
                if rest and free[node] >= min(rest, 8):
                    pieces.append((node, min(rest, free[node])))
                    rest -= pieces[-1][1]
            if rest or len(pieces) > most:
                continue
            given = {
                f"p-{node}/{8 - free[node] + i}" for node, piece in pieces for i in range(piece)
            }
            moved += len(given.difference(held[job][1])) if job in held else 0
            for node, piece in pieces:
                free[node] -= piece
            placed, spanned = placed + 1, spanned + len(pieces)
        return {"rows_placed": placed, "nodes_spanned": spanned, "gpus_moved": moved}

    return run


def beside(jobs: int, nodes: int, starts: int) -> Callable[[], Any]:
    """Some rows start, all others stand where `place_rows` has put them; GPU names are known from a round before."""
    from optsched.placement import Occupied, place_beside, place_rows
    from optsched.registry import load_solver
    from optsched.solving.engine import Engine

    classes, rows = case(jobs, nodes, load=0.98, running=0.0)
    placed = place_rows(classes, rows, np.arange(jobs), Engine(load_solver), columns=0)
    start = np.zeros(len(placed), bool)
    start[np.random.default_rng(0).choice(len(placed), starts, replace=False)] = True
    gpus = [
        gang for gang, starts_now in zip(placed.gpus, start.tolist(), strict=True) if not starts_now
    ]

    def run() -> Any:
        occupied = Occupied.of_rows(classes, rows, placed.row[~start], gpus)
        return len(place_beside(classes, rows, placed.row[start], occupied))

    run()
    return run


def main(repeat: int = 3) -> None:
    print(
        f"{'':<44} {'wall':>9} {'memory':>8}   rows placed / bound, nodes spanned / bound, GPUs moved"
    )
    settings = [(2_000, 512, load, running) for running in (0.0, 0.6) for load in (0.95, 1.0)]
    for jobs, nodes, load, running in [*settings, (8_000, 2_048, 1.0, 0.6)]:
        arguments = {"jobs": jobs, "nodes": nodes, "load": load, "running": running}
        found = measure(HERE, "ours", repeat, **arguments)
        label, f = (
            f"{jobs} jobs, {nodes} x 8 GPUs, {load:.0%} full, {running:.0%} run",
            found.result,
        )
        told = f"{f['rows_placed']:.0f} / {f['rows_bound']:.0f}, {f['nodes_spanned']:.0f} / {f['nodes_bound']:.0f}"
        print(
            f"{label:<44} {found.seconds:7.3f} s {found.megabytes:5.0f} MB   {told}, {f['gpus_moved']:.0f}"
        )
        naive = measure(HERE, "first_fit", repeat, **arguments)
        f = naive.result
        told = f"{f['rows_placed']:.0f}, {f['nodes_spanned']:.0f}, {f['gpus_moved']:.0f}"
        print(
            f"{'  first fit in order of arrival':<44} {naive.seconds:7.3f} s {naive.megabytes:5.0f} MB   {told}"
        )
    for jobs, nodes, starts in ((450, 128, 20), (5_000, 1_250, 20), (5_000, 1_250, 200)):
        found = measure(HERE, "beside", repeat, jobs=jobs, nodes=nodes, starts=starts)
        label = f"{starts} rows start beside {jobs - starts}, {nodes} x 8 GPUs"
        print(
            f"{label:<44} {found.seconds * 1e3:6.2f} ms {found.megabytes:5.0f} MB   {found.result} placed"
        )


if __name__ == "__main__":
    main()
