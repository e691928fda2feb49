"""The embedded engine: `agentfly.models.local.engine.LocalEngine`, which imports torch only when it starts."""
