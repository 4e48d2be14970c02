"""What a user should hear about an answer: what was stated and has no effect on it, and who is not in it yet.

An instance may state more than a formulation asks for: max-min fairness has no use for deadlines. That is no error, but
whoever wrote the deadlines must not think that they were kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from optsched.arrays import AnyArray
from optsched.candidates import Candidates
from optsched.candidates.kinds import Absence
from optsched.formulation import Formulation
from optsched.instance import Instance


class Field(NamedTuple):
    """A field of instances that only some formulations and side constraints read.

    Attributes
    ----------
    words : str
        What its values are.
    stated : callable
        Whether an instance states it in a way that could make a difference.
    """

    words: str
    stated: Callable[[Instance], bool]


def _differs(values: AnyArray) -> bool:
    return bool((values != values[:1]).any())


FIELDS: Mapping[str, Field] = {
    "deadline": Field("deadlines", lambda instance: bool(np.isfinite(instance.jobs_table.deadline).any())),
    "weight": Field("weights", lambda instance: _differs(instance.jobs_table.weight)),
    "tenant": Field("tenants", lambda instance: _differs(instance.jobs_table.tenant)),
    "after": Field("precedences (after)", lambda instance: bool(instance.jobs_table.after)),
    "restart_cost": Field("restart costs", lambda instance: bool(instance.jobs_table.restart_cost.any())),
    "isolated_time": Field("isolated times", lambda instance: bool(instance.jobs_table.isolated_time.any())),
    "value": Field("values of options", lambda instance: bool(instance.options.value.any())),
    "cost": Field("costs of options (no formulation reads them)", lambda instance: bool(instance.options.cost.any())),
    "partitions": Field(
        "partitions of GPUs (MIG; no formulation reads them yet)",
        lambda instance: any(pool.partitions for pool in instance.cluster.pools),
    ),
}
"""By the names that ``reads`` and ``also_reads`` use. What all programs read, or all placements, is not here."""


def notes_on(formulation: Formulation, candidates: Candidates) -> tuple[str, ...]:
    """Notes on the answer of a formulation over candidates, each a sentence."""
    return tuple(note for note in (_unread(formulation, candidates.instance), _not_arrived(candidates)) if note)


def _unread(formulation: Formulation, instance: Instance) -> str:
    """Fields that the instance states, and that have no effect on the answer."""
    read = formulation.all_reads
    words = [field.words for name, field in FIELDS.items() if name not in read and field.stated(instance)]
    if not words:
        return ""
    told = " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
    return (
        f"{formulation.name} does not read these fields of the instance, so they have no effect on the answer: {told}"
    )


def _not_arrived(candidates: Candidates) -> str:
    """How many jobs come later, and what deals with them."""
    later, jobs = int((candidates.absence == Absence.ARRIVES_LATER).sum()), len(candidates.absence)
    if later == 0:
        return ""
    now = candidates.instance.now
    return (
        f"{later:,} of {jobs:,} jobs have not arrived by now ({now:g} s) and are not in the program;"
        " `optsched simulate` runs all of them over time, `optsched import ... --at TIME` takes those there by then"
    )
