"""An agent: tools, a reward, and the limits of a rollout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentfly.agent.execution import describe
from agentfly.agent.injection import missing_fields
from agentfly.agent.opening import PROMPT_FIELD, as_messages, fill, missing_field, template_fields
from agentfly.agent.reward import Reward
from agentfly.agent.tool import Tool, ToolClass
from agentfly.errors import ConfigError

if TYPE_CHECKING:
    from agentfly.context import Task
    from agentfly.models.engine import Message


@dataclass(frozen=True, kw_only=True, eq=False)
class Agent:
    """What is rolled out: validated when it is made.

    Attributes:
        tools: each with a name of its own.
        reward: None where nothing is scored.
        max_turns: completions at most.
        max_tokens: of one completion, on top of the sampling's own limit.
        max_total_tokens: sampled in the whole rollout.
        max_invalid_calls: turns in a row without one well-formed call, after which the rollout ends.
        max_parallel_calls: calls of one turn that run at a time.
        system: the system message, unless the task's messages begin with one.
        prompt: a template over the task's fields ("{question}"), or a function of the task that gives
            messages or a string; None takes the field `prompt`, a string or a list of messages.

    Raises:
        ConfigError: one of these is wrong.
    """

    tools: Sequence[Tool] = ()
    reward: Reward | None = None
    max_turns: int = 10
    max_tokens: int | None = None
    max_total_tokens: int | None = None
    max_invalid_calls: int | None = None
    max_parallel_calls: int = 8
    system: str | None = None
    prompt: str | Callable[[Task], Sequence[Message] | str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tools", _check_tools(self.tools))
        if self.reward is not None and not isinstance(self.reward, Reward):
            raise ConfigError(f"the agent's reward must be made by @reward or weighted(), got {self.reward!r:.80}")
        for name in ("max_turns", "max_parallel_calls"):
            _check_limit(name, getattr(self, name))
        for name in ("max_tokens", "max_total_tokens", "max_invalid_calls"):
            if getattr(self, name) is not None:
                _check_limit(name, getattr(self, name))
        if self.system is not None and not isinstance(self.system, str):
            raise ConfigError(f"the agent's system message must be a string, got {self.system!r:.80}")
        if isinstance(self.prompt, str):
            template_fields(self.prompt)
        elif self.prompt is not None and not callable(self.prompt):
            raise ConfigError(
                f"the agent's prompt must be a template or a function of the task, got {self.prompt!r:.80}"
            )

    def open(self, task: Task) -> list[Message]:
        """The messages that open the conversation on a task.

        Raises:
            ConfigError: the task lacks a field of the prompt; the line names it and those that are there.
        """
        messages = as_messages(self._prompt_of(task), task)
        if self.system is not None and messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": self.system})
        return messages

    def check(self, fields: Iterable[str]) -> None:
        """See that a task with these fields has all that the agent asks for.

        Raises:
            ConfigError: one line with every field that is missing, and who asks for it.
        """
        there = tuple(fields)
        asked = [(f"tool {tool.name!r}", missing_fields(tool.injections, there)) for tool in self.tools]
        if self.reward is not None:
            asked.append((f"reward {self.reward.name!r}", self.reward.missing(there)))
        asked.append(("the prompt", [name for name in self._prompt_fields() if name not in there]))
        problems = [f"{who} asks for {', '.join(map(repr, dict.fromkeys(names)))}" for who, names in asked if names]
        if problems:
            raise ConfigError(
                f"the task lacks fields: {'; '.join(problems)}; its fields are: {', '.join(there) or 'none'}"
            )

    def _prompt_fields(self) -> list[str]:
        if isinstance(self.prompt, str):
            return template_fields(self.prompt)
        return [PROMPT_FIELD] if self.prompt is None else []

    def _prompt_of(self, task: Task) -> Any:
        if isinstance(self.prompt, str):
            return fill(self.prompt, task)
        if self.prompt is None:
            if PROMPT_FIELD not in task.fields:
                raise missing_field(PROMPT_FIELD, task)
            return task.fields[PROMPT_FIELD]
        try:
            return self.prompt(task)
        except Exception as error:
            raise ConfigError(f"the agent's prompt function failed on task {task.id!r}: {describe(error)}") from error


def _check_tools(tools: object) -> tuple[Tool, ...]:
    if not isinstance(tools, Iterable) or isinstance(tools, (str, Tool)):
        raise ConfigError(f"the agent's tools must be a list of tools, got {tools!r:.80}")
    checked: dict[str, Tool] = {}
    for tool in tools:
        if isinstance(tool, ToolClass):
            raise ConfigError(f"{tool!r} is a class: give the agent an instance, {tool.__name__}(...)")
        if not isinstance(tool, Tool):
            raise ConfigError(f"{tool!r:.80} is no tool; decorate it with @tool")
        if not tool.bound:
            raise ConfigError(f"{tool.where} is a method: give the agent that of an instance, instance.{tool.__name__}")
        if tool.name in checked:
            raise ConfigError(
                f"two tools are named {tool.name!r}: {checked[tool.name].where} and {tool.where}; set @tool(name=...)"
            )
        checked[tool.name] = tool
    return tuple(checked.values())


def _check_limit(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"the agent's {name} must be a whole number of at least 1, got {value!r}")
