"""Candidates: every way in which jobs can run, as columns over kinds and classes of equal jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optsched.candidates.apart import classes_apart, column_alone
from optsched.candidates.classes import Candidates, Classes
from optsched.candidates.columns import Drop, KindColumns
from optsched.candidates.compile import compile
from optsched.candidates.expand import JobRows, expand, expand_first
from optsched.candidates.kinds import Absence, Kinds
from optsched.candidates.needs import column_needs
from optsched.candidates.resources import Resources
from optsched.candidates.room import gpus_allowed
from optsched.candidates.row_uses import RowUses
from optsched.candidates.usage import Usage
from optsched.lazy import lazy_names

if TYPE_CHECKING:  # few instances have slices of GPUs
    from optsched.candidates.slices import NO_SLICE, Slices, layouts_of, option_path

__all__ = [
    "NO_SLICE",
    "Absence",
    "Candidates",
    "Classes",
    "Drop",
    "JobRows",
    "KindColumns",
    "Kinds",
    "Resources",
    "RowUses",
    "Slices",
    "Usage",
    "classes_apart",
    "column_alone",
    "column_needs",
    "compile",
    "expand",
    "expand_first",
    "gpus_allowed",
    "layouts_of",
    "option_path",
]

__getattr__ = lazy_names(
    __name__, dict.fromkeys(("NO_SLICE", "Slices", "layouts_of", "option_path"), ".slices")
)
