"""What a ranking is: a policy that solves no program, but says which job goes before which."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from optsched.arrays import FloatArray, IntArray
from optsched.formulation_options import ConstraintOptions, options_from
from optsched.instance import Instance


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
        Seconds; inf for no deadline.
    weight : FloatArray
    remaining : FloatArray
        Seconds that the steps left take in the fastest configuration at that number of GPUs; inf where it is unknown.
    executed : FloatArray
        Seconds that it has held GPUs.
    attained : FloatArray
        GPU seconds that it has had.
    waited : FloatArray
        Seconds that it has waited since it last ran, or arrived; 0 while it runs.
    """

    instance: Instance
    job: IntArray
    gpus: IntArray
    arrival: FloatArray
    deadline: FloatArray
    weight: FloatArray
    remaining: FloatArray
    executed: FloatArray
    attained: FloatArray
    waited: FloatArray

    def __len__(self) -> int:
        return len(self.job)

    @property
    def now(self) -> float:
        """Seconds."""
        return self.instance.now


class Ranking(ABC):
    """A policy that ranks jobs. Rounds run them in this order, each in its fastest configuration that has room.

    A subclass's docstring is the rule. Ties go to the job that arrived first, then to the one that was submitted first.
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()

    class Options(ConstraintOptions):
        """No options."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options: Any = options_from(type(self), options or {})

    @property
    def strict(self) -> bool:
        """Whether a job that has no room keeps all jobs behind it waiting."""
        return False

    @abstractmethod
    def keys(self, jobs: RankedJobs) -> tuple[FloatArray | IntArray, ...]:
        """Sort keys, each of shape (n,): jobs with smaller ones go first; the first key counts most."""
