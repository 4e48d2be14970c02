"""Linear and mixed-integer programs as MPS and LP files: names, writing, reading."""

from optsched.formats.mps.names import (
    SUFFIXES,
    ProgramNames,
    allocation_names,
    linear_program,
    names_document,
    program_kind,
    program_names,
)
from optsched.formats.mps.read import ReadProgram, is_program, read_program
from optsched.formats.mps.write import program_text

__all__ = [
    "SUFFIXES",
    "ProgramNames",
    "ReadProgram",
    "allocation_names",
    "is_program",
    "linear_program",
    "names_document",
    "program_kind",
    "program_names",
    "program_text",
    "read_program",
]
