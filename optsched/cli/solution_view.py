"""A solution as people read it: heading, result, allocation, pools, jobs without a place, conflicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from optsched.api import make_formulation
from optsched.cli.allocation_view import allocation_table, idle_jobs
from optsched.cli.placement_view import placement_view
from optsched.cli.resource_view import quantity, resource_tables
from optsched.cli.rounds_view import rounds_view
from optsched.cli.schedule_view import schedule_table
from optsched.cli.tables import (
    bullets,
    count,
    facts,
    heading,
    listed,
    name,
    number,
    seconds,
    share,
)
from optsched.registry import load_formulation, objective_words
from optsched.solution import Solution, Status
from optsched.solution.certificate import OPTIMALITY, alike
from optsched.solution.explanation import Explanation, assumptions_of, conflict_statement, under
from optsched.solving.stages import RELAXING

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from optsched.candidates import Classes
    from optsched.instance import Instance
    from optsched.program import Assumption
    from optsched.solution import Certificate, SolverRecord
    from optsched.solution.solution import Packed

COLOUR = {Status.OPTIMAL: "bold green", Status.FEASIBLE: "bold yellow", Status.LIMIT: "bold yellow"}
MOST_CONFLICTS = 20
"""Requirements that are listed."""
STOPPED = {
    "time_limit": "the time limit was reached",
    "work_limit": "the work limit was reached",
    "gap_limit": "the gap is small enough",
    "interrupted": "interrupted",
    "imprecise": "the solver gets no more precise",
}
PROOF = {
    "dual": "bound recomputed from the duals",
    "claimed": "bound claimed by the solver",
    "cross-checked": "cross-checked with a second run",
    "rule": "closed form, nothing to prove",
    "none": "no bound",
}


def solution_view(solution: Solution) -> Iterator[RenderableType]:
    """The whole solution, part by part."""
    classes = classes_of(solution)
    yield from title(solution, classes)
    yield facts(result_facts(solution))
    if solution.schedule is not None:
        yield from schedule_table(solution.schedule)
    elif solution.allocation is not None:
        yield from allocation_table(solution.allocation)
        yield from idle_jobs(solution.allocation)
    if solution.allocation is not None:
        yield from resource_tables(solution)
    if solution.rounds is not None:
        yield from rounds_view(solution.rounds, solution.instance)
    yield from placement_view(solution)
    yield from unplaced(solution.unplaced)
    yield from unplaced(solution.declined, "Not admitted")
    yield from gives_way(solution)
    yield from conflicts(solution)


def classes_of(solution: Solution) -> Classes:
    """The classes that were solved over, also where there is no allocation."""
    if solution.allocation is not None:
        return solution.allocation.classes
    kinds = [item for item in solution.constraints if item["kind"] != "extend"]
    return make_formulation(solution.formulation, solution.options, kinds).classes(
        solution.candidates
    )


def title(solution: Solution, classes: Classes) -> Iterator[RenderableType]:
    """Which instance was solved with what, and how large it is."""
    yield heading(f"{name(solution.instance.name)}: {solution.formulation}")
    jobs = count(len(solution.instance.jobs_table), "job")
    yield f"{jobs}, {count(len(classes), 'class', 'classes')}, {count(classes.columns, 'column')}"
    if solution.columns_made is not None:
        what, made, possible = solution.columns_made
        yield f"{made:,} of {possible:,} {what} beside the first columns were made columns"
    yield cluster_words(solution.instance)
    yield ""


def cluster_words(instance: Instance) -> str:
    """``16 GPUs in 3 pools: v100 8, p100 4, k80 4``."""
    pools, sizes = instance.cluster.pools, instance.cluster.gpus(instance.now).tolist()
    told = listed(
        [f"{name(pool.name)} {size:,}" for pool, size in zip(pools, sizes, strict=True)], most=8
    )
    return f"{count(sum(sizes), 'usable GPU')} in {count(len(pools), 'pool')}: {told}"


def result_facts(solution: Solution) -> Iterator[tuple[str, str | Text]]:
    """Status, objective, bound, proof, solver, times."""
    options = _changed(solution)
    if options:
        yield "options", options
    if solution.constraints:
        yield "constraints", "; ".join(_constraint_words(item) for item in solution.constraints)
    yield "status", status_words(solution.status, solution.termination, "allocation")
    if solution.packed is not None:
        yield "relaxation", packed_words(solution.packed, solution.instance.now)
    words, unit = objective_words(solution.formulation)
    if solution.objective is not None:
        yield "objective", f"{quantity(solution.objective, unit)}  {words}"
    if solution.bound is not None and solution.gap is not None:
        yield "bound", f"{quantity(solution.bound, unit)}  gap {share(solution.gap)}"
    elif solution.bound is not None:
        yield "bound", quantity(solution.bound, unit)
    yield from (("then", words) for words in later_words(solution))
    placed = solution.allocation is not None
    yield (
        "certificate",
        certificate_words(solution.certificate, solution.status, placed, "allocation"),
    )
    if solution.solver.version:
        yield "solver", solver_words(solution.solver)
    if solution.solver.attempts:
        yield "attempts", attempts_words(solution.solver)
    if solution.metrics.get("cost_per_hour"):
        yield "cost", f"{solution.metrics['cost_per_hour']:,.2f} USD/h"
    yield "time", time_words(solution.timings)


def packed_words(packed: Packed, now: float) -> str:
    """Of what status and objective are, and how many rows find whole GPUs at the same time."""
    when = (
        ""
        if packed.time is None or packed.time <= now
        else f" {seconds(packed.time - now)} from now"
    )
    most = (
        ""
        if packed.held == packed.most
        else f", and no packing has room for more than {packed.most:,}"
    )
    return (
        "status, objective and bound are of a relaxation that adds up shares of GPUs and does not pack them into whole "
        f"GPUs: of its {count(packed.rows, 'row')} side by side{when}, {packed.held:,} fit{most}"
    )


def later_words(solution: Solution) -> Iterator[str]:
    """What decided among plans of the same objective: ``starts 3,600, the least by the solver's word``."""
    for stage in solution.stages if solution.schedule is not None else ():
        least = "" if stage.bound is None else f", at least {number(stage.bound)}"
        if stage.bound is not None and alike(stage.value, stage.bound, OPTIMALITY, OPTIMALITY):
            least = ", the least by the solver's word"
        yield f"{stage.name} {number(stage.value)}{least}  {'; '.join(stage.words)}"


def _changed(solution: Solution) -> str:
    """Options that are not at their defaults."""
    fields = load_formulation(solution.formulation).Options.model_fields
    default = {key: field.get_default(call_default_factory=True) for key, field in fields.items()}
    return ", ".join(
        f"{key}={plain(value)}"
        for key, value in solution.options.items()
        if value != default.get(key)
    )


def _constraint_words(document: Any) -> str:
    given = ", ".join(f"{key}={plain(value)}" for key, value in document.items() if key != "kind")
    return f"{document['kind']} ({given})" if given else str(document["kind"])


def plain(value: Any) -> str:
    """A value as it is typed behind ``-O``."""
    import json

    return value if isinstance(value, str) else json.dumps(value)


def status_words(status: Status, termination: str, what: str) -> Text:
    """Status, and why the run was stopped short."""
    from rich.text import Text

    text = Text.assemble((str(status), COLOUR.get(status, "bold red")))
    if status in (Status.FEASIBLE, Status.LIMIT) and termination in STOPPED:
        text.append(f"  {STOPPED[termination]}")
    if status is Status.LIMIT:
        text.append(f", no feasible {what} was found")
    return text


def certificate_words(certificate: Certificate, status: Status, found: bool, what: str) -> Text:
    """What was checked, and what it rests on."""
    from rich.text import Text

    if not certificate.ok:
        return Text(f"FAILED: {'; '.join(certificate.problems)}", style="bold red")
    if status is Status.INFEASIBLE:
        if certificate.proof == "rule":
            return Text(f"infeasible whatever the {what}")
        if certificate.proof == "claimed":
            return Text("infeasible, as the solver claims: no duals prove it")
        least = certificate.residuals["least_violation"]
        words = f"every {what} misses its rows by {least:.2g} in all, relative to their size"
        return Text(f"{words}; recomputed from the duals")
    if not found:
        return Text("nothing to certify")
    worst = max(certificate.residuals.values(), default=0.0)
    return Text(f"ok: largest residual {worst:.1g}, {PROOF[certificate.proof]}")


def solver_words(record: SolverRecord) -> str:
    """Name, version, why it was chosen, and how much it did."""
    parts = [f"{record.name} {record.version}"]
    parts += [record.reason] if record.reason else []
    parts += [count(record.iterations, "iteration")] if record.iterations else []
    parts += [count(record.nodes, "node")] if record.nodes else []
    return ", ".join(parts)


def attempts_words(record: SolverRecord) -> str:
    """What was tried, in its order, and what came of it."""
    return "; ".join(f"{attempt.name}: {attempt.outcome}" for attempt in record.attempts)


def time_words(timings: Mapping[str, float]) -> str:
    """The whole time and what it went into."""
    stages = dict(timings)
    total = stages.pop("total", sum(stages.values()))
    parts = [f"{stage} {seconds(spent)}" for stage, spent in stages.items() if spent >= 0.0005]
    return f"{seconds(total)}: {', '.join(parts)}" if parts else seconds(total)


def unplaced(
    jobs: tuple[tuple[str, str], ...], title: str = "Not placed"
) -> Iterator[RenderableType]:
    """Jobs that are not in the program or not in its schedule, by reason."""
    if not jobs:
        return
    reasons: dict[str, list[str]] = {}
    for job, reason in jobs:
        reasons.setdefault(reason, []).append(job)
    yield ""
    yield heading(f"{title}: {count(len(jobs), 'job')}")
    yield bullets(f"{listed(members)}: {reason}" for reason, members in list(reasons.items())[:20])
    if len(reasons) > 20:
        yield f"... and {len(reasons) - 20:,} more reasons (use -o or --json)"


def gives_way(solution: Solution) -> Iterator[RenderableType]:
    """Requirements that gave way, as they cannot all hold."""
    relaxed = [stage for stage in solution.stages if stage.name == RELAXING]
    words = [word for stage in relaxed for word in stage.words]
    if not words:
        return
    assumed = tuple(dict.fromkeys(item for stage in relaxed for item in stage.assumptions))
    shown = sentence(under(assumed, "not all requirements can be met"))
    yield ""
    yield heading(f"{shown}; {count(len(words), 'requirement gives', 'requirements give')} way:")
    yield bullets(words[:20])
    if len(words) > 20:
        yield f"... and {len(words) - 20:,} more (use -o or --json)"
    yield from decided_elsewhere(assumed)


def sentence(words: str) -> str:
    """Words that begin with a capital letter."""
    return words[:1].upper() + words[1:]


def decided_elsewhere(assumptions: Iterable[Assumption]) -> Iterator[RenderableType]:
    """What decides requirements without what was taken for granted."""
    for assumption in assumptions:
        if assumption.decided_by:
            yield f"{sentence(assumption.decided_by)}."


def conflicts(solution: Solution) -> Iterator[RenderableType]:
    """The requirements that cannot all hold, or of which none can, each for itself; and what decides more than that."""
    found, explanation = solution.conflicts, solution.explanation
    if found:
        yield ""
        yield heading(f"{sentence(conflict_statement(found, solution.certificate.proof))}:")
        yield bullets(conflict.words for conflict in found[:MOST_CONFLICTS])
        if len(found) > MOST_CONFLICTS:
            yield f"... and {len(found) - MOST_CONFLICTS:,} more (use -o or --json)"
    if explanation is not Explanation.IRREDUCIBLE:
        yield explanation_words(explanation, bool(found))
    yield from decided_elsewhere(assumptions_of(found))


def explanation_words(explanation: Explanation, found: bool) -> str:
    """Why a set of conflicting requirements may be larger than need be, or was not found."""
    why = (
        "the time was over"
        if explanation is Explanation.CUT_OFF
        else "the search stopped at its bound of work"
    )
    if not found:
        return f"Which requirements cannot all hold was not found: {why}."
    return f"Some of these may conflict without the others: {why} before this set was as small as it can be."
