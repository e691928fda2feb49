"""Sandboxes: where code that a model wrote runs."""

from agentfly.resources.sandbox.results import CommandResult, FileEntry, PythonResult
from agentfly.resources.sandbox.sandbox import Sandbox
from agentfly.resources.sandbox.spec import SandboxSpec

__all__ = ["CommandResult", "FileEntry", "PythonResult", "Sandbox", "SandboxSpec"]
