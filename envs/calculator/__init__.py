"""Word problems with a calculator."""

from agentfly.envs.calculator.agent import agent, calculate
from agentfly.envs.calculator.tasks import gsm8k_task, held_out_tasks, make_tasks

__all__ = ["agent", "calculate", "gsm8k_task", "held_out_tasks", "make_tasks"]
