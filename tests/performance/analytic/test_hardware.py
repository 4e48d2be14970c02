"""The table of GPU boards: names, plausibility, and agreement with a second table."""

from __future__ import annotations

import csv
import re
from types import SimpleNamespace

import numpy as np
import pytest
from beside import SHARED, needs
from refusals import refuses

from optsched.instance import Layouts

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.analytic.hardware import (
    BYTES,
    FALLBACKS,
    PRECISIONS,
    Board,
    find,
    partitions_of,
    rows,
    slice_of,
)

DATA = SHARED / "data" / "perfmodel"
needs_shared = needs(DATA)


@pytest.mark.parametrize(
    ("name", "memory", "board"),
    [
        ("V100", None, "V100-SXM2-16GB"),
        ("v100", 32, "V100-SXM2-32GB"),
        ("v100", 31.7, "V100-SXM2-32GB"),
        ("v100", 5, "V100-SXM2-16GB"),
        ("V100-SXM2-16GB", 32, "V100-SXM2-16GB"),
        ("Tesla V100-PCIE-16GB", None, "V100-PCIe-16GB"),
        ("k80", None, "K80"),
        ("p100", None, "P100-SXM2-16GB"),
        ("A100-SXM4-40GB", None, "A100-SXM4-40GB"),
        ("NVIDIA A100 80GB PCIe", None, "A100-PCIe-80GB"),
        ("a100", None, "A100-SXM4-40GB"),
        ("A100", 80, "A100-SXM4-80GB"),
        ("a100_sxm", 80, "A100-SXM4-80GB"),
        ("NVIDIA H100 80GB HBM3", None, "H100-SXM5-80GB"),
        ("H100 NVL", None, "H100-NVL-94GB"),
        ("AMD Instinct MI300X", None, "MI300X"),
        ("A10", None, "A10"),
        ("b200", None, "B200-SXM-180GB"),
    ],
)
def test_names(name: str, memory: float | None, board: str) -> None:
    assert find(name, memory).name == board


@pytest.mark.parametrize("board", rows(), ids=lambda board: board.name)
def test_every_board_is_called_by_its_own_name_and_is_plausible(board: Board) -> None:
    assert find(board.name) is board
    assert len(board.peaks) == len(PRECISIONS)
    assert set(board.unverified) <= {*PRECISIONS, *Board.__slots__}
    known = {name: board.peak(name) for name in PRECISIONS}
    assert known["fp8"] >= known["fp16"] >= known["tf32"] >= known["fp32"] >= known["fp64"] * 0.99
    assert known["bf16"] in (known["fp16"], known["fp32"])
    assert 3e12 < known["fp32"] < 2e14
    assert 10 < known["fp16"] / board.bandwidth / 1e9 < 500  # FLOP per byte: the ridge
    assert all(profile.compute_slices <= 7 for profile in board.mig)
    assert board.source


def test_precisions_without_units_fall_back() -> None:
    assert find("K80").peak("fp8") == 4.37e12
    assert find("V100").peak("bf16") == 15.7e12  # not the 125 of fp16
    assert find("A100").peak("fp8") == 312e12
    assert set(BYTES) == set(PRECISIONS) > set(FALLBACKS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "A1000",
            'pools[0].gpu: found "A1000", expected the name of a known GPU board, such as A100-...',
        ),
        (
            "x",
            'pools[0].gpu: found "x", expected the name of a known GPU board, such as K80, P100-SXM2-16GB, ...',
        ),
        ("", 'pools[0].gpu: found "", expected the name of a known GPU board...'),
        ("NVIDIA", 'pools[0].gpu: found "NVIDIA", expected the name of a known GPU board...'),
        (
            "H10",
            'pools[0].gpu: found "H10", expected the name of a known GPU board, such as H100-...',
        ),
        (
            "80GB",
            'pools[0].gpu: found "80GB", which may be A100-PCIe-80GB, A100-SXM4-80GB, H100-PCIe-80GB, '
            "H100-SXM5-80GB, expected the name of one GPU board",
        ),
    ],
)
def test_unknown_and_ambiguous_names(name: str, message: str) -> None:
    with refuses(message):
        find(name, path="pools[0].gpu")


def test_slices() -> None:
    assert slice_of(find("A100"), "1g.5gb", "p") == (1 / 7, 1 / 8)
    assert slice_of(find("A100"), "7g.40gb", "p") == (1, 1)
    assert slice_of(find("A30"), "2g.12gb", "p") == (1 / 2, 1 / 2)
    with refuses('p: found "1g.5gb", expected a MIG profile of T4 (it has none)'):
        slice_of(find("T4"), "1g.5gb", "p")
    with refuses('p: found "1g.5gb", expected a MIG profile of H200-SXM5-141GB (1g.18gb, ...'):
        slice_of(find("H200"), "1g.5gb", "p")


@pytest.mark.parametrize("board", [board for board in rows() if board.mig], ids=lambda b: b.name)
def test_starts_allow_as_many_slices_of_a_profile_as_the_vendor_states(board: Board) -> None:
    pool = SimpleNamespace(partitions=(), gpu=board.name, gpu_memory=None)
    assert partitions_of(pool) is board.mig  # type: ignore[arg-type]
    assert most_of_each(board) == ([4, 2, 1] if board.name == "A30-24GB" else [7, 4, 3, 2, 1, 1])


def most_of_each(board: Board) -> list[int]:
    """How many slices of each profile a GPU can have at once."""
    layouts = Layouts(board.mig)
    most = np.array([layouts.counts_of(layout) for layout in layouts.maximal]).max(axis=0)
    return list(most.tolist())


@needs_shared
def test_a_second_table_of_boards_agrees() -> None:
    with (DATA / "gpu_specs.csv").open() as file:
        others = {re.split(r" \(", row["gpu"])[0]: row for row in csv.DictReader(file)}
    assert set(others) == {board.name for board in rows()}
    for board in rows():
        other = others[board.name]
        dies = 2 if board.name == "MI250X" else 1  # that table has the whole board
        figures = {
            "memory_gb": board.memory, "mem_gb_per_s": board.bandwidth, "fp32_tflops": board.peak("fp32") / 1e12,
            "fp16_bf16_dense_tflops": board.peak("fp16") / 1e12, "tdp_w": board.watts,
            "fp8_dense_tflops": board.peak("fp8") / 1e12,
        }  # fmt: skip
        for column, figure in figures.items():
            if other[column]:
                assert figure * dies == pytest.approx(float(other[column]), rel=0.025), (
                    board.name,
                    column,
                )
        if board.name != "MI250X":
            stated = float(other["nvlink_gb_per_s_bidirectional_total"] or 0)
            assert 2 * (board.nvlink or 0) == stated
        assert board.pcie == int(other["pcie_gen"])
        assert sum(1 for p in board.mig if p.compute_slices == 1) >= (
            int(other["mig_max_instances"]) > 0
        )
        most = max(most_of_each(board)) if board.mig else 0
        assert most == int(other["mig_max_instances"])


@needs_shared
def test_a_second_table_of_slices_agrees() -> None:
    with (DATA / "mig_profiles.csv").open() as file:
        others = list(csv.DictReader(file))
    seen = 0
    for other in others:
        for name in other["gpu"].split("/"):
            mine = [board for board in rows() if board.mig and _same(name, board)]
            assert mine, name
            for board in mine:
                row = [one.profile for one in board.mig].index(other["profile"])
                profile = board.mig[row]
                most = most_of_each(board)[row]
                counts = (most, profile.compute_slices, profile.memory_slices)
                assert counts == tuple(
                    int(other[key]) for key in ("max_instances", "compute_slices", "memory_slices")
                )
                seen += 1
    assert seen == sum(len(board.mig) for board in rows())


def _same(name: str, board: Board) -> bool:
    words = name.lower().split("-")
    own = board.name.lower().split("-")
    return all(word in own for word in words)
