"""`agentfly demo`: trains an agent that uses tools in a sandbox, from nothing, on two CPU cores."""
