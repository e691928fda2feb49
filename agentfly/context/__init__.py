"""Layer III: the identity of a rollout, its task's fields, and what it holds."""

from agentfly.context.context import Context, Scope
from agentfly.context.deadline import working_time
from agentfly.context.leases import LeaseBook
from agentfly.context.task import FromTask, Task
from agentfly.resources import Fault

__all__ = ["Context", "Fault", "FromTask", "LeaseBook", "Scope", "Task", "working_time"]
