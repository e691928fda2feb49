"""A text web shop: find what is asked for, choose its options, buy."""

from agentfly.envs.webshop.agent import SHOP, agent
from agentfly.envs.webshop.tasks import held_out_tasks, make_tasks

__all__ = ["SHOP", "agent", "held_out_tasks", "make_tasks"]
