"""Unrelated machines, R || Cmax: files of the sets of Fanjul-Peyro and Ruiz."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optsched.arrays import AnyArray
from optsched.instance import FORMAT, Instance
from optsched.libraries.layout import FileLayout, FirstLines, are_whole
from optsched.libraries.numbers import Numbers, at_line


class UnrelatedMachines(NamedTuple):
    """Each job on one machine, without interruption.

    Attributes
    ----------
    duration : array, shape (jobs, machines)
        Seconds.
    """

    duration: AnyArray
    best_known: None = None

    def instance(self, name: str) -> Instance:
        """Machines are pools of one GPU, and a job has an option for each."""
        machines = [f"m{i}" for i in range(self.duration.shape[1])]
        jobs = [
            {
                "id": f"j{j}",
                "options": [
                    {"pool": machine, "gpus": 1, "duration": duration}
                    for machine, duration in zip(machines, row, strict=True)
                ],
            }
            for j, row in enumerate(self.duration.tolist())
        ]
        return Instance.from_document(
            {
                "format": FORMAT,
                "name": name,
                "cluster": {
                    "pools": [
                        {"name": machine, "nodes": 1, "gpus_per_node": 1} for machine in machines
                    ]
                },
                "jobs": jobs,
            }
        )


def recognises(lines: FirstLines) -> bool:
    """The first job's durations begin with the numbers of their machines, 0 and 1."""
    if len(lines) < 3 or len(lines[0]) < 2 or not are_whole(lines[0]):
        return False
    row = lines[2]
    return len(row) > 1 and row[0] == "0" and (len(row) == 2 or row[2] == "1")


def read(text: str) -> list[UnrelatedMachines]:
    """``n m`` in the first line, which may say more; a second line that is not read; then for each
    of n jobs ``0 d 1 d ...``, its duration on each of m machines after the machine's number.
    """
    # Blank lines stay blank, so that errors name the lines of the file
    rows = [number for number, line in enumerate(text.splitlines()) if line.strip()]
    lines = text.splitlines()
    first = Numbers(lines[rows[0]])
    n, m = first.whole("the number of jobs"), first.whole("the number of machines")
    lines[rows[0]] = lines[rows[1]] = ""
    numbers = Numbers("\n".join(lines))
    table = numbers.several(2 * n * m, f"for each of {n} jobs {m} machines with durations")
    machine, duration = table.reshape(n, m, 2).transpose(2, 0, 1)
    wrong = np.argwhere(machine != np.arange(m))
    if len(wrong):
        job, place = wrong[0].tolist()
        found = f"machine {machine[job, place]:g} as number {place + 1} of job {job}"
        raise at_line(numbers.line_of(2 * (job * m + place)), found, f"machine {place}")
    if (duration <= 0).any():
        job, place = np.argwhere(duration <= 0)[0].tolist()
        found = f"0, the duration of job {job} on machine {place}"
        raise at_line(numbers.line_of(2 * (job * m + place) + 1), found, "a duration above 0")
    numbers.end("the durations of the last job")
    return [UnrelatedMachines(duration)]


LAYOUT = FileLayout("unrelated machines", "makespan-unrelated", recognises, read)
