"""Documents outside, arrays inside: instance files become validated tables."""

from optsched.instance.cluster import Cluster, Pool, Resource, Tenant
from optsched.instance.documents import FORMAT
from optsched.instance.files import instance_bytes, json_schema, read_instance
from optsched.instance.instance import Instance, Job
from optsched.instance.revise import jobs_of_documents, with_columns, with_jobs, with_nodes
from optsched.instance.shipped import shipped_path
from optsched.instance.tables import Colocation, JobTable, OptionTable, RateTable, Workload
from optsched.instance.topology import topology_graph

__all__ = [
    "FORMAT",
    "Cluster",
    "Colocation",
    "Instance",
    "Job",
    "JobTable",
    "OptionTable",
    "Pool",
    "RateTable",
    "Resource",
    "Tenant",
    "Workload",
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
