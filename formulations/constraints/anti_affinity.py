"""Anti-affinity: jobs that may not have GPUs on the same node."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from optsched.candidates import Classes
from optsched.errors import UsageError
from optsched.formulation import FormulationOptions, SideConstraint
from optsched.instance.reading import show


class AntiAffinity(SideConstraint):
    """No two of the jobs are on one node at the same time.

    With a[j,n] the GPUs of job j on node n in a placement, for every node n:

        |{ j in jobs : a[j,n] > 0 }|  <=  1                                          (anti-affinity)

    Nobody is placed on a node in a program over fractions of time, so the constraint adds no rows to it: jobs of the
    set may take turns on a node, and run at once on different ones. The placement keeps it (`optsched.place`,
    ``--place``), and refuses what does not fit. Two jobs of the set that share GPUs are refused always.

    Options
        jobs   ids of the jobs, two or more.

    References
        A. Verma et al., "Large-scale cluster management at Google with Borg", EuroSys 2015 (spreading over machines).
    """

    kind = "anti-affinity"
    of_placement = True

    class Options(FormulationOptions):
        """Options of the anti-affinity."""

        jobs: list[str] = Field(min_length=2)

    def rows(self, C: Classes) -> None:
        """None, but the jobs must exist, each named once."""
        options: Any = self.options
        names = C.instance.jobs_table.names
        for place, name in enumerate(options.jobs):
            try:
                names.index(name)
            except KeyError:
                raise UsageError(
                    f"anti-affinity: jobs[{place}]: found {show(name)}, expected the id of a job of the instance"
                ) from None
            if name in options.jobs[:place]:
                raise UsageError(
                    f"anti-affinity: jobs[{place}]: found {show(name)} a second time, expected each job once"
                )
