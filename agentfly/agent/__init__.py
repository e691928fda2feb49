"""Layer I: tools, rewards and agents, what a user writes."""

from __future__ import annotations

from agentfly.agent.agent import Agent
from agentfly.agent.decorator import tool
from agentfly.agent.loading import load_agent, load_object
from agentfly.agent.results import ToolResult
from agentfly.agent.reward import Reward, RewardResult, reward, weighted
from agentfly.agent.tool import Tool

__all__ = [
    "Agent",
    "Reward",
    "RewardResult",
    "Tool",
    "ToolResult",
    "load_agent",
    "load_object",
    "reward",
    "tool",
    "weighted",
]
