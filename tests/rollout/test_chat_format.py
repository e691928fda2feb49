"""Loading a chat format, and understanding whatever a model writes."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout.tiny_tokenizer import CHATML, REFUSES, SHOUTS, build_folder, set_template

from agentfly.errors import ConfigError
from agentfly.models.engine import Message
from agentfly.rollout.chat_format import ChatFormat
from agentfly.rollout.turns import AssistantTurn

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add.",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
        },
    }
]
OPENING: list[Message] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}]
FAMILIES = ["qwen3", "generic", "generic:hermes"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build_folder(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def formats(folder: str) -> dict[str, ChatFormat]:
    return {family: ChatFormat.load(folder, family=family) for family in FAMILIES}


def parse(format: ChatFormat, text: str, *, stop: bool = True) -> AssistantTurn:
    prompt = format.render(OPENING, TOOLS)
    ids = format.encode(text + ("<|im_end|>" if stop else ""))
    return format.parse(ids, TOOLS, prompt, turn=3)


def call(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


GOOD = call('{"name": "add", "arguments": {"a": 1}}')


def test_importing_it_does_not_import_transformers() -> None:
    code = (
        "import sys, agentfly.rollout.conversation; sys.exit('transformers' in sys.modules or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_it_is_pickled_as_what_it_was_loaded_from(formats: dict[str, ChatFormat]) -> None:
    format = formats["generic"]
    data = pickle.dumps(format)
    assert len(data) < 1000
    twin = pickle.loads(data)
    assert twin.family == "generic"
    assert twin.render(OPENING, TOOLS) == format.render(OPENING, TOOLS)


@pytest.mark.parametrize("family", ["qwen3", "generic"])
def test_it_renders_what_the_template_says(folder: str, formats: dict[str, ChatFormat], family: str) -> None:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    messages: list[Message] = [*OPENING, {"role": "assistant", "content": "x"}, {"role": "user", "content": "naïve 🙂"}]
    text = tokenizer.apply_chat_template(messages, tools=TOOLS, tokenize=False, add_generation_prompt=True)
    assert formats[family].decode(formats[family].render(messages, TOOLS)) == text


def test_a_published_model_is_known_by_its_folder(tmp_path: Path) -> None:
    hub = build_folder(tmp_path / "models--Qwen--Qwen3-0.6B" / "snapshots" / "0123")
    plain = build_folder(tmp_path / "Qwen" / "Qwen3-0.6B")
    other = build_folder(tmp_path / "someone" / "Qwen3-0.6B")
    assert [ChatFormat.load(path).family for path in (hub, plain, other)] == ["qwen3", "qwen3", "generic"]


def test_options_reach_the_family_and_the_template(folder: str, tmp_path: Path) -> None:
    silent = ChatFormat.load(folder, family="qwen3", options={"enable_thinking": False})
    assert silent.decode(silent.render(OPENING, [])).endswith("<think>\n\n</think>\n\n")
    path = build_folder(tmp_path, CHATML + "{{ hint }}")
    hinting = ChatFormat.load(path, options={"hint": "think first"})
    assert hinting.decode(hinting.render(OPENING, [])).endswith("think first")


def test_stop_tokens_come_from_template_tokenizer_and_generation_settings(tmp_path: Path) -> None:
    path = build_folder(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0, 1]}))
    assert ChatFormat.load(path).stop_token_ids == (2, 0, 1)


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("qwen4711", None, "qwen4711"),
        ("qwen3", {"no_such_option": 1}, "no_such_option"),
        ("llama-3", None, "not of the family 'llama-3'"),
        ("generic:xml", None, "unknown tool call parser 'xml'"),
    ],
)
def test_a_wrong_family_is_one_clear_line(folder: str, family: str, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        ChatFormat.load(folder, family=family, options=options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("template", "message"), [(REFUSES, "this model does not chat"), (SHOUTS, "as it is"), ("{% if", "chat template")]
)
def test_a_template_that_can_not_render_at_all_is_refused(tmp_path: Path, template: str, message: str) -> None:
    path = build_folder(tmp_path, template)
    with pytest.raises(ConfigError, match=message):
        ChatFormat.load(path)


def test_a_missing_folder_tokenizer_or_template_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no model folder at .*nowhere"):
        ChatFormat.load(str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="no tokenizer can be loaded"):
        ChatFormat.load(str(tmp_path))
    path = build_folder(tmp_path)
    set_template(tmp_path, "")
    with pytest.raises(ConfigError, match="no chat template"):
        ChatFormat.load(path)


def test_messages_that_the_template_refuses_are_one_clear_line(tmp_path: Path) -> None:
    path = build_folder(tmp_path, CHATML + "{% if messages | length > 2 %}{{ raise_exception('too long') }}{% endif %}")
    with pytest.raises(ConfigError, match="too long"):
        ChatFormat.load(path).render([*OPENING, {"role": "user", "content": "?"}], [])


@pytest.mark.parametrize("family", FAMILIES)
class TestParsing:
    def test_plain_text(self, formats: dict[str, ChatFormat], family: str) -> None:
        turn = parse(formats[family], "Two. 二 🙂")
        assert turn.message == {"role": "assistant", "content": "Two. 二 🙂"}
        assert (turn.calls, turn.finish_reason, turn.truncated) == ([], "stop", False)
        assert turn.completion_tokens == len(formats[family].encode("Two. 二 🙂")) + 1

    def test_empty(self, formats: dict[str, ChatFormat], family: str) -> None:
        assert parse(formats[family], "").message == {"role": "assistant", "content": ""}
        assert formats[family].parse([], TOOLS, formats[family].render(OPENING, TOOLS)).truncated

    def test_a_call_in_openai_form(self, formats: dict[str, ChatFormat], family: str) -> None:
        turn = parse(formats[family], "Let me see.\n" + call('{"name": "add", "arguments": {"a": 1, "t": "ü\\n🙂"}}'))
        assert turn.message["content"] == "Let me see."
        (made,) = turn.message["tool_calls"]
        assert made["type"] == "function"
        assert made["id"] == turn.calls[0].id == "call00300"
        assert made["function"] == {"name": "add", "arguments": '{"a": 1, "t": "ü\\n🙂"}'}
        assert turn.calls[0].arguments == {"a": 1, "t": "ü\n🙂"}
        assert turn.calls[0].error is None

    def test_repeated_calls_are_all_there(self, formats: dict[str, ChatFormat], family: str) -> None:
        turn = parse(formats[family], f"{GOOD}\n{GOOD}\n{GOOD}")
        assert [one.arguments for one in turn.calls] == [{"a": 1}] * 3
        assert len({one.id for one in turn.calls}) == 3

    def test_arguments_as_json_text_and_none_at_all(self, formats: dict[str, ChatFormat], family: str) -> None:
        text = call('{"name": "add", "arguments": "{\\"a\\": 2}"}') + call('{"name": "add"}')
        assert [one.arguments for one in parse(formats[family], text).calls] == [{"a": 2}, {}]

    def test_thoughts_are_kept_apart(self, formats: dict[str, ChatFormat], family: str) -> None:
        draft = call('{"name": "draft", "arguments": {}}')
        turn = parse(formats[family], f"<think>\nFirst {draft} no.\n</think>\n\n{GOOD}")
        assert turn.message["reasoning_content"].startswith("First")
        assert "no." in turn.message["reasoning_content"]
        assert [one.name for one in turn.calls] == ["add"]
        assert turn.message["content"] == ""

    def test_a_completion_cut_in_its_thoughts(self, formats: dict[str, ChatFormat], family: str) -> None:
        turn = parse(formats[family], f"<think>\nWell {GOOD}", stop=False)
        assert turn.truncated
        assert turn.finish_reason == "length"

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            ('{"name": "add", "arguments": {"p": "C:\\d"}}', "escape"),
            ('{"name": "add", "arguments": {"a": 1}', "not valid JSON"),
            ("add(1, 2)", "not valid JSON"),
            ("", "not valid JSON"),
            ('{"arguments": {"a": 1}}', "names no tool"),
            ('{"name": 7, "arguments": {}}', "names no tool"),
            ("[1, 2]", "names no tool"),
            ('{"name": "add", "arguments": [1]}', "must be a JSON object, not a list"),
            ('{"name": "add", "arguments": "one"}', "not valid JSON"),
            ('{"name": "add", "arguments": {"a": NaN}}', "not finite"),
            ('{"name": "add", "arguments": {"a": 1e999}}', "not finite"),
            ('{"name": "add", "arguments": {"a": "\\ud83d"}}', "surrogate"),
            ('{"name": "\\ud83d", "arguments": {}}', "surrogate"),
            ('{"name": "add", "arguments": {"a": ' + "[" * 90 + "]" * 90 + "}}", "nested"),
            (f'{{"name": "add", "arguments": {{"a": "{GOOD}"}}}}', "not valid JSON"),
        ],
    )
    def test_a_malformed_call_says_why_and_stays_in_the_text(
        self, formats: dict[str, ChatFormat], family: str, body: str, reason: str
    ) -> None:
        turn = parse(formats[family], "Try.\n" + call(body))
        bad = turn.calls[0]
        assert bad.error is not None
        assert reason in bad.error
        assert bad.arguments is None
        assert "tool_calls" not in turn.message
        assert turn.message["content"] == "Try.\n" + call(body)

    @pytest.mark.parametrize("body", ["[" * 100_000, '{"name": "add", "arguments": {"a": ' + "1" * 5000 + "}}"])
    def test_json_that_python_gives_up_on(self, formats: dict[str, ChatFormat], family: str, body: str) -> None:
        turn = parse(formats[family], call(body))
        assert turn.calls[0].error is not None
        assert turn.message["content"] == call(body)

    def test_a_call_that_was_cut_off(self, formats: dict[str, ChatFormat], family: str) -> None:
        turn = parse(formats[family], GOOD + '\n<tool_call>\n{"name": "ad', stop=False)
        assert [one.error is None for one in turn.calls] == [True, False]
        assert "cut off" in (turn.calls[1].error or "")
        assert '{"name": "ad' in turn.message["content"]
        assert len(turn.message["tool_calls"]) == 1

    @settings(max_examples=60, deadline=None)
    @given(data=st.data())
    def test_rubbish_never_raises(self, formats: dict[str, ChatFormat], family: str, data: st.DataObject) -> None:
        format = formats[family]
        marks = format.encode('<tool_call></tool_call><think></think><|im_end|><|im_start|><tool_response>\n{}[]":\\')
        token = st.one_of(st.sampled_from(marks), st.integers(-3, 450), st.sampled_from([-(2**40), 2**40]))
        ids = data.draw(st.lists(token, max_size=60))
        turn = format.parse(ids, TOOLS, format.render(OPENING, TOOLS))
        assert turn.truncated == (not ids or ids[-1] not in format.stop_token_ids)
        json.dumps(turn.message).encode()
        assert len(turn.message.get("tool_calls", [])) == sum(one.error is None for one in turn.calls)

    @settings(max_examples=60, deadline=None)
    @given(body=st.text(max_size=80))
    def test_rubbish_in_a_call_never_raises(self, formats: dict[str, ChatFormat], family: str, body: str) -> None:
        turn = parse(formats[family], call(body))
        assert turn.calls
        assert all(one.error or one.arguments is not None for one in turn.calls)
