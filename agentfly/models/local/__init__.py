"""The embedded engine; its face is `agentfly.models.local.engine.LocalEngine`, which imports torch only when it starts."""
