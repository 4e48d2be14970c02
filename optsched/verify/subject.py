"""What a solution file solves, built again: formulation, side constraints, candidates, classes,
program.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from optsched.assembly import compile_for, own_constraints
from optsched.candidates import Candidates, Classes
from optsched.errors import UsageError
from optsched.formulation import Formulation, Infeasible, SideConstraint, nothing_to_decide
from optsched.instance import Instance
from optsched.instance.reading import join, show, translate
from optsched.performance import PerformanceModel
from optsched.program import AllocationProgram
from optsched.registry import load_constraint, load_formulation, load_solver
from optsched.solution import Solution
from optsched.solution.document import SolutionDocument
from optsched.solution.plan import Plan
from optsched.solvers import Limits
from optsched.solving.engine import Engine
from optsched.solving.outcome import BY_CLOCK
from optsched.verify.findings import Findings
from optsched.verify.rows import AllocationRows, resolve_rows
from optsched.verify.stages import settle

if TYPE_CHECKING:
    from optsched.verify.generated import Pricing

LARGEST_SEED = 2**31 - 1


@dataclass(frozen=True)
class RebuiltSolution:
    """The program that the file says it solves.

    Attributes
    ----------
    document : SolutionDocument
    formulation : Formulation
        With the options and side constraints of the file.
    candidates : Candidates
    built : Classes
        The classes of the program.
    program : AllocationProgram, Plan or None
        None if no allocation can meet a side constraint.
    """

    document: SolutionDocument
    formulation: Formulation
    candidates: Candidates
    built: Classes
    program: AllocationProgram | Plan | None
    pricing: Pricing | None = None
    """Prices all columns, if the file has only generated columns that are in use."""

    @property
    def instance(self) -> Instance:
        return self.candidates.instance

    @property
    def classes(self) -> Classes:
        """The classes of the allocation; for a rule, those that its decisions made."""
        if self.formulation.sense == "rule" and self.again.allocation is not None:
            return self.again.allocation.classes
        return self.built

    @property
    def closed_form(self) -> bool:
        """Whether no solver is needed: a rule, no job, or a side constraint that cannot be met."""
        return (
            self.formulation.sense == "rule"
            or self.program is None
            or nothing_to_decide(self.program)
        )

    @property
    def cut_short(self) -> bool:
        """Whether a rule decided while its search for a bound was cut off: with more time it may
        decide otherwise.
        """
        by_clock = self.document.termination in BY_CLOCK
        return by_clock and not self.expects_nothing and self.formulation.rounds_what_is_known

    @cached_property
    def again(self) -> Solution:
        """The instance solved again, with the seed of the file; the file of a closed form must be
        equal.
        """
        # A file may hold any number; solvers take seeds of 31 bits.
        limits = Limits(seed=min(max(self.document.solver.seed, 0), LARGEST_SEED))
        return self.formulation.solve(self.candidates, Engine(load_solver, limits=limits))

    def rows(self, findings: Findings) -> AllocationRows | None:
        """The allocation of the file; None with findings where it is wrong."""
        rows, wrong = self._rows
        for finding in wrong.items:
            findings.add(finding.field, finding.message)
        return rows

    @cached_property
    def _rows(self) -> tuple[AllocationRows | None, Findings]:
        wrong = Findings()
        return resolve_rows(self.classes, self.document.allocation, wrong), wrong

    @property
    def expects_nothing(self) -> bool:
        """Whether the file says that there is no allocation."""
        return self.document.status not in ("optimal", "feasible")


def rebuild(
    document: SolutionDocument,
    instance: Instance,
    model: PerformanceModel | None,
    findings: Findings,
) -> RebuiltSolution | None:
    """Build everything again; None with findings if the file names something that does not
    exist.
    """
    formulation = _formulation(document, instance, findings)
    if formulation is None:
        return None
    on_demand = document.columns_made is not None
    try:
        candidates = compile_for(formulation, instance, model, on_demand)
    except UsageError as error:
        findings.add("columns_made", str(error))
        return None
    # Without classes every job is a separate class, and columns have other numbers.
    if not document.classes:
        candidates = candidates.per_job()
    try:
        subject = _built(document, formulation, candidates, findings)
        if subject is not None and subject.closed_form:
            _ = subject.again  # may refuse as well: a rule takes no side constraints
    except UsageError as error:
        rule_with_rows = formulation.sense == "rule" and formulation.constraints
        findings.add("constraints" if rule_with_rows else "options", str(error))
        return None
    return subject


def _built(
    document: SolutionDocument,
    formulation: Formulation,
    candidates: Candidates,
    findings: Findings,
) -> RebuiltSolution | None:
    """Classes and program, with the columns that were generated and the stages
    that were solved before.
    """
    formulation = formulation.for_checking()
    classes = formulation.classes(candidates)
    program = _program(formulation, classes)
    # A file has only the generated columns that are in use. The program without them prices all
    # columns; then the program with the columns of the file is built.
    pricing = None
    made = document.columns_made
    if (
        made is not None
        and isinstance(program, AllocationProgram)
        and not nothing_to_decide(program)
    ):
        from optsched.verify.generated import (  # few files have generated columns
            check_columns_made,
            pricing_of,
            with_columns_in,
        )

        pricing = pricing_of(program)
        kept = classes.columns
        classes = with_columns_in(document, pricing)
        check_columns_made(made, pricing, classes.columns - kept, findings)
        program = _program(formulation, classes)
    if (
        isinstance(program, AllocationProgram)
        and not nothing_to_decide(program)
        and formulation.sense != "rule"
    ):
        program = settle(document, program, findings)
        if program is None:
            return None
    return RebuiltSolution(document, formulation, candidates, classes, program, pricing)


def _program(formulation: Formulation, classes: Classes) -> AllocationProgram | Plan | None:
    try:
        return formulation.program(classes)
    # A side constraint that cannot be met: there is no program, and the file must state it.
    except Infeasible:
        return None


def _formulation(
    document: SolutionDocument, instance: Instance, findings: Findings
) -> Formulation | None:
    # A name that is not registered here is an error, not a finding against the solution
    owner = load_formulation(document.formulation)
    findings.same("formulation", document.formulation, owner.name)
    if instance.kind not in owner.accepts:
        findings.add(
            "formulation",
            f"{owner.name} takes {', '.join(sorted(owner.accepts))}, not {instance.kind}",
        )
        return None
    options = _options(owner, document.options, "options", findings)
    constraints = [
        _constraint(item, f"constraints[{i}]", instance, findings)
        for i, item in enumerate(document.constraints)
    ]
    _check_own_constraints(document, instance, findings)
    # With a constraint that cannot be read the program is another one: nothing is compared then.
    known = [constraint for constraint in constraints if constraint is not None]
    if options is None or len(known) < len(constraints):
        return None
    return owner(options, known)


def _options(
    owner: type[Formulation | SideConstraint],
    given: Mapping[str, Any],
    path: str,
    findings: Findings,
) -> Any:
    """Options with the values that are used.

    Options that the file does not name have their defaults, because files may be older than an
    option.
    """
    try:
        options = owner.Options.model_validate(dict(given))
    except ValidationError as error:
        wrong = translate(error, path, owner.Options)
        where = join(path, error.errors()[0]["loc"][:1])  # further parts may be branches of a union
        findings.add(where, f"found {wrong.found}, expected {wrong.expected}")
        return None
    # Through JSON, as the file went: tuples become lists.
    used = _as_written(options.model_dump())
    findings.alike(path, {**used, **given}, used)
    return options


def _constraint(
    given: Mapping[str, Any],
    path: str,
    instance: Instance,
    findings: Findings,
) -> SideConstraint | None:
    kind = given.get("kind")
    if not isinstance(kind, str):
        findings.add(f"{path}.kind", f"found {show(kind)}, expected the kind of a side constraint")
        return None
    owner = load_constraint(kind)
    options = _options(
        owner,
        {key: value for key, value in given.items() if key != "kind"},
        path,
        findings,
    )
    if options is None:
        return None
    constraint = owner(options)
    try:
        constraint.check(instance)
    except UsageError as error:
        findings.add(path, str(error))
        return None
    return constraint


def _check_own_constraints(
    document: SolutionDocument, instance: Instance, findings: Findings
) -> None:
    """Check that the constraints of the instance come first, and that none is missing.

    Only a constraint of a kind that is `single` may be replaced by another one of that kind.
    """
    kinds = [given.get("kind") for given in document.constraints]
    index = 0
    for constraint in own_constraints(instance):
        expected = _as_written(constraint.document())
        found = document.constraints[index] if index < len(document.constraints) else None
        if constraint.single and constraint.kind in kinds and found != expected:
            continue  # the caller's replaces it
        if expected in document.constraints[:index]:
            continue  # the instance asks for it twice
        findings.same(
            f"constraints[{index}]", found, expected, "the instance asks for this constraint"
        )
        index += 1


def _as_written(document: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(document))
