"""What an action is: text, a structured call, or a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol

from agentfly.envs.gym.argument_spaces import all_calls, arguments_of
from agentfly.envs.gym.grammar import ActionGrammar, call_turn
from agentfly.envs.gym.text_space import AnyText
from gymnasium import Space, spaces

from agentfly.agent import Agent
from agentfly.errors import ConfigError
from agentfly.rollout.turns import AssistantTurn

ActionKind = Literal["text", "structured", "discrete"]
ANSWER: Final = "answer"


class Actions(Protocol):
    """An action space, and its elements as turns."""

    @property
    def space(self) -> Space[Any]: ...

    def read(self, action: Any, turn: int) -> AssistantTurn:
        """An element of the space as the turn with this number."""
        ...


class TextActions:
    """What a model would write: calls in a grammar; text without one is the final answer."""

    def __init__(self, grammar: ActionGrammar, max_length: int) -> None:
        self._grammar = grammar
        self.space: Space[Any] = AnyText(max_length)

    def read(self, action: Any, turn: int) -> AssistantTurn:
        return self._grammar(str(action), turn)


class StructuredActions:
    """`tool` is the number of a tool, in their order, or one more for the final answer, which is `answer`.

    `arguments` has those of every tool that takes any; the ones of the chosen tool count.
    """

    def __init__(self, agent: Agent, max_length: int) -> None:
        self._names = [tool.name for tool in agent.tools]
        self._arguments = {tool.name: arguments_of(tool) for tool in agent.tools}
        choices: dict[str, Space[Any]] = {
            name: spaces.Dict({key: argument.space for key, argument in arguments.items()})
            for name, arguments in self._arguments.items()
            if arguments
        }
        self.space: Space[Any] = spaces.Dict(
            {
                "tool": spaces.Discrete(len(self._names) + 1),
                "arguments": spaces.Dict(choices),
                ANSWER: AnyText(max_length),
            }
        )

    def read(self, action: Any, turn: int) -> AssistantTurn:
        chosen = int(action["tool"])
        if chosen == len(self._names):
            return _answer(str(action[ANSWER]))
        name = self._names[chosen]
        given: Mapping[str, Any] = action["arguments"][name] if self._arguments[name] else {}
        return call_turn(name, {key: each.read(given[key]) for key, each in self._arguments[name].items()}, turn)


class DiscreteActions:
    """Every call of every tool has a number, the last one ends the episode without an answer.

    Raises:
        ConfigError: a tool takes something that can't be listed.
    """

    def __init__(self, agent: Agent) -> None:
        self._calls: list[tuple[str, dict[str, Any]]] = []
        for tool in agent.tools:
            if (calls := all_calls(tool)) is None:
                raise ConfigError(f"tool {tool.name!r} can be called in too many ways for discrete actions: use text")
            self._calls += [(tool.name, arguments) for arguments in calls]
        self.space: Space[Any] = spaces.Discrete(len(self._calls) + 1)

    def read(self, action: Any, turn: int) -> AssistantTurn:
        number = int(action)
        return call_turn(*self._calls[number], turn) if number < len(self._calls) else _answer("")


def make_actions(kind: ActionKind, agent: Agent, grammar: ActionGrammar, max_length: int) -> Actions:
    """The actions of a kind.

    Raises:
        ConfigError: the kind isn't known, or the tools don't fit it.
    """
    if kind == "text":
        return TextActions(grammar, max_length)
    if kind == "structured":
        return StructuredActions(agent, max_length)
    if kind == "discrete":
        return DiscreteActions(agent)
    raise ConfigError(f"actions are 'text', 'structured' or 'discrete', not {kind!r}")


def _answer(text: str) -> AssistantTurn:
    return AssistantTurn({"role": "assistant", "content": text}, [], "stop", False)
