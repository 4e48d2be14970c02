"""``optsched admit``: whether jobs can be let in with their deadlines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from optsched.cli.command import Option
from optsched.cli.options import (
    INFEASIBLE,
    NOT_CERTIFIED,
    NOTHING_FOUND,
    OUTPUT,
    PROBLEM,
    InstanceFile,
    Json,
    ModelFile,
    Search,
    certificate_failed,
)
from optsched.cli.progress import progress
from optsched.cli.shell import Shell
from optsched.display import count
from optsched.errors import InvalidInput, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from optsched.study import AdmissionDecision


def admit(
    shell: Shell,
    instance: InstanceFile,
    search: Search,
    job: Annotated[
        list[str] | None,
        Option("Job of the instance to decide on. Can be repeated.", "ID", section=PROBLEM),
    ] = None,
    add: Annotated[
        list[str] | None,
        Option(
            "Jobs that are to join the instance: one job or a list, as in an instance. Can be repeated.",
            "FILE",
            section=PROBLEM,
            source=True,
        ),
    ] = None,
    model: ModelFile = None,
    no_advice: Annotated[
        bool,
        Option("Do not search what would let a refused job in.", section=OUTPUT),
    ] = False,
    as_json: Json = False,
) -> int:
    """Decide whether jobs can be admitted with their deadlines.

    All other jobs of the instance with a hard deadline count as admitted before, and keep their
    deadlines. Jobs are decided in the order of --job, then of --add, each beside those admitted
    before it; errors count them in this order, from 0. A job that is refused is told why, whether
    that is proven, the earliest deadline that can be kept, and how many further GPUs of each pool
    would do.

    Exit codes: 0 all are admitted, 4 a job is refused (all refusals are proven), 5 a job is refused
    without a proof.

    Examples:
        optsched admit cluster.json --add new-job.json
        optsched admit cluster.json --job train-17 --job train-18 --no-advice
        optsched admit cluster.json --add jobs.json --json | jq '.jobs[].admitted'
    """
    if not job and not add:
        raise UsageError("expected --job ID or --add FILE, found neither")
    if search.prove:
        raise UsageError("--prove: found it, but a plan is checked by itself; expected no --prove")
    timer = search.timer
    from optsched import study

    jobs: list[Any] = [*(job or [])]
    for source in add or []:
        jobs += _jobs(source, len(jobs))
    with progress(shell, "deciding", shown=not search.solver_log):
        found = study.admit(
            instance,
            jobs,
            advise=not no_advice,
            performance=model,
            **{**search.limits, "time_limit": timer},
        )
    if found.plan is not None and certificate_failed(shell, found.plan):
        return NOT_CERTIFIED
    shell.answer(as_json, found.to_document, _view(found))
    if found.all_admitted:
        return 0
    return INFEASIBLE if all(one.proven for one in found.refused) else NOTHING_FOUND


def _jobs(source: str, start: int) -> list[Any]:
    """The jobs of a file: one, or a list; errors count them from ``start``."""
    from optsched.instance.files import read_document
    from optsched.instance.reading import show

    found = read_document(source, "file of jobs", lambda document: document)
    jobs = found if isinstance(found, list) else [found]
    for place, job in enumerate(jobs, start):
        if not isinstance(job, dict):
            raise InvalidInput(f"jobs[{place}]", show(job), "a job, as in an instance")
    return jobs


def _view(found: AdmissionDecision) -> Iterator[RenderableType]:
    """Admitted jobs with their ends, refused jobs with reasons, and jobs whose plan changes."""
    from optsched.cli.tables import bullets, heading, name, optional, section, table
    from optsched.display import moment
    from optsched.study.admission import advice

    now = found.instance.now

    def at(seconds: float) -> str:
        return moment(seconds, now)

    asked = count(len(found.admitted) + len(found.refused), "job")
    yield heading(f"{found.instance.name}: {len(found.admitted)} of {asked} admitted")
    yield ""
    columns = found.to_columns()
    rows = [
        [
            name(job),
            "admitted" if admitted else "refused",
            at(deadline),
            optional(ends, at),
            optional(earliest, at),
        ]
        for job, admitted, deadline, ends, earliest in zip(
            *(columns[key] for key in ("job", "admitted", "deadline", "ends", "earliest_deadline")),
            strict=True,
        )
    ]
    yield table("job", "", "deadline, s", "ends, s", "could keep, s", rows=rows, left=2)
    for refusal in found.refused:
        yield ""
        yield heading(f"{name(refusal.job)} is refused{', which is proven' * refusal.proven}")
        yield bullets([refusal.words, *advice(refusal, now)])
    doubtful = [f"{name(job)}: {words}" for job, words in found.without_nodes.items()]
    yield from section(
        "The plan keeps to what pools have in all; nodes may not have room",
        doubtful,
        10,
        "job",
        see="--json",
    )
    yield from section("Notes", found.notes, 10, "note", see="--json")
    yield from section("Plans that change", found.changed, 10, "job", see="--json")
