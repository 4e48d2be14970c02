"""Foreign files in and out, with a module for each format.

``import_NAME`` in the module ``NAME`` makes an instance or a trace from files of another project,
as a document or as the object itself; ``read_...`` reads measurements, programs and points. All CSV
tables are read by `optsched.formats.tables`.

A new trace format is a module with a function ``import_NAME``, whose parameters have the types of
`optsched.formats.inputs`, and a row of the table in `optsched.cli.imports`. The names below are the
readers for Python callers; importers are found by `__getattr__`.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from optsched.lazy import lazy_names

if TYPE_CHECKING:
    from optsched.formats.mps import program_text, read_program
    from optsched.formats.pairs import read_pairs
    from optsched.formats.profiles import read_profiles
    from optsched.formats.sol import read_sol, sol_text

__all__ = [
    "program_text",
    "read_pairs",
    "read_profiles",
    "read_program",
    "read_sol",
    "sol_text",
]

# Imported lazily, because a command needs only one format
_load = lazy_names(
    __name__,
    {
        "program_text": ".mps",
        "read_pairs": ".pairs",
        "read_profiles": ".profiles",
        "read_program": ".mps",
        "read_sol": ".sol",
        "sol_text": ".sol",
    },
)


def __getattr__(name: str) -> Any:
    """The name of a reader, or the ``import_NAME`` of the module ``NAME``."""
    _, is_importer, form = name.partition("import_")
    if is_importer and find_spec(f"{__name__}.{form}") is not None:
        return getattr(import_module(f"{__name__}.{form}"), name)
    return _load(name)
