"""Layouts of GPUs that are cut into slices: enumerated from the starts, and refused with a reason."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pytest
from beside import SHARED, needs
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

import optsched
from optsched.errors import UsageError
from optsched.instance import Layouts
from optsched.instance.cluster import Partition
from optsched.performance import partitions_of

ORACLE = SHARED / "oracles" / "forms" / "mig_a100_maximal_layouts.json"


def of_gpu(gpu: str) -> tuple[Partition, ...]:
    """Profiles of a board, as a pool of it has them."""
    cluster = {"pools": [{"name": "p", "gpu": gpu, "nodes": 1, "gpus_per_node": 1}]}
    document = {"format": "optsched-instance/1", "cluster": cluster, "jobs": []}
    return partitions_of(optsched.Instance.from_document(document).cluster.pools[0])


def usual() -> Layouts:
    """Of an A100 without its second profile of one compute slice, as in the published counts."""
    return Layouts([part for part in of_gpu("A100") if part.profile != "1g.10gb"])


def names(layouts: Layouts) -> list[set[tuple[str, int]]]:
    short = [name.partition(".")[0] for name in layouts.names]
    return [{(short[at.profile], at.start) for at in layout} for layout in layouts.maximal]


def test_an_a100_has_the_published_counts_of_layouts() -> None:
    layouts = usual()
    assert len(layouts.sets) == 298
    assert len(layouts.maximal) == 19
    multisets = {tuple(layouts.counts_of(layout).tolist()) for layout in layouts.sets if layout}
    assert len(multisets) == 37
    assert len({tuple(layouts.counts_of(layout).tolist()) for layout in layouts.maximal}) == 14
    assert sorted(layouts.words(counts) for counts in layouts.counts) == sorted(
        [
            "7x1g.5gb",
            "5x1g.5gb+2g.10gb",
            "4x1g.5gb+3g.20gb",
            "3x1g.5gb+2x2g.10gb",
            "3x1g.5gb+4g.20gb",
            "2x1g.5gb+2g.10gb+3g.20gb",
            "1g.5gb+3x2g.10gb",
            "1g.5gb+2g.10gb+4g.20gb",
            "2x2g.10gb+3g.20gb",
            "2x3g.20gb",
            "3g.20gb+4g.20gb",
            "7g.40gb",
        ]
    )


@pytest.mark.oracle
@needs(ORACLE)
def test_the_maximal_layouts_of_an_a100_are_those_of_the_oracle() -> None:
    expected = [
        {(name, start) for name, start, _ in layout} for layout in json.loads(ORACLE.read_text())
    ]
    found = names(usual())
    assert len(found) == len(expected) == 19
    assert all(layout in found for layout in expected)


def test_an_a30_has_five_maximal_layouts() -> None:
    layouts = Layouts(of_gpu("A30"))
    # Each half has two slices of one or one of two; or the GPU is whole.
    assert len(layouts.maximal) == 5
    assert [layouts.words(counts) for counts in layouts.counts] == [
        "4x1g.6gb",
        "2x1g.6gb+2g.12gb",
        "2x2g.12gb",
        "4g.24gb",
    ]


def test_an_h100_adds_slices_of_one_with_twice_the_memory() -> None:
    layouts = Layouts(of_gpu("H100"))
    assert "4x1g.20gb" in {layouts.words(counts) for counts in layouts.counts}
    without = Layouts([part for part in of_gpu("H100") if part.profile != "1g.20gb"])
    assert len(without.maximal) == 19
    assert set(without.maximal) < {
        tuple(at._replace(profile=at.profile - (at.profile > 1)) for at in layout)
        for layout in layouts.sets
    }


def test_a_board_without_mig_has_no_layouts() -> None:
    assert Layouts(of_gpu("V100")).maximal == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2x4g.20gb", "a GPU has at most 1 x 4g.20gb, which starts at 0"),
        ("3g.20gb@2", "3g.20gb cannot start at 2: it starts at 0 or 4"),
        (
            "1g.5gb+2x3g.20gb",
            "1 x 1g.5gb and 2 x 3g.20gb take 9 memory slices of 8",
        ),
        (
            "3g.20gb+3g.20gb+1g.5gb",
            "2 x 3g.20gb and 1 x 1g.5gb take 9 memory slices of 8",
        ),
        ("4g.20gb@0+1g.5gb@3", "4g.20gb@0 and 1g.5gb@3 both take memory slice 3"),
        (
            "3g.20gb@0+4g.20gb",
            "no starts of 1 x 3g.20gb and 1 x 4g.20gb are free of overlap beside the stated ones",
        ),
        (
            "2g.10gb+1g.5gb+1g.5gb+4g.20gb",
            "no starts of 1 x 2g.10gb, 2 x 1g.5gb and 1 x 4g.20gb are free of overlap",
        ),
    ],
)
def test_an_illegal_layout_is_refused_with_the_reason(text: str, why: str) -> None:
    with refuses(f'p: found "{text}", expected a layout that a GPU can have: {why}'):
        usual().read(text, "p")


def test_an_unknown_profile_is_refused() -> None:
    with refuses('p: found "5g.25gb", expected one of the profiles 1g.5gb, ...'):
        usual().read("5g.25gb", "p")
    with refuses('p: found "3g.20gb+", expected profiles such as 2x1g.5gb+3g.20gb...'):
        usual().read("3g.20gb+", "p")


def test_layouts_read_what_they_write() -> None:
    layouts = usual()
    for layout in layouts.sets[1:]:
        counts = layouts.counts_of(layout)
        assert (layouts.read(layouts.words(counts), "p") == counts).all()
        with_starts = "+".join(f"{layouts.names[at.profile]}@{at.start}" for at in layout)
        assert (layouts.read(with_starts, "p") == counts).all()
        host = layouts.layout_for(counts)
        assert host is not None and (layouts.counts_of(host) >= counts).all()


def test_a_profile_is_stated_once() -> None:
    part = of_gpu("A30")[0]
    with refuses('q[1].profile: found "1g.6gb" a second time, expected each profile once'):
        Layouts([part, part], "q")


def test_profiles_with_too_many_layouts_are_refused() -> None:
    free = Partition("s", 1, 1, tuple(range(20)))
    with pytest.raises(UsageError, match=r"more than 200,000 layouts"):
        len(Layouts([free]).sets)


profiles = st.lists(
    st.tuples(st.integers(1, 4), st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True)),
    min_size=1,
    max_size=3,
)


@given(profiles)
@settings(max_examples=200, deadline=None)
def test_layouts_are_all_sets_of_slices_without_overlap(
    drawn: list[tuple[int, list[int]]],
) -> None:
    layouts = Layouts(
        [Partition(f"p{row}", 1, size, tuple(starts)) for row, (size, starts) in enumerate(drawn)]
    )
    places = [(row, start) for row, (_, starts) in enumerate(drawn) for start in starts]
    taken = {place: set(range(place[1], place[1] + drawn[place[0]][0])) for place in places}
    legal = {
        frozenset(chosen)
        for number in range(len(places) + 1)
        for chosen in combinations(places, number)
        if sum(len(taken[one]) for one in chosen) == len(set().union(*(taken[o] for o in chosen)))
    }
    assert {frozenset(layout) for layout in layouts.sets} == legal
    maximal = {one for one in legal if not any(one < other for other in legal)}
    assert {frozenset(layout) for layout in layouts.maximal} == maximal
    # Every multiset that fits is part of one of the inclusion-maximal ones, and of a layout
    for one in legal:
        need = np.bincount([row for row, _ in one], minlength=len(drawn)).astype(np.int64)
        assert (layouts.counts >= need).all(axis=1).any()
        assert layouts.why_not([(row, None) for row, _ in one]) == ""
    for row in range(len(drawn)):
        many = max(sum(place[0] == row for place in one) for one in legal)
        assert layouts.why_not([(row, None)] * (many + 1)) != ""
