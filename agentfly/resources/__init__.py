"""Layer IV: typed resources in pools of Ray actors, scheduled by one engine."""

from agentfly.resources.client import Lease, ResourceClient
from agentfly.resources.core.types import PoolStats
from agentfly.resources.faults import Fault
from agentfly.resources.manager import ManagerHandle, ResourceManager, start_manager, stop_manager
from agentfly.resources.resource import Resource
from agentfly.resources.spec import ResourceSpec

__all__ = [
    "Fault",
    "Lease",
    "ManagerHandle",
    "PoolStats",
    "Resource",
    "ResourceClient",
    "ResourceManager",
    "ResourceSpec",
    "start_manager",
    "stop_manager",
]
