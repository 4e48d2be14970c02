"""``python -m optsched.generate OUT_DIR``: write the instances that ship."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from optsched.generate.instances import INSTANCES
from optsched.instance.files import pretty_json


def main(arguments: Sequence[str] | None = None) -> None:
    """Write every instance to its file, each replaced in one step;
    the paths go to standard output.
    """
    parser = argparse.ArgumentParser(prog="python -m optsched.generate", description=__doc__)
    parser.add_argument("out_dir", type=Path, metavar="OUT_DIR", help="folder, made if missing")
    folder = parser.parse_args(arguments).out_dir
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in INSTANCES.items():
        path = folder / f"{name}.json"
        part = folder / f".{name}.json.{os.getpid()}"
        part.write_bytes(pretty_json(make()).encode())
        part.replace(path)
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
