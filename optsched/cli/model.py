"""The commands below ``optsched model``: performance models and the profiles they are fitted to."""

from __future__ import annotations

import typer

from optsched.cli import model_evaluate, model_fit, model_fit_pairs, model_list, model_predict
from optsched.cli.command import build_group


def build_models() -> typer.Typer:
    return build_group(
        "Fit performance models to measured times of steps, judge them, and ask them.",
        {
            "list": (model_list.list_models, model_list.EXAMPLES),
            "fit": (model_fit.fit, model_fit.EXAMPLES),
            "fit-pairs": (model_fit_pairs.fit_pairs, model_fit_pairs.EXAMPLES),
            "predict": (model_predict.predict, model_predict.EXAMPLES),
            "evaluate": (model_evaluate.evaluate, model_evaluate.EXAMPLES),
        },
    )
