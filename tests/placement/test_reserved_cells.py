"""Cells that are reserved for tenants (`cells` with ``reserved``), by brute force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
import pytest
from blocks import first_of

import optsched
from optsched.errors import UsageError
from optsched.placement import checks
from optsched.placement import reserved as reserved_check
from optsched.program.space import cells as reserved_cells
from optsched.solution.values import Termination, Values
from optsched.solvers import Limits

pytestmark = pytest.mark.property

Cell = tuple[int, int, int]
"""Node, first GPU and size."""


class CellJob(NamedTuple):
    """A gang of a tenant ("" for none), with a rate for one node, or for two at most."""

    gpus: int
    tenant: str
    rates: Mapping[int, float]


class CellCase(NamedTuple):
    """Nodes by their GPUs, jobs, and cells by tenant and size."""

    nodes: tuple[int, ...]
    jobs: tuple[CellJob, ...]
    owns: Mapping[str, Mapping[int, int]]
    kept: Mapping[tuple[int, int], str] = {}
    """Node and index of GPUs that a job keeps, with its tenant."""

    def document(self) -> dict[str, Any]:
        nodes = [{"name": f"n{row}", "gpus": gpus} for row, gpus in enumerate(self.nodes)]
        return {
            "format": "optsched-instance/1",
            "cluster": {"pools": [{"name": "p", "nodes": nodes}]},
            "tenants": [{"name": "A"}, {"name": "B"}],
            "jobs": [
                {
                    "id": f"j{row}",
                    "gpus": job.gpus,
                    "throughput": {"p": {str(job.gpus): {str(n): r for n, r in job.rates.items()}}},
                }
                | ({"tenant": job.tenant} if job.tenant else {})
                for row, job in enumerate(self.jobs)
            ]
            + [
                staying(
                    f"s{node}-{gpu}", "p", [f"n{node}/{gpu}"], **({"tenant": who} if who else {})
                )
                for (node, gpu), who in sorted(self.kept.items())
            ],
        }

    def constraints(self) -> list[Any]:
        cells = [
            {
                "kind": "cells",
                "tenant": tenant,
                "owns": {str(size): many for size, many in owns.items()},
                "reserved": True,
            }
            for tenant, owns in self.owns.items()
        ]
        return ["placeable", "uninterrupted", *cells]


def staying(name: str, pool: str, gpus: Sequence[str], **more: str) -> dict[str, Any]:
    """A running job that cannot be preempted, at a rate of 1."""
    return {
        "id": name,
        "gpus": len(gpus),
        "throughput": {pool: {str(len(gpus)): {"1": 1.0}}},
        "preemptible": False,
        "running": {"pool": pool, "gpus": list(gpus)},
        **more,
    }


def blocks(nodes: Sequence[int], size: int) -> list[Cell]:
    """All aligned cells of a size."""
    return [
        (node, first, size)
        for node, gpus in enumerate(nodes)
        for first in range(0, gpus - size + 1, size)
    ]


def apart(cells: Sequence[Cell]) -> bool:
    """Whether no GPU is in two cells."""
    gpus = [(node, first + index) for node, first, size in cells for index in range(size)]
    return len(set(gpus)) == len(gpus)


def layouts(case: CellCase) -> Iterator[dict[str, list[Cell]]]:
    """All ways to reserve the cells."""
    wanted = [(who, size, many) for who, owns in case.owns.items() for size, many in owns.items()]
    free = [
        [
            (node, first, size)
            for node, first, _ in blocks(case.nodes, size)
            if all(case.kept.get((node, gpu), who) == who for gpu in range(first, first + size))
        ]
        for who, size, _ in wanted
    ]
    inside = {(at, who) for at, who in case.kept.items() if who in case.owns}
    choices = zip(free, wanted, strict=True)
    for chosen in product(*(combinations(some, many) for some, (_, _, many) in choices)):
        cells = [
            ((node, first + index), who)
            for (who, _, _), some in zip(wanted, chosen, strict=True)
            for node, first, size in some
            for index in range(size)
        ]
        if apart([cell for some in chosen for cell in some]) and inside <= set(cells):
            found: dict[str, list[Cell]] = {who: [] for who in case.owns}
            for (who, _, _), some in zip(wanted, chosen, strict=True):
                found[who] += some
            yield found


def parts_of(gpus: int, nodes: int, most: int) -> Iterator[tuple[int, ...]]:
    """Splits into at most so many parts, the largest first."""
    if gpus == 0:
        yield ()
    elif nodes:
        for first in range(min(gpus, most), 0, -1):
            for rest in parts_of(gpus - first, nodes - 1, first):
                yield (first, *rest)


def best_with(case: CellCase, layout: Mapping[str, Sequence[Cell]]) -> float:
    """The most throughput where cells are reserved so."""
    reserved = Counter[int]()
    for cells in layout.values():
        for node, _, size in cells:
            reserved[node] += size
    for (node, _), who in case.kept.items():
        reserved[node] += who not in case.owns
    free = tuple(gpus - reserved[node] for node, gpus in enumerate(case.nodes))

    def inside(cell: Cell, tenant: str) -> bool:
        node, first, size = cell
        return any(
            at == node and start <= first and first + size <= start + length
            for at, start, length in layout[tenant]
        )

    def ways(job: CellJob) -> Iterator[tuple[float, tuple[Cell, ...], tuple[int, ...]]]:
        """Rate, cells taken, and free GPUs taken of each node."""
        none = (0,) * len(free)
        for span, rate in job.rates.items():
            if span > len(free):
                continue  # there is a rate for one node
            for parts in set(parts_of(job.gpus, span, job.gpus)):
                if job.tenant in case.owns:
                    sizes = [
                        min((s for s in case.owns[job.tenant] if s >= part), default=0)
                        for part in parts
                    ]
                    if 0 in sizes:
                        continue
                    for chosen in product(*(blocks(case.nodes, size) for size in sizes)):
                        if apart(chosen) and all(inside(cell, job.tenant) for cell in chosen):
                            yield rate, chosen, none
                else:
                    for at in product(range(len(free)), repeat=len(parts)):
                        taken = [0] * len(free)
                        for node, part in zip(at, parts, strict=True):
                            taken[node] += part
                        yield rate, (), tuple(taken)

    every = [list(dict.fromkeys(ways(job))) for job in case.jobs]

    @cache
    def best(turn: int, left: tuple[int, ...], used: frozenset[Cell]) -> float:
        if turn == len(case.jobs):
            return 0.0
        found = best(turn + 1, left, used)
        for rate, chosen, taken in every[turn]:
            rest = tuple(room - some for room, some in zip(left, taken, strict=True))
            if min(rest) >= 0 and apart([*used, *chosen]):
                found = max(found, rate + best(turn + 1, rest, used | set(chosen)))
        return found

    kept = [(node, gpu, 1) for (node, gpu), who in case.kept.items() if who in case.owns]
    return best(0, free, frozenset(kept))


def random_case(seed: int) -> CellCase:
    random = np.random.default_rng(seed)
    nodes = tuple(random.choice([2, 3, 4, 4], int(random.integers(1, 4))).tolist())
    sizes = ([1, 2], [2], [1, 2, 4], [2, 4], [4])[int(random.integers(5 if 4 in nodes else 2))]
    owns = {"A": {size: int(random.integers(0, 3)) for size in sizes}}
    if random.random() < 0.4:
        owns["B"] = {int(random.choice([1, 2])): 1}
    jobs = []
    for _ in range(int(random.integers(1, 5))):
        gpus = int(random.choice([1, 2, 3, 4]))
        spans = [1, 2] if gpus > 1 else [1]
        rates = {n: float(random.integers(1, 9)) for n in spans if n == 1 or random.random() < 0.6}
        jobs.append(CellJob(gpus, str(random.choice(["A", "A", "B", ""])), rates))
    every = [(node, gpu) for node, many in enumerate(nodes) for gpu in range(many)]
    some = random.choice(len(every), int(random.integers(0, 3)), replace=False)
    kept = [every[row] for row in some.tolist()] if random.random() < 0.4 else []
    case = CellCase(nodes, tuple(jobs), owns, {at: str(random.choice(["", "A"])) for at in kept})
    # A tenant's job that is in no cell is refused: it is nobody's then.
    return case if any(layouts(case)) else case._replace(kept=dict.fromkeys(kept, ""))


def check_reserved(case: CellCase) -> str:
    """Compare with all layouts and placements; what was found."""
    solution = optsched.solve(
        case.document(), "max-throughput", integral=True, constraints=case.constraints()
    )
    found = list(layouts(case))
    if not found:
        assert solution.status == "infeasible" or not solution.objective
        return "infeasible"
    most = max(best_with(case, one) for one in found) + len(case.kept)
    assert solution.objective == pytest.approx(most)
    assert optsched.verify(case.document(), solution.to_document()).ok
    if solution.placement is None:
        assert solution.objective == 0
        return "idle"
    assert not solution.placement.refused
    held: dict[str, set[tuple[int, int]]] = {}
    for record in solution.placement.to_records():
        name = record["job"]
        if name.startswith("s"):
            node, _, gpu = name[1:].partition("-")
            tenant = case.kept[int(node), int(gpu)]
        else:
            tenant = case.jobs[int(name[1:])].tenant
        who = tenant if tenant in case.owns else ""
        for gpu in record["gpus"]:
            node, _, index = gpu.partition("/")
            held.setdefault(who, set()).add((int(node[1:]), int(index)))

    def keeps(layout: Mapping[str, Sequence[Cell]]) -> bool:
        gpus = {
            who: {(node, first + index) for node, first, size in cells for index in range(size)}
            for who, cells in layout.items()
        }
        others = held.get("", set())
        return all(held.get(who, set()) <= gpus[who] and not others & gpus[who] for who in gpus)

    assert any(keeps(layout) for layout in found)
    return "placed" if held else "idle"


@pytest.mark.parametrize("block", range(2))
def test_fractions_are_a_relaxation_and_rounds_of_them_keep_all_cells(block: int) -> None:
    """No placement of whole jobs is better; rounds say what they deliver, and are placed."""
    kinds = Counter[str]()
    for seed in range(25 * block, 25 * block + 25):
        case, options = random_case(seed), {"constraints": random_case(seed).constraints()}
        whole = optsched.solve(case.document(), "max-throughput", integral=True, **options)
        parts = optsched.solve(case.document(), "max-throughput", **options)
        if parts.status == "infeasible":
            assert not any(True for _ in layouts(case))
            kinds["infeasible"] += 1
            continue
        assert parts.objective is not None
        assert parts.objective >= (whole.objective or 0.0) - 1e-7
        kinds["relaxed"] += parts.objective > (whole.objective or 0.0) + 1e-7
        assert any("reserved cells are a relaxation" in note for note in parts.notes)
        cut = optsched.realise(parts)
        assert cut.rounds is not None
        for number in range(cut.rounds.runs.shape[0]):
            placed = optsched.place(cut, cut.rounds.runs[[number]].indices.tolist())
            assert placed.placement is not None and not placed.placement.refused
            kinds["slices"] += 1
        assert optsched.verify(case.document(), optsched.place(cut).to_document()).ok
    assert kinds["slices"] > 6 and kinds["relaxed"] and kinds["infeasible"]


def test_fractions_of_others_have_what_cells_leave() -> None:
    """Two tenants, 8 GPUs, cells of 4 and 2: two are left for others, whatever is idle."""
    ones = [{"id": f"j{n}", "gpus": 1, "throughput": {"p": 1.0}} for n in range(8)]
    wide = {"id": "a", "gpus": 4, "tenant": "A", "throughput": {"p": {"4": 4.0}}}
    pair = {"id": "b", "gpus": 4, "tenant": "B", "throughput": {"p": {"4": 4.0}}}
    cells = [reserved({"4": 1}), reserved({"2": 1}, "B")]
    solution = solved(of_two_nodes([*ones, wide, pair]), *cells, integral=False)
    assert solution.objective == pytest.approx(2 + 4)  # no cell holds the job of B
    none = solved(of_two_nodes(ones), reserved({"4": 3}), integral=False)
    assert none.status == "infeasible" and "room for all reserved cells" in none.why_infeasible


@pytest.mark.parametrize("block", first_of(10, blocks=5))
def test_the_optimum_is_that_of_all_layouts_of_cells_and_is_placed(block: int) -> None:
    kinds = Counter(
        check_reserved(random_case(seed)) for seed in range(40 * block, 40 * block + 40)
    )
    assert kinds["placed"] > 10


def test_a_gang_has_no_more_parts_than_its_rate_says() -> None:
    """Three cells of three GPUs on one node are three parts."""
    assert check_reserved(random_case(1494)) == "placed"


def of_two_nodes(jobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "p", "nodes": 2, "gpus_per_node": 4}]},
        "tenants": [{"name": "A"}, {"name": "B"}],
        "jobs": list(jobs),
    }


def reserved(owns: Mapping[str, int], tenant: str = "A") -> dict[str, Any]:
    return {"kind": "cells", "tenant": tenant, "owns": dict(owns), "reserved": True}


def solved(document: dict[str, Any], *constraints: Any, **options: Any) -> optsched.Solution:
    rules = ["placeable", "uninterrupted", *constraints]
    return optsched.solve(
        document, "max-throughput", constraints=rules, **({"integral": True} | options)
    )


def test_a_cell_is_bound_to_the_gpus_of_a_job_that_stays() -> None:
    """The other GPU of its pair is left to the tenant, and so is the second pair."""
    ones = [{"id": f"j{n}", "gpus": 1, "throughput": {"p": 1.0}} for n in range(8)]
    document = of_two_nodes([staying("s", "p", ["p-0/1"], tenant="A"), *ones])
    solution = solved(document, reserved({"2": 2}))
    assert solution.objective == pytest.approx(1 + 8 - 4)
    assert optsched.verify(document, solution.to_document()).ok
    assert solution.placement is not None
    held = {gpu for record in solution.placement.to_records() for gpu in record["gpus"]}
    assert "p-0/1" in held and "p-0/0" not in held


def test_a_cell_is_bound_so_that_all_others_find_room() -> None:
    """The pair that stays is half of the cell of 4: bound to the cell of 2 it would leave no 4."""
    document = of_two_nodes(
        [
            staying("a", "p", ["p-0/0", "p-0/1"], tenant="A"),
            staying("o", "p", ["p-1/3"]),
            {"id": "b", "gpus": 2, "tenant": "A", "throughput": {"p": {"2": 1.0}}},
        ]
    )
    solution = solved(document, reserved({"2": 1, "4": 1}))
    assert solution.objective == pytest.approx(3.0)
    assert optsched.verify(document, solution.to_document()).ok
    assert solved(document, reserved({"2": 1, "4": 2})).status == "infeasible"


def test_cells_of_one_pool_take_nothing_on_another() -> None:
    """Each pool is placed alone: its last node was taken for the node of a cell elsewhere."""
    pools = [{"name": name, "nodes": [{"name": f"{name}0", "gpus": 2}]} for name in ("p", "q")]
    jobs = [
        {"id": "a", "gpus": 2, "tenant": "A", "throughput": {"q": {"2": 4.0}}},
        {"id": "o", "gpus": 2, "throughput": {"p": {"2": 3.0}}},
    ]
    document = of_two_nodes(jobs) | {"cluster": {"pools": pools}}
    solution = solved(document, reserved({"2": 1}) | {"pools": ["q"]})
    assert solution.objective == pytest.approx(7) and not solution.placement.refused


def test_an_uneven_split_counts_as_it_is_placed() -> None:
    """A gang of 4 may be 3 and 1 or 2 and 2: two pairs hold it, which counts at its worst without
    reserved.
    """
    gang = {"id": "g", "gpus": 4, "tenant": "A", "throughput": {"p": {"4": {"2": 1.0}}}}
    owns = {"kind": "cells", "tenant": "A", "owns": {"2": 2}}
    assert solved(of_two_nodes([gang]), owns).objective == 0
    assert solved(of_two_nodes([gang]), reserved({"2": 2})).objective == 1


def test_a_placement_outside_of_cells_is_refused() -> None:
    jobs: list[dict[str, Any]] = [
        {"id": "a", "gpus": 2, "tenant": "A", "throughput": {"p": {"2": 1.0}}},
        {"id": "o", "gpus": 1, "throughput": {"p": 1.0}},
    ]
    document = of_two_nodes(jobs)
    written = solved(document, reserved({"2": 1, "4": 1})).to_document()
    assert optsched.verify(document, written).ok
    del written["metrics"]["fragmentation"]  # of the GPUs that were chosen
    for gpus, other, fine in (
        (["p-0/0", "p-0/1"], "p-0/2", True),
        (["p-0/1", "p-0/2"], "p-0/3", False),  # no pair, and a cell of 4 has the other job
        (["p-0/1", "p-0/2"], "p-1/3", True),  # in the cell of 4; the pair is on the other node
        (["p-0/0", "p-0/1"], "p-1/0", True),  # in the cell of 4
        (["p-0/0", "p-0/1"], "p-0/1", False),
    ):
        for record in written["placement"]:
            record["gpus"] = gpus if record["job"] == "a" else [other]
        found = optsched.verify(document, written)
        assert found.ok is fine, (gpus, other, found.findings)


def test_jobs_of_whom_one_has_a_cell_share_no_gpu() -> None:
    document = of_two_nodes(
        [
            {"id": "a", "tenant": "A", "throughput": {"p": 1.0}},
            {"id": "b", "throughput": {"p": 1.0}},
        ]
    )
    document["colocation"] = [{"jobs": ["a", "b"], "pool": "p", "throughput": [0.9, 0.9]}]
    assert solved(document, reserved({"1": 8})).objective == pytest.approx(1.0)


def flaws_of(document: dict[str, Any], owns: Mapping[str, int], **gpus: str) -> list[str]:
    """What the check says of jobs that have half of the named GPU each."""
    entries = {
        row: checks.PlacedRow([job], [gpu], 0.5, {}) for row, (job, gpu) in enumerate(gpus.items())
    }
    instance = optsched.load(document)
    return [
        flaw.message for flaw in checks.reserved_cells_kept(entries, instance, [reserved(owns)])
    ]


@pytest.mark.parametrize("order", ["ao", "oa"])
def test_all_jobs_that_share_a_gpu_are_of_the_tenant_of_its_cell(order: str) -> None:
    document = of_two_nodes(
        [
            {"id": "a", "gpus": 1, "tenant": "A", "throughput": {"p": 1.0}},
            {"id": "o", "gpus": 1, "throughput": {"p": 1.0}},
        ]
    )
    assert not flaws_of(document, {"2": 1}, **dict.fromkeys("a", "p-0/0"))
    assert flaws_of(document, {"2": 1}, **dict.fromkeys(order, "p-0/0"))
    assert flaws_of(document, {"2": 1}, **{"a": "p-0/0", "o": "p-0/1"})
    assert not flaws_of(document, {"2": 1}, **{"a": "p-0/0", "o": "p-0/2"})
    assert not flaws_of(document, {"8": 0}, o="p-0/0")  # there is no such cell, and none is owned


def test_a_search_for_cells_that_fails_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped by its time limit; then it is not known whether the cells have room."""
    limits: list[float | None] = []

    class StoppedHighs:
        """Stands for HiGHS at the end of its time."""

        def open(self, _: object) -> StoppedHighs:
            return self

        def run(self, given: Limits) -> Values:
            limits.append(given.time)
            return Values(Termination.TIME_LIMIT)

    monkeypatch.setattr(reserved_check, "Highs", StoppedHighs)
    document = of_two_nodes([{"id": "a", "gpus": 1, "tenant": "A", "throughput": {"p": 1.0}}])
    (words,) = flaws_of(document, {"2": 1}, a="p-0/0")
    assert "are not known to be" in words
    assert limits == [reserved_check.SEARCH_LIMIT]


def test_refused_cells() -> None:
    job = {"id": "a", "gpus": 1, "tenant": "A", "throughput": {"p": 1.0}}
    document = of_two_nodes([job])
    pair = reserved({"2": 1})
    with pytest.raises(UsageError, match="the constraint placeable"):
        optsched.solve(document, "max-throughput", integral=True, constraints=[pair])
    with pytest.raises(UsageError, match="sizes that divide one another"):
        solved(document, pair, reserved({"3": 1}, "B"))
    with pytest.raises(UsageError, match="reserved twice"):
        solved(document, pair, reserved({"4": 1}))
    with pytest.raises(UsageError, match="the method priority counts GPUs in total"):
        optsched.realise(solved(document, pair, integral=False), method="priority")
    with pytest.raises(UsageError, match="reserved twice"):
        solved(document, pair, reserved({"4": 1}), integral=False)
    with pytest.raises(UsageError, match="makes room beside them"):
        optsched.make_room({**document, "constraints": [pair]}, "a")
    shares = {"pool": "p", "gpus": 1, "share": 0.5, "throughput": 1.0}
    shared = of_two_nodes([{"id": "a", "tenant": "A", "options": [shares]}])
    with pytest.raises(UsageError, match="may not share GPUs"):
        solved(shared, pair)
    straddling = of_two_nodes([staying("s", "p", ["p-0/1", "p-0/2"], tenant="A")])
    with pytest.raises(UsageError, match="in no cell that tenant A owns"):
        solved(straddling, pair)
    assert solved(document, reserved({"4": 3})).status == "infeasible"


def test_no_claim_where_not_all_ways_to_bind_cells_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bound to its pair the job leaves no room for the 4: bound to the 4 it does."""
    document = of_two_nodes(
        [
            staying("a", "p", ["p-0/0", "p-0/1"], tenant="A"),
            staying("o", "p", ["p-1/3"]),
        ]
    )
    monkeypatch.setattr(reserved_cells, "TRIED", -1)  # beside once for each of two GPUs
    with pytest.raises(UsageError, match="too many ways to bind reserved cells"):
        solved(document, reserved({"2": 1, "4": 1}))


def test_the_job_that_finds_no_cell_is_named() -> None:
    """The first job has a pair; the second one's GPUs are in two."""
    document = of_two_nodes(
        [
            staying("fits", "p", ["p-0/0", "p-0/1"], tenant="A"),
            staying("straddles", "p", ["p-1/1", "p-1/2"], tenant="A"),
        ]
    )
    with pytest.raises(UsageError, match="job straddles keeps GPUs that are in no cell"):
        solved(document, reserved({"2": 2}))


def test_cells_are_bound_where_others_of_another_pool_find_room() -> None:
    document = of_two_nodes([staying("s", "p", ["p-0/0"], tenant="A")])
    document["cluster"]["pools"].append({"name": "q", "nodes": 1, "gpus_per_node": 4})
    solution = solved(document, reserved({"1": 1}), {**reserved({"1": 1}, "B"), "pools": ["p"]})
    assert solution.objective == pytest.approx(1.0)
    assert optsched.verify(document, solution.to_document()).ok


def test_a_job_has_the_rest_of_the_cell_of_a_job_that_stays() -> None:
    """Bound to the cell of 4, the job leaves a pair to its tenant and the pair to nobody else."""
    wide = {"id": "b", "gpus": 2, "tenant": "A", "throughput": {"p": {"2": 3.0}}}
    document = of_two_nodes([staying("s", "p", ["p-0/0"], tenant="A"), wide])
    solution = solved(document, reserved({"4": 1}))
    assert solution.objective == pytest.approx(1.0)  # a cell of 4 is the smallest that holds two
    halves = solved(document, reserved({"2": 1, "4": 1}))
    assert halves.objective == pytest.approx(4.0)
    assert optsched.verify(document, halves.to_document()).ok
