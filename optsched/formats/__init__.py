"""Foreign files in and out, with a module for each format.

``import_...`` makes an instance or a trace of other projects' files, as a document or as the object itself;
``read_...`` reads measurements, programs and points. Tables in CSV are read by `optsched.formats.tables`.
"""

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names

if TYPE_CHECKING:
    from optsched.formats.chronus import import_chronus
    from optsched.formats.csv_tables import import_csv
    from optsched.formats.elasticflow import import_elasticflow
    from optsched.formats.gavel import import_gavel
    from optsched.formats.mps import program_text, read_program
    from optsched.formats.openb import import_openb
    from optsched.formats.pairs import read_pairs
    from optsched.formats.philly import import_philly
    from optsched.formats.profiles import read_profiles
    from optsched.formats.shockwave import import_shockwave
    from optsched.formats.sia import import_sia
    from optsched.formats.sol import read_sol, sol_text
    from optsched.formats.tiresias import import_tiresias

# Loaded when used: a command line needs one format
_HOME = {
    "import_chronus": ".chronus",
    "import_csv": ".csv_tables",
    "import_elasticflow": ".elasticflow",
    "import_gavel": ".gavel",
    "import_openb": ".openb",
    "import_philly": ".philly",
    "import_shockwave": ".shockwave",
    "import_sia": ".sia",
    "import_tiresias": ".tiresias",
    "program_text": ".mps",
    "read_pairs": ".pairs",
    "read_profiles": ".profiles",
    "read_program": ".mps",
    "read_sol": ".sol",
    "sol_text": ".sol",
}

__getattr__ = lazy_names(__name__, _HOME)

__all__ = [
    "import_chronus",
    "import_csv",
    "import_elasticflow",
    "import_gavel",
    "import_openb",
    "import_philly",
    "import_shockwave",
    "import_sia",
    "import_tiresias",
    "program_text",
    "read_pairs",
    "read_profiles",
    "read_program",
    "read_sol",
    "sol_text",
]
