"""Why an answer is what it is: of a solution as a whole, `explanation`;
of one job, `explain_job`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optsched.arrays import finite
from optsched.assembly import classes_of, formulation_of
from optsched.candidates import Classes
from optsched.display import DisplayedTable, TableColumns, amount, columns_of, first_of
from optsched.formulation import Formulation, Infeasible, by_class
from optsched.instance.arguments import checks_arguments
from optsched.instance.references import job_row
from optsched.program import AllocationProgram, SideRows
from optsched.program.ratio import dual_of
from optsched.solution import Allocation, Solution, Status
from optsched.solution.certificate import OPTIMALITY, alike
from optsched.solution.explanation import assumptions_of, under
from optsched.solution.job_explanation import (
    Binding,
    Payment,
    Way,
    binding_rows,
    left_for,
    payments_of,
    share_of,
    share_of_plan,
    ways_of,
)
from optsched.solution.reduced_costs import ReducedCosts, reduced_costs
from optsched.solution.stage import Stage
from optsched.solving.stages import settled

FORMAT = "optsched-job-explanation/1"
# Smaller shares and worths are rounding.
NEGLIGIBLE = 1e-9


@dataclass(frozen=True, repr=False)
class JobExplanation(DisplayedTable):
    """What a solution says of one job.

    Attributes
    ----------
    solution : Solution
    job : str
    like : int
        Other jobs of its class.
    gets : tuple of mappings
        Its records of the allocation, or of the schedule.
    throughput : float
        steps/s.
    unplaced : str or None
        Why it is in no program.
    why_nothing : str or None
        Why a job that is in the program gets nothing, where that can be said in words.
    pays : tuple of Payment
    binding : tuple of Binding
    ways : tuple of Way
        All columns of its class.
    dropped : tuple of mappings
        Configurations that cannot run: ``pool``, ``gpus``, ``nodes``, ``reason``.
    no_prices : str or None
        Why there are no prices, if so.
    """

    solution: Solution
    job: str
    like: int
    gets: tuple[Mapping[str, Any], ...]
    throughput: float
    unplaced: str | None
    why_nothing: str | None
    pays: tuple[Payment, ...]
    binding: tuple[Binding, ...]
    ways: tuple[Way, ...]
    dropped: tuple[Mapping[str, Any], ...]
    no_prices: str | None

    def _headline(self) -> str:
        why = self.unplaced or self.why_nothing
        gets = f"{amount(self.throughput)} steps/s" if self.gets else "nothing"
        return f"of {self.job}: {gets}" + (f" ({why})" if why else "")

    @property
    def best_alternative(self) -> Way | None:
        """The unused column that would cost least to use; None without one, or without prices."""
        unused = [way for way in self.ways if not way.in_use and way.gain is not None]
        return max(unused, key=lambda way: way.gain or 0.0, default=None)

    def _facts(self) -> Mapping[str, str]:
        best = self.best_alternative
        return {
            "binding": first_of([binding.words for binding in self.binding], 3),
            "next best": "" if best is None else best.words,
            "no prices": self.no_prices or "",
        }

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The ways to run: rate, fraction of the time,
        and what all the job's time there would change.
        """
        ways = self.ways[:first]
        return columns_of(
            [
                {
                    **way.configuration,
                    "rate": way.rate,
                    "fraction": way.fraction,
                    "reduced_cost": way.gain,
                }
                for way in ways
            ]
        )

    def to_document(self) -> dict[str, Any]:
        """The explanation in the format ``optsched-job-explanation/1``."""
        solution = self.solution
        best = self.best_alternative
        paid = [payment.paid for payment in self.pays if payment.paid is not None]
        return {
            "format": FORMAT,
            "instance": solution.instance.identity,
            "formulation": solution.formulation,
            "status": str(solution.status),
            "sense": solution.sense,
            "objective": finite(solution.objective),
            "job": self.job,
            "like": self.like,
            "unplaced": self.unplaced,
            "why_nothing": self.why_nothing,
            "gets": [dict(record) for record in self.gets],
            "throughput": self.throughput,
            "pays": [payment.to_document() for payment in self.pays],
            "paid": sum(paid, 0.0) if self.no_prices is None else None,
            "binding": [binding.to_document() for binding in self.binding],
            "columns": [way.to_document() for way in self.ways],
            "best_alternative": None if best is None else self.ways.index(best),
            "dropped": [dict(record) for record in self.dropped],
            "no_prices": self.no_prices,
            "conflicts": [conflict.words for conflict in solution.conflicts],
        }


@checks_arguments
def explain_job(solution: Solution, job: str) -> JobExplanation:
    """Say why a job gets what it gets in a solution.

    Parameters
    ----------
    solution : Solution
        As `optsched.solve` returns it.
    job : str
        Its id.

    Returns
    -------
    JobExplanation
        Rates, fractions and reduced costs of each way to run, and what would change them.

    Raises
    ------
    UsageError
        The instance has no such job; the message names the closest one.
    """
    row = job_row(solution.instance.jobs_table.names, job, solution.instance.name)
    formulation = formulation_of(solution)
    C = classes_of(solution, formulation)
    absent = dict(solution.unplaced).get(job)
    bare = JobExplanation(
        solution=solution,
        job=job,
        like=int(C.count[C.of_job[row]]) - 1 if absent is None else 0,
        gets=tuple(_records(solution, row)),
        throughput=solution.throughput.get(job, 0.0),
        unplaced=absent,
        why_nothing=None,
        pays=(),
        binding=(),
        ways=(),
        dropped=tuple(_dropped(solution, row)),
        no_prices=_why_no_prices(solution),
    )
    if absent is not None:
        return bare
    program = _program(formulation, C, solution.stages)
    if solution.allocation is None or solution.schedule is not None or program is None:
        ways = _ways_without_program(solution, formulation, C, row)
        return replace(bare, ways=ways, why_nothing=_why_nothing(solution, job, bare.gets, ways))
    return _with_program(bare, formulation, program, solution.allocation, row)


def _ways_without_program(
    solution: Solution, formulation: Formulation, C: Classes, row: int
) -> tuple[Way, ...]:
    """The ways to run of a job in a plan, by a rule, or where there is no allocation."""
    allocation, schedule = solution.allocation, solution.schedule
    share = None if allocation is None else share_of(allocation, row)
    if schedule is not None:
        share = share_of_plan(schedule, row)
    planned = formulation.plans_ahead or schedule is not None
    return ways_of(C, row, share, None, 1.0, planned=planned)


def _with_program(
    bare: JobExplanation,
    formulation: Formulation,
    program: AllocationProgram,
    allocation: Allocation,
    row: int,
) -> JobExplanation:
    """The explanation with what the job pays, which rows bind it, and the costs of its ways."""
    solution, C = bare.solution, allocation.classes
    costs = None if bare.no_prices else _costs(solution, formulation, program)
    if costs is None and bare.no_prices is None:
        bare = replace(
            bare,
            no_prices=(
                "The duals of this solution are not those of one program: there are no prices."
            ),
        )
    x = formulation.optimum(C, allocation.x, by_class(C, solution.figures))
    share = share_of(allocation, row)
    worth = program.worth_of_duals(x)
    left = left_for(allocation, share) if allocation.integral else None
    ways = ways_of(C, row, share, costs, worth, left=left)
    return replace(
        bare,
        pays=payments_of(C, share, {} if costs is None else solution.prices),
        binding=binding_rows(program, x, row, share, costs, worth),
        ways=ways,
        why_nothing=_why_nothing(solution, bare.job, bare.gets, ways),
    )


def _why_nothing(
    solution: Solution, job: str, gets: Sequence[Mapping[str, Any]], ways: Sequence[Way]
) -> str | None:
    """Of infeasible instances, plans and whole jobs; prices say what fractions cost."""
    if gets:
        return None
    if solution.status is Status.INFEASIBLE:
        return under(assumptions_of(solution.conflicts), "not all requirements can be met")
    if solution.allocation is None:
        return "no answer was found"
    proven = solution.status is Status.OPTIMAL
    if solution.schedule is not None:
        words = "no plan with it is worth more" if proven else "the best plan found leaves it out"
        return "; ".join([words, *(why for name, why in solution.declined if name == job)])
    if not solution.allocation.integral:
        return None
    if all(way.lacks for way in ways):
        words = "there is no room for it beside the other jobs"
        return words + (", and no other choice of jobs is worth more" if proven else "")
    return "there is room for it, but it would not be worth more"


def _why_no_prices(solution: Solution) -> str | None:
    if solution.allocation is None:
        return "Nothing was found: there are no prices."
    if solution.status is not Status.OPTIMAL:
        return "Only an optimal solution has prices."
    if solution.schedule is not None:
        return "A plan of whole jobs has no prices."
    if solution.duals is None:
        return "An integer program or a rule has no prices."
    if solution.extended:
        return "Extra rows (extend) cannot be made again: what they cost is not known."
    return None


def _program(
    formulation: Formulation, C: Classes, stages: tuple[Stage, ...]
) -> AllocationProgram | None:
    """The last program of an allocation,
    None for a plan or where a side constraint cannot be met.
    """
    try:
        program = formulation.program(C)
    except Infeasible:
        return None
    return settled(program, stages) if isinstance(program, AllocationProgram) else None


def _costs(
    solution: Solution, formulation: Formulation, program: AllocationProgram
) -> ReducedCosts | None:
    """Reduced costs, if the duals of the solution prove its bound in this program."""
    assert solution.duals is not None and solution.allocation is not None
    C = program.classes
    x = formulation.optimum(C, solution.allocation.x, by_class(C, solution.figures))
    faster = _side_rows_when_faster(formulation, C, solution.stages)
    costs = reduced_costs(program, solution.duals, x, faster)
    if costs is None or solution.bound is None:
        return None
    worth = program.units.slope(program.value(x))
    # Prices of a program that proves another bound would be prices of something else.
    agree = alike(
        program.units.objective(costs.bound), solution.bound, OPTIMALITY, costs.noise * worth
    )
    return costs if agree else None


def _side_rows_when_faster(
    formulation: Formulation, C: Classes, stages: tuple[Stage, ...]
) -> tuple[SideRows, ...]:
    """The side rows if every rate were twice as high."""
    faster = replace(C, rate_a=2.0 * C.rate_a, rate_b=2.0 * C.rate_b, throughput=2.0 * C.throughput)
    program = formulation.program(faster)
    assert isinstance(program, AllocationProgram)
    return settled(program, stages).side


def _records(solution: Solution, row: int) -> list[dict[str, Any]]:
    """The records of one job."""
    name = solution.instance.jobs_table.names[row]
    if solution.schedule is not None:
        return [record for record in solution.schedule.to_records() if record["job"] == name]
    if solution.allocation is None:
        return []
    return [
        record
        for record in solution.allocation.to_records()
        if name in (record.get("job"), *record.get("jobs", ()))
    ]


def _dropped(solution: Solution, row: int) -> list[dict[str, Any]]:
    candidates = solution.candidates
    kind = int(candidates.kinds.of_job[row])
    if kind < 0:
        return []
    pools = solution.instance.cluster.pools
    columns = candidates.dropped
    return [
        {
            "pool": None if columns.pool[number] < 0 else pools[int(columns.pool[number])].name,
            "gpus": int(columns.gpus[number]),
            "nodes": int(columns.nodes[number]),
            "reason": words,
        }
        for number, words in candidates.dropped_of(kind)
    ]


# --- a solution as a whole ------------------------------------------------------------------------


def explanation(solution: Solution) -> dict[str, Any]:
    """The explanation as plain data; what does not exist is empty."""
    # Duals of another point say nothing
    optimal = solution.status is Status.OPTIMAL
    return {
        "format": "optsched-explanation/1",
        "instance": solution.instance.identity,
        "formulation": solution.formulation,
        "status": str(solution.status),
        "sense": solution.sense,
        "objective": solution.objective,
        "bound": solution.bound,
        "prices": dict(solution.prices) if optimal else {},
        "holding": holding_jobs(solution) if optimal else [],
        "requirements": priced_requirements(solution) if optimal else [],
        "conflicts": [conflict.words for conflict in solution.conflicts],
        "assumptions": [assumption.words for assumption in assumptions_of(solution.conflicts)],
        "unplaced": [{"job": job, "reason": reason} for job, reason in solution.unplaced],
    }


def holding_jobs(solution: Solution) -> list[dict[str, Any]]:
    """Classes of jobs at the smallest level, largest share first.

    A class's share is its dual of the rows ``levels`` times n_k, which sum to 1: the part of an
    improvement by 1 % that the objective would see if these jobs ran 1 % faster everywhere.
    """
    if solution.duals is None or "levels" not in solution.duals or solution.allocation is None:
        return []
    C = solution.allocation.classes
    # A dual is per class; its n_k jobs hold the level together
    share = np.abs(solution.duals["levels"]) * C.count
    share = share / max(float(share.sum()), 1e-300)
    rate = solution.allocation.throughput
    names = C.instance.jobs_table.names
    order = np.argsort(-share, kind="stable")
    return [
        {
            "job": names[int(C.first[k])],
            "jobs": int(C.count[k]),
            "share": float(share[k]),
            "rate": float(rate[int(C.first[k])]),
        }
        for k in order[share[order] > NEGLIGIBLE].tolist()
    ]


def priced_requirements(solution: Solution) -> list[dict[str, Any]]:
    """Rows of side constraints with a dual:
    what loosening them by 1 % would be worth in objective units.
    """
    if solution.duals is None or solution.allocation is None:
        return []
    program = formulation_of(solution).program(solution.allocation.classes)
    # A plan takes no side constraints
    if not isinstance(program, AllocationProgram):
        return []
    program = settled(program, solution.stages)
    worth = abs(program.worth_of_duals(solution.allocation.x))
    parts = []
    for side in program.side:
        if side.name not in solution.duals:
            continue
        dual = dual_of(solution.duals, side.name, side.lower, side.upper)
        # A row with a lower bound asks for it, any other limits by its upper bound
        asked = np.where(np.isfinite(side.lower), side.lower, side.upper)
        gain = 0.01 * np.abs(dual * asked) * worth
        parts += [
            {"constraint": side.name, "requirement": side.describe(row), "worth": float(gain[row])}
            for row in np.flatnonzero(gain > NEGLIGIBLE * 0.01).tolist()
        ]
    return sorted(parts, key=lambda item: -float(item["worth"]))
