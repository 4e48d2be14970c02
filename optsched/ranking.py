"""What a ranking is: a policy that solves no program, but says which job goes before which."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.arrays.values import replace
from optsched.display import Displayed
from optsched.formulation.options import ConstraintOptions, options_from
from optsched.instance import Instance
from optsched.instance.documents import changed_fields

Sizes = Literal["least", "most", "fastest", "deadline"]
"""Which of the configurations of an elastic job that have room it runs in."""
Moves = Literal["paying", "published"]
"""When a running job moves though it could stay where it is."""


class RankingOptions(ConstraintOptions):
    """Base of the options of rankings: what every ranking of the catalogue takes.

    Options
        gpus   how many GPUs an elastic job takes of those that jobs before it leave: its ``least``
               number, the ``most`` that there is room for, the number with which it is ``fastest``,
               or (``deadline``) that with which it takes the least GPU time of those in time,
               restart cost included.
        moves  when a running job moves to faster GPUs though it could stay. ``paying``: if it then
               ends sooner, its restart cost counted, and no running job holds these GPUs; with
               ``fastest`` also to those of jobs behind it. ``published``, as simulators of papers
               do: never; with ``fastest`` whatever it costs, with ``most`` where more GPUs are free.
    """

    gpus: Sizes = "least"
    moves: Moves = "paying"


@dataclass(frozen=True)
class RankedJobs:
    """What a ranking sees of n jobs; arrays of shape (n,).

    Attributes
    ----------
    instance : Instance
    job : IntArray
        Rows of the job table, ascending.
    gpus : IntArray
        Gang size; the smallest number of GPUs of an elastic job.
    arrival, deadline : FloatArray
        Seconds; inf for no deadline, and at most `now` for one that has passed.
    soft : BoolArray
        Whether the deadline is soft: work that is late still counts.
    weight : FloatArray
    remaining : FloatArray
        Seconds that the steps left take in the fastest configuration that the job may run in
        (`Ranking.sizes`); inf where it is unknown.
    executed : FloatArray
        Seconds that it has held GPUs since it arrived, or was renewed (`Ranking.renews`).
    attained : FloatArray
        GPU seconds that it has had since then.
    waited : FloatArray
        Seconds that it has waited since it last ran, or arrived; 0 while it runs.
    """

    instance: Instance
    job: IntArray
    gpus: IntArray
    arrival: FloatArray
    deadline: FloatArray
    soft: BoolArray
    weight: FloatArray
    remaining: FloatArray
    executed: FloatArray
    attained: FloatArray
    waited: FloatArray

    def __len__(self) -> int:
        return len(self.job)

    @property
    def now(self) -> float:
        """The time of the clock, in seconds."""
        return self.instance.now

    @property
    def slack(self) -> FloatArray:
        """Seconds for which each job can wait and still be in time, shape (n,).

        At its fastest rate: below 0 for deadlines that cannot be met any more, inf without one.
        """
        with np.errstate(invalid="ignore"):  # neither a deadline nor a known rate
            spare = self.deadline - self.now - self.remaining
        return np.where(np.isinf(self.deadline), np.inf, spare)

    def renewed(self, mask: BoolArray) -> RankedJobs:
        """The same, with the service of the jobs of a mask set to 0.

        Parameters
        ----------
        mask : BoolArray, shape (n,)

        Returns
        -------
        RankedJobs
        """
        return replace(
            self,
            executed=np.where(mask, 0.0, self.executed),
            attained=np.where(mask, 0.0, self.attained),
        )


class Ranking(ABC, Displayed):
    """A policy that ranks jobs.

    Rounds run them in this order, each in a configuration that has room.

    A subclass's docstring is the rule. Ties go to the job that arrived first, then to the one that
    was submitted first. A ranking has no memory of its own: what it needs to know of the past is in
    `RankedJobs`.

    Parameters
    ----------
    options : mapping, optional
        Options by name, which the class ``Options`` checks.
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()

    class Options(RankingOptions):
        """No options but those of all rankings."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options: Any = options_from(type(self), options or {})

    def _headline(self) -> str:
        return ", ".join([self.name, *changed_fields(self.options)])

    @property
    def reads(self) -> frozenset[str] | None:
        """Fields of the instance that it reads, of those in `formulation.notes.FIELDS`;
        None if it does not say.
        """
        return None

    @property
    def strict(self) -> bool:
        """Whether all jobs behind one that has no room wait, and stop if they run."""
        return False

    @property
    def sizes(self) -> Sizes:
        """How many GPUs an elastic job takes."""
        return self.options.gpus if isinstance(self.options, RankingOptions) else "least"

    @property
    def moves(self) -> Moves:
        """When a running job moves though it could stay where it is."""
        return self.options.moves if isinstance(self.options, RankingOptions) else "paying"

    def renews(self, jobs: RankedJobs) -> BoolArray:
        """Jobs whose time and GPU time count from 0 again from this round on; by default none.

        Parameters
        ----------
        jobs : RankedJobs

        Returns
        -------
        BoolArray, shape (n,)
        """
        return np.zeros(len(jobs), bool)

    @abstractmethod
    def keys(self, jobs: RankedJobs) -> tuple[FloatArray | IntArray, ...]:
        """Sort keys: jobs with smaller ones go first.

        Parameters
        ----------
        jobs : RankedJobs
            Earlier service of the jobs that `renews` names does not count.

        Returns
        -------
        tuple of arrays, each of shape (n,)
            The first one counts most.
        """
