"""Models that are learnt from measurements:
boosted trees, and the interference of jobs that share a GPU.

scikit-learn (the extra ``learn``) is needed to fit trees, but not to predict with a saved model.
"""

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names

if TYPE_CHECKING:
    from optsched.performance.learned.pair_models import PAIR_MODELS, make_pair_model, pair_class
    from optsched.performance.learned.pairs import Fractions, PairModel, PairProfiles, Pairs

# Imported lazily: models of step times do not need models of pairs.
_HOME = {
    "PAIR_MODELS": ".pair_models",
    "make_pair_model": ".pair_models",
    "pair_class": ".pair_models",
    "Fractions": ".pairs",
    "PairModel": ".pairs",
    "PairProfiles": ".pairs",
    "Pairs": ".pairs",
}

__all__ = [
    "PAIR_MODELS",
    "Fractions",
    "PairModel",
    "PairProfiles",
    "Pairs",
    "make_pair_model",
    "pair_class",
]

__getattr__ = lazy_names(__name__, _HOME)
