"""Anti-affinity: jobs that may not have GPUs on the same node."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from formulations.constraints.names import Names, job_rows
from optsched.arrays import BoolArray
from optsched.candidates import Classes
from optsched.formulation import ConstraintOptions, SideConstraint
from optsched.instance import Instance


class AntiAffinity(SideConstraint):
    """No two of the jobs are on one node at the same time.

    With a[j,n] the GPUs of job j on node n in a placement, for every node n:

        |{ j in jobs : a[j,n] > 0 }|  <=  1                                          (anti-affinity)

    It adds no rows: fractions of time know no nodes. The placement (`optsched.place`, ``--place``)
    keeps it; jobs of the set may take turns on a node, and never share GPUs. A program of whole
    jobs with `placeable` knows nodes, and keeps it too.

    Options
        jobs   ids of the jobs, two or more.

    References
        A. Verma et al., "Large-scale cluster management at Google with Borg", EuroSys 2015
        (spreading over machines).
    """

    kind = "anti-affinity"
    of_placement = True

    class Options(ConstraintOptions):
        """Options of the anti-affinity."""

        jobs: Names = Field(min_length=2)

    options: Options

    def check(self, instance: Instance) -> None:
        """The jobs must exist, each named once."""
        job_rows(self.kind, self.options.jobs, instance)

    def apart(self, instance: Instance) -> BoolArray:
        apart = np.zeros(len(instance.jobs_table), bool)
        apart[job_rows(self.kind, self.options.jobs, instance)] = True
        return apart

    def rows(self, C: Classes) -> None:
        """None: see the class."""
