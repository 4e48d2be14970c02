"""Pages of simulations: self-contained, true to the numbers, and honest about what cannot be said."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
from refusals import refuses
from scipy import stats
from simulation_samples import simulation_of, trace_of
from test_results_page import Checker

# Private names: what a picture or a page is made of, before it is drawn
from optsched.display.text import signed_percent
from optsched.errors import UsageError
from optsched.report import simulation_sections, write_simulation_page
from optsched.report.simulated import Simulated
from optsched.report.simulation_page import facts
from optsched.report.simulation_tables import (
    COMPARED,
    SUMMARY,
    TIMES,
    _least_pairs,
    _mean_text,
    best_policies,
    comparison_table,
    jobs_table,
    metrics_table,
    runs_table,
)
from optsched.simulation import Simulation, simulate
from optsched.traces import NodeEvents, Trace

pytestmark = pytest.mark.picture

mpl = pytest.importorskip("matplotlib")

TRACE = trace_of(30, hours=4.0)
RUNS = [
    simulation_of(TRACE, policy, seed=seed) for policy in ("fifo", "<las>") for seed in (0, 1, 2)
]

NOTED = [replace(run, notices=("it <ended>",)) for run in RUNS]


def cells(simulations: list[Simulation], figures: tuple = TIMES) -> list[dict[str, str]]:  # type: ignore[type-arg]
    table = metrics_table(Simulated.of(simulations), "t", "t", figures)
    return [
        dict(zip([column.name for column in table.columns], row, strict=True))
        for row in table.texts
    ]


def unfinished(run: Simulation, *jobs: int) -> Simulation:
    finish = run.jobs.finish.copy()
    finish[list(jobs)] = np.nan
    return replace(run, jobs=replace(run.jobs, finish=finish))


# --- tables ----------------------------------------------------------------------------------------------------------


def test_means_with_intervals() -> None:
    fifo = cells(RUNS)[0]
    values = np.array([run.metrics()["mean_jct"] for run in RUNS[:3]], float) / 60
    half = stats.t.ppf(0.975, 2) * values.std(ddof=1) / np.sqrt(3)
    assert fifo["seeds"] == "3" and fifo["policy"] == "fifo"
    found = re.fullmatch(r"([\d.]+) ± ([\d.]+)", fifo["mean JCT, min"])
    assert found and float(found[1]) == pytest.approx(values.mean(), abs=0.6)
    assert float(found[2]) == pytest.approx(half, rel=0.06)


@pytest.mark.unit
def test_one_seed_has_no_interval() -> None:
    (only,) = cells(RUNS[:1])
    assert (
        "seeds" not in only
        and only["mean JCT, min"] == f"{(RUNS[0].metrics()['mean_jct'] or 0) / 60:.4g}"
    )


def test_seeds_that_are_alike_have_no_interval() -> None:
    alike = [RUNS[0], replace(RUNS[0], options={"seed": 1})]
    assert "±" not in cells(alike)[0]["mean JCT, min"]


def test_two_seeds_have_no_interval() -> None:
    assert not [
        text for row in cells([*RUNS[:2], *RUNS[3:5]]) for text in row.values() if "±" in text
    ]


def test_intervals_of_shares_stay_within_their_bounds() -> None:
    shares: list[float | None] = [0.2, 0.95, 1.0]
    found = re.fullmatch(r"([\d.]+) \(([\d.]+) to ([\d.]+)\)", _mean_text(shares, 0.01, 100.0))
    assert found and [float(text) for text in found.groups()] == pytest.approx([72, 0, 100], abs=1)
    assert "±" in _mean_text([0.5, 0.51, 0.52], 0.01, 100.0)


def test_figures_that_the_trace_does_not_state_have_no_column() -> None:
    (row,) = cells(RUNS[:1], SUMMARY)
    assert not [name for name in row if name.startswith("deadlines met")]


def test_the_best_policy_of_each_figure() -> None:
    told = dict(best_policies(Simulated.of(RUNS)))
    mean = {
        name: np.mean([run.metrics()["mean_jct"] for run in runs])
        for name, runs in (("fifo", RUNS[:3]), ("<las>", RUNS[3:]))
    }
    best, worst = sorted(mean, key=lambda name: mean[name])
    assert re.fullmatch(f"{best}: [^;]*; worst {worst}: .*", told["mean JCT"])
    assert best_policies(Simulated.of(RUNS[:3])) == []
    alike = [RUNS[0], replace(RUNS[0], policy="other")]
    assert "No figure tells" in simulation_sections(alike)[0].html
    assert "mean JCT" not in dict(best_policies(Simulated.of([RUNS[0], unfinished(RUNS[3], 3)])))


def test_no_mean_over_what_happens_to_be_known() -> None:
    """The makespan is known in two of three runs: the policy has none."""
    rows = cells([RUNS[0], unfinished(RUNS[1], 3), *RUNS[2:]])
    assert (
        rows[0]["makespan, h"] == "-"
        and "±" in rows[1]["makespan, h"]
        and "±" in rows[0]["mean JCT, min"]
    )


def test_the_summary_of_what_never_ends() -> None:
    (row,) = cells([unfinished(RUNS[0], *range(30))], SUMMARY)
    assert row["jobs"] == "30" and row["completed"] == "0"
    assert (row["mean JCT"], row["makespan"], row["unfair, %"]) == ("-", "-", "-") and row[
        "utilisation, %"
    ] != "-"


def test_differences_of_pairs() -> None:
    shown = Simulated.of(RUNS)
    table = comparison_table(shown)
    rows = [
        dict(zip([column.name for column in table.columns], row, strict=True))
        for row in table.texts
    ]
    by_figure = {row["figure"]: row for row in rows}
    row = by_figure["mean JCT, min"]
    before, after = (
        [(run.metrics()["mean_jct"] or 0) / 60 for run in part] for part in (RUNS[:3], RUNS[3:])
    )
    apart = mean(after) - mean(before)
    assert (row["policy"], row["pairs"]) == ("<las>", "3")
    assert float(row["difference"]) == pytest.approx(apart, rel=1e-3)
    assert float(row["95 % from"]) < apart < float(row["to"])
    assert row["relative"] == f"{100 * apart / mean(before):+.3g} %"
    assert row["p"] == f"{stats.wilcoxon(np.subtract(after, before)).pvalue:.3f}"
    assert [row["p Holm"] for row in rows] == [row["p"] for row in rows]  # one comparison a figure
    assert "fewer than 6 pairs" in table.words
    assert "deadlines met, %" not in by_figure  # unknown in all
    assert by_figure["restarts of a job"]["95 % from"] == "-"  # all differ by 0
    assert len(rows) <= len(COMPARED)


def test_p_is_adjusted_within_a_figure() -> None:
    shown = Simulated.of([*RUNS, *(replace(run, policy="same") for run in RUNS[3:])])
    table = comparison_table(shown)
    # The least that three pairs can give, times two policies
    assert ("0.250", "0.500") in {(row[-2], row[-1]) for row in table.texts}
    assert "fewer than 7 pairs" in table.words


@pytest.mark.unit
@pytest.mark.parametrize("comparisons", range(1, 12))
def test_the_least_pairs_of_a_verdict(comparisons: int) -> None:
    least = _least_pairs(comparisons)
    before, enough = (
        stats.wilcoxon(np.arange(1.0, pairs + 1)).pvalue * comparisons
        for pairs in (least - 1, least)
    )
    assert enough < 0.05 <= before


def test_relative_changes() -> None:
    assert [signed_percent(change) for change in (0.0, 0.0314159, -0.5, 29.8, -1234.5)] == [
        "0 %",
        "+3.14 %",
        "-50 %",
        "+2,980 %",
        "-123,450 %",
    ]


def test_pairs_are_of_the_same_trace_and_seed() -> None:
    other = Trace(TRACE.instance, node_events=NodeEvents(np.array([9e9]), ("a-0",), ("down",)))
    runs = [RUNS[0], RUNS[1], simulation_of(TRACE, "x", seed=1), simulation_of(other, "x")]
    shown = Simulated.of(runs)
    assert shown.pairs(*shown.policies) == [(1, 2)]
    (line,) = [row for row in comparison_table(shown).texts if row[0] == "mean JCT, min"]
    assert (
        line[2] == "1" and line[6:8] == ["-", "-"] and line[9] == "-"
    )  # one pair: no interval, no p
    alone = Simulated.of([RUNS[0], simulation_of(TRACE, "x", seed=7)])
    assert {tuple(row[2:]) for row in comparison_table(alone).texts} == {("0", *["-"] * 8)}


def test_the_same_twice_is_two_pairs() -> None:
    shown = Simulated.of([RUNS[0], RUNS[0], RUNS[3], RUNS[3]])
    assert shown.pairs(*shown.policies) == [(0, 2), (1, 3)]


@pytest.mark.unit
def test_job_by_job() -> None:
    slower = replace(
        RUNS[0], policy="slower", jobs=replace(RUNS[0].jobs, finish=RUNS[0].jobs.finish.copy())
    )
    arrival = TRACE.instance.jobs_table.arrival
    slower.jobs.finish[:20] = arrival[:20] + 2 * RUNS[0].completion_times[:20]
    first, second = unfinished(RUNS[0], 0), unfinished(slower, 1, 2)
    (row,) = jobs_table(Simulated.of([first, second])).rows
    assert row == ("slower", 27, pytest.approx(2 ** (17 / 27)), 1, 2, 2, 0, 17, 10, 2, 1)


@pytest.mark.unit
def test_what_was_simulated() -> None:
    told = dict(facts(Simulated.of(RUNS, unfair=1.5)))
    assert (told["policies"], told["trace"], told["seeds"]) == (
        "fifo, <las>",
        "made <by> hand",
        "0, 1, 2",
    )
    assert (told["jobs"], told["unfairly treated"]) == ("30", "jobs with a ratio above 1.5")
    part = replace(RUNS[0], measured=np.arange(30) < 12)
    assert dict(facts(Simulated.of([part])))["jobs"] == "30, of which 12 measured"


def test_every_run_has_every_metric() -> None:
    table = runs_table(Simulated.of(RUNS))
    assert len(table.rows) == 6 and table.rows[4][:3] == ("<las>", "made <by> hand", 1)
    assert dict(zip([column.name for column in table.columns], table.rows[0], strict=True)) == {
        "policy": "fifo", "trace": "made <by> hand", "seed": 0, **RUNS[0].metrics(),
    }  # fmt: skip


# --- pages -----------------------------------------------------------------------------------------------------------


def test_a_page_stands_alone(tmp_path: Path) -> None:
    write_simulation_page(RUNS, tmp_path / "one.html", "A <title>")
    text = (tmp_path / "one.html").read_text()
    checker = Checker()
    checker.feed(text)
    assert checker.open == [] and len(set(checker.ids)) == len(checker.ids)
    assert not checker.tags & {"script", "link", "img", "iframe"} and "@import" not in text
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in checker.links)
    assert all(link[1:] in checker.ids for link in checker.links if link.startswith("#"))
    assert text.count("<svg") == 6 and "<las>" not in text and "<by>" not in text
    assert len(text) < 600_000
    write_simulation_page(RUNS, tmp_path / "two.html", "A <title>")
    assert (tmp_path / "two.html").read_text() == text


def titles(simulations: list[Simulation]) -> list[str]:
    return [section.title for section in simulation_sections(simulations)]


def test_the_sections() -> None:
    html = {section.title: section.html for section in simulation_sections([NOTED[0], *NOTED[3:]])}
    assert list(html) == [
        "Which policy is best", "Summary", "Completion times", "Fairness", "Use of the cluster", "Who held which GPUs",
        "Cost and energy", "Planning", "Compared with the first policy", "Job by job", "Notices", "What was simulated",
        "Every simulation",
    ]  # fmt: skip
    assert "<dt>fifo</dt><dd>it &lt;ended&gt;</dd>" in html["Notices"]
    assert "<dt>&lt;las&gt;</dt><dd>it &lt;ended&gt; (3 of 3 runs)</dd>" in html["Notices"]
    first = html["What was simulated"]
    assert f"<dd>{TRACE.instance.sha256}</dd>" in first and "<dd>0, 1, 2</dd>" in first
    assert "<dd>a: 12 GPUs on 3 nodes; b: 16 GPUs on 2 nodes</dd>" in first
    assert html["Who held which GPUs"].count("<details>") == 1


def test_one_simulation() -> None:
    found = titles(RUNS[:1])
    assert "Job by job" not in found and "Notices" not in found and "Every simulation" in found


def test_other_ratios() -> None:
    html = {s.title: s.html for s in simulation_sections(RUNS[:1], rho="static", unfair=1.05)}
    assert "all jobs / GPUs) (static); unfair are jobs with rho above 1.05" in html["Fairness"]


def test_costs_are_told_where_they_are_known() -> None:
    trace = trace_of(10, pools={"a": (2, 4)})
    pool = replace(trace.instance.cluster.pools[0], cost_per_gpu_hour=None, watts_idle=None)
    cluster = replace(trace.instance.cluster, pools=(pool,))
    without = replace(trace, instance=replace(trace.instance, cluster=cluster))
    assert "Cost and energy" not in titles([simulation_of(without)])


def test_pages_of_nothing(tmp_path: Path) -> None:
    for run in (simulate(trace_of(0), "fifo"), unfinished(RUNS[0], *range(30))):
        write_simulation_page([run], tmp_path / "page.html")
        text = (tmp_path / "page.html").read_text()
        assert "There is nothing to draw: no measured job was completed." in text
        assert not re.search(
            r"\bnan\b|\bNone\b|\binf\b", re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL)
        )
    with refuses("simulations: found none, expected at least one simulation", UsageError):
        write_simulation_page([], tmp_path / "none.html")
    assert not (tmp_path / "none.html").exists()


def test_a_fluid_simulation_holds_no_gpus() -> None:
    run = simulate("@quickstart", "max-min-fairness", mode="fluid")
    html = {section.title: section.html for section in simulation_sections([run])}
    assert (
        "There is nothing to draw: in this mode no job holds GPUs of its own."
        in html["Who held which GPUs"]
    )
    assert "<dd>mode=fluid</dd>" in html["What was simulated"]
    assert "Who held which GPUs" not in titles([simulate("@quickstart", "fifo", segments=False)])
