"""What pictures are drawn from: a `Solution`, or a solution file beside its instance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from optsched.assembly import compile_for, make_formulation
from optsched.candidates import Classes
from optsched.errors import InvalidInput, UsageError
from optsched.instance import Instance
from optsched.instance.reading import named, parse_json, read_bytes, read_stdin, show, validate
from optsched.solution import Solution, Status
from optsched.solution.document import CertificateDocument, SolutionDocument

PARTS = ("schedule", "rounds", "placement")
"""Fields that `optsched.report.parts` reads by itself."""


@dataclass(frozen=True)
class SolutionFile:
    """A solution file, read back; what it shares with `Solution` has the same name here.

    Attributes
    ----------
    instance : Instance
        The one that was solved: its hash is checked.
    document : SolutionDocument
    parts : mapping
        Schedule, rounds and placement as they stand in the file; those that it lacks are absent.
    """

    instance: Instance
    document: SolutionDocument
    parts: Mapping[str, Any]

    @classmethod
    def read(cls, instance: Instance, source: Mapping[str, Any] | str | Path) -> SolutionFile:
        """Read a solution of an instance: a document, a path, or ``-`` for standard input.

        Raises
        ------
        InvalidInput
            If it cannot be read, has not the shape of the format, or belongs to another instance.
        """
        if isinstance(source, Mapping):
            return cls._of(instance, dict(source))
        data = read_stdin() if str(source) == "-" else read_bytes(Path(source))
        with named(source):
            return cls._of(instance, parse_json(data, "solution"))

    @classmethod
    def _of(cls, instance: Instance, document: object) -> SolutionFile:
        if not isinstance(document, dict):
            raise InvalidInput("", show(document), "a solution: an object")
        parts = {name: document[name] for name in PARTS if document.get(name) is not None}
        rest = {name: value for name, value in document.items() if name not in PARTS}
        made = cls(instance, validate(SolutionDocument, rest), parts)
        if made.document.instance.sha256 != instance.sha256:
            raise InvalidInput(
                "instance.sha256",
                show(made.document.instance.sha256),
                f"{instance.sha256}, the hash of this instance",
            )
        return made

    @cached_property
    def classes(self) -> Classes:
        """The classes of jobs that the solution is over, compiled again; raises `InvalidInput`."""
        document = self.document
        constraints = [item for item in document.constraints if item.get("kind") != "extend"]
        try:
            formulation = make_formulation(document.formulation, document.options, constraints)
        except UsageError as error:
            raise InvalidInput(
                "formulation", show(document.formulation), f"one that can be made ({error})"
            ) from None
        candidates = compile_for(formulation, self.instance)
        return formulation.classes(candidates if document.classes else candidates.per_job())

    @property
    def formulation(self) -> str:
        """Registry name."""
        return self.document.formulation

    @property
    def status(self) -> Status:
        """What the solution is worth."""
        return self.document.status

    @property
    def sense(self) -> str:
        """``max``, ``min`` or ``rule``."""
        return self.document.sense

    @property
    def objective(self) -> float | None:
        """In the formulation's units."""
        return self.document.objective

    @property
    def prices(self) -> Mapping[str, float]:
        """Improvement of the objective per unit of each resource."""
        return self.document.prices

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Figures of the allocation."""
        return self.document.metrics

    @property
    def certificate(self) -> CertificateDocument:
        """The certificate as written."""
        return self.document.certificate


Answer = Solution | SolutionFile


def headline(answer: Answer, *more: str) -> str:
    """The line below a title: formulation, status and objective, and what the picture adds."""
    value = "" if answer.objective is None else f", objective {amount(answer.objective)}"
    doubt = "" if answer.certificate.ok else ", its certificate does not hold"
    return "; ".join([f"{answer.formulation}: {answer.status}{value}{doubt}", *filter(None, more)])


def amount(value: float) -> str:
    """Four significant digits, of large numbers all before the point: ``0.9714``, ``31,345``."""
    return f"{value:,.0f}" if 10_000 <= abs(value) < 1e12 else f"{value:.4g}"


def count(number: int, one: str, many: str = "") -> str:
    """``1 job``, ``1,200 jobs``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
