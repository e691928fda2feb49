"""The embedded engine. `agentfly.models.local.engine.LocalEngine` is its face; nothing here imports torch before it starts."""
