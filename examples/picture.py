#!/usr/bin/env python
"""Draw an allocation as a heatmap: picture.py INSTANCE FORMULATION FILE (png, svg or pdf); ``make demo`` uses it."""

import sys

import optsched
from optsched.errors import OptschedError
from optsched.report import allocation_heatmap, save_picture


def main(instance: str, formulation: str, path: str) -> None:
    """Solve, draw, say where the picture is."""
    save_picture(allocation_heatmap(optsched.solve(instance, formulation)), path)
    print(f"the picture is {path}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except OptschedError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
