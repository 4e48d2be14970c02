"""Instances that ship with the project: in the wheel and in a checkout."""

from __future__ import annotations

from os.path import isfile
from pathlib import Path

from optsched.errors import UsageError, did_you_mean, unknown_name

PACKAGE = Path(__file__).resolve().parents[1]


def shipped_folder() -> Path:
    """The folder of shipped instances:
    ``optsched/_instances`` of a wheel, ``instances`` of a checkout.
    """
    for folder in (PACKAGE / "_instances", PACKAGE.parent / "instances"):
        if folder.is_dir():
            return folder
    raise UsageError("the instances that ship with optsched are not installed")


def shipped_names() -> list[str]:
    """Names of the shipped instances."""
    return sorted(path.stem for path in shipped_folder().iterdir() if path.suffix == ".json")


def shipped_path(name: str) -> Path:
    """File of a shipped instance."""
    folder = shipped_folder()
    path = folder / f"{name}.json"
    if path.parent != folder or not isfile(path):  # also false of a name that is too long
        known = [f"@{each}" for each in shipped_names()]
        hint = did_you_mean(f"@{name}", known)
        raise unknown_name("instance", f"@{name}", known, f"no instance @{name} ships", hint)
    return path
