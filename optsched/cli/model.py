"""The commands below ``optsched model``: performance models and the profiles that they are fitted to."""

from __future__ import annotations

import typer

from optsched.cli import model_evaluate, model_fit, model_fit_pairs, model_list, model_predict
from optsched.cli.command import CONTEXT, Commands, Help, add_command


def build_models() -> typer.Typer:
    """The commands."""
    app = typer.Typer(
        cls=Commands, context_settings=CONTEXT, add_help_option=False, rich_markup_mode=None
    )
    app.callback()(_models)
    add_command(app, "list", model_list.list_models, model_list.EXAMPLES)
    add_command(app, "fit", model_fit.fit, model_fit.EXAMPLES)
    add_command(app, "fit-pairs", model_fit_pairs.fit_pairs, model_fit_pairs.EXAMPLES)
    add_command(app, "predict", model_predict.predict, model_predict.EXAMPLES)
    add_command(app, "evaluate", model_evaluate.evaluate, model_evaluate.EXAMPLES)
    return app


def _models(help: Help = False) -> None:
    """Fit performance models to measured times of steps, judge them, and ask them."""
