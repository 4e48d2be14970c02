"""A program's solution (``optsched-program-solution/1``) against its program,
every number recomputed.

As for solutions of instances, two fields of the file are trusted: the bound of a program without
duals, and the gap that was asked for. Columns and rows are matched by name; those that the file
omits are 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import InvalidInput
from optsched.instance.reading import join, show, validate
from optsched.program import LinearArrays
from optsched.solution import Status, certify_point, dual_bound
from optsched.solution.certificate import OPTIMALITY, alike, dual_residual, is_closed, noise_at
from optsched.solution.document import ProgramSolutionDocument
from optsched.solution.explanation import Explanation
from optsched.solvers import Limits
from optsched.solving.infeasibility import Analyst, check_claim
from optsched.verify.findings import BoundVerdict, Findings, Verification
from optsched.verify.nothing import are_shown_to_conflict, check_infeasible
from optsched.verify.numbers import check_solver_without_duals
from optsched.verify.run_record import (
    PROOFS,
    check_gap,
    check_own_certificate,
    check_reproducible,
    check_residuals,
    check_termination,
    check_unproved,
)


@dataclass(frozen=True)
class NamedProgram:
    """A program, and the unique names of its columns and rows."""

    name: str
    arrays: LinearArrays
    columns: Sequence[str]
    rows: Sequence[str]

    def facts(self) -> dict[str, Any]:
        """What a solution file says of it."""
        rows, columns = self.arrays.shape
        return {
            "name": self.name,
            "rows": rows,
            "columns": columns,
            "integer": int(self.arrays.integer.sum()),
            "nonzeros": int(self.arrays.A.nnz),
            "sense": "max" if self.arrays.maximise else "min",
        }


def check_program(program: NamedProgram, document: Mapping[str, Any]) -> Verification:
    """Check the solution of a program; errors are findings."""
    findings = Findings()
    try:
        read = validate(ProgramSolutionDocument, document)
    except InvalidInput as error:
        findings.add(error.path, f"found {error.found}, expected {error.expected}")
        return Verification(tuple(findings.items), "not verifiable")
    with np.errstate(all="ignore"):
        bound = _Check(program, read, findings).run()
    return Verification(tuple(findings.items), bound, has_bound=read.bound is not None)


@dataclass(frozen=True)
class _Check:
    program: NamedProgram
    document: ProgramSolutionDocument
    findings: Findings

    def run(self) -> BoundVerdict:
        """All checks; what the bound is worth."""
        document = self.document
        findings = self.findings
        before = len(self.findings)
        findings.alike(
            "program",
            document.program.model_dump(),
            self.program.facts(),
            "what this program has",
        )
        check_gap(document, findings, "what they give")
        check_reproducible(document, findings)
        check_termination(document, findings)
        check_own_certificate(document, findings)
        found = document.status in (Status.OPTIMAL, Status.FEASIBLE)
        # The bound of a file with other errors is not verifiable.
        bound = self._check_point() if found else self._check_nothing()
        return bound if len(findings) == before else "not verifiable"

    def _vector(
        self,
        field: str,
        given: Mapping[str, float],
        names: Sequence[str],
        what: str,
    ) -> FloatArray | None:
        """Numbers by name in the order of the program;
        None with findings for a name that it lacks.
        """
        place = {name: number for number, name in enumerate(names)}
        for name in [name for name in given if name not in place]:
            self.findings.add(
                join(field, [name]), f"found {given[name]!r}, but the program has no such {what}"
            )
        if not place.keys() >= given.keys():
            return None
        vector = np.zeros(len(names))
        vector[[place[name] for name in given]] = list(given.values())
        return vector

    def _check_point(self) -> BoundVerdict:
        document = self.document
        findings = self.findings
        arrays = self.program.arrays
        findings.alike("conflicts", document.conflicts, [])
        if document.values is None:
            findings.add("values", f"found null, expected a point: the status is {document.status}")
            return "not verifiable"
        x = self._vector("values", document.values, self.program.columns, "column")
        if x is None:
            return "not verifiable"
        value = arrays.objective(x)
        noise = noise_at(arrays, x)
        stated = document.certificate
        findings.close(
            "objective",
            document.objective,
            value,
            "what the values give",
            absolute=noise,
        )
        certificate = certify_point(arrays, x, value, stated.proof)
        bound, residuals, method = self._check_bound(noise)
        residuals = {**certificate.residuals, **residuals}
        problems = [(problem, "") for problem in certificate.problems]
        check_residuals(stated, residuals, problems, "values", findings)
        if stated.proof not in PROOFS.get(document.bound_source, ()):
            reason = f'found "{stated.proof}" of a bound from "{document.bound_source}", which none gives'
            findings.add("certificate.proof", reason)
        # Only a search over whole numbers may stop at a gap.
        accepted = max(OPTIMALITY, (document.solver.gap or 0.0) if arrays.is_integer else 0.0) * (
            1 + 1e-6
        )
        closed = bound is not None and is_closed(value, bound, accepted, noise)
        reason = (
            "there is no bound"
            if bound is None
            else f"the bound is {bound!r}, {accepted:.3g} is allowed"
        )
        findings.same("status", str(document.status), "optimal" if closed else "feasible", reason)
        excess = 0.0 if bound is None else value - bound if arrays.maximise else bound - value
        if bound is not None and excess > 0 and not alike(value, bound, OPTIMALITY, noise):
            findings.add(
                "bound", f"found {document.bound!r}, which the objective {value!r} contradicts"
            )
        return method

    def _check_bound(self, noise: float) -> tuple[float | None, dict[str, float], BoundVerdict]:
        """The bound, from the duals where there are any; the residual of their signs;
        what the bound is worth.
        """
        document = self.document
        findings = self.findings
        arrays = self.program.arrays
        source = document.bound_source
        if document.duals is None:
            if source == "dual":
                findings.add(
                    "duals", "found null, expected the duals of the rows, which prove the bound"
                )
                return document.bound, {}, "not verifiable"
            if source == "solver" and not arrays.is_integer:
                check_solver_without_duals(document.solver.name, findings)
                # A claim, which proves no optimum of a continuous program.
                return (
                    None,
                    {},
                    "consistent",
                )
            return document.bound, {}, "consistent"
        y = self._vector("duals", document.duals, self.program.rows, "row")
        if y is None:
            return document.bound, {}, "not verifiable"
        bound = dual_bound(arrays, y)
        residual = {"duals": dual_residual(arrays, y)}
        if bound is None:
            if source == "dual":
                findings.add(
                    "bound_source", 'found "dual", but the duals in the file give no bound'
                )
            return document.bound, residual, "consistent"
        findings.same("bound_source", source, "dual", "the duals in the file give a bound")
        why = "what the duals in the file give"
        findings.close("bound", document.bound, bound, why, relative=1e-10, absolute=noise)
        return bound, residual, "verified"

    # --- without a point --------------------------------------------------------------------------

    def _check_nothing(self) -> BoundVerdict:
        document = self.document
        findings = self.findings
        arrays = self.program.arrays
        why = f"the status is {document.status}"
        for name in ("values", "objective", "duals"):
            if getattr(document, name) is not None:
                findings.add(name, f"found something, expected null: {why}")
        if document.status is not Status.LIMIT:
            findings.same("bound", document.bound, None, why)
        if document.status is Status.INFEASIBLE:
            return self._check_infeasible()
        check_unproved(document, arrays, findings)
        return "consistent"

    def _check_infeasible(self) -> BoundVerdict:
        document = self.document
        findings = self.findings
        arrays = self.program.arrays
        checked = check_claim(arrays, Analyst(Limits()))
        if not check_infeasible(
            document.certificate,
            checked,
            findings,
            "there is a point that meets every row",
        ):
            return "not verifiable"
        # Rows of an integer program may conflict without a proof by duals; that is not checked
        # again.
        linear = checked.needed is not None or not arrays.is_integer
        place = {name: number for number, name in enumerate(self.program.rows)}
        for index, name in enumerate(document.conflicts):
            if name not in place:
                findings.add(
                    f"conflicts[{index}]", f"found {show(name)}, expected the name of a row"
                )
        rows = np.array(
            sorted({place[name] for name in document.conflicts if name in place}), np.int64
        )
        if not document.conflicts and document.explanation is Explanation.IRREDUCIBLE:
            findings.add("conflicts", "found none, expected the rows that conflict")
        elif (
            linear
            and 0 < len(rows) == len(set(document.conflicts))
            and not are_shown_to_conflict(arrays.relaxed(), rows)
        ):
            findings.add(
                "conflicts", "nothing shows that these rows conflict: some that do may be missing"
            )
        return "verified" if document.certificate.proof == "dual" else "consistent"
