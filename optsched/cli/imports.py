"""The commands below ``optsched import``."""

from __future__ import annotations

import typer

from optsched.cli import (
    import_chronus,
    import_csv,
    import_elasticflow,
    import_gavel,
    import_openb,
    import_philly,
    import_shockwave,
    import_sia,
    import_tiresias,
)
from optsched.cli.command import CONTEXT, Commands, Help, add_command


def build_imports() -> typer.Typer:
    """The commands below ``import``."""
    app = typer.Typer(
        cls=Commands, context_settings=CONTEXT, add_help_option=False, rich_markup_mode=None
    )
    app.callback()(_imports)
    add_command(app, "gavel", import_gavel.gavel, import_gavel.EXAMPLES)
    add_command(app, "shockwave", import_shockwave.shockwave, import_shockwave.EXAMPLES)
    add_command(app, "csv", import_csv.import_csv, import_csv.EXAMPLES)
    add_command(app, "elasticflow", import_elasticflow.elasticflow, import_elasticflow.EXAMPLES)
    add_command(app, "chronus", import_chronus.chronus, import_chronus.EXAMPLES)
    add_command(app, "tiresias", import_tiresias.tiresias, import_tiresias.EXAMPLES)
    add_command(app, "openb", import_openb.openb, import_openb.EXAMPLES)
    add_command(app, "sia", import_sia.sia, import_sia.EXAMPLES)
    add_command(app, "philly", import_philly.philly, import_philly.EXAMPLES)
    return app


def _imports(help: Help = False) -> None:
    """Make an instance of other projects' files, or of tables."""
