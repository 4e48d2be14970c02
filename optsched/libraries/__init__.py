"""Files of the public benchmark libraries of operations research, as instances.

`optsched.assembly.load` and `default_formulation` look here where a source is no document
(`may_be_library_file`). A file is recognised by its text: `files.LAYOUTS` lists the layouts
(`layout.FileLayout`), each in its own module. The generators of the same problems make their
instances with the same classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names
from optsched.libraries.recognised import (
    STDIN,
    begins_a_document,
    file_and_problem,
    may_be_library_file,
)

if TYPE_CHECKING:
    from optsched.libraries.bin_packing import BinPackingProblem
    from optsched.libraries.files import (
        LibraryProblem,
        formulation_of_file,
        problem_of_bytes,
        problems_in,
        read_problem,
    )
    from optsched.libraries.generalised_assignment import AssignmentProblem
    from optsched.libraries.knapsack import Knapsack
    from optsched.libraries.project_scheduling import ProjectScheduling
    from optsched.libraries.unrelated_machines import UnrelatedMachines

__all__ = [
    "STDIN",
    "AssignmentProblem",
    "BinPackingProblem",
    "Knapsack",
    "LibraryProblem",
    "ProjectScheduling",
    "UnrelatedMachines",
    "begins_a_document",
    "file_and_problem",
    "formulation_of_file",
    "may_be_library_file",
    "problem_of_bytes",
    "problems_in",
    "read_problem",
]

# Loaded when used: most commands read no such file
__getattr__ = lazy_names(
    __name__,
    {
        "BinPackingProblem": ".bin_packing",
        "AssignmentProblem": ".generalised_assignment",
        "Knapsack": ".knapsack",
        "LibraryProblem": ".files",
        "ProjectScheduling": ".project_scheduling",
        "formulation_of_file": ".files",
        "UnrelatedMachines": ".unrelated_machines",
        "problem_of_bytes": ".files",
        "problems_in": ".files",
        "read_problem": ".files",
    },
)
