"""Notes on an answer: fields of the instance without effect on it, and jobs that are not in it yet.

An instance may state more than a formulation reads: max-min fairness does not use deadlines. That
is no error, but the user must not think that the deadlines were kept.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from optsched.candidates import Candidates
from optsched.candidates.kinds import Absence
from optsched.display.text import enumerated
from optsched.formulation.base import Formulation
from optsched.instance import Instance
from optsched.performance.composed import whole_steps_of


class Field(NamedTuple):
    """A field of instances that only some formulations and side constraints read.

    Attributes
    ----------
    words : str
        What its values are.
    part_of : str
        A field without which it has no meaning: where that is not read either, only that is noted.
    """

    words: str
    part_of: str = ""


FIELDS = {
    "deadline": Field("deadlines"),
    "weight": Field("weights"),
    "arrival": Field("arrival times"),
    "tenant": Field("tenants"),
    "tenant_weight": Field("weights of tenants", part_of="tenant"),
    "queue": Field("policies of tenants", part_of="tenant"),
    "preemptible": Field(
        "jobs that cannot be preempted (-C uninterrupted and --place keep them where they run)"
    ),
    "running": Field("where jobs run now"),
    "after": Field("precedences (after)"),
    "restart_cost": Field("restart costs"),
    "exempt_time": Field("exempt times"),
    "checkpoint_interval": Field("checkpoint intervals"),
    "isolated_time": Field("isolated times"),
    "colocation": Field("throughputs of jobs that share GPUs"),
    "value": Field("values of options"),
    "cost": Field("costs of options (gap reads them)"),
    "limit": Field(
        "limits of shares (only the placement of a solution says what each job may use)"
    ),
    "partitions": Field("partitions of GPUs (MIG; mig-pack and placeable read them)"),
}
"""By the names that ``reads`` and ``also_reads`` use.

Fields that every program reads are left out, and those that describe machines and workloads
(prices, power, bandwidths, parameters of models): they set no requirement on an answer.
"""
OF_PLACEMENT = frozenset({"preemptible", "running", "limit"})
"""Fields that a placement reads."""
OF_SIMULATIONS = frozenset(
    {
        "arrival",
        "preemptible",
        "running",
        "after",
        "restart_cost",
        "exempt_time",
        "checkpoint_interval",
    }
)
"""Fields that a simulation reads, or refuses, whatever its policy."""


def notes_on(
    formulation: Formulation,
    candidates: Candidates,
    *,
    placed: bool = False,
    extended: bool = False,
) -> tuple[str, ...]:
    """Notes on the answer of a formulation over candidates, each a sentence.

    Parameters
    ----------
    formulation : Formulation
    candidates : Candidates
    placed : bool
        Whether the answer was put on GPUs of nodes.
    extended : bool
        Whether a caller's function (``extend``) added rows, which may read any field.
    """
    read = formulation.all_reads | (OF_PLACEMENT if placed else frozenset())
    instance = candidates.instance
    notes = (
        unread_note(formulation.name, read, instance, extended=extended),
        _unused_batches(instance),
        *(constraint.note(instance) for constraint in formulation.constraints),
        _not_arrived(candidates),
    )
    return tuple(note for note in notes if note)


def unread_note(
    reader: str, read: Collection[str], instance: Instance, *, extended: bool = False
) -> str:
    """The note on fields that an instance states and nothing reads; empty where there are none.

    Parameters
    ----------
    reader : str
        Who reads, such as the name of a formulation.
    read : collection of str
        Names of the fields that are read.
    instance : Instance
    extended : bool
        Whether a caller's function (``extend``) adds rows, which may read any field.
    """
    in_queue = "queue" in read and "queue" in instance.states
    read = {*read, "arrival"} if in_queue else read  # a tenant's queue is in the order of arrival
    unread = instance.states.difference(read)
    if not unread:
        return ""
    words = [
        field.words
        for name, field in FIELDS.items()
        if name in unread and (not field.part_of or field.part_of in read)
    ]
    if not words:
        return ""
    fields = enumerated(words, "and")
    unless = " unless rows of extend use them" if extended else ""
    return (
        f"{reader} does not read these fields of the instance, "
        f"so they have no effect on the answer{unless}: {fields}"
    )


def _unused_batches(instance: Instance) -> str:
    """Batches that count for nothing, as the model was fitted to rates of whole steps."""
    whole = whole_steps_of(instance.performance)
    if not whole:
        return ""
    from optsched.performance.batches import Batches  # most models count in samples

    batches = Batches.of(instance)
    # A batch of 1 says what the measured rates say; NaN is none.
    other = [
        workload.name
        for workload, name, step in zip(
            instance.workloads, batches.names, batches.step, strict=False
        )
        if name in whole and not np.isnan(step) and step != 1
    ]
    if not other:
        return ""
    return (
        f"the batch of {enumerated(other, 'and')} is not used: "
        "the model was fitted to rates of whole steps,"
        " without samples, and its steps/s count as they were measured"
    )


def _not_arrived(candidates: Candidates) -> str:
    """How many jobs come later, and what deals with them."""
    if candidates.present.all():
        return ""
    later, jobs = int((candidates.absence == Absence.ARRIVES_LATER).sum()), len(candidates.absence)
    if later == 0:
        return ""
    now = candidates.instance.now
    return (
        f"{later:,} of {jobs:,} jobs have not arrived by now ({now:g} s) and are not in "
        "the program;"
        " `optsched simulate` runs all of them over time, `optsched import ... "
        "--at TIME` (of csv: --now) takes those there by then"
    )
