"""What holds of every picture: equal bytes, the library's error without matplotlib, nothing loaded before."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from documents import instance_document
from picture_samples import instance_of, solved, with_placement, with_rounds, with_schedule

import optsched
from optsched import report
from optsched.report import (
    allocation_heatmap,
    price_bars,
    progress_picture,
    rounds_gantt,
    save_picture,
    schedule_gantt,
    topology_picture,
)  # fmt: skip

# Private names: what a picture or a page is made of, before it is drawn
from optsched.report.page import inline_svg
from optsched.report.pictures import time_unit, time_words
from optsched.solvers import Progress

pytestmark = pytest.mark.picture

mpl = pytest.importorskip("matplotlib")


NAMES = ("heatmap", "topology", "states", "gantt", "rounds", "prices", "progress")


@pytest.fixture(scope="module")
def draw() -> dict[str, Callable[..., Any]]:
    jobs = solved(instance_of(14, {"a": (2, 8), "b": (3, 4)}, 2))
    fair = optsched.solve("@quickstart")
    made = with_placement(with_rounds(with_schedule(jobs)))
    nodes = [
        {"name": f"n{row}", "gpus": 2, "state": state}
        for row, state in enumerate(("up", "drain", "down"))
    ]
    odd = instance_of(1, {"a": (3, 2)}, cluster={"pools": [{"name": "a", "nodes": nodes}]})
    events = [Progress(1.0, 1.0, 3.0), Progress(2.0, 2.0, 2.5)]
    return {
        "heatmap": partial(allocation_heatmap, fair),
        "topology": partial(topology_picture, made),
        "states": partial(topology_picture, odd),
        "gantt": partial(schedule_gantt, made),
        "rounds": partial(rounds_gantt, made),
        "prices": partial(price_bars, fair),
        "progress": partial(progress_picture, events),
    }


@pytest.mark.parametrize("name", NAMES)
def test_own_axes_are_used(draw: dict[str, Callable[..., Any]], name: str) -> None:
    from matplotlib.figure import Figure

    left, right = Figure(figsize=(12, 5)).subplots(1, 2)
    assert draw[name](right) is right
    assert (left.has_data(), right.has_data()) == (False, True)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(
            name, kind, marks=() if kind == "svg" or name == "prices" else pytest.mark.study
        )
        for name in NAMES
        for kind in ("png", "svg", "pdf")
    ],
)
def test_files_are_the_same_bytes_each_time(
    draw: dict[str, Callable[..., Any]], name: str, kind: str, tmp_path: Path
) -> None:
    contents = []
    for turn in ("first", "second"):
        save_picture(draw[name](), tmp_path / f"{turn}.{kind}")
        contents.append((tmp_path / f"{turn}.{kind}").read_bytes())
    assert contents[0] == contents[1]
    assert len(contents[0]) > 5000
    for word in (b"CreationDate", b"<dc:date", b"Software", b"tIME"):
        assert word not in contents[0]


def test_pictures_differ(draw: dict[str, Callable[..., Any]], tmp_path: Path) -> None:
    for name, make in draw.items():
        save_picture(make(), tmp_path / f"{name}.png")
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == len(draw)


@pytest.mark.process
def test_a_missing_matplotlib_is_named() -> None:
    program = """
import sys
sys.modules["matplotlib"] = None
import optsched
from optsched import report
from optsched.errors import OptschedError
from optsched.solvers import Progress
solution = optsched.solve("@quickstart")
draws = [report.topology_picture, report.schedule_gantt, report.rounds_gantt, report.price_bars]
for draw in [*draws, report.allocation_heatmap]:
    try:
        draw(solution)
    except OptschedError as error:
        print(error.exit_code, error)
try:
    report.progress_picture([Progress(1.0, 1.0, 2.0)])
except OptschedError as error:
    print(error.exit_code, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 6
    assert all(
        line.startswith("7 pictures need matplotlib") and "pip install matplotlib" in line
        for line in lines
    )


@pytest.mark.process
def test_importing_the_layer_loads_no_matplotlib_and_no_networkx() -> None:
    program = "import sys, optsched.report; print({'matplotlib', 'networkx', 'highspy'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, "0 ms"), (0.0123, "12.3 ms"), (8.0, "8 s"), (179.0, "179 s"), (180.0, "3 min"), (9000.0, "150 min"),
     (14_400.0, "4 h"), (200_000.0, "55.6 h"), (864_000.0, "10 days")],
)  # fmt: skip
def test_times_are_told_in_a_unit_that_is_read_easily(seconds: float, words: str) -> None:
    assert time_words(seconds) == words
    unit, name = time_unit(seconds)
    assert words.endswith(name)
    assert 0 <= seconds / unit < 260


def test_names_of_any_characters_make_pictures_that_can_be_read(tmp_path: Path) -> None:
    """Control characters are no XML, and dollar signs no mathematics."""
    import xml.dom.minidom

    names = ["a\x01b\x1f--c<&>", "$\\foo$", "x$y$", "z\ufffe"]
    jobs = [
        {"id": name, "gpus": 1, "steps": 100.0 * (k + 1), "throughput": {"p": 1.0}}
        for k, name in enumerate(names)
    ]
    pools = [{"name": "p", "nodes": 2, "gpus_per_node": 1}]
    document = instance_document(pools, jobs, name="n\x03")
    instance = optsched.Instance.from_document(document)
    shared = optsched.place(optsched.realise(optsched.solve(instance)))
    for draw, answer in (
        (report.schedule_gantt, optsched.solve(instance, "allox")), (report.rounds_gantt, shared),
        (report.allocation_heatmap, shared), (report.topology_picture, shared),
    ):  # fmt: skip
        ax = draw(answer)
        report.save_picture(ax, tmp_path / "p.svg")
        xml.dom.minidom.parse(str(tmp_path / "p.svg"))
        xml.dom.minidom.parseString(inline_svg(ax, "words"))


def test_a_character_that_the_font_lacks_is_no_warning(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    job = {"id": "train \N{ROCKET}", "options": [{"pool": "p", "gpus": 1, "duration": 3.0}]}
    pools = [{"name": "p", "nodes": 2, "gpus_per_node": 1}]
    document = instance_document(pools, [job])
    planned = optsched.solve(document, "makespan-unrelated")
    save_picture(schedule_gantt(planned), tmp_path / "plan.svg")
    assert [warning for warning in recwarn if "Glyph" in str(warning.message)] == []
