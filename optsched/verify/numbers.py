"""The numbers of a solved program, recomputed: objective, bound, gap, prices, certificate,
status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import OptschedError
from optsched.instance.reading import join, listed
from optsched.program import AllocationProgram, LinearArrays
from optsched.registry import load_solver
from optsched.solution import Allocation, Termination, certify_point, dual_bound, gap_of
from optsched.solution.certificate import (
    OPTIMALITY,
    alike,
    dual_residual,
    is_closed,
    noise_at,
    worst_row,
)
from optsched.solution.document import SolutionDocument
from optsched.solution.explanation import describe_row
from optsched.solution.solution import DUAL_ROWS, allocation_metrics
from optsched.solvers import Capability
from optsched.solving.outcome import STOPPED
from optsched.verify.findings import RELATIVE, BoundVerdict, Findings
from optsched.verify.run_record import CLAIM, PROOFS, RESIDUAL, check_residuals
from optsched.verify.subject import RebuiltSolution

if TYPE_CHECKING:
    from optsched.verify.contents import PricedNodes


@dataclass(frozen=True)
class CheckedPoint:
    """The allocation of the file as a point of the program that was built again.

    Attributes
    ----------
    subject : RebuiltSolution
    program : AllocationProgram
    x : FloatArray
        Totals of the class columns.
    findings : Findings
    """

    subject: RebuiltSolution
    program: AllocationProgram
    x: FloatArray
    findings: Findings

    @property
    def document(self) -> SolutionDocument:
        return self.subject.document

    @cached_property
    def value(self) -> float:
        """The program's value at the point."""
        return self.program.value(self.x)

    @cached_property
    def rounding(self) -> float:
        """Rounding error in the file of a concave utility and its tangent, whose terms may
        cancel.
        """
        return self.program.utility.rounding(self.program, self.x) * self._worth

    @cached_property
    def _worth(self) -> float:
        """What one unit of the program's value is in the file."""
        return self.program.units.slope(self.value)

    @cached_property
    def arrays(self) -> LinearArrays:
        """The linear program; of a concave utility its tangent at the point."""
        # A tangent lies above the utility: a bound on it is a bound on the program.
        return (
            self.program.tangent(self.x) if self.program.concave else self.program.to_linear()
        ).arrays

    @cached_property
    def dual(self) -> LinearArrays:
        """The linear program that the duals bound; for a concave utility its tangent at the levels
        that the duals imply.
        """
        if self.priced_space is not None:
            return self.priced_space
        # Tangents at all points are above the utility; the one at the levels of the duals gives the
        # tightest bound.
        return (
            self.program.tangent(self.x, self.duals).arrays if self.program.concave else self.arrays
        )

    @cached_property
    def priced_space(self) -> LinearArrays | None:
        """The program with its nodes, where prices of their contents prove the bound; else None."""
        space = self.program.space
        if space is None or space.complete:
            return None
        from optsched.solving.in_space import bounding_arrays  # few programs know nodes

        return bounding_arrays(self.program, space)

    @cached_property
    def duals(self) -> FloatArray | None:
        """Row duals of the file, None if there are none or if they don't fit the rows."""
        rows = self.arrays if self.priced_space is None else self.priced_space
        return read_duals(self.document, rows, self.findings)

    @cached_property
    def priced_nodes(self) -> PricedNodes | None:
        """The duals of the file with prices of nodes that no contents exceed; None without such
        duals.
        """
        space, arrays = self.program.space, self.priced_space
        if space is None or arrays is None or self.duals is None:
            return None
        from optsched.verify.contents import price_nodes  # few programs know nodes

        return price_nodes(space, arrays, self.duals)

    @cached_property
    def by_knapsacks(self) -> float | None:
        """The bound of an assignment whose agents solve knapsacks at the duals of the file; None if
        the program is no assignment, or the duals alone prove as much.
        """
        if self.duals is None or self.priced_space is not None:
            return None
        relaxed = dual_bound(self.dual, self.duals)
        if relaxed is not None and alike(relaxed, self.value, OPTIMALITY, 0.0):
            return None
        from optsched.solving.knapsack_bound import knapsack_bound  # few programs are assignments

        bound = knapsack_bound(self.program, self.arrays, self.duals)
        return bound if bound is None or relaxed is None or bound < relaxed else None

    @cached_property
    def bound(self) -> float | None:
        """Bound of the program that the duals of the file prove."""
        if self.priced_nodes is not None:
            return dual_bound(self.dual, self.priced_nodes.y)
        bound = self.by_knapsacks
        if bound is None and self.duals is not None:
            bound = dual_bound(self.dual, self.duals)
        pricing = self.subject.pricing
        if bound is None or pricing is None or self.duals is None:
            return bound
        from optsched.solving.column_generation import Duals  # few files have generated columns

        blocks = {block.name: self.duals[block.slice] for block in self.arrays.rows}
        # Columns that were not generated may have positive reduced costs, which are added.
        return bound + pricing.left_out(Duals.of(blocks, self.program))

    @cached_property
    def noise(self) -> float:
        """Differences of the objective below this are rounding."""
        blocks = self.document.duals if self.duals is not None else None
        duals = (
            None
            if blocks is None
            else {name: np.array(block, np.float64) for name, block in blocks.items()}
        )
        of_point = noise_at(self.arrays, self.program.complete(self.x), self.program.terms(self.x))
        return of_point + self.program.worth_of_noise(duals)

    @cached_property
    def reported_noise(self) -> float:
        """`noise`, as the file would write it."""
        worth = self.noise * self._worth
        return worth if np.isfinite(worth) else 0.0

    def reported(self, value: float | None) -> float | None:
        """A value of the program as the file writes it."""
        if value is None:
            return None
        reported = self.program.units.objective(value)
        return reported if np.isfinite(reported) else None


def read_duals(
    document: SolutionDocument, arrays: LinearArrays, findings: Findings
) -> FloatArray | None:
    """Row duals of the file, None if there are none,
    or with findings if they don't fit the rows.

    A block whose duals are all 0 fits any number of rows, as none of them has a part in the bound.
    """
    if document.duals is None:
        return None
    before, rows = len(findings), arrays.rows
    length = {block.name: len(block) for block in rows}
    blocks = {
        name: found if any(found) else [0.0] * length.get(name, 0)
        for name, found in document.duals.items()
        if any(found) or name in length
    }
    for name in [name for name in blocks if name not in length]:
        reason = listed(block.name for block in rows)
        findings.add(
            join("duals", [name]), f"expected no such entry: the blocks of rows are {reason}"
        )
    for block in rows:
        found = blocks.get(block.name)
        if found is None or len(found) != len(block):
            had = "nothing" if found is None else f"{len(found)} numbers"
            findings.add(
                join("duals", [block.name]),
                f"found {had}, expected {len(block)} numbers, one per row",
            )
    if len(findings) > before:
        return None
    parts = [np.array(blocks[block.name], np.float64) for block in rows]
    return np.concatenate([np.zeros(0), *parts])


def check_numbers(point: CheckedPoint) -> BoundVerdict:
    """Check every number that depends on the allocation and the duals."""
    findings = point.findings
    document = point.document
    findings.close(
        "objective",
        document.objective,
        point.reported(point.value),
        "what the allocation gives",
        absolute=point.rounding,
    )
    bound = check_bound(point)
    check_prices(point)
    check_status(point)
    check_certificate(point)
    return bound


def check_metrics(document: SolutionDocument, allocation: Allocation, findings: Findings) -> None:
    """The figures of the allocation."""
    findings.alike(
        "metrics",
        metrics_of_allocation(document.metrics),
        allocation_metrics(allocation),
        "what the allocation gives",
    )


def metrics_of_allocation(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics without the fragmentation, which is checked with the placement that it belongs to."""
    return {name: of for name, of in metrics.items() if name != "fragmentation"}


# --- bound and prices -----------------------------------------------------------------------------


def check_bound(point: CheckedPoint) -> BoundVerdict:
    """Check the bound against the duals, or against the objective if it is only a claim."""
    findings = point.findings
    document = point.document
    before = len(findings)
    method = _check_duals_written(point)
    if point.duals is not None:
        if point.bound is None and document.bound_source == "dual":
            findings.add("bound_source", 'found "dual", but the duals in the file give no bound')
        elif point.bound is not None:
            proven = point.reported(point.bound)
            findings.same(
                "bound_source",
                document.bound_source,
                "dual",
                "the duals in the file give a bound",
            )
            why = "what the duals in the file give"
            if _left_open(point):
                method = "not verifiable"
            elif not findings.close(
                "bound",
                document.bound,
                proven,
                why,
                relative=1e-10,
                absolute=point.rounding,
            ):
                findings.add(
                    "duals", f"they give the bound {proven!r}, the file says {document.bound!r}"
                )
            else:
                method = "verified"
    known = None
    # A point that needs no solver knows no nodes.
    knows_nodes = point.program.space is not None
    if document.bound_source == "solver" and point.program.integral and not knows_nodes:
        x = point.program.known_point()
        value = point.program.value(x)
        if certify_point(point.arrays, point.program.complete(x), value, "none").ok:
            known = point.reported(value)
    check_contradiction(document, findings, point.reported_noise, known)
    return method if len(findings) == before else "not verifiable"


def _left_open(point: CheckedPoint) -> bool:
    """Whether the duals give the bound of the file, but a search for contents that are worth more
    than their nodes cost was cut off.
    """
    if point.priced_nodes is None or point.priced_nodes.finished or point.duals is None:
        return False
    stated, given = point.document.bound, point.reported(dual_bound(point.dual, point.duals))
    return stated is not None and given is not None and alike(stated, given, RELATIVE, 0.0)


def _check_duals_written(point: CheckedPoint) -> BoundVerdict:
    """The verdict on the bound if the file has no duals: it may lack them if there are many rows,
    or if the solver gives none.
    """
    document = point.document
    rows = point.dual.shape[0]
    if document.duals is None and document.bound_source == "solver" and not point.arrays.is_integer:
        check_solver_without_duals(document.solver.name, point.findings)
    if document.duals is not None or document.bound_source != "dual":
        return "consistent"
    if rows <= DUAL_ROWS:
        point.findings.add(
            "duals", f"found null, expected the duals of the {rows} rows, which prove the bound"
        )
    return "not verifiable"


def check_solver_without_duals(name: str, findings: Findings) -> None:
    """The bound of a program without whole jobs comes from duals, unless its solver gives none."""
    try:
        has_duals = Capability.DUALS in load_solver(name).capabilities
    # Whether it gives duals is then unknown: no finding.
    except OptschedError:  # it is not installed here
        return
    if has_duals:
        findings.add(
            "bound_source",
            f'found "solver", expected "dual": no job is whole, and {name} gives duals',
        )


def check_contradiction(
    document: SolutionDocument,
    findings: Findings,
    noise: float = 0.0,
    known: float | None = None,
) -> None:
    """Report a bound that the objective, or that of a ``known`` point, exceeds by more than
    ``noise``.
    """
    bound = document.bound
    points = (
        ("the objective", document.objective),
        ("a point that needs no solver, of the objective", known),
    )
    for point, value in points:
        if bound is None or value is None:
            continue
        excess = value - bound if document.sense == "max" else bound - value
        if excess > max(OPTIMALITY * max(abs(value), abs(bound)), noise):
            words = f"found {bound!r}, which {point} {value!r} contradicts ({document.sense})"
            findings.add("bound", words)


def check_prices(point: CheckedPoint) -> None:
    """Prices are the duals of the capacity rows in the units of the objective."""
    findings = point.findings
    document = point.document
    names = point.program.classes.resources.names
    # Many rows: only the names can be checked.
    if point.program.space is not None:
        findings.alike("prices", document.prices, {}, "the program knows nodes")
    elif document.duals is None and document.bound_source == "dual":
        findings.same("prices", sorted(document.prices), sorted(names), "one price per resource")
    elif document.duals is None:
        findings.alike("prices", document.prices, {})
    elif point.duals is not None:
        worth = point.program.worth_of_duals(point.x)
        capacity = point.duals[point.arrays.row_block("capacity").slice]
        expected = {
            name: float(price) * worth + 0.0
            for name, price in zip(names, capacity.tolist(), strict=True)
        }
        findings.alike("prices", document.prices, expected, "the dual of its capacity row")
        for position, name in enumerate(names):
            if not _near(document.prices.get(name), expected[name]):
                path = f"duals.capacity[{position}]"
                findings.add(
                    path,
                    f"found {capacity[position]!s}, which disagrees with {join('prices', [name])}",
                )


def _near(found: float | None, expected: float) -> bool:
    return found is not None and abs(found - expected) <= RELATIVE * max(abs(found), abs(expected))


# --- status and certificate -----------------------------------------------------------------------


def check_status(point: CheckedPoint) -> None:
    """Check that the status is optimal if the gap is small, or within the gap that was asked for,
    and feasible otherwise.

    For a program without whole jobs only a bound that duals prove counts.
    """
    findings = point.findings
    document = point.document
    gap = gap_of(point.value, point.bound) if point.bound is not None else document.gap
    allowed = max(OPTIMALITY, document.solver.gap or 0.0) if point.program.integral else OPTIMALITY
    value = point.reported(point.value)
    bound = document.bound
    noise = point.reported_noise
    reason = "there is no gap" if gap is None else f"the gap is {gap:.3g}, {allowed:.3g} is allowed"
    if point.bound is not None:
        closed = value is not None and is_closed(
            point.value,
            point.bound,
            allowed * (1 + 1e-6),
            point.noise,
        )
    elif document.bound_source == "solver" and not point.arrays.is_integer:
        closed = False
        reason = CLAIM
    else:
        closed = (
            value is not None
            and bound is not None
            and is_closed(value, bound, allowed * (1 + 1e-6), noise)
        )
    stopped = document.termination in (*STOPPED, Termination.IMPRECISE)
    # The file may claim less than its numbers prove.
    if not (closed and stopped and document.status == "feasible"):
        findings.same("status", str(document.status), "optimal" if closed else "feasible", reason)
    if not closed and document.termination in (Termination.OPTIMAL, Termination.GAP_LIMIT):
        findings.add("termination", f'found "{document.termination}", but {reason}')


def check_certificate(point: CheckedPoint) -> None:
    """Check the certificate against a recomputed one."""
    findings = point.findings
    document = point.document
    stated = point.document.certificate
    found = certify_point(point.arrays, point.program.complete(point.x), point.value, stated.proof)
    residuals = dict(found.residuals)
    if document.duals is None and document.bound_source == "dual" and "duals" in stated.residuals:
        residuals["duals"] = stated.residuals["duals"]  # many rows: not verifiable
    # For an assignment whose agents solve knapsacks, all duals of the jobs are valid
    if point.duals is not None and point.by_knapsacks is None:
        residuals["duals"] = dual_residual(point.dual, point.duals)
        if abs(stated.residuals.get("duals", 0.0) - residuals["duals"]) > RESIDUAL:
            findings.add(
                "duals",
                f"their signs are off by {residuals['duals']:.3g}, the certificate says otherwise",
            )
    proof = PROOFS.get(document.bound_source)
    if proof is None:
        findings.add(
            "bound_source", f'found "{document.bound_source}", but the program itself was solved'
        )
    elif stated.proof not in proof:
        expected = " or ".join(f'"{name}"' for name in proof)
        why = f'the source of the bound is "{document.bound_source}"'
        findings.add("certificate.proof", f'found "{stated.proof}", expected {expected}: {why}')
    problems = [(problem, _row_words(point, problem)) for problem in found.problems]
    check_residuals(stated, residuals, problems, "allocation", findings)


def _row_words(point: CheckedPoint, problem: str) -> str:
    if not problem.startswith("row "):
        return ""
    row = worst_row(point.arrays, point.program.complete(point.x))
    return f": {describe_row(point.program, *row).words}"
