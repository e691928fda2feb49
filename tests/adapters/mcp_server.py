"""A real MCP server for tests: `python mcp_server.py` on stdio, `python mcp_server.py PORT` on HTTP."""

from __future__ import annotations

import sys

from mcp.server import MCPServer

server = MCPServer("notes")
notes: list[str] = []


@server.tool()
def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


@server.tool()
def note(text: str) -> str:
    """Keep a note, and see all."""
    notes.append(text)
    return " ".join(notes)


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("on purpose")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run()
