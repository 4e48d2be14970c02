"""The allocation as a picture: which job has which pool for what fraction of the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.candidates import Classes
from optsched.errors import UsageError
from optsched.instance import Instance
from optsched.report.answers import (
    Answer,
    Shares,
    SolutionFile,
    headline,
    instance_of,
    shares_of,
)
from optsched.report.palette import IDLE, INK, LABEL, LINE, PALE_INK, PAPER
