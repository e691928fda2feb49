"""Sandboxes: where code that a model wrote runs."""

from agentfly.resources.sandbox.probing import probe
from agentfly.resources.sandbox.provider import Check, Command, Provider, Runtime, SandboxEnded
from agentfly.resources.sandbox.results import CommandResult, FileEntry, Piece, PythonResult
from agentfly.resources.sandbox.sandbox import Sandbox
from agentfly.resources.sandbox.settings import SandboxSettings
from agentfly.resources.sandbox.spec import SandboxSpec
from agentfly.resources.sandbox.transfer import pack, unpack

__all__ = [
    "Check",
    "Command",
    "CommandResult",
    "FileEntry",
    "Piece",
    "Provider",
    "PythonResult",
    "Runtime",
    "Sandbox",
    "SandboxEnded",
    "SandboxSettings",
    "SandboxSpec",
    "pack",
    "probe",
    "unpack",
]
