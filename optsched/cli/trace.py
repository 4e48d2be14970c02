"""The commands below ``optsched trace``: jobs over time."""

from __future__ import annotations

import typer

from optsched.cli import trace_describe
from optsched.cli.command import CONTEXT, Commands, Help, add_command


def build_traces() -> typer.Typer:
    """The commands."""
    app = typer.Typer(
        cls=Commands, context_settings=CONTEXT, add_help_option=False, rich_markup_mode=None
    )
    app.callback()(_traces)
    add_command(app, "describe", trace_describe.trace_describe, trace_describe.EXAMPLES)
    return app


def _traces(help: Help = False) -> None:
    """Look at traces: jobs that arrive over time, and what happens to them."""
