"""Tools, rewards and agents: what a user writes."""

from __future__ import annotations

from agentfly.agent.results import ToolResult
from agentfly.agent.tool import Tool, tool

__all__ = ["Tool", "ToolResult", "tool"]
