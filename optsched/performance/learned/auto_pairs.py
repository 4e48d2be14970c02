"""The ``auto`` model of pairs: the one that did best on so many measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from optsched.errors import InvalidInput
from optsched.instance.documents import Document, PlainObject
from optsched.instance.reading import key, show, validate
from optsched.performance.learned.gaussian_pairs import FEWEST
from optsched.performance.learned.pair_models import PAIR_MODELS, make_pair_model, pair_class
from optsched.performance.learned.pairs import Fractions, PairModel, PairProfiles, Pairs

MOST_GAUSSIAN = 2000
"""Pairs: a Gaussian process costs their third power, some seconds here."""


def choose(profiles: PairProfiles) -> tuple[str, str]:
    """The name of a pair model for these measurements, and why, in words.

    On Gavel's table (benchmarks/studies/pairs.py) ``gaussian-pairs`` has the least error at every count that was tried.
    Beyond its reach ``boosted-pairs`` takes over where features are known; without features ``row-column`` does, and
    so it does for fewer pairs than a process can be fitted to.
    """
    pairs = len(profiles.ran)
    if pairs < FEWEST:
        return (
            "row-column",
            f"{pairs} pairs were measured: too few for more than effects of rows and columns",
        )
    if pairs <= MOST_GAUSSIAN:
        return "gaussian-pairs", f"{pairs} pairs were measured, at most {MOST_GAUSSIAN}"
    if profiles.features.bare:
        return (
            "row-column",
            f"{pairs} pairs were measured, and nothing is known of the workloads alone",
        )
    return "boosted-pairs", f"{pairs} pairs were measured, more than {MOST_GAUSSIAN}"


class AutoDocument(Document):
    """A fitted `AutoPairs`."""

    chosen: PlainObject
    because: str


class AutoPairs(PairModel):
    """The pair model that `choose` takes for the measurements, and the words for why.

    Options: those of the model that is chosen, by its name: ``{"gaussian-pairs": {"iterations": 50}}``.
    """

    name: ClassVar[str] = "auto"

    def __init__(self, chosen: PairModel, because: str) -> None:
        self.chosen, self.because = chosen, because

    @property
    def workloads(self) -> tuple[str, ...]:
        """`PairModel`."""
        return self.chosen.workloads

    @classmethod
    def fit(cls, profiles: PairProfiles, options: Mapping[str, Any]) -> Self:
        """`PairModel`."""
        given = {
            name.replace("_", "-"): own for name, own in options.items()
        }  # as a command line spells them
        for name, own in given.items():
            if name not in PAIR_MODELS or name == cls.name or not isinstance(own, Mapping):
                known = ", ".join(sorted(set(PAIR_MODELS) - {cls.name}))
                raise InvalidInput(
                    f"performance.{key(name)}", show(own), f"options of one of {known} by its name"
                )
        name, because = choose(profiles)
        return cls(pair_class(name).fit(profiles, given.get(name, {})), because)

    def fractions(self, pairs: Pairs) -> Fractions:
        """`PairModel`."""
        return self.chosen.fractions(pairs)

    def document(self) -> dict[str, Any]:
        """`PairModel`."""
        return {"model": self.name, "chosen": self.chosen.document(), "because": self.because}

    @classmethod
    def from_document(cls, document: Mapping[str, Any], path: str = "performance.pairs") -> Self:
        """`PairModel`."""
        told = validate(AutoDocument, dict(document), path)
        return cls(make_pair_model(told.chosen, f"{path}.chosen"), told.because)
