"""Who held which GPUs: on their nodes, nobody twice, and what is said where not everything is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulation_samples import simulation_of, trace_of

from optsched.errors import UsageError
from optsched.report import gpu_gantt_picture, save_picture

# Private names: what a picture or a page is made of, before it is drawn
from optsched.report.gpu_gantt import (
    WINDOWS,
    GpuRows,
    Holders,
    blocks_of,
    gpus_of,
    held_by_window,
    parts_on_nodes,
)
from optsched.simulation import Segments, Simulation, simulate

pytestmark = pytest.mark.picture

mpl = pytest.importorskip("matplotlib")


def segments(*rows: tuple[int, float, float, int, int, int]) -> Segments:
    """Of (job, start, end, GPUs, nodes, first GPU), all of pool 0."""
    job, start, end, gpus, nodes, first = (np.array(column) for column in zip(*rows, strict=True))
    return Segments(
        job, start.astype(float), end.astype(float), np.zeros(len(rows), int), gpus, nodes, first
    )


def held_twice(start: Any, end: Any, gpu: Any) -> bool:
    order = np.lexsort((start, gpu))
    same = gpu[order[1:]] == gpu[order[:-1]]
    return bool((same & (start[order[1:]] < end[order[:-1]] - 1e-6)).any())


def with_segments(run: Simulation, found: Segments) -> Simulation:
    return replace(run, segments=found)


# --- places ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_stretches_on_one_node_are_on_their_node(seed: int) -> None:
    """Pools of one node each: all is known."""
    trace = trace_of(200, {"a": (1, 8), "b": (1, 16)}, hours=60.0)
    found = simulation_of(trace, seed=seed, stints=2).segments
    holders = Holders.of(found)
    parts = parts_on_nodes(trace.instance, holders)
    holder, gpu = gpus_of(trace.instance, holders, parts)
    node = trace.instance.cluster.numbering.node_of
    assert (np.bincount(holder, minlength=len(holders)) == holders.gpus).all()
    assert (node(gpu) == node(holders.first_gpu[holder])).all()
    assert not held_twice(holders.start[holder], holders.end[holder], gpu)


@pytest.mark.parametrize("seed", range(6))
def test_gangs_over_nodes_fit_nearly_always(seed: int) -> None:
    trace = trace_of(300, {"a": (6, 4), "b": (3, 8)}, hours=90.0)
    holders = Holders.of(simulation_of(trace, seed=seed).segments)
    parts = parts_on_nodes(trace.instance, holders)
    assert (np.bincount(parts.holder, parts.gpus, minlength=len(holders)) <= holders.gpus).all()
    assert (np.bincount(parts.holder, minlength=len(holders)) == holders.nodes).all()
    holder, gpu = gpus_of(trace.instance, holders, parts)
    assert not held_twice(holders.start[holder], holders.end[holder], gpu)
    assert len(gpu) >= 0.97 * holders.gpus.sum()
    numbering = trace.instance.cluster.numbering
    assert (
        numbering.pool[parts.node]
        == numbering.pool[numbering.node_of(holders.first_gpu)][parts.holder]
    ).all()


@pytest.mark.unit
def test_a_gang_goes_where_its_gpus_are_free_all_the_time() -> None:
    """Three nodes of two GPUs: the second is taken later, so the gang of four is on the first and the third."""
    trace = trace_of(3, {"a": (3, 2)})
    found = segments((0, 0, 10, 4, 2, 0), (1, 5, 10, 2, 1, 2))
    holders = Holders.of(found)
    parts = parts_on_nodes(trace.instance, holders)
    assert parts.node.tolist() == [0, 2, 1] and parts.gpus.tolist() == [2, 2, 2]
    assert gpus_of(trace.instance, holders, parts)[1].tolist() == [0, 1, 4, 5, 2, 3]


@pytest.mark.unit
def test_who_shares_gpus_is_one_holder() -> None:
    found = segments(
        (0, 0, 10, 2, 1, 0), (1, 4, 6, 2, 1, 0), (2, 7, 12, 2, 1, 0), (3, 12, 14, 2, 1, 0)
    )
    holders = Holders.of(found)
    assert holders.of_segment.tolist() == [0, 0, 0, 1]
    assert holders.start.tolist() == [0, 12] and holders.end.tolist() == [12, 14]


@pytest.mark.unit
def test_who_shares_gpus_has_half_of_the_height_meanwhile() -> None:
    trace = trace_of(3, {"a": (1, 2)})
    found = segments((0, 0, 10, 2, 1, 0), (1, 4, 12, 2, 1, 0))
    holders = Holders.of(found)
    holder, gpu = gpus_of(trace.instance, holders, parts_on_nodes(trace.instance, holders))
    numbering = trace.instance.cluster.numbering
    rows = GpuRows.of(numbering, np.array([2]))
    blocks, shared = blocks_of(numbering, found, holders, holder, gpu, rows, 0.0)
    assert shared == 1 and blocks.job.tolist() == [0, 1, 0, 1]
    height = 2 * rows.of_gpu
    assert blocks.top == pytest.approx(np.array([0, 0, 0, 0.5]) * height)
    assert blocks.bottom == pytest.approx(np.array([1, 1, 0.5, 1]) * height)
    assert blocks.left.tolist() == [0, 4, 4, 4] and blocks.right.tolist() == [10, 12, 10, 10]


@pytest.mark.unit
def test_means_over_windows_are_what_was_held() -> None:
    random = np.random.default_rng(3)
    start = random.uniform(-20, 90, 60)
    end, gpus, node = (
        start + random.uniform(0, 30, 60),
        random.integers(1, 9, 60),
        random.integers(0, 4, 60),
    )
    found = held_by_window(start, end, gpus, node, 5, 80.0)
    edges = np.linspace(0, 80.0, WINDOWS + 1)
    inside = np.clip(end[:, None], edges[:-1], edges[1:]) - np.clip(
        start[:, None], edges[:-1], edges[1:]
    )
    expected = np.zeros((5, WINDOWS))
    np.add.at(expected, node, inside * gpus[:, None] / (80.0 / WINDOWS))
    assert found == pytest.approx(expected, abs=1e-9) and not found[4].any()


# --- pictures --------------------------------------------------------------------------------------------------------


def words(ax: Any) -> str:
    return " ".join(text.get_text() for text in ax.texts)


def test_a_small_cluster_has_a_row_for_each_gpu() -> None:
    run = simulation_of(trace_of(12, hours=2.0))
    ax = gpu_gantt_picture(run)
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "a-0",
        "a-1",
        "a-2",
        "b-0",
        "b-1",
    ]
    assert ax.get_title("left") == "made <by> hand: GPUs under fifo" and ax.get_xlabel().endswith(
        ", h"
    )
    assert len(ax.get_legend().get_texts()) == 12 and "12 jobs, 12 stretches" in words(ax)
    assert "b\n16 GPUs" in words(ax)
    boxes = ax.collections[-1].get_paths()
    seconds = (
        sum(np.ptp(box.vertices[:, 0]) * np.ptp(box.vertices[:, 1]) for box in boxes) / 0.16 * 3600
    )
    assert seconds == pytest.approx(run.jobs.gpu_seconds.sum())


def test_of_many_stretches_the_first_hours() -> None:
    run = simulation_of(trace_of(1500, {"a": (4, 8)}, hours=800.0), stints=2)
    ax = gpu_gantt_picture(run)
    assert "; first 14 days of 3" in ax.get_title("left") and ax.get_xlim() == (0, 14)
    assert "colours repeat" in words(ax) and ax.get_legend() is None
    assert ax.collections[-1].get_rasterized()
    part = gpu_gantt_picture(run, window=(3 * 86_400.0, 5 * 86_400.0))
    assert (
        "; 3 days to 5 days of 3" in part.get_title("left")
        and not part.collections[-1].get_rasterized()
    )


def test_of_many_gpus_the_nodes(tmp_path: Path) -> None:
    run = simulation_of(trace_of(400, {"a": (20, 8), "b": (10, 4)}, hours=50.0))
    ax = gpu_gantt_picture(run)
    assert [image.get_array().shape for image in ax.images] == [(20, WINDOWS), (10, WINDOWS)]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a\n160 GPUs", "b\n40 GPUs"]
    span = (run.segments.end.max() - run.trace.instance.jobs_table.arrival.min()) / WINDOWS
    held = (
        sum(image.get_array().sum() * gpus for image, gpus in zip(ax.images, (8, 4), strict=True))
        * span
    )
    assert held == pytest.approx(run.jobs.gpu_seconds.sum(), rel=0.005)
    assert "a row is a node, 30 nodes" in words(
        ax
    ) and "3 of 1,213 places on GPUs do not fit" in words(ax)
    alone = gpu_gantt_picture(simulation_of(trace_of(400, {"a": (180, 1)}, gpus=np.ones(400, int))))
    assert "do not fit" not in words(alone)
    save_picture(ax, tmp_path / "nodes.svg")


def test_a_real_simulation(tmp_path: Path) -> None:
    run = simulate("@quickstart", "max-min-fairness", mode="gavel")
    ax = gpu_gantt_picture(run)
    assert "do not fit" not in words(ax)
    for name in ("one.png", "two.png"):
        save_picture(gpu_gantt_picture(run), tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


def test_what_does_not_fit_is_said() -> None:
    run = simulation_of(trace_of(3, {"a": (2, 2)}, gpus=np.ones(3, int)))
    found = segments((0, 0, 10, 2, 1, 0), (1, 5, 9, 2, 1, 1))
    shifted = replace(found, start=found.start + 1e5, end=found.end + 1e5)
    assert "2 of 4 places on GPUs do not fit" in words(
        gpu_gantt_picture(with_segments(run, shifted))
    )


def test_nothing_to_draw() -> None:
    run = simulation_of(trace_of(5))
    none = replace(
        run.segments, **{n: getattr(run.segments, n)[:0] for n in Segments.__dataclass_fields__}
    )
    with pytest.raises(
        UsageError, match="there is nothing to draw: the simulation has no segments"
    ):
        gpu_gantt_picture(with_segments(run, none))
    with pytest.raises(
        UsageError, match=r"nothing runs from 1e\+09 to 2e\+09 s after the first arrival"
    ):
        gpu_gantt_picture(run, window=(1e9, 2e9))
    with pytest.raises(UsageError, match="in this mode no job holds GPUs of its own"):
        gpu_gantt_picture(simulate(trace_of(3), "max-min-fairness", mode="fluid"))
