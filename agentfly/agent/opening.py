"""The messages that open a conversation, from a task's fields."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from agentfly.context.task import Task
from agentfly.errors import ConfigError

if TYPE_CHECKING:
    from agentfly.models.engine import Message

PROMPT_FIELD: Final = "prompt"


def template_fields(template: str) -> list[str]:
    """Task fields that a template names, in order, each once.

    Args:
        template: in the form of `str.format`: `{question}`, `{options[0]}`, `{{` for a brace.

    Raises:
        ConfigError: it is malformed, or has a placeholder without a name.
    """
    try:
        names = list(dict.fromkeys(_names(template)))
    except ValueError as error:
        raise ConfigError(
            f"the agent's prompt {template[:80]!r} is malformed ({error}); write {{{{ for a brace"
        ) from None
    for name in names:
        if not name or name.isdigit():
            raise ConfigError(
                f"the agent's prompt {template[:80]!r} has a placeholder without a name: name a task field"
            )
    return names


def fill(template: str, task: Task) -> str:
    """The template with the task's fields in it.

    Raises:
        ConfigError: a field is missing, or hasn't what the placeholder asks of it.
    """
    missing = [name for name in template_fields(template) if name not in task.fields]
    if missing:
        raise missing_field(missing[0], task)
    try:
        return template.format_map(task.fields)
    except Exception as error:  # formatting runs code of the field's value
        raise ConfigError(f"the agent's prompt can't be filled from task {task.id!r}: {error}") from error


def missing_field(name: str, task: Task) -> ConfigError:
    """The error that names a field and those that are there."""
    there = ", ".join(task.fields) or "none"
    return ConfigError(f"the agent's prompt needs the field {name!r}, which task {task.id!r} lacks; it has: {there}")


def as_messages(prompt: Any, task: Task) -> list[Message]:
    """Chat messages of a prompt: a string is the user's, a list is checked and copied.

    Raises:
        ConfigError: it is neither, or a message lacks its role or content.
    """
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if not isinstance(prompt, (Sequence, np.ndarray)) or isinstance(prompt, bytes) or len(prompt) == 0:
        raise ConfigError(f"the prompt of task {task.id!r} must be a string or a list of messages, got {prompt!r:.80}")
    return [_message(entry, index, task) for index, entry in enumerate(prompt)]


def _message(entry: Any, index: int, task: Task) -> Message:
    where = f"message {index} of the prompt of task {task.id!r}"
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where} must be a mapping with role and content, got {entry!r:.80}")
    # Columnar files give every message every key, None where it had none.
    message = {str(key): value for key, value in entry.items() if value is not None}
    if "tool_calls" in message:
        message.setdefault("content", "")
    for key in ("role", "content"):
        if not isinstance(message.get(key), str):
            raise ConfigError(f"{where} needs a string {key!r}, got {message.get(key)!r:.80}")
    return cast("Message", message)


def _names(template: str) -> Iterator[str]:
    for _, name, spec, _ in string.Formatter().parse(template):
        if name is not None:
            yield name.partition(".")[0].partition("[")[0]
            yield from _names(spec or "")
