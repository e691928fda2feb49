"""Made conversations to warm a model up on: they show how tools are called, and seldom how to succeed.

Each decision is right in about half of the traces, so that a policy that imitates them solves one task in
seven. What is left to reinforcement learning is which habits pay: to read before computing, to compute
what was read, to answer with what came out, not to dither, and to copy without slips.
"""

from __future__ import annotations

import json
import random

from agentfly.envs.file_math.tasks import expressions, solve

from agentfly.context.task import Task
from agentfly.models.engine import Message

# What is done first; after reading; and with a value at hand: weights of the choices.
_FIRST = {"read": 52, "read wrong file": 4, "read malformed": 4, "wrong tool": 12, "compute made-up": 14, "guess": 14}
_AFTER_READING = {"compute": 50, "compute with a slip": 4, "compute malformed": 4, "read again": 30, "guess": 12}
_WITH_VALUE = {"answer": 55, "answer with a slip": 4, "compute it again": 33, "guess": 8}


def made_trace(task: Task, rng: random.Random) -> list[Message]:
    """One conversation about a task, good or bad; the assistant's content is text as a Qwen3 writes it."""
    trace = _Trace(task, rng)
    value = trace.value()
    if value is not None:
        value = trace.answer(value)
    if value is None:
        trace.say(str(rng.randint(10, 99)))
    return trace.messages


class _Trace:
    """A conversation in the making."""

    def __init__(self, task: Task, rng: random.Random) -> None:
        ((self._file, self._expression),) = task["files"].items()
        self._rng = rng
        self.messages: list[Message] = [{"role": "user", "content": task["prompt"]}]

    def value(self) -> str | None:
        """Get at a value, right or wrong; None for a trace that doesn't."""
        choice = self._choose(_FIRST)
        if choice == "compute made-up":
            return self._compute(self._rng.choice(expressions(held_out=False)))
        if choice == "read":
            self._read(self._file, self._expression)
            return self._value_after_reading()
        if choice == "read wrong file":
            wrong = self._slip(self._file)
            self._read(wrong, no_file(wrong))
        elif choice == "read malformed":
            self._malformed("read_file", "path", self._file)
        elif choice == "wrong tool":
            self._call("python", "code", self._file, not_python(self._file))
        return None

    def _value_after_reading(self) -> str | None:
        choice = self._choose(_AFTER_READING)
        if choice == "compute":
            return self._compute(self._expression)
        if choice == "compute with a slip":
            return self._compute(self._slip(self._expression))
        if choice == "compute malformed":
            self._malformed("python", "code", self._expression)
        elif choice == "read again":
            self._read(self._file, self._expression)
            return self._compute(self._expression)
        return None

    def answer(self, value: str) -> str | None:
        """Do something with a value; None for a trace that forgets it."""
        choice = self._choose(_WITH_VALUE)
        if choice == "guess":
            return None
        if choice == "compute it again":
            self._call("python", "code", value, value)
        self.say(self._slip(value) if choice == "answer with a slip" else value)
        return value

    def say(self, text: str) -> None:
        """Append an assistant's message."""
        self.messages.append({"role": "assistant", "content": text})

    def _read(self, name: str, content: str) -> None:
        self._call("read_file", "path", name, content)

    def _compute(self, expression: str) -> str:
        value = solve(expression)
        self._call("python", "code", expression, value)
        return value

    def _call(self, tool: str, argument: str, value: str, observation: str) -> None:
        self.say(f"<tool_call>\n{_call_text(tool, argument, value)}\n</tool_call>")
        self.messages.append({"role": "tool", "content": observation})

    def _malformed(self, tool: str, argument: str, value: str) -> None:
        self.say(f"<tool_call>\n{_call_text(tool, argument, value)[:-1]}\n</tool_call>")
        self.messages.append({"role": "tool", "content": "the call is not valid JSON"})

    def _choose(self, weights: dict[str, int]) -> str:
        return self._rng.choices(list(weights), list(weights.values()))[0]

    def _slip(self, text: str) -> str:
        """The text with one digit changed."""
        place = self._rng.choice([index for index, character in enumerate(text) if character.isdigit()])
        other = self._rng.choice([digit for digit in "0123456789" if digit != text[place]])
        return text[:place] + other + text[place + 1 :]


def no_file(name: str) -> str:
    """What a model is told of a file that isn't there."""
    return f"there is no file {name}"


def not_python(name: str) -> str:
    """What a model is told when it runs a file's name as a program."""
    return f"NameError: name '{name.removesuffix('.txt')}' is not defined"


def _call_text(tool: str, argument: str, value: str) -> str:
    return json.dumps({"name": tool, "arguments": {argument: value}})
