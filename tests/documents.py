"""Instance documents in a line or two, for tests that are not about the document itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Document = dict[str, Any]


def instance_document(
    pools: Mapping[str, int | tuple[int, int]] | list[Document],
    jobs: list[Document] | None = None,
    **more: Any,
) -> Document:
    """A document of an instance: ``instance_document({"v100": (2, 4)}, jobs, now=5)`` has two nodes of four GPUs.

    A number alone is that of the GPUs of a single node. Pools with more than a name and a size are documents
    themselves. ``resources`` are those of the cluster; what else is in ``more`` stands beside cluster and jobs.
    """
    if isinstance(pools, Mapping):
        pools = [_pool(name, size) for name, size in pools.items()]
    cluster: Document = {"pools": pools}
    if "resources" in more:
        cluster["resources"] = more.pop("resources")
    jobs = [] if jobs is None else jobs
    return {"format": "optsched-instance/1", "cluster": cluster, "jobs": jobs, **more}


def _pool(name: str, size: int | tuple[int, int]) -> Document:
    nodes, gpus = (1, size) if isinstance(size, int) else size
    return {"name": name, "nodes": nodes, "gpus_per_node": gpus}
