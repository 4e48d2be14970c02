"""The generators by name, and `generate`, which runs one."""

from __future__ import annotations

from typing import Any

from optsched.errors import unknown_name
from optsched.generate.cluster import CLUSTER
from optsched.generate.gap import GAP
from optsched.generate.generator import Generated, Generator
from optsched.generate.knapsack import KNAPSACK
from optsched.generate.leases import LEASES
from optsched.generate.trace import TRACE
from optsched.generate.unrelated import UNRELATED

# All generators by name.
GENERATORS: dict[str, Generator] = {
    "cluster": CLUSTER,
    "unrelated": UNRELATED,
    "gap": GAP,
    "knapsack": KNAPSACK,
    "leases": LEASES,
    "trace": TRACE,
}


def generate(kind: str, **options: Any) -> Generated:
    """Make an instance, for example ``generate("cluster", jobs=1_000_000, seed=7).instance``.

    Parameters
    ----------
    kind : str
        A key of `GENERATORS`; ``optsched generate --help`` lists them.
    **options
        Options of the generator, such as ``jobs``, ``nodes`` and ``seed``; ``optsched generate KIND
        --help`` lists them.

    Returns
    -------
    Generated
        With the ``instance``; equal options give equal instances.

    Raises
    ------
    UsageError
        The message names the wrong kind or option, what was found and what was expected.
    """
    if kind not in GENERATORS:
        raise unknown_name("generator", kind, GENERATORS, f"no generator {kind!r}")
    return GENERATORS[kind](options)
