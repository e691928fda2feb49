"""Repositories with a mistake to mend, and tests that tell whether it is mended."""

from agentfly.envs.swe.agent import SANDBOX, agent, make_agent
from agentfly.envs.swe.rows import r2e_gym_task, swe_bench_task, swe_smith_task
from agentfly.envs.swe.tasks import make_tasks

__all__ = ["SANDBOX", "agent", "make_agent", "make_tasks", "r2e_gym_task", "swe_bench_task", "swe_smith_task"]
