"""A tokenizer's chat template: text of a conversation, and what the template can express."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from agentfly.errors import ConfigError
from agentfly.rollout.hermes import Traits, adapt
from agentfly.rollout.tokenizer import FolderTokenizer
from agentfly.rollout.turns import call_id

# What a template raises: its own raise_exception, and Python's errors inside of it.
TEMPLATE_ERRORS = (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)

Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]]

_MARK = "qzmark"
SYSTEM: Mapping[str, Any] = {"role": "system", "content": "qzsystem"}
USER: Mapping[str, Any] = {"role": "user", "content": "qzuser"}


class ChatTemplate:
    """Conversations as text, rewritten first where the template lacks something.

    Args:
        tokenizer: its chat template is what is rendered.
        name: of the model, for errors.
        options: given to the template, such as `enable_thinking`.
        own_tools: let the template show tools and calls where it can; else they are written in hermes style.

    Raises:
        ConfigError: there is no template, or it can't render a user's message.
    """

    def __init__(
        self, tokenizer: FolderTokenizer, name: str, options: Mapping[str, Any], *, own_tools: bool = True
    ) -> None:
        self._tokenizer = tokenizer
        self._options = dict(options)
        self.name = name
        try:
            shown = USER["content"] in self._render([USER], (), True)
        except TEMPLATE_ERRORS as error:
            raise ConfigError(
                f"the chat template of {name} can't render a user's message: {one_line(error)}"
            ) from error
        if not shown:
            raise ConfigError(f"the chat template of {name} does not show a user's message as it is")
        self.traits = self._probe(own_tools)

    def text(self, messages: Messages, tools: Tools = (), *, generation_prompt: bool = True) -> str:
        """The conversation as text, by default up to where the assistant's next token is sampled.

        Raises:
            ConfigError: the template refuses it.
        """
        try:
            adapted, shown_tools = adapt(messages, tools, self.traits)
            return self._render(adapted, shown_tools, generation_prompt)
        except TEMPLATE_ERRORS as error:
            roles = ", ".join(str(message["role"]) for message in messages)
            raise ConfigError(
                f"the chat template of {self.name} refuses messages ({roles}): {one_line(error)}"
            ) from error

    def encode(self, text: str) -> list[int]:
        """Token ids of a rendered text; special tokens in it are recognised, none is added."""
        return self._tokenizer.encode(text)

    def closing(self) -> tuple[int, str]:
        """The token that ends an assistant's turn, and its text.

        Raises:
            ConfigError: no special token follows the assistant's text at once.
        """
        text = self.text([USER, {"role": "assistant", "content": _MARK}, USER])
        rest = text.partition(_MARK)[2]
        ids = self.encode(rest)
        added = self._tokenizer.added_tokens
        if ids and ids[0] in added:
            closing = self._tokenizer.decode(ids[:1])
            if closing and rest.startswith(closing):
                return ids[0], closing
        raise ConfigError(f"no special token ends the assistant's text, it goes on with {rest[:20]!r}")

    def _render(self, messages: Messages, tools: Tools, generation_prompt: bool) -> str:
        text = self._tokenizer.apply_chat_template(
            messages, list(tools) or None, add_generation_prompt=generation_prompt, tokenize=False, **self._options
        )
        return str(text)

    def _shows(self, messages: Messages, tools: Tools = ()) -> bool:
        try:
            return _MARK in self._render(messages, tools, False)
        except TEMPLATE_ERRORS:
            return False

    def _probe(self, own_tools: bool) -> Traits:
        """Try what the template does with each thing that a conversation may hold."""
        said: dict[str, Any] = {"role": "assistant", "content": "qzsaid"}
        answer = {"role": "tool", "content": _MARK, "name": "probe", "tool_call_id": call_id(0, 0)}
        tools = [tool_schema("probe")]
        as_object, as_text = _calling({"text": _MARK}), _calling(json.dumps({"text": _MARK}))
        schemas = own_tools and self._shows([USER], [tool_schema(_MARK)])
        objects, texts = (schemas and self._shows([USER, calling], tools) for calling in (as_object, as_text))
        if objects or texts:
            calling = _calling({} if objects else "{}")
            tool_role = self._shows([USER, calling, answer], tools)
            orphans = tool_role and self._shows([USER, said, answer], tools)
        else:
            orphans = tool_role = self._shows([USER, said, answer]) and not self._copies_roles([USER, said, answer])
        return Traits(
            system=self._shows([{"role": "system", "content": _MARK}, USER]),
            calls=objects or texts,
            text_arguments=texts and not objects,
            tool_role=tool_role,
            orphans=orphans,
            reasoning=self._shows([USER, {**said, "reasoning_content": _MARK}]),
        )

    def _copies_roles(self, messages: Messages) -> bool:
        """Whether the template writes any role's name as it is, so that a tool role means nothing to the model."""
        *rest, answer = messages
        try:
            as_tool = self._render([*rest, answer], (), False)
            as_other = self._render([*rest, {**answer, "role": "qzrole"}], (), False)
        except TEMPLATE_ERRORS:
            return False
        return as_other == as_tool.replace("tool", "qzrole")


def tool_schema(name: str) -> dict[str, Any]:
    """A made-up function in OpenAI form."""
    parameters = {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "some text"}},
        "required": ["text"],
    }
    return {"type": "function", "function": {"name": name, "description": "a probe", "parameters": parameters}}


def _calling(arguments: object) -> dict[str, Any]:
    call = {"id": call_id(0, 0), "type": "function", "function": {"name": "probe", "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def one_line(error: Exception) -> str:
    """An error's text on one line."""
    return " ".join(f"{error}".split()) or type(error).__name__
