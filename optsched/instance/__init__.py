"""Documents outside, arrays inside: instance files become validated tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optsched.instance.cluster import Cluster, Pool, Resource, Tenant
from optsched.instance.documents import FORMAT
from optsched.instance.files import instance_bytes, json_schema, read_instance
from optsched.instance.instance import Instance, Job
from optsched.instance.rates import RateTable
from optsched.instance.shipped import shipped_path
from optsched.instance.tables import Colocation, JobTable, OptionTable, Workload, Workloads
from optsched.lazy import lazy_names

if TYPE_CHECKING:
    from optsched.instance.layouts import Layouts
    from optsched.instance.revise import jobs_of_documents, with_columns, with_jobs, with_nodes
    from optsched.instance.topology import topology_graph

__all__ = [
    "FORMAT",
    "Cluster",
    "Colocation",
    "Instance",
    "Job",
    "JobTable",
    "Layouts",
    "OptionTable",
    "Pool",
    "RateTable",
    "Resource",
    "Tenant",
    "Workload",
    "Workloads",
    "instance_bytes",
    "jobs_of_documents",
    "json_schema",
    "read_instance",
    "shipped_path",
    "topology_graph",
    "with_columns",
    "with_jobs",
    "with_nodes",
]

# Only rounds revise instances, and only placements read the topology; a solve needs neither.
_HOME = {
    "Layouts": "optsched.instance.layouts",
    "jobs_of_documents": "optsched.instance.revise",
    "topology_graph": "optsched.instance.topology",
    "with_columns": "optsched.instance.revise",
    "with_jobs": "optsched.instance.revise",
    "with_nodes": "optsched.instance.revise",
}

__getattr__ = lazy_names(__name__, _HOME)
