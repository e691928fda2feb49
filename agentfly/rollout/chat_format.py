"""A model's chat format: conversations to token ids, completions to turns, and from one turn to the next.

Tokens that were sampled are never made again from text: a turn is bridged to the next by appending.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentfly.errors import ConfigError
from agentfly.models.engine import Message
from agentfly.models.stopping import shown
from agentfly.rollout.bridge import TemplateGrammar
from agentfly.rollout.grammar import FamilyGrammar, Grammar, ParsedText, Tools, before_stop
from agentfly.rollout.hermes import parse_calls
from agentfly.rollout.template import ChatTemplate, one_line
from agentfly.rollout.tokenizer import FolderTokenizer, load_tokenizer
from agentfly.rollout.turns import (
    AssistantTurn,
    ParsedCall,
    answers_without_calls_as_user,
    assistant_message,
    call_id,
    read_call,
)

GENERIC = "generic"
HERMES = "hermes"
_REFUSALS = (ConfigError, ValueError, TypeError, LookupError, AttributeError)

__all__ = ["AssistantTurn", "ChatFormat", "ParsedCall"]


class ChatFormat:
    """One tokenizer and the grammar of its model family. Pickled as what it was loaded from.

    Make it with `load`.
    """

    def __init__(
        self, tokenizer: FolderTokenizer, grammar: Grammar, source: tuple[str, str | None, Mapping[str, Any] | None]
    ) -> None:
        self._tokenizer = tokenizer
        self._grammar = grammar
        self._source = source

    @classmethod
    def load(cls, path: str, *, family: str | None = None, options: Mapping[str, Any] | None = None) -> ChatFormat:
        """Load a tokenizer and choose its grammar.

        Args:
            path: a folder in Hugging Face form.
            family: a name that the renderers library knows (`qwen3`, ...); `generic` for the folder's own
                chat template, `generic:<parser>` to read its tool calls by another parser than `qwen3`
                (JSON in `<tool_call>` tags), `generic:hermes` to write and read them so whatever form the
                template has for them. None takes the family of a published model, known by the
                folder's name (`Qwen/Qwen3-4B`), else `generic`.
            options: of the family's renderer or of the chat template, such as `{"enable_thinking": False}`.

        Raises:
            ConfigError: no tokenizer there, an unknown family or option, a family that needs other
                special tokens, a template that can't render at all.
        """
        tokenizer = load_tokenizer(path)
        family = family or _known_family(tokenizer.name_or_path) or GENERIC
        name, _, parser = family.partition(":")
        if name in (GENERIC, "default"):
            grammar: Grammar = _generic(tokenizer, path, parser or "qwen3", options or {})
        else:
            grammar = _family(tokenizer, path, family, options or {})
        return cls(tokenizer, grammar, (path, family, options))

    def __reduce__(self) -> tuple[Any, ...]:
        return _load, self._source

    @property
    def family(self) -> str:
        """The family in use, also when none was named."""
        return self._source[1] or GENERIC

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end an assistant's turn."""
        return self._grammar.stop_token_ids

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, special tokens in it recognised."""
        return self._tokenizer.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, special tokens kept; ids outside the vocabulary are left out."""
        size = len(self._tokenizer)
        return self._tokenizer.decode([int(token) for token in ids if 0 <= token < size])

    def render(self, messages: Sequence[Message], tools: Tools) -> list[int]:
        """The whole conversation, up to where the assistant's next token is sampled.

        Some formats refuse a tool's answer to a call that can't be read, which stands in the content: there the
        answer comes from the user.

        Raises:
            ConfigError: the format has no form for these messages.
        """
        try:
            return self._grammar.render(messages, tools)
        except _REFUSALS as error:
            refusal = error
        if (answered := answers_without_calls_as_user(messages)) is not None:
            try:
                return self._grammar.render(answered, tools)
            except _REFUSALS as error:
                refusal = error
        raise ConfigError(
            f"the chat format of {self._source[0]} refuses the messages: {one_line(refusal)}"
        ) from refusal

    def parse(
        self,
        completion_ids: Sequence[int],
        tools: Tools,
        prompt_ids: Sequence[int],
        *,
        turn: int = 0,
        stop: str | None = None,
    ) -> AssistantTurn:
        """Understand a completion; never raises, whatever was sampled.

        Args:
            completion_ids: as sampled, the stop token included.
            tools: schemas that the model was shown.
            prompt_ids: what it was sampled after.
            turn: number of the turn in the conversation, which makes the ids of its calls.
            stop: the stop text that ended it: what comes before is understood, the rest isn't shown.
        """
        sampled = [int(token) for token in completion_ids]
        ids = sampled if stop is None else self.encode(shown(self.decode(sampled), stop))
        try:
            parsed = self._grammar.parse(ids, tools, prompt_ids)
        except Exception:  # parsers of others meet whatever a policy samples
            parsed = self._parse_text(ids)
        raw = list(parsed.calls)
        calls = [read_call(call, call.id or call_id(turn, index)) for index, call in enumerate(raw)]
        message = assistant_message(_content(parsed, calls), parsed.reasoning, raw, calls)
        stopped = stop is not None or (bool(ids) and ids[-1] in self.stop_token_ids)
        return AssistantTurn(message, calls, "stop" if stopped else "length", not stopped, len(sampled))

    def bridge(
        self,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        new_messages: Sequence[Message],
        tools: Tools,
        history: Sequence[Message],
    ) -> list[int] | None:
        """The next prompt, as an extension of prompt and completion.

        A completion without a stop token gets its turn closed.

        Args:
            prompt_ids, completion_ids: of the last turn, as they were.
            new_messages: what came after it.
            tools: schemas that the model was shown.
            history: the conversation up to and with the last assistant's message.

        Returns:
            prompt + completion + what the format adds; None where the format would change what stands
            before: render again, in a new segment.
        """
        base = [*prompt_ids, *completion_ids]
        ids = self._grammar.bridge(prompt_ids, completion_ids, new_messages, tools, history)
        return ids if ids is not None and len(ids) > len(base) and ids[: len(base)] == base else None

    def check(self) -> None:
        """Prove that turns are bridged exactly; to be called before training.

        Raises:
            ConfigError: they aren't; evaluation goes on all the same, each turn rendered again.
        """
        self._grammar.check()

    def check_tools(self) -> None:
        """Prove that the tool calls which the format writes are read again; to be called before any rollout with tools.

        Raises:
            ConfigError: they aren't; naming what to choose instead.
        """
        self._grammar.check_tools()

    def _parse_text(self, ids: Sequence[int]) -> ParsedText:
        content, tail, calls = parse_calls(self.decode(before_stop(ids, self.stop_token_ids)))
        return ParsedText(content, tail, calls=calls)


def _load(path: str, family: str | None, options: Mapping[str, Any] | None) -> ChatFormat:
    return ChatFormat.load(path, family=family, options=options)


def _content(parsed: ParsedText, calls: Sequence[ParsedCall]) -> str:
    """Text of the message: with good calls what precedes them, else everything as it was sampled."""
    if any(call.error is None for call in calls):
        return parsed.content.rstrip()
    separator = "\n" if parsed.content and parsed.tail and not parsed.content[-1].isspace() else ""
    return parsed.content + separator + parsed.tail


def _known_family(name: str) -> str | None:
    from renderers.base import MODEL_RENDERER_MAP

    family: str | None = MODEL_RENDERER_MAP.get(name)
    return family


def _family(tokenizer: FolderTokenizer, path: str, family: str, options: Mapping[str, Any]) -> FamilyGrammar:
    from renderers import create_renderer
    from renderers.configs import config_from_name

    try:
        default = config_from_name(family)
        config = type(default).model_validate({"name": family, **options})
    except ValueError as error:
        raise ConfigError(f"model family {family!r} with options {dict(options)}: {one_line(error)}") from error
    try:
        renderer = create_renderer(tokenizer, config)
    except Exception as error:  # asserts, value errors and more: each family checks its tokenizer its own way
        raise ConfigError(f"the tokenizer of {path} is not of the family {family!r}: {one_line(error)}") from error
    return FamilyGrammar(tokenizer, renderer)


def _generic(tokenizer: FolderTokenizer, path: str, parser: str, options: Mapping[str, Any]) -> TemplateGrammar:
    from renderers.parsers import TOOL_PARSERS, get_tool_parser

    if parser not in (*TOOL_PARSERS, HERMES):
        raise ConfigError(f"unknown tool call parser {parser!r}: choose {', '.join(sorted(TOOL_PARSERS))} or {HERMES}")
    if not tokenizer.chat_template:
        raise ConfigError(f"the tokenizer of {path} has no chat template: name the model's family")
    template = ChatTemplate(tokenizer, path, options, own_tools=parser != HERMES)
    # Where the tags are no tokens of their own, renderers' parser finds nothing: calls are read from the text.
    no_tags = tokenizer.convert_tokens_to_ids("<tool_call>") in (None, tokenizer.unk_token_id)
    in_text = parser == HERMES or (parser == "qwen3" and no_tags)
    extractor = None if in_text else get_tool_parser(parser, tokenizer)
    return TemplateGrammar(tokenizer, template, extractor, _end_tokens(tokenizer, Path(path)))


def _end_tokens(tokenizer: FolderTokenizer, folder: Path) -> list[int]:
    """End tokens that the tokenizer and the generation settings name."""
    ends = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    try:
        settings = json.loads((folder / "generation_config.json").read_text())
    except (OSError, ValueError):
        return ends
    named = settings.get("eos_token_id")
    return ends + [token for token in (named if isinstance(named, list) else [named]) if isinstance(token, int)]
