"""What the benchmarks of column generation share: columns made as they are worth it, against all columns."""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import Any

import arguments
from measure import ended, measure


def parser(
    words: str | None, sizes: list[str], all_columns: str, limit: float
) -> argparse.ArgumentParser:
    """The arguments that both take; ``all_columns`` is what is not generated."""
    made = argparse.ArgumentParser(
        description=words, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("sizes", nargs="*", type=arguments.size, default=sizes, metavar="JOBSxPOOLS")
    made.add_argument(
        "--repeat",
        type=arguments.count,
        default=1,
        help="runs of columns generated, of which the median counts",
    )
    made.add_argument(
        "--limit",
        type=arguments.seconds,
        default=limit,
        help=f"seconds of the program of {all_columns}",
    )
    made.add_argument("--alone", action="store_true", help=f"no program of {all_columns}")
    return made


def compare(
    here: str, text: str, given: argparse.Namespace, head: str, words: str, **size: Any
) -> None:
    """Print seconds, memory, gap and columns of one size, and how much longer all columns take."""
    jobs, pools = (int(part) for part in text.split("x"))
    size = {"jobs": jobs, "pools": pools, **size}
    try:
        ours = measure(here, "solve", given.repeat, **size, generate=True)
    except subprocess.CalledProcessError as error:
        sys.exit(f"{text}: {ended(error)}")
    objective, gap, (_, made, possible) = ours.result
    print(f"\n{head}{jobs:,} jobs x {pools} pools, {possible:,} {words}")
    print(
        f"  generated  {ours.seconds:8.2f} s {ours.megabytes:6.0f} MB   gap {gap:8.1e}   {made:,} columns made"
    )
    if given.alone:
        return
    try:
        whole = measure(here, "solve", 1, given.limit, **size, generate=False)
    except subprocess.TimeoutExpired:
        print(f"  all        nothing within {given.limit:g} s")
    except subprocess.CalledProcessError as error:
        print(f"  all        {ended(error)}")
    else:
        off = abs(whole.result[0] / objective - 1.0)
        print(
            f"  all        {whole.seconds:8.2f} s {whole.megabytes:6.0f} MB   objective within {off:.1e}   "
            f"{whole.seconds / ours.seconds:.1f} times the time"
        )
