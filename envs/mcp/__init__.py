"""Tools of MCP servers: the server is a resource, its tools are an agent's."""

from agentfly.envs.mcp.resource import Answer, McpServer, mcp_resource
from agentfly.envs.mcp.tools import list_mcp_tools, mcp_tools

__all__ = ["Answer", "McpServer", "list_mcp_tools", "mcp_resource", "mcp_tools"]
