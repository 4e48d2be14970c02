"""Parameters, operations and bytes of transformers, from their shape.

L layers of width h (feed-forward 4h, attention of width h), sequences of s tokens, V words, B
sequences in a step.

    parameters of a layer        12 h^2 + 13 h            matrices, biases and norms
    parameters in all        P = L (12 h^2 + 13 h) + (V + s) h + 2 h        one table of words, tied with the head
    forward, of a token          24 h^2 + 4 h s FLOPs in a layer, 2 h V in the head
    step                         3 x forward = 6 (12 L h^2 + V h) + 12 L h s  FLOPs a token

The last line is the 6 P of a token plus attention, without biases, norms and positions, which
multiply nothing. With full recomputation the layers are run forward twice: 96 B s L h^2
(1 + s/(6h) + V/(16 L h)) FLOPs in a step. Causal attention is counted in full, as all of these
papers do.

Activations that a layer keeps for its backward pass, for m sequences at 2 bytes and T-way tensor
parallelism: s m h (10 + 24/T) bytes, and 5 a s^2 m / T more where attention keeps its a matrices of
scores; with full recomputation its input only, 2 s m h.

References
----------
D. Narayanan et al., "Efficient large-scale language model training on GPU clusters using
Megatron-LM", SC 2021, eqs. 2 and 3. V. Korthikanti et al., "Reducing activation recomputation in
large transformer models", MLSys 2023, eqs. 1 and 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from pydantic import model_validator

from optsched.arrays import FloatArray, IntArray
from optsched.arrays.columns import Columns
from optsched.errors import InvalidInput
from optsched.instance.documents import Document, PositiveCount, refused
from optsched.instance.reading import show, validate
from optsched.performance.analytic.hardware import BYTES, PRECISIONS

TRANSFORMER = "transformer"
Precision = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8"]
MOST_BATCH = 2**20
"""Most sequences in a step; larger numbers are taken for errors."""


class TransformerDocument(Document):
    """``parameters.transformer`` of a workload.

    ``batch`` is in sequences, of the whole job; it may stand beside as ``parameters.batch``.
    ``heads`` limits tensor parallelism to their divisors, and lets ``attention: plain`` count the
    scores that it keeps.
    """

    layers: PositiveCount
    hidden: PositiveCount
    heads: PositiveCount | None = None
    sequence: PositiveCount
    vocabulary: PositiveCount
    batch: PositiveCount | None = None
    precision: Precision | None = None
    attention: Literal["fused", "plain"] = "fused"

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.heads is not None and self.hidden % self.heads:
            expected = f"a divisor of hidden ({self.hidden})"
            raise refused(f"{self.heads} heads", expected, ".heads")
        if self.attention == "plain" and self.heads is None:
            raise refused("nothing", "the number of heads, as attention is plain", ".heads")
        return self


@dataclass(frozen=True, repr=False)
class Transformers(Columns):
    """N transformers, structure of arrays of length N.

    Attributes
    ----------
    layers, hidden, heads, sequence, vocabulary, batch : FloatArray
        L, h, a (0: not stated), s, V, B.
    precision : IntArray
        Index into `PRECISIONS`.
    number : FloatArray
        Bytes of an activation, and of a weight in computations.
    scores : FloatArray
        Heads whose attention scores are kept: a, or 0.
    """

    layers: FloatArray
    hidden: FloatArray
    heads: FloatArray
    sequence: FloatArray
    vocabulary: FloatArray
    batch: FloatArray
    precision: IntArray
    number: FloatArray
    scores: FloatArray

    @classmethod
    def of(cls, documents: list[TransformerDocument], precision: str) -> Self:
        """From checked documents; ``precision`` for those that state none."""
        precisions = [document.precision or precision for document in documents]

        def column(name: str) -> FloatArray:
            return np.array([getattr(document, name) or 0 for document in documents], np.float64)

        return cls(
            layers=column("layers"),
            hidden=column("hidden"),
            heads=column("heads"),
            sequence=column("sequence"),
            vocabulary=column("vocabulary"),
            batch=column("batch"),
            precision=np.array([PRECISIONS.index(name) for name in precisions], np.int64),
            number=np.array([BYTES[name] for name in precisions], np.float64),
            # Fused attention recomputes its scores block by block and keeps none of them.
            scores=np.where(
                [document.attention == "plain" for document in documents], column("heads"), 0.0
            ),
        )

    @property
    def layer_parameters(self) -> FloatArray:
        """12 h^2 + 13 h."""
        return 12 * self.hidden**2 + 13 * self.hidden

    @property
    def table_parameters(self) -> FloatArray:
        """(V + s) h: words and positions."""
        return (self.vocabulary + self.sequence) * self.hidden

    @property
    def parameters(self) -> FloatArray:
        """Numbers of the model: layers, tables of words and positions, the last norm."""
        return self.layers * self.layer_parameters + self.table_parameters + 2 * self.hidden

    @property
    def layer_flops(self) -> FloatArray:
        """FLOPs of a layer's forward pass for one sequence."""
        return 24 * self.sequence * self.hidden**2 + 4 * self.sequence**2 * self.hidden

    @property
    def head_flops(self) -> FloatArray:
        """FLOPs of the head's forward pass for one sequence."""
        return 2 * self.sequence * self.hidden * self.vocabulary

    @property
    def step_flops(self) -> FloatArray:
        """FLOPs of a step without recomputation, the numerator of model-flop utilisation."""
        return 3 * self.batch * (self.layers * self.layer_flops + self.head_flops)

    @property
    def boundary_bytes(self) -> FloatArray:
        """Activations between two layers for one sequence: s h numbers."""
        return self.sequence * self.hidden * self.number

    def layer_bytes(self, tensor: FloatArray) -> FloatArray:
        """Activations that a layer keeps for one sequence on each of T GPUs."""
        # Korthikanti et al., eq. 2: 10 parts are on every GPU, 24 are divided by tensor
        # parallelism.
        plain = self.sequence * self.hidden * (10 + 24 / tensor) * self.number / 2
        return plain + 5 * self.scores * self.sequence**2 / tensor * self.number / 2


def read_transformer(parameters: Mapping[str, Any], path: str) -> TransformerDocument:
    """The transformer of a workload's parameters, checked;
    raises `InvalidInput` with the path of a wrong field.
    """
    document = validate(TransformerDocument, parameters[TRANSFORMER], f"{path}.{TRANSFORMER}")
    own_path = f"{path}.{TRANSFORMER}"
    if document.batch is None:
        beside = parameters.get("batch")
        if beside is None:
            raise InvalidInput(
                f"{own_path}.batch", "nothing", "the sequences in a step of the whole job"
            )
        if (
            isinstance(beside, bool)
            or not isinstance(beside, int | float)
            or beside < 1
            or beside != int(beside)
        ):
            raise InvalidInput(
                f"{path}.batch", show(beside), "a whole number of sequences, at least 1"
            )
        document = document.model_copy(update={"batch": int(beside)})
    elif "batch" in parameters and parameters["batch"] != document.batch:
        raise InvalidInput(
            f"{own_path}.batch",
            f"{document.batch} beside parameters.batch {show(parameters['batch'])}",
            "the same in both",
        )
    assert document.batch is not None
    if document.batch > MOST_BATCH:
        raise InvalidInput(
            f"{own_path}.batch", f"{document.batch:,} sequences", f"at most {MOST_BATCH:,}"
        )
    return document
