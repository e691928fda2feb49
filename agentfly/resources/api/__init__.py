"""External APIs as resources: limits that hold for all rollouts of a job together, and what the calls cost."""

from agentfly.errors import BudgetSpent, RateLimited
from agentfly.resources.api.bill import ApiUsage
from agentfly.resources.api.gate import charge
from agentfly.resources.api.spec import ApiSpec

__all__ = ["ApiSpec", "ApiUsage", "BudgetSpent", "RateLimited", "charge"]
