"""What optsched does today, for the golden tests: ``python tests/golden/record.py [commands] [objectives] [stored]``.

Record again only when a behaviour is changed on purpose, and say so in the commit. ``stored`` are files of the code of
their day: the point of them is that newer code reads them, so they are recorded again only where a format gained
something. Without a word, commands and objectives are recorded.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import optsched
from optsched import registry
from optsched.cli.main import main
from optsched.errors import OptschedError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STORED = HERE / "stored"
ORACLES = ROOT.parent / "shared" / "oracles"
DOCUMENTS = [
    "README.md",
    *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))),
]
READ, WRITE = "tests/golden/read.md", "tests/golden/write.md"

# --- commands ------------------------------------------------------------------------------------------------------


def lines_of(page: str) -> list[str]:
    """The shell commands of a page, without comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if not line.startswith("#")]


PAGES = [page for page in (*DOCUMENTS, READ) if lines_of(page)]


def files_of(page: str) -> dict[str, str]:
    """The files in CSV and JSON that a page names and shows: name -> text."""
    shown = re.findall(
        r"`(\w+\.(?:csv|json))`[^\n]*:\n\n```(?:csv|json)\n(.*?)^```$",
        (ROOT / page).read_text(),
        re.MULTILINE | re.DOTALL,
    )
    return dict(shown)


def outputs(page: str, folder: Path) -> list[tuple[str, str]]:
    """Each command of a page, run in a folder one after the other, and what it prints, masked."""
    if page == READ:
        shutil.copytree(STORED, folder, dirs_exist_ok=True)
    for name, text in files_of(page).items():
        (folder / name).write_text(text)
    with chdir(folder):
        return [(line, masked(line, printed(line))) for line in lines_of(page)]


def printed(line: str) -> str:
    """The standard output of a command, which must succeed, or find what it is asked about infeasible."""
    paper, (program, *arguments) = io.StringIO(), shlex.split(line)
    assert program == "optsched", line
    with redirect_stdout(paper):
        code = main(arguments)
    assert code == (4 if "@infeasible" in line else 0), f"{line}: exit code {code}"
    return paper.getvalue()


TIMES = r"(?:Times|Performance profile|\w+_ms\b|wall_s|total_s)"
"""How the parts of a profile that are about time begin."""
CLOCKED = r'"(?:seconds|version|\w+_s|\w+_ms|peak_memory_mb\w*|times|time_pairs|timings)": '
"""Keys of JSON whose values are times, memory or versions."""


def masked(line: str, text: str) -> str:
    """A command's output without what differs from run to run, or between machines that both are right.

    Times, memory and versions become ``#``. Numbers below 1e-6, such as residuals and gaps, become 0, and numbers have
    nine digits. As times change the width of columns, spaces and rules are one or two characters long.
    """
    text = re.sub(r"^(time  +).*(?:\n {8,}\S.*)*", r"\1#", text, flags=re.MULTILINE)
    text = re.sub(r"^(solver  +[\w-]+) [\d.]+", r"\1 #", text, flags=re.MULTILINE)
    # The last digit of a sum, and so the way of simplex, differs between processors.
    text = re.sub(
        r"^solver  .*(?:\n {8,}\S.*)*",
        lambda m: re.sub(r"[\d,]+(\s+)(iteration|node)s?\b", r"#\1\2s", m[0]),
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(r"(?<=journal written ).*(?= ago)", "#", text)
    text = re.sub(
        CLOCKED + r"(?:\{[^}]*\}|\[[^]]*\]|[^,}\n]+)", lambda m: m[0].split(":")[0] + ": #", text
    )
    text = re.sub(r"(?<![\w.])-?\d[\d.]*(?:e[+-]\d+)?(?![\w.-])", lambda m: short(m[0]), text)
    parts = re.split(r"\n\n", text)
    for i, part in enumerate(parts):
        head, *rows = part.split("\n")
        if re.match(TIMES, head) and "optsched profile" in line:
            parts[i] = f"{head}\n#"
        elif re.search(r" (?:time|solved in)$", head):  # a table whose last column is a time
            parts[i] = "\n".join([head, *(re.sub(r"[\d.]+ \w+$", "#", row) for row in rows)])
    return re.sub(r" {3,}", "  ", re.sub("─+", "─", "\n\n".join(parts)))


def short(number: str) -> str:
    """A number with nine digits at most, and 0 for what is below 1e-6."""
    if re.fullmatch(r"-?\d{1,9}", number) or number.count(".") > 1 or number.endswith("."):
        return number
    value = float(number)
    if abs(value) < 1e-6:
        return "0"
    return f"{value:.9g}" if len(number) > 9 else number


def recorded_commands(page: str) -> Path:
    return HERE / "commands" / f"{Path(page).stem}.txt"


def read_commands(page: str) -> list[tuple[str, str]]:
    """The commands of a page and what they printed when they were recorded."""
    _, *parts = re.split(r"^\$ ", recorded_commands(page).read_text(), flags=re.MULTILINE)
    return [(line, output[:-1]) for line, _, output in (part.partition("\n") for part in parts)]


def record_commands() -> None:
    for page in PAGES:
        with tempfile.TemporaryDirectory() as folder:
            text = "".join(f"$ {line}\n{output}\n" for line, output in outputs(page, Path(folder)))
        recorded_commands(page).parent.mkdir(exist_ok=True)
        recorded_commands(page).write_text(text)


# --- objectives ----------------------------------------------------------------------------------------------------

OBJECTIVES = HERE / "objectives.json"
FORMULATIONS = sorted(
    {registry.load_formulation(name).name for name in registry.names("formulation")}
)


def instances() -> dict[str, str]:
    """Every instance that ships and, where the oracles are, every one of theirs: name -> what `load` takes."""
    shipped = {
        f"@{path.stem}": f"@{path.stem}" for path in sorted((ROOT / "instances").glob("*.json"))
    }
    return shipped | {path.name: str(path) for path in sorted(ORACLES.glob("*/*.instance.json"))}


def wanted(name: str) -> list[str]:
    """Formulations that an instance is solved with: all that are proven optimal within seconds.

    Schedules of machines are searched where that ends soon. Of the oracles, three formulations would take most of the
    time, and say nothing that the instances that ship do not say.
    """
    slow = set()
    if name in ("@large", "@leases", "@packing", "@smd"):
        slow = {"makespan-unrelated"}
    elif name[0] != "@":
        slow = {"makespan-unrelated", "partial-allocation", "lease"}
    return [formulation for formulation in FORMULATIONS if formulation not in slow]


def answers(name: str, source: str) -> dict[str, Any]:
    """Per formulation: status, objective, whether the certificate is right, where its bound is from; or the error."""
    instance, found = optsched.load(source), {}
    for formulation in wanted(name):
        try:
            # Ends a test that hangs; far above what any of them takes, beside other work too.
            solution = optsched.solve(instance, formulation, time_limit=1800)
        except OptschedError as error:
            found[formulation] = type(error).__name__
        else:
            certificate = solution.certificate
            found[formulation] = [
                str(solution.status),
                solution.objective,
                certificate.ok,
                certificate.proof,
            ]
    return found


def close(first: Any, second: Any, relative: float = 1e-9) -> bool:
    """Whether two JSON values are equal, numbers to nine digits."""
    if isinstance(first, float) and isinstance(second, int | float):
        return math.isclose(first, second, rel_tol=relative, abs_tol=1e-12)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(close, first, second))
    return bool(first == second)


def record_objectives() -> None:
    assert ORACLES.is_dir(), f"no oracles at {ORACLES}"
    rows = [
        f"{json.dumps(name)}: {json.dumps(answers(name, source))}"
        for name, source in instances().items()
    ]
    OBJECTIVES.write_text("{\n" + ",\n".join(rows) + "\n}\n")


# --- stored files --------------------------------------------------------------------------------------------------

POLICY = {
    "formulation": "water-filling",
    "hysteresis": 1.0,
    "max_moves": 3,
    "patience": 8,
    "time_limit": 60.0,
}
POLICIES = {
    "max-min-fairness": ("@quickstart", {"formulation": "max-min-fairness", "patience": 10}),
    "tiresias": ("@quickstart", {"ranking": "tiresias", "options": {"knob": 4.0}}),
    "lease": ("@leases", {"formulation": "lease"}),
    "learnt": ("instances/online.json", {"formulation": "max-throughput"}),
}
"""Journal -> instance and policy."""
SWEEP = {
    "format": "optsched-sweep/1",
    "instances": ["@quickstart", {"generate": "cluster", "options": {"jobs": 8}, "seeds": "1..2"}],
    "formulations": ["makespan", {"name": "max-throughput", "options": {"integral": True}}],
    "solvers": ["highs"],
    "time_limit": "60s",
}
FLEET = {
    "format": "optsched-instance/1",
    "name": "fleet",
    "cluster": {"pools": [{"name": "new", "gpu": "A100", "nodes": 2, "gpus_per_node": 4},
                          {"name": "old", "gpu": "T4", "nodes": 2, "gpus_per_node": 4}]},
    "workloads": {name: {"parameters": {"profile": name, "batch_per_gpu": 16}} for name in ("lm", "net", "small")},
    "jobs": [{"id": f"{name}-{gpus}", "workload": name, "gpus": gpus, "steps": 1000}
             for name in ("lm", "net", "small") for gpus in (1, 2, 4)],
}  # fmt: skip
STATED = FLEET | {
    "name": "stated",
    "workloads": {name: {"throughput": {"new": {"1": rate}, "old": {"1": rate / 4}}}
                  for name, rate in (("lm", 10.0), ("net", 15.0), ("small", 45.0))},
    "jobs": [{"id": f"{name}-{number}", "workload": name, "steps": 1000}
             for name in ("lm", "net", "small") for number in range(8)],
}  # fmt: skip


def profiles() -> str:
    """Seconds of steps by a law of our own, with a ripple in the place of noise."""
    lines = ["workload,gpu,gpus,nodes,samples,seconds"]
    for w, name in enumerate(("lm", "net", "small")):
        for gpu, slow in (("A100", 1.0), ("T4", 5.0)):
            for samples in (8, 16, 32):
                for gpus, nodes in ((1, 1), (2, 1), (4, 1), (4, 2), (8, 2)):
                    seconds = (0.02 + 0.004 * (w + 1) * samples * slow) + 0.01 * (
                        w + 1
                    ) * math.log2(gpus * nodes)
                    ripple = 1 + 0.01 * math.sin(7.0 * len(lines))
                    lines.append(f"{name},{gpu},{gpus},{nodes},{samples},{seconds * ripple:.6f}")
    return "\n".join(lines) + "\n"


LOADS = {"lm": 0.9, "net": 0.6, "small": 0.2, "vae": 0.1, "gan": 0.5}
RATES = {"A100": 9.0, "T4": 2.0}


def pairs() -> str:
    """Rates of jobs beside each other on one GPU, by a law of our own."""
    lines = ["gpu,first,second,rate_first,rate_second"]
    for gpu, rate in RATES.items():
        for first, second in combinations_with_replacement(LOADS, 2):
            kept = 0.95 * min(1.0, (1.2 if gpu == "A100" else 1.0) / (LOADS[first] + LOADS[second]))
            lines.append(
                f"{gpu},{first},{second},{rate * kept / LOADS[first]:.4f},{rate * kept / LOADS[second]:.4f}"
            )
    return "\n".join(lines) + "\n"


def alone() -> str:
    """Rates of the same jobs alone."""
    lines = [
        f"{gpu},{name},{rate / load:.6f}"
        for gpu, rate in RATES.items()
        for name, load in LOADS.items()
    ]
    return "\n".join(["gpu,workload,rate", *lines]) + "\n"


def keep_journal(folder: Path, source: str, policy: dict[str, Any]) -> None:
    """A journal of five rounds in which jobs come, leave, are measured, and a node fails and returns."""
    instance = optsched.load(source)
    now, first = instance.now, instance.jobs[0]
    node = instance.cluster.pools[0].node_name(0)
    with optsched.Scheduler(
        instance, policy, journal=folder, snapshot_every=2, keep=2
    ) as scheduler:
        for number in range(5):
            plan = scheduler.solve(now=now)
            if number == 0:
                rates = {pool.name: 2.0 for pool in instance.cluster.pools}
                scheduler.submit({"id": "late", "gpus": 1, "steps": 50.0, "throughput": rates})
            elif number == 1:
                scheduler.node_down(node)
                scheduler.update(first.id, weight=2.0)
            elif number == 2:
                scheduler.node_up(node)
                scheduler.complete("late")
            elif plan.keep:
                scheduler.observe(plan.keep[0].job, throughput=3.0)
            now += instance.round


def store_solutions(folder: Path) -> None:
    """One solution of each formulation, on the instance that ships with fewest jobs that it has an answer for."""
    sources = sorted(instances_that_ship(), key=lambda source: len(optsched.load(source).jobs))
    for formulation in FORMULATIONS:
        for source in sources:
            try:
                solution = optsched.solve(source, formulation, time_limit=60)
            except OptschedError:
                continue
            if solution.status == "optimal" or solution.certificate.proof == "rule":
                optsched.write_solution(solution, folder / f"{formulation}.json")
                break
        else:
            raise AssertionError(f"no instance for {formulation}")


def instances_that_ship() -> list[str]:
    return [name for name in instances() if name[0] == "@" and name != "@infeasible"]


def record_stored() -> None:
    shutil.rmtree(STORED, ignore_errors=True)
    for name in ("solutions", "instances", "traces", "states", "plans", "models", "journals"):
        (STORED / name).mkdir(parents=True)
    for name, document in (
        ("policy", POLICY),
        ("sweep", SWEEP),
        ("fleet", FLEET),
        ("stated", STATED),
    ):
        (STORED / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    for table in (profiles, pairs, alone):
        (STORED / f"{table.__name__}.csv").write_text(table())
    store_solutions(STORED / "solutions")
    online = optsched.load("@quickstart").to_document() | {
        "performance": {"model": "online", "of": {"model": "table"}}
    }
    (STORED / "instances" / "online.json").write_text(json.dumps(online, indent=1) + "\n")
    with chdir(STORED):
        for line in lines_of(WRITE):
            printed(line)
        for name, (source, policy) in POLICIES.items():
            keep_journal(Path("journals", name), source, policy)
            Path("journals", name, "journal.lock").unlink()


PARTS: dict[str, Callable[[], None]] = {
    "stored": record_stored,
    "commands": record_commands,
    "objectives": record_objectives,
}

if __name__ == "__main__":
    os.environ.pop("COLUMNS", None)  # tables as wide as in a pipe
    for part in sys.argv[1:] or ("commands", "objectives"):
        PARTS[part]()
