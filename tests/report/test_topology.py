"""Pictures of the topology: hosts, groups and links; who holds which GPU; small, large, custom."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from picture_samples import instance_of, solved, with_placement
from refusals import refuses

import optsched
from optsched.errors import UsageError
from optsched.report import SolutionFile, TopologyCells, topology_picture

# Private names: what a picture or a page is made of, before it is drawn
from optsched.report.fabric import MOST_GPUS, STATES, fabric_of
from optsched.report.palette import IDLE, JOBS, PAPER
from optsched.report.topology import HATCHES, MOST_LINKED, NUMBERED, PAGE, lay_out, link_width
from optsched.solution import Solution

mpl = pytest.importorskip("matplotlib")

HOSTS = [f"h{row}" for row in range(8)]


@pytest.fixture(scope="module")
def placed() -> Solution:
    return with_placement(solved("@quickstart", "max-min-fairness"))


@pytest.fixture(scope="module")
def large() -> Solution:
    return with_placement(solved(instance_of(700, {"a": (256, 8), "b": (192, 8), "c": (64, 8)}, 3)))


def custom(links: list[tuple[Any, Any, float | None]], directed: bool = False) -> optsched.Instance:
    """Eight hosts of two GPUs, four in each of two pools, with these links."""
    vertices = dict.fromkeys([*HOSTS, *(end for one, other, _ in links for end in (one, other))])
    return instance_of(
        4, {"a": (4, 2), "b": (4, 2)}, cluster={
            "pools": [{"name": pool, "gpus_per_node": 2, "nodes": [{"name": host} for host in hosts]}
                      for pool, hosts in (("a", HOSTS[:4]), ("b", HOSTS[4:]))],
            "topology": {
                "directed": directed, "nodes": [{"id": vertex} for vertex in vertices],
                "links": [{"source": one, "target": other} | ({} if value is None else {"bandwidth": value})
                          for one, other, value in links],
            },
        },
    )  # fmt: skip


def collections(ax: Any, label: str) -> Any:
    """The collection of rectangles with this label, or None."""
    found = [item for item in ax.collections if item.get_label() == label]
    assert len(found) <= 1
    return found[0] if found else None


def squares(ax: Any, label: str) -> int:
    found = collections(ax, label)
    return 0 if found is None else len(found.get_paths())


def texts(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.figure.findobj(mpl.text.Text)]


def legend(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


# --- the fabric ----------------------------------------------------------------------------------------------------


def test_the_default_tree_is_one_group_per_pool() -> None:
    fabric = fabric_of(optsched.load("@quickstart"))
    assert [(group.leaves, len(group.hosts)) for group in fabric.groups] == [
        (("leaf/v100",), 2), (("leaf/p100",), 1), (("leaf/k80",), 2),
    ]  # fmt: skip
    assert [(group.inside, group.uplink) for group in fabric.groups] == [
        ((150,), (12.5,)), ((16,), (12.5,)), ((16,), (1.25,)),
    ]  # fmt: skip
    assert fabric.levels == {"spine": 1}
    assert {link.ends for link in fabric.links} == {
        (f"leaf/{name}", "spine") for name in ("v100", "p100", "k80")
    }
    assert fabric.gpus.tolist() == [4, 4, 4, 2, 2]
    assert fabric.first.tolist() == [0, 4, 8, 12, 14]


def test_groups_are_pools_under_leaf_switches() -> None:
    links = [(host, f"leaf{row // 3}", 25.0) for row, host in enumerate(HOSTS)]
    fabric = fabric_of(custom([*links, *((f"leaf{row}", "core", 100.0) for row in range(3))]))
    assert [(group.pool, group.leaves, group.hosts.tolist()) for group in fabric.groups] == [
        (0, ("leaf0",), [0, 1, 2]), (0, ("leaf1",), [3]), (1, ("leaf1",), [4, 5]), (1, ("leaf2",), [6, 7]),
    ]  # fmt: skip
    assert fabric.levels == {"core": 1}


def test_gpus_and_switches_inside_a_host_count_as_the_host() -> None:
    links = [("h0/0", "h0/nvswitch", 300.0), ("h0/1", "h0/nvswitch", 300.0), ("h0/0", "rail0", 50.0),
             ("h0/1", "rail1", 50.0), ("h1", "rail0", 40.0), ("h1", "rail1", 40.0)]  # fmt: skip
    fabric = fabric_of(custom(links))
    first = fabric.groups[0]
    assert (first.leaves, first.hosts.tolist()) == (("rail0", "rail1"), [0, 1])
    assert first.inside == (300.0,)
    assert first.uplink == (40.0, 50.0)
    assert fabric.groups[1].leaves == ()


def test_parallel_links_add_up_and_directions_do_not() -> None:
    two = [("h0", "s", 10.0), ("h0/0", "s", 5.0), ("h1", "s", None)]
    groups = fabric_of(custom(two)).groups
    assert groups[0].uplink == (15.0,)
    both_ways = [("h0", "s", 10.0), ("s", "h0", 10.0), ("s", "t", 7.0), ("t", "s", 7.0)]
    fabric = fabric_of(custom(both_ways, directed=True))
    assert fabric.groups[0].uplink == (10.0,)
    assert [(set(link.ends), link.bandwidth) for link in fabric.links] == [({"s", "t"}, 7.0)]


def test_a_switch_of_one_host_is_none_inside_of_it() -> None:
    fabric = fabric_of(custom([("h0/0", "h0", 300.0), ("h0", "leaf0", 25.0)]))
    assert fabric.groups[0].leaves == ("leaf0",)
    assert (fabric.groups[0].inside, fabric.groups[0].uplink) == ((300.0,), (25.0,))


def test_an_arc_without_one_back_is_no_link() -> None:
    arcs = [("h0", "s", 10.0), ("s", "h0", 5.0), ("h1", "s", 10.0)]
    groups = fabric_of(custom(arcs, directed=True)).groups
    assert [(group.leaves, group.uplink) for group in groups[:2]] == [(("s",), (5.0,)), ((), ())]


def test_switches_rise_level_by_level() -> None:
    links = [
        ("h0", "leaf", 1.0),
        ("leaf", "agg", 1.0),
        ("agg", "core", 1.0),
        ("core", "out", 1.0),
        ("x", "y", 1.0),
    ]
    assert fabric_of(custom(links)).levels == {"agg": 1, "core": 2, "out": 3, "x": 4, "y": 4}


def test_too_many_gpus_are_refused() -> None:
    instance = optsched.Instance.from_arrays(pools={"a": MOST_GPUS + 1}, throughput=[[1.0]])
    with pytest.raises(
        UsageError, match="the cluster has 100,001 GPUs; a picture has room for 100,000"
    ):
        topology_picture(instance)


# --- the layout ----------------------------------------------------------------------------------------------------


@pytest.mark.picture
@pytest.mark.parametrize(
    "pools",
    [{"a": (1, 1)}, {"a": (2, 4), "b": (3, 16)}, {"a": (512, 8)}, {f"p{row}": (row + 1, 4) for row in range(30)},
     {"a": (3000, 8)}],
)  # fmt: skip
def test_nothing_overlaps_and_everything_is_on_the_page(pools: dict[str, tuple[int, int]]) -> None:
    fabric = fabric_of(instance_of(1, pools))
    layout = lay_out(fabric)
    assert layout.width <= 1.3 * PAGE[0]
    assert layout.height <= 1.3 * PAGE[1] + 1.5
    owner = np.repeat(np.arange(len(fabric.names)), fabric.gpus)
    side = layout.sizes.cell
    left, top, width, height = layout.host[owner].T
    assert (layout.gpu[:, 0] >= left).all()
    assert (layout.gpu[:, 1] >= top).all()
    assert (layout.gpu[:, 0] + side <= left + width + 1e-9).all()
    assert (layout.gpu[:, 1] + side <= top + height + 1e-9).all()
    assert len({(round(x, 6), round(y, 6)) for x, y in layout.gpu.tolist()}) == fabric.total
    boxes = [(panel.left, panel.top, panel.width, panel.height) for panel in layout.panels]
    for row, one in enumerate(boxes):
        for other in boxes[row + 1 :]:
            apart = one[0] + one[2] <= other[0] + 1e-9 or other[0] + other[2] <= one[0] + 1e-9
            assert (
                apart or one[1] + one[3] <= other[1] + 1e-9 or other[1] + other[3] <= one[1] + 1e-9
            )
    bottom = max(panel.top + panel.height for panel in layout.panels)
    assert layout.height == pytest.approx(bottom)
    for panel in layout.panels:
        for host in panel.group.hosts.tolist():
            x, y, w, h = layout.host[host]
            assert panel.left <= x
            assert panel.top <= y
            assert x + w <= panel.left + panel.width + 1e-9
            assert y + h <= panel.top + panel.height + 1e-9


@pytest.mark.parametrize("nodes", [1, 7, 100, 512, pytest.param(12_000, marks=pytest.mark.study)])
def test_a_large_pool_has_the_shape_of_a_page(nodes: int) -> None:
    layout = lay_out(fabric_of(instance_of(1, {"a": (nodes, 8)})))
    assert layout.height < 9.5
    if nodes >= 100:
        assert 1.1 < layout.width / layout.height < 3
    if nodes >= 512:
        assert layout.width > 0.5 * PAGE[0]


def test_many_groups_stand_in_shelves_without_links_above() -> None:
    few = lay_out(fabric_of(instance_of(1, {f"p{row}": (1, 2) for row in range(MOST_LINKED)})))
    many = lay_out(fabric_of(instance_of(1, {f"p{row}": (1, 2) for row in range(MOST_LINKED + 1)})))
    assert few.linked
    assert set(few.switches) == {"spine"}
    assert not many.linked
    assert many.switches == {}
    assert len({round(panel.top, 6) for panel in many.panels}) > 1


# --- who holds what ------------------------------------------------------------------------------------------------


def test_gpus_are_told_by_node_and_index(placed: Solution) -> None:
    cells = TopologyCells.of_placement(placed)
    names = [f"{name}/{gpu}" for name, count in zip(cells.fabric.names, cells.fabric.gpus, strict=True)
             for gpu in range(count)]  # fmt: skip
    shown = {
        (names[gpu], job) for gpu, job in zip(cells.gpu.tolist(), cells.job.tolist(), strict=True)
    }
    rows = placed.placement.rows
    wanted = {
        (gpu, int(rows.job[row]))
        for row, gpus in zip(placed.placement.row.tolist(), placed.placement.gpus, strict=True)
        for gpu in gpus
    }
    assert shown == wanted
    assert "16 of 16 GPUs held by 10 jobs" in cells.subtitle


def test_a_file_and_its_solution_give_the_same_cells(placed: Solution) -> None:
    pairs = with_placement(solved("@packing", "max-min-fairness"))
    assert (pairs.placement.rows.partner >= 0).any()
    for solution in (placed, pairs):
        file = SolutionFile.read(solution.instance, solution.to_document())
        one, other = TopologyCells.of_placement(solution), TopologyCells.of_placement(file)
        for name in ("gpu", "job", "left", "width"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert (one.title, one.subtitle) == (other.title, other.subtitle)


def test_an_instance_alone_shows_what_runs_now() -> None:
    instance = instance_of(
        2, {"a": (2, 4)}, jobs=[
            {"id": "x", "gpus": 2, "throughput": {"a": 1.0}, "running": {"pool": "a", "gpus": ["a-0/1", "a-1/3"]}},
            {"id": "y", "throughput": {"a": 1.0}},
        ],
    )  # fmt: skip
    cells = TopologyCells.of_instance(instance)
    assert (cells.gpu.tolist(), cells.job.tolist()) == ([1, 7], [0, 0])
    assert cells.title == "2 jobs: cluster and what runs now"
    assert cells.subtitle == "2 of 8 GPUs held by 1 job"
    ax = topology_picture(instance)
    assert (squares(ax, "held"), squares(ax, "free")) == (2, 6)
    idle = topology_picture(optsched.load("@quickstart"))
    assert (squares(idle, "held"), squares(idle, "free")) == (0, 16)


def test_a_gpu_that_is_none_is_refused(placed: Solution) -> None:
    for name in ("v100-0/4", "v100-9/0", "v100-0", "v100-0/-1", "v100-0/x", ""):
        document = placed.to_document()
        document["placement"][2]["gpus"][0] = name
        with refuses("placement[2].gpus[0]: found ..., expected a GPU of the cluster..."):
            topology_picture(SolutionFile.read(placed.instance, document))


def test_without_a_placement_there_is_no_picture() -> None:
    with pytest.raises(UsageError, match="makespan has no placement: there is nothing to draw"):
        topology_picture(optsched.solve("@quickstart", "makespan"))


# --- the picture ---------------------------------------------------------------------------------------------------


def test_a_small_cluster_has_names_numbers_and_links(placed: Solution) -> None:
    ax = topology_picture(placed)
    words = texts(ax)
    assert {
        "v100-0",
        "k80-1",
        "spine",
        "leaf/p100",
        "2 nodes x 4 GPUs",
        "GB/s: 150 inside, 12.5 up",
    } <= set(words)
    assert legend(ax)[0] == "1  resnet-50-1"
    assert words.count("6") == 4  # bert-large-8 holds four GPUs
    assert (squares(ax, "held"), squares(ax, "free")) == (16, 0)
    found = {tuple(colour) for colour in collections(ax, "held").get_facecolors()}
    assert found <= {tuple(mpl.colors.to_rgba(colour)) for colour in JOBS}
    assert len(found) == 10
    assert ax.get_aspect() == 1


def test_a_unit_of_the_picture_is_an_inch(placed: Solution) -> None:
    ax = topology_picture(placed)
    width, height = ax.figure.get_size_inches()
    place = ax.get_position()
    np.testing.assert_allclose(place.width * width, np.ptp(ax.get_xlim()))
    np.testing.assert_allclose(place.height * height, np.ptp(ax.get_ylim()))


def test_shared_gpus_are_cut_into_stripes() -> None:
    pairs = with_placement(solved("@packing", "max-min-fairness"))
    cells = TopologyCells.of_placement(pairs)
    assert cells.width.min() == 0.5
    ax = topology_picture(pairs)
    widths = [
        round(float(np.ptp(path.vertices[:, 0])), 6) for path in collections(ax, "held").get_paths()
    ]
    full = max(widths)
    assert sorted(set(widths)) == pytest.approx([full / 2, full])
    assert widths.count(min(widths)) == int((cells.width == 0.5).sum())


def test_shares_and_slices_are_as_wide_as_they_are() -> None:
    def part(job: str, share: float, profile: str | None) -> dict[str, object]:
        option: dict[str, object] = {"pool": "a", "gpus": 1, "share": share, "throughput": 1.0}
        more = {} if profile is None else {"attributes": {"mig": profile}}
        return {"id": job, "options": [option | more]}

    pool = {"name": "a", "gpu": "A100-SXM4-40GB", "nodes": 1, "gpus_per_node": 2}
    jobs = [part("s", 0.5, "3g.20gb"), part("t", 0.125, "1g.5gb"), part("u", 0.75, None)]
    solution = optsched.solve(
        {"format": "optsched-instance/1", "cluster": {"pools": [pool]}, "jobs": jobs},
        "max-throughput",
        integral=True,
        constraints=["placeable"],
    )
    cells = TopologyCells.of_placement(solution)
    assert sorted(cells.width.tolist()) == [0.125, 0.5, 0.75]
    assert sorted(cells.left.tolist()) == [0.0, 0.0, 0.5]
    ax = topology_picture(solution)
    assert squares(ax, "free") == 2  # what is left of both


def test_gpus_of_gangs_across_racks_have_an_outline() -> None:
    """Of three gangs on two racks of three nodes one crosses: without colours it is seen too."""
    names = [f"a-{node}" for node in range(6)]
    pool = {"name": "a", "nodes": 6, "gpus_per_node": 4}
    rates = {"a": {"8": {"rack": 15.0, "cluster": 2.0}}}
    solution = optsched.solve(
        {
            "format": "optsched-instance/1",
            "cluster": {"pools": [pool], "levels": {"rack": {"r0": names[:3], "r1": names[3:]}}},
            "jobs": [{"id": name, "gpus": 8, "throughput": rates} for name in "xyz"],
        },
        "max-throughput",
        integral=True,
        constraints=["placeable"],
    )
    cells = TopologyCells.of_placement(solution)
    assert cells.crossing.sum() == 8
    assert len(np.unique(cells.job[cells.crossing])) == 1
    ax = topology_picture(solution)
    assert squares(ax, "crosses racks") == 8
    whole = optsched.solve("@quickstart", "max-throughput", integral=True)
    assert not TopologyCells.of_placement(optsched.place(whole)).crossing.any()


def test_small_cells_have_an_outline_too() -> None:
    """Of a cluster of 500 nodes, where no GPU has a number."""
    racks = {
        f"r{r}": [f"a-{node}" for node in range(32 * r, min(32 * r + 32, 500))] for r in range(16)
    }
    held = {"pool": "a", "gpus": ["a-0/0", "a-499/0"]}
    instance = optsched.load(
        {
            "format": "optsched-instance/1",
            "cluster": {
                "pools": [{"name": "a", "nodes": 500, "gpus_per_node": 8}],
                "levels": {"rack": racks},
            },
            "jobs": [{"id": "x", "gpus": 2, "throughput": {"a": 1.0}, "running": held}],
        }
    )
    assert squares(topology_picture(instance), "crosses racks") == 2


def states() -> optsched.Instance:
    nodes = [{"name": f"n{row}", "gpus": 2, "state": state}
             for row, state in enumerate(("up", "drain", "down", "down", "reserved", "up"))]  # fmt: skip
    nodes[5]["available_from"] = 50
    return instance_of(1, {"a": (6, 2)}, cluster={"pools": [{"name": "a", "nodes": nodes}]})


def test_states_of_nodes_are_hatched_and_counted() -> None:
    ax = topology_picture(states())
    counts = dict(zip(STATES, (1, 1, 2, 1, 1), strict=True))
    assert {state: squares(ax, state) for state in STATES} == counts
    for state, hatch in zip(STATES, HATCHES, strict=True):
        box = collections(ax, state)
        assert (box.get_hatch() or "") == hatch
        ground = PAPER if state == "up" else IDLE
        assert tuple(box.get_facecolor()[0]) == tuple(mpl.colors.to_rgba(ground))
    assert squares(ax, "free") == 2
    assert legend(ax) == [
        "free GPU",
        "node drained",
        "node down",
        "node reserved",
        "node not yet available",
    ]
    words = "0 of 12 GPUs in use, 1 node drained, 2 nodes down, 1 node reserved, 1 node not yet available"
    assert words in texts(ax)


def test_a_job_on_a_drained_node_keeps_its_colour() -> None:
    instance = instance_of(
        1, {"a": (1, 2)}, cluster={"pools": [{"name": "a", "nodes": [{"name": "n", "gpus": 2, "state": "drain"}]}]},
        jobs=[{"id": "x", "throughput": {"a": 1.0}, "running": {"pool": "a", "gpus": ["n/0"]}}],
    )  # fmt: skip
    ax = topology_picture(instance)
    assert (squares(ax, "held"), squares(ax, "free"), squares(ax, "drained")) == (1, 0, 1)


def test_a_large_cluster_has_a_cell_per_gpu_and_no_numbers(large: Solution) -> None:
    ax = topology_picture(large)
    assert squares(ax, "held") + squares(ax, "free") == 4096
    assert squares(ax, "up") == 512
    words = texts(ax)
    assert not {"a-0", "1"} & set(words)
    assert "a: 256 nodes x 8 GPUs" in words
    assert legend(ax) == ["colours repeat: 700 jobs", "free GPU"]
    width, height = ax.figure.get_size_inches()
    assert width < 14
    assert height < 11


def test_colours_repeat_but_numbers_do_not() -> None:
    solution = with_placement(solved(instance_of(20, {"a": (10, 8)}, 3)))
    ax = topology_picture(solution)
    assert len(TopologyCells.of_placement(solution).jobs) == 20
    assert legend(ax)[19] == "20  job-19"
    assert "20" in texts(ax)
    more = with_placement(solved(instance_of(NUMBERED + 4, {"a": (40, 8)}, 3)))
    assert legend(topology_picture(more))[0] == f"colours repeat: {NUMBERED + 4} jobs"


def test_links_are_as_wide_as_their_bandwidth() -> None:
    assert link_width(math.inf) < link_width(1.0) < link_width(100.0) < link_width(900.0) < 4
    links: list[tuple[Any, Any, float | None]] = [
        ("h0", "x", 1.0),
        ("h1", "y", 1.0),
        ("h2", "z", 1.0),
    ]
    above = [("x", "core", 400.0), ("y", "core", 25.0), ("z", "core", None)]
    ax = topology_picture(custom([*links, *above]))
    (lines,) = [item for item in ax.collections if len(set(item.get_linewidths())) == 3]
    assert sorted(lines.get_linewidths()) == [
        link_width(math.inf),
        link_width(25.0),
        link_width(400.0),
    ]
    assert {"400 GB/s", "25 GB/s"} <= set(texts(ax))


def test_links_between_hosts_and_between_leaves_are_drawn() -> None:
    ring = [(HOSTS[row], HOSTS[(row + 1) % 8], 25.0) for row in range(8)]

    def segments(ax: Any) -> list[int]:
        lines = [
            item for item in ax.collections if isinstance(item, mpl.collections.LineCollection)
        ]
        return sorted(len(path.vertices) for path in lines[0].get_paths())

    assert segments(topology_picture(custom(ring))) == [2] * 8
    leaves = [("h0", "x", 1.0), ("h1", "y", 1.0), ("x", "y", 10.0)]
    assert segments(topology_picture(custom(leaves))) == [4]  # a bracket between neighbours


def test_labels_of_links_do_not_cover_each_other() -> None:
    links = [(host, f"leaf{row // 2}", 25.0) for row, host in enumerate(HOSTS)]
    mesh = [(f"leaf{row}", f"spine{column}", 100.0) for row in range(4) for column in range(4)]
    ax = topology_picture(custom([*links, *mesh]))
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    extents = [
        text.get_window_extent(canvas.get_renderer())
        for text in ax.texts
        if text.get_text() == "100 GB/s"
    ]
    assert len(extents) >= 4
    for row, one in enumerate(extents):
        assert not any(one.overlaps(other) for other in extents[:row])


def test_a_picture_without_links_above_says_so() -> None:
    words = " ".join(
        texts(topology_picture(instance_of(1, {f"p{row}": (1, 2) for row in range(20)})))
    )
    assert "links above the leaf switches are not drawn" in words


def test_an_empty_placement_is_an_idle_cluster(placed: Solution) -> None:
    empty = replace(placed.placement, row=placed.placement.row[:0], gpus=())
    ax = topology_picture(replace(placed, placement=empty))
    assert squares(ax, "free") == 16
    assert any("0 of 16 GPUs in use" in text for text in texts(ax))
