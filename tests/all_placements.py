"""Small clusters, and all placements of jobs on them, one by one: the oracle of what finds nodes."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from optsched.placement import check_placement
from optsched.placement.checks import Flaw
from optsched.solution import Solution

Document = dict[str, Any]
SHARES = [0.3, 0.4, 0.5, 0.6, 0.7]
STARTS: dict[str, dict[str, tuple[int, tuple[int, ...]]]] = {
    "A30": {"1g.6gb": (1, (0, 1, 2, 3)), "2g.12gb": (2, (0, 2)), "4g.24gb": (4, (0,))},
    "A100-SXM4-40GB": {
        "1g.5gb": (1, (0, 1, 2, 3, 4, 5, 6)),
        "2g.10gb": (2, (0, 2, 4)),
        "3g.20gb": (4, (0, 4)),
        "4g.20gb": (4, (0,)),
        "7g.40gb": (8, (0,)),
    },
}
"""Memory slices and starts of profiles, as `nvidia-smi mig -lgipp` lists them."""


def cluster_of(
    sizes: list[int], racks: int, rng: np.random.Generator, limits: tuple[str, ...]
) -> Document:
    """Nodes of these sizes, with limits on CPUs or memory, dealt to racks at random."""
    names = [f"n{row}" for row in range(len(sizes))]
    nodes = [
        {"name": name, "gpus": size} | {what: float(rng.integers(2, 9)) for what in limits}
        for name, size in zip(names, sizes, strict=True)
    ]
    document: Document = {"pools": [{"name": "v", "nodes": nodes}]}
    if racks:
        of_rack: dict[str, list[str]] = {}
        for name in names:
            of_rack.setdefault(f"r{rng.integers(racks)}", []).append(name)
        document["levels"] = {"rack": of_rack}
    return document


def gang_of(number: int, rng: np.random.Generator, levels: bool) -> Document:
    """A job on 1 to 8 GPUs, with rates by nodes and levels."""
    rates: Document = {}
    for gpus in sorted({int(rng.integers(1, 9)) for _ in range(rng.integers(1, 3))}):
        best = float(gpus * rng.integers(8, 17))
        mine: Document = {"1": best}
        if levels and rng.random() < 0.7:
            mine = {"1": best, "rack": best * 0.75, "cluster": best * 0.375}
        elif gpus > 1 and rng.random() < 0.5:
            mine["2"] = best * 0.5
        rates[str(gpus)] = mine
    low, high = min(map(int, rates)), max(map(int, rates))
    return {
        "id": f"j{number}",
        "workload": str(rng.integers(2)),
        "gpus": {"min": low, "max": high},
        "throughput": {"v": rates},
    }


def optional(number: int, ways: list[Document], limits: tuple[str, ...]) -> Document:
    """A job with options on GPUs, which need CPUs and memory where nodes limit these."""
    for way in ways:
        way["uses"] = {KEYS[what]: amount for what, amount in way["uses"].items() if what in limits}
    return {"id": f"j{number}", "options": [{"pool": "v", "nodes": 1} | way for way in ways]}


KEYS = {"cpus": "cpu", "memory": "memory"}


def sharing_job(number: int, rng: np.random.Generator, limits: tuple[str, ...]) -> Document:
    """A job that has a share of each of one or two GPUs of a node, or whole ones."""
    ways: list[Document] = []
    for _ in range(rng.integers(1, 3)):
        gpus = int(rng.choice([1, 1, 1, 2]))
        share = float(rng.choice([*SHARES, 1.0]))
        uses = {what: float(rng.integers(0, 4) * gpus) for what in KEYS}
        rate = float(rng.integers(1, 9) * gpus)
        ways.append({"gpus": gpus, "share": share, "throughput": rate, "uses": uses})
    return optional(number, ways, limits)


def spread_job(
    number: int, rng: np.random.Generator, limits: tuple[str, ...], nodes: int
) -> Document:
    """A job that has a share of each of up to three GPUs of up to so many nodes."""
    ways: list[Document] = []
    for _ in range(rng.integers(1, 3)):
        gpus = int(rng.choice([1, 2, 2, 3, 3]))
        uses = {what: float(rng.integers(0, 3) * gpus) for what in KEYS}
        way = {"gpus": gpus, "share": float(rng.choice([0.3, 0.4, 0.5, 0.6, 1.0])), "uses": uses}
        way["nodes"] = int(rng.integers(1, min(gpus, nodes) + 1))
        ways.append(way | {"throughput": float(rng.integers(1, 9) * gpus)})
    return optional(number, ways, limits)


def sliced_job(
    number: int, rng: np.random.Generator, limits: tuple[str, ...], board: str
) -> Document:
    """A job in slices of some profiles, or on a whole GPU."""
    ways: list[Document] = []
    total = 4 if board == "A30" else 8
    for profile, (memory, _) in STARTS[board].items():
        if rng.random() < 0.5:
            gpus = 2 if rng.random() < 0.1 else 1
            uses = {what: float(rng.integers(0, 3) * gpus) for what in KEYS}
            rate = float(rng.integers(1, 9) * gpus * memory**0.5)
            ways.append(
                {
                    "gpus": gpus,
                    "share": memory / total,
                    "throughput": rate,
                    "uses": uses,
                    "attributes": {"mig": profile},
                }
            )
    if not ways:
        ways = [{"gpus": 1, "throughput": 5.0, "uses": {}}]
    return optional(number, ways, limits)


def small_instance(kind: str, seed: int) -> Document:
    """Few nodes in up to 2 racks, and few jobs: gangs, shares of GPUs among them, slices, or shares of
    GPUs of several nodes.
    """
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    racks = int(rng.integers(0, 3))
    sliced = kind == "slices"
    most_nodes, most_gpus = {"slices": (3, 2), "spread": (4, 3)}.get(kind, (5, 4))
    sizes = rng.integers(1, most_gpus + 1, rng.integers(1, most_nodes + 1)).tolist()
    limits = tuple(what for what in KEYS if rng.random() < 0.3)
    board = str(rng.choice(list(STARTS)))
    demand = {"demand": {KEYS[what]: float(rng.integers(1, 4)) for what in limits}}
    jobs = []
    for number in range(rng.integers(1, 7)):
        draw = rng.random()
        if sliced and draw < 0.7:
            jobs.append(sliced_job(number, rng, limits, board))
        elif kind == "spread":
            equal = jobs and rng.random() < 0.3
            mine = jobs[0] if equal else spread_job(number, rng, limits, len(sizes))
            jobs.append(mine | {"id": f"j{number}"})
        elif draw < (0.25 if kind == "gangs" else 0.85):
            jobs.append(sharing_job(number, rng, limits if kind != "gangs" else ()))
        else:
            jobs.append(gang_of(number, rng, bool(racks)))
    cluster = cluster_of(sizes, racks, rng, limits)
    if sliced:
        cluster["pools"][0]["gpu"] = board
    document: Document = {
        "format": "optsched-instance/1",
        "cluster": cluster,
        "workloads": {"0": {}, "1": demand},
        "jobs": jobs,
    }
    apart = [job["id"] for job in jobs if rng.random() < 0.5]
    if len(apart) > 1 and rng.random() < 0.3:
        document["constraints"] = [{"kind": "anti-affinity", "jobs": apart}]
    return document


KINDS = ("gangs", "shares", "slices", "spread")


def staying_instance(kind: str, seed: int) -> Document | None:
    """A small instance of which up to two jobs with shares of GPUs run on one node and stay there;
    None if it has no such job.
    """
    document = small_instance(kind, seed)
    rng = np.random.default_rng([seed, KINDS.index(kind), 1])
    for job in document["jobs"]:
        way = job.get("options", [{}])[0]
        if len(staying(document)) < 2 and way.get("share", 1.0) < 1.0:
            wider = {"options": [way], "preemptible": False}
            places = places_of(document, job | wider)
            if places:
                gpus = places[int(rng.integers(len(places)))]
                job |= wider | {"running": {"pool": "v", "gpus": list(gpus)}}
    return document if staying(document) else None


def places_of(document: Document, job: Document) -> list[tuple[str, ...]]:
    """GPUs of one node on which a job with one option can run beside those that stay."""
    way, board = ways_of(document, job)[0], document["cluster"]["pools"][0].get("gpu", "")
    found = []
    for name, (on_gpus, *rooms, taken) in held_nodes(document).items():
        short = any(need * way.gpus > room for need, room in zip(way.needs, rooms, strict=True))
        if short or (taken and way.apart):
            continue
        after = [tuple(sorted((*pieces, way.piece), key=str)) for pieces in on_gpus]
        able = [f"{name}/{gpu}" for gpu, pieces in enumerate(after) if legal(pieces, board)]
        found += list(itertools.combinations(able, way.gpus))
    return found


def staying(document: Document) -> list[Document]:
    """The jobs that run and keep their GPUs."""
    return [job for job in document["jobs"] if "running" in job]


# --- all placements, one by one -------------------------------------------------------------------

Piece = float | str
"""A share of a GPU, or the profile of a slice."""
Node = tuple[tuple[tuple[Piece, ...], ...], float, float, bool]
"""What is on each GPU of a node, what is left of its CPUs and memory, and whether a job is there
that keeps others away (anti-affinity).
"""


class Way(NamedTuple):
    """One way to run a job: needs per GPU, nodes at most, whether in one rack."""

    gpus: int
    piece: Piece
    needs: tuple[float, float]
    span: int
    same_rack: bool
    rate: float
    apart: bool


@cache
def legal(pieces: tuple[Piece, ...], board: str) -> bool:
    """Whether a GPU can have these shares, or slices, by trying all their starts."""
    shares = [piece for piece in pieces if not isinstance(piece, str)]
    if len(shares) == len(pieces):
        return sum(shares) <= 1 + 1e-9
    if shares:
        return False

    def fits(left: tuple[Piece, ...], taken: frozenset[int]) -> bool:
        if not left:
            return True
        size, starts = STARTS[board][str(left[0])]
        wanted = [frozenset(range(start, start + size)) for start in starts]
        return any(fits(left[1:], taken | mine) for mine in wanted if not mine & taken)

    return fits(pieces, frozenset())


def empty(document: Document) -> tuple[tuple[Node, ...], list[str], str]:
    """The nodes, rack by rack, with nothing on them but jobs that stay; the rack of each; and the board."""
    pool = document["cluster"]["pools"][0]
    racks = document["cluster"].get("levels", {}).get("rack", {})
    rack = {name: key for key, names in racks.items() for name in names}
    nodes = sorted(held_nodes(document).items(), key=lambda node: str(rack.get(node[0])))
    label = [str(rack.get(name)) for name, _ in nodes]
    return in_order([node for _, node in nodes], label), label, pool.get("gpu", "")


def held_nodes(document: Document) -> dict[str, Node]:
    """What the jobs that stay have on nodes, by name."""
    found: dict[str, Node] = {
        node["name"]: (
            ((),) * node["gpus"],
            node.get("cpus", np.inf),
            node.get("memory", np.inf),
            False,
        )
        for node in document["cluster"]["pools"][0]["nodes"]
    }
    for job in staying(document):
        way = ways_of(document, job)[0]
        for gpu in job["running"]["gpus"]:
            name, index = gpu.split("/")
            on_gpus, cpus, memory, taken = found[name]
            rest = cpus - way.needs[0], memory - way.needs[1], taken or way.apart
            mine = tuple(sorted((*on_gpus[int(index)], way.piece), key=str))
            found[name] = (
                tuple(mine if n == int(index) else on for n, on in enumerate(on_gpus)),
                *rest,
            )
    return found


def in_order(nodes: list[Node], label: list[str]) -> tuple[Node, ...]:
    """Nodes of a rack with the same left are alike: one order stands for all."""
    groups = [list(mine) for _, mine in itertools.groupby(range(len(nodes)), label.__getitem__)]
    ordered = (sorted((nodes[node] for node in mine), key=text) for mine in groups)
    return tuple(itertools.chain(*ordered))


def can_run(document: Document, ways: list[Way]) -> bool:
    """Whether jobs run side by side in these ways in some placement."""
    start, label, board = empty(document)
    found = {start}
    for way in sorted(ways, key=lambda way: -way.gpus):
        found = {after for left in found for after in seatings(left, way, label, board)}
    return bool(found)


def best_total(document: Document) -> float:
    """The largest total throughput over all placements, by trying every one that may be better.

    Jobs from one on are worth no more than where any GPUs will do: a knapsack of so many 40ths of a GPU.
    """
    start, label, board = empty(document)
    ways = [ways_of(document, job) for job in document["jobs"] if "running" not in job]
    ways.sort(key=lambda mine: -max(way.rate for way in mine))
    sizes = [[round(40 * way.gpus * share_of(way.piece, board)) for way in mine] for mine in ways]
    knapsack = np.zeros((len(ways) + 1, 40 * sum(len(node[0]) for node in start) + 1))
    for job in reversed(range(len(ways))):
        knapsack[job] = knapsack[job + 1]
        for way, size in zip(ways[job], sizes[job], strict=True):
            rest = knapsack[job + 1, : max(0, knapsack.shape[1] - size)]
            knapsack[job, size:] = np.maximum(knapsack[job, size:], way.rate + rest)

    @cache
    def best(job: int, left: tuple[Node, ...]) -> float:
        if job == len(ways):
            return 0.0
        used = sum(share_of(piece, board) for node in left for gpu in node[0] for piece in gpu)
        free = round(knapsack.shape[1] - 1 - 40 * used)
        found = 0.0
        mine = zip(ways[job], sizes[job], strict=True)
        for way, size in sorted(mine, key=lambda one: -one[0].rate):
            most = way.rate + knapsack[job + 1, free - size] if size <= free else 0.0
            if most > found:
                for after in seatings(left, way, label, board):
                    found = max(found, way.rate + best(job + 1, after))
                    if found >= most:
                        break
        return found if found >= knapsack[job + 1, free] else max(found, best(job + 1, left))

    return best(0, start) + sum(ways_of(document, job)[0].rate for job in staying(document))


def share_of(piece: Piece, board: str) -> float:
    """Of a GPU."""
    if not isinstance(piece, str):
        return piece
    return STARTS[board][piece][0] / (4 if board == "A30" else 8)


def ways_of(document: Document, job: Document) -> list[Way]:
    ways = []
    apart = any(job["id"] in one["jobs"] for one in document.get("constraints", ()))
    for option in job.get("options", ()):
        cpu, memory = (option["uses"].get(what, 0.0) / option["gpus"] for what in KEYS.values())
        piece = option.get("attributes", {}).get("mig", option.get("share", 1.0))
        rate = option["throughput"]
        span = option["nodes"]
        ways.append(Way(option["gpus"], piece, (cpu, memory), span, False, rate, apart))
    if ways:
        return ways
    demand = document["workloads"][job["workload"]].get("demand", {})
    for count, by_spread in job["throughput"]["v"].items():
        for spread, rate in by_spread.items():
            span = int(spread) if spread.isdecimal() else int(count)
            needs = demand.get("cpu", 0.0), demand.get("memory", 0.0)
            ways.append(Way(int(count), 1.0, needs, span, spread == "rack", rate, apart))
    return ways


def seatings(
    left: tuple[Node, ...], way: Way, label: list[str], board: str
) -> set[tuple[Node, ...]]:
    """What is left after a gang, for every way to give it GPUs of nodes."""
    found = set()
    able = []
    for on_gpus, *rooms, taken in left:
        most = [
            int(room / need + 1e-9) for room, need in zip(rooms, way.needs, strict=True) if need
        ]
        able.append(0 if taken and way.apart else min([len(on_gpus), *most]))
    for split in itertools.product(*(range(min(way.gpus, most) + 1) for most in able)):
        used = [node for node, part in enumerate(split) if part]
        racks = {label[node] for node in used} if way.same_rack else set()
        if sum(split) != way.gpus or len(used) > way.span or len(racks) > 1:
            continue
        choices = [
            node_after(node, part, way, board) for node, part in zip(left, split, strict=True)
        ]
        found |= {in_order(list(after), label) for after in itertools.product(*choices)}
    return found


@cache
def text(node: Node) -> str:
    """Puts nodes in order, whose pieces may be numbers and names."""
    return repr(node)


@cache
def node_after(node: Node, part: int, way: Way, board: str) -> set[Node]:
    """What is on a node after some of its GPUs, for every choice of these."""
    on_gpus, cpus, memory, taken = node
    if not part:
        return {node}
    rest = cpus - part * way.needs[0], memory - part * way.needs[1], taken or way.apart
    after = [tuple(sorted((*pieces, way.piece), key=str)) for pieces in on_gpus]
    able = [gpu for gpu, pieces in enumerate(after) if legal(pieces, board)]
    found = set()
    for chosen in itertools.combinations(able, part):
        mine = [after[gpu] if gpu in chosen else on_gpus[gpu] for gpu in range(len(on_gpus))]
        found.add((tuple(sorted(mine, key=str)), *rest))
    return found


def flaws_of(solution: Solution, document: Document) -> list[Flaw]:
    """What the independent checker finds wrong with a placement, of which no row is refused."""
    assert solution.allocation is not None
    placement, rows = solution.placement, solution.allocation.rows
    assert placement is not None
    assert not placement.refused
    return check_placement(
        solution.allocation.classes,
        rows.job[placement.row],
        rows.partner[placement.row],
        rows.column[placement.row],
        placement.gpus,
        document.get("constraints", ()),
    )
