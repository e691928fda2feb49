"""The `agentfly` command."""
