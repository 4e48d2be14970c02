"""What the shared-link model is as a document, and what can be asked of its fit."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from optsched.instance.documents import Document, Name, NonNegative, PlainObject, Positive, Tuple
from optsched.performance.parametric.uncertainty import LogSd


class LinkDocument(Document):
    """A link that all workloads share: bytes/s, seconds per hop, and whether it was measured."""

    bandwidth: Positive
    latency: NonNegative
    measured: bool = True


class GpuDocument(Document):
    """A GPU type: its links inside a node and across nodes, and how much many GPUs slow each other's compute down."""

    inside: LinkDocument
    across: LinkDocument
    slowdown: NonNegative = 0.0


class OneGpuDocument(Document):
    """Measured seconds of a pass on one GPU, by samples in ascending order."""

    samples: Annotated[Tuple[Positive], Field(min_length=1)]
    seconds: Annotated[Tuple[Positive], Field(min_length=1)]


class ComputeDocument(Document):
    """T_1 = a + b m of a workload on a GPU type, and how far its communication is from what its links say.

    ``slowdown`` is its own inside a node and across nodes; where there is none, that of the GPU type holds.
    ``one_gpu`` is what T_1 goes through where it is more than a line.
    """

    a: NonNegative
    b: NonNegative
    inside: Positive = 1.0
    across: Positive = 1.0
    slowdown: Annotated[tuple[NonNegative, NonNegative], Field(strict=False)] | None = None
    one_gpu: OneGpuDocument | None = None
    log_sd: Annotated[tuple[LogSd, LogSd, LogSd], Field(strict=False)] = (0.1, 0.25, 0.25)


class SharedLinkDocument(Document):
    """The model; ``compute`` is by workload, then GPU type."""

    g: Annotated[float, Field(ge=1, le=10)] = 2.0
    gate: NonNegative = 0.0
    gradient_bytes: dict[Name, Positive]
    gpus: dict[Name, GpuDocument]
    compute: dict[Name, dict[Name, ComputeDocument]]
    fitted: PlainObject = Field(default_factory=dict)


class StatedLink(Document):
    """A link that is known, for instance from a data sheet."""

    bandwidth: Positive
    latency: Positive | None = None


class StatedLinks(Document):
    """Known links of a GPU type."""

    inside: StatedLink | None = None
    across: StatedLink | None = None


class SharedLinkOptions(Document):
    """How to fit; see `SharedLink.fit`."""

    gradient_bytes: dict[Name, Positive] = Field(default_factory=dict)
    parameters: dict[Name, Positive] = Field(default_factory=dict)
    links: dict[Name, StatedLinks] = Field(default_factory=dict)
    prior: PlainObject | None = None
    gate: NonNegative = 0.0
    anchored: bool = False
    own: bool = True
