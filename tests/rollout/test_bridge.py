"""The bridge from turn to turn: equal to the full render, or refused, never silently something else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rollout.tiny_tokenizer import (
    CHATML,
    COUNTS_AHEAD,
    DROPS_THOUGHTS,
    FORGETS,
    GEMMA,
    NO_END,
    STRICT_TOOLS,
    build_folder,
)

from agentfly.errors import ConfigError
from agentfly.models.engine import Message
from agentfly.rollout.chat_format import ChatFormat
from agentfly.rollout.hermes import Traits, adapt
from agentfly.rollout.template import ChatTemplate, tool_schema
from agentfly.rollout.tokenizer import load_tokenizer
from agentfly.rollout.turns import call_id

TOOLS = [tool_schema("add"), tool_schema("find")]
TEMPLATES: Mapping[str, str | None] = {
    "qwen": None,
    "chatml": CHATML,
    "gemma": GEMMA,
    "strict": STRICT_TOOLS,
    "thoughts": DROPS_THOUGHTS,
}
SHIFTED_TURN = CHATML.replace("m.content", "(m.content if m.role != 'assistant' else m.content.replace('x', 'y'))")
# An answer ends otherwise when something follows it, as in the template of Hermes 2 Pro.
UNSTEADY = CHATML.replace(
    "'<|im_end|>\\n' }}{%- endfor", "('\\n' if loop.last and m.role == 'user' else '') + '<|im_end|>\\n' }}{%- endfor"
)
OTHER_CALLS = STRICT_TOOLS.replace("<tool_call>'", "<function>'").replace("'</tool_call>'", "'</function>'")
# The prompt opens thoughts that the history then leaves out, as QwQ's.
OPENS_THOUGHTS = CHATML.replace("assistant\\n' }}{%- endif %}", "assistant\\n<think>\\n' }}{%- endif %}")
# All tools stand before the last user's message, as Mistral's.
TOOLS_LAST = """\
{%- set last = messages | selectattr('role', 'equalto', 'user') | list | last %}
{%- for m in messages %}
{%- if tools and m == last %}{{ '<|im_start|>tools\\n' + (tools | tojson) + '<|im_end|>\\n' }}{%- endif %}
{{- '<|im_start|>' + m.role + '\\n' + m.content }}
{%- for c in m.tool_calls or [] %}
{{- '<tool_call>' + ({'name': c.function.name, 'arguments': c.function.arguments} | tojson) + '</tool_call>' }}
{%- endfor %}{{ '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"""


# Each answer is numbered, so that nothing changes and yet each depends on all before.
NUMBERED = CHATML.replace("m.role + '\\n'", "m.role + ('' if m.role == 'assistant' else loop.index | string) + '\\n'")
# The system's text stands in the last user's message, as Mistral's.
SYSTEM_LAST = """\
{%- set last = messages | selectattr('role', 'equalto', 'user') | list | last %}
{%- for m in messages if m.role != 'system' %}
{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m == last and messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}{%- endif %}
{{- m.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"""
# A prompt that ends in a blank, which the model's first word would take in.
BLANK_PROMPT = CHATML.replace("'\\n' + m.content", "': ' + m.content").replace("assistant\\n' }}", "assistant: ' }}")


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ChatFormat]:
    folders = {name: build_folder(tmp_path_factory.mktemp(name), template) for name, template in TEMPLATES.items()}
    loaded = {name: ChatFormat.load(folder) for name, folder in folders.items()}
    return {**loaded, "family": ChatFormat.load(folders["qwen"], family="qwen3")}


def load(folder: Path, template: str, family: str | None = None) -> ChatFormat:
    return ChatFormat.load(build_folder(folder, template), family=family)


@pytest.mark.parametrize("name", [*TEMPLATES, "family"])
def test_append_only_templates_pass_the_check(formats: dict[str, ChatFormat], name: str) -> None:
    formats[name].check()
    formats[name].check_tools()


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (FORGETS, "changes when messages come after it"),
        (COUNTS_AHEAD, "changes when messages come after it"),
        (NO_END, "no special token ends"),
        (SHIFTED_TURN, "are not what the parser reads"),
        (UNSTEADY, "changes"),
        (NUMBERED, "depends on the turns before it"),
        (OPENS_THOUGHTS, "does not keep that in the history"),
        (OTHER_CALLS, "are not what the parser reads.*generic:hermes"),
    ],
)
def test_the_check_refuses_what_can_not_be_exact(tmp_path: Path, template: str, reason: str) -> None:
    format = load(tmp_path, template)
    with pytest.raises(ConfigError, match=reason) as caught:
        format.check()
    assert "\n" not in str(caught.value)


def test_a_refused_template_can_still_be_evaluated(tmp_path: Path) -> None:
    format = load(tmp_path, NO_END)
    opening: list[Message] = [{"role": "user", "content": "hello"}]
    prompt = format.render(opening, TOOLS)
    completion = format.encode('<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>')
    turn = format.parse(completion, TOOLS, prompt)
    assert [call.name for call in turn.calls] == ["add"]
    new: list[Message] = [{"role": "tool", "content": "2", "tool_call_id": turn.calls[0].id}]
    history = [*opening, turn.message]
    assert format.bridge(prompt, completion, new, TOOLS, history) is None
    assert format.decode(format.render([*history, *new], TOOLS)).endswith("</tool_response>\nassistant: ")


def test_rendering_tools_that_can_not_be_read_back_is_refused_for_evaluation_too(tmp_path: Path) -> None:
    opening: list[Message] = [{"role": "user", "content": "hello"}]
    format = load(tmp_path, OTHER_CALLS)
    assert format.render(opening, [])
    with pytest.raises(ConfigError, match="generic:hermes"):
        format.render(opening, TOOLS)
    ours = load(tmp_path / "hermes", OTHER_CALLS, "generic:hermes")
    ours.check()
    assert "<tool_call>" in ours.decode(ours.render(opening, TOOLS))


def test_another_parser_can_be_chosen(tmp_path: Path) -> None:
    xml = STRICT_TOOLS.replace(
        "({'name': c.function.name, 'arguments': c.function.arguments} | tojson)",
        "'<function=' + c.function.name + '>' }}{% for k, v in c.function.arguments.items() %}"
        "{{ '<parameter=' + k + '>' + (v | tojson) + '</parameter>' }}{% endfor %}{{ '</function>'",
    )
    format = load(tmp_path, xml, "generic:qwen3.5")
    format.check()
    with pytest.raises(ConfigError, match="not what the parser reads"):
        load(tmp_path / "other", xml).check_tools()


# Text as a model could say it: no end token, no thoughts, nothing that a tokenizer would normalise away.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="<>"), max_size=30)
WORD = st.text("abc XYZ 019 .,!? äö中🙂\n", min_size=1, max_size=20).map(str.strip).filter(bool)


@st.composite
def rounds(draw: st.DrawFn) -> list[tuple[Message, list[Message]]]:
    """Turns with tool calls and their answers."""
    made = []
    for turn in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 3))
        calls, answers = [], []
        for index in range(count):
            arguments = draw(st.dictionaries(WORD, st.one_of(TEXT, st.integers(), st.none(), st.lists(st.booleans()))))
            name = draw(st.sampled_from(["add", "find"]))
            function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
            calls.append({"id": call_id(turn, index), "type": "function", "function": function})
            answers.append({"role": "tool", "content": draw(TEXT), "tool_call_id": call_id(turn, index), "name": name})
        message = {"role": "assistant", "content": draw(st.just("") | WORD), "tool_calls": calls}
        made.append(cast("tuple[Message, list[Message]]", (message, answers)))
    return made


@pytest.mark.parametrize("name", [*TEMPLATES, "family"])
@settings(max_examples=25, deadline=None)
@given(system=st.booleans(), user=WORD, conversation=rounds())
def test_a_bridged_conversation_is_the_full_render(
    formats: dict[str, ChatFormat],
    name: str,
    system: bool,
    user: str,
    conversation: Sequence[tuple[Message, list[Message]]],
) -> None:
    format = formats[name]
    messages: list[Message] = [{"role": "system", "content": "Be kind."}] if system else []
    messages.append({"role": "user", "content": user})
    prompt = format.render(messages, TOOLS)
    for turn, answers in conversation:
        # What the template itself would write for the turn is what the model says.
        full = format.render([*messages, turn, *answers], TOOLS)
        assert full[: len(prompt)] == prompt
        completion = full[len(prompt) : full.index(2, len(prompt)) + 1]
        understood = format.parse(completion, TOOLS, prompt)
        said = [(call.name, call.arguments) for call in understood.calls]
        wanted = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in turn["tool_calls"]]
        assert said == wanted
        assert understood.message["content"] == turn["content"]
        bridged = format.bridge(prompt, completion, answers, TOOLS, [*messages, turn])
        assert bridged == full
        prompt = bridged
        messages += [turn, *answers]


@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=40, deadline=None)
@given(ids=st.lists(st.integers(3, 400), max_size=25), answer=TEXT, user=st.booleans())
def test_whatever_was_sampled_the_bridge_is_the_full_render_of_it_or_there_is_none(
    formats: dict[str, ChatFormat], name: str, ids: list[int], answer: str, user: bool
) -> None:
    format = formats[name]
    opening: list[Message] = [{"role": "user", "content": "hello"}]
    prompt, completion = format.render(opening, TOOLS), [*ids, 2]
    turn = format.parse(completion, TOOLS, prompt)
    assume(not turn.calls)
    new: list[Message] = [{"role": "user", "content": answer}]
    if not user:
        new = [{"role": "tool", "content": answer, "tool_call_id": "none"}]
    history = [*opening, turn.message]
    bridged = format.bridge(prompt, completion, new, TOOLS, history)
    if bridged is not None:
        assert bridged[: len(prompt) + len(completion)] == prompt + completion
        assert format.decode(bridged) == format.decode(format.render([*history, *new], TOOLS))
    elif name != "gemma":
        pytest.fail("these templates keep any text")


def test_blanks_that_a_template_trims_start_a_new_segment(formats: dict[str, ChatFormat]) -> None:
    format = formats["gemma"]
    opening: list[Message] = [{"role": "user", "content": "hello"}]
    prompt = format.render(opening, [])

    def bridged(text: str) -> list[int] | None:
        history: list[Message] = [*opening, {"role": "assistant", "content": text}]
        return format.bridge(
            prompt, format.encode(text + "<|im_end|>"), [{"role": "user", "content": " x "}], [], history
        )

    assert bridged(" hi") is None
    assert bridged("hi\n") is None
    assert (bridged("hi") or [])[-len(prompt) :] != []


@pytest.mark.parametrize(("name", "kept"), [("qwen", True), ("chatml", True), ("thoughts", False)])
def test_thoughts_that_a_template_leaves_out_start_a_new_segment(
    formats: dict[str, ChatFormat], name: str, kept: bool
) -> None:
    format = formats[name]
    opening: list[Message] = [{"role": "user", "content": "hello"}]
    prompt = format.render(opening, [])
    completion = format.encode("<think>\nhm\n</think>\n\nhi<|im_end|>")
    turn = format.parse(completion, [], prompt)
    assert turn.message == {"role": "assistant", "content": "hi", "reasoning_content": "hm"}
    new: list[Message] = [{"role": "user", "content": "again"}]
    bridged = format.bridge(prompt, completion, new, [], [*opening, turn.message])
    assert (bridged is not None) == kept
    if bridged is not None:
        assert bridged == format.render([*opening, turn.message, *new], [])


def test_thoughts_of_an_earlier_turn_count_too(formats: dict[str, ChatFormat]) -> None:
    format = formats["thoughts"]
    history: list[Message] = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "once"},
        {"role": "user", "content": "c"},
    ]
    prompt, completion = format.render(history, []), format.encode("d<|im_end|>")
    new: list[Message] = [{"role": "user", "content": "e"}]
    said: Message = {"role": "assistant", "content": "d"}
    assert format.bridge(prompt, completion, new, [], [*history, said]) is None
    plain: list[Message] = [cast(Message, {"role": m["role"], "content": m["content"]}) for m in history]
    assert format.bridge(prompt, completion, new, [], [*plain, said]) is not None


def test_qwen3_starts_over_at_a_user_but_not_at_a_tool(formats: dict[str, ChatFormat]) -> None:
    format = formats["family"]
    opening: list[Message] = [{"role": "user", "content": "hello"}]
    prompt, completion = format.render(opening, []), format.encode("hi<|im_end|>")
    history: list[Message] = [*opening, {"role": "assistant", "content": "hi"}]
    assert format.bridge(prompt, completion, [{"role": "user", "content": "x"}], [], history) is None
    assert format.bridge(prompt, completion, [{"role": "tool", "content": "x"}], [], history) is not None


@pytest.mark.parametrize("name", ["qwen", "chatml", "family"])
@pytest.mark.parametrize(
    ("text", "closing"),
    [
        ("so I would", "<|im_end|>\n"),
        ("", "<|im_end|>\n"),
        ('<tool_call>\n{"name": "ad', "<|im_end|>\n"),
        ('<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>', "<|im_end|>\n"),
        ("<think>\nhm, well", "</think>"),
    ],
)
def test_a_turn_that_was_cut_is_closed(formats: dict[str, ChatFormat], name: str, text: str, closing: str) -> None:
    format = formats[name]
    opening: list[Message] = [{"role": "user", "content": "hello"}]
    prompt, completion = format.render(opening, TOOLS), format.encode(text)
    turn = format.parse(completion, TOOLS, prompt)
    new: list[Message] = [{"role": "tool", "content": "cut", "tool_call_id": "none"}]
    history = [*opening, turn.message]
    bridged = format.bridge(prompt, completion, new, TOOLS, history)
    assert bridged is not None
    assert bridged[: len(prompt) + len(completion)] == prompt + completion
    added = format.decode(bridged[len(prompt) + len(completion) :])
    assert added.lstrip("\n").startswith(closing)
    if name != "family":
        assert format.decode(bridged) == format.decode(format.render([*history, *new], TOOLS))


def test_another_end_token_starts_a_new_segment(formats: dict[str, ChatFormat], tmp_path: Path) -> None:
    path = build_folder(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 0]}')
    format = ChatFormat.load(path)
    opening: list[Message] = [{"role": "user", "content": "hello"}]
    history: list[Message] = [*opening, {"role": "assistant", "content": "hi"}]
    new: list[Message] = [{"role": "user", "content": "x"}]
    prompt = format.render(opening, [])
    assert format.bridge(prompt, format.encode("hi<|endoftext|>"), new, [], history) is None
    assert format.bridge(prompt, format.encode("hi<|im_end|>there"), new, [], history) is None
    assert format.bridge(prompt, format.encode("hi<|im_end|>"), new, [], history) is not None


def test_a_users_message_before_which_tools_move_starts_a_new_segment(tmp_path: Path) -> None:
    format = load(tmp_path, TOOLS_LAST)
    format.check()
    opening: list[Message] = [{"role": "user", "content": "hello"}]
    history: list[Message] = [*opening, {"role": "assistant", "content": "hi"}]
    prompt, completion = format.render(opening, TOOLS), format.encode("hi<|im_end|>")
    assert format.bridge(prompt, completion, [{"role": "user", "content": "x"}], TOOLS, history) is None
    assert format.bridge(prompt, completion, [{"role": "user", "content": "x"}], [], history) is not None


def test_a_users_message_to_which_the_system_moves_starts_a_new_segment(tmp_path: Path) -> None:
    format = load(tmp_path, SYSTEM_LAST)
    user: Message = {"role": "user", "content": "hello"}
    said: Message = {"role": "assistant", "content": "hi"}
    completion = format.encode("hi<|im_end|>")
    for opening, exact in (([user], True), ([cast(Message, {"role": "system", "content": "Be kind."}), user], False)):
        prompt = format.render(opening, [])
        bridged = format.bridge(prompt, completion, [user], [], [*opening, said])
        assert (bridged is not None) == exact


def test_tools_move_to_a_user_after_a_call_too(tmp_path: Path) -> None:
    format = load(tmp_path, TOOLS_LAST)
    opening: list[Message] = [{"role": "user", "content": "hello"}]
    prompt = format.render(opening, TOOLS)
    completion = format.encode('<tool_call>{"name": "add", "arguments": {}}</tool_call><|im_end|>')
    turn = format.parse(completion, TOOLS, prompt)
    answer: Message = {"role": "tool", "content": "1", "tool_call_id": turn.calls[0].id}
    history = [*opening, turn.message]
    assert format.bridge(prompt, completion, [answer], TOOLS, history) is not None
    assert format.bridge(prompt, completion, [answer, *opening], TOOLS, history) is None


def test_a_changed_head_starts_a_new_segment_after_a_call_too(tmp_path: Path) -> None:
    format = load(tmp_path, "{{ messages | length }} messages\n" + STRICT_TOOLS)
    opening: list[Message] = [{"role": "user", "content": "hello"}]
    prompt = format.render(opening, TOOLS)
    completion = format.encode('<tool_call>{"name": "add", "arguments": {}}</tool_call><|im_end|>')
    turn = format.parse(completion, TOOLS, prompt)
    answer: Message = {"role": "tool", "content": "1", "tool_call_id": turn.calls[0].id}
    assert format.bridge(prompt, completion, [answer], TOOLS, [*opening, turn.message]) is None


def test_a_prompt_whose_end_merges_with_what_follows_is_no_obstacle(tmp_path: Path) -> None:
    format = load(tmp_path, BLANK_PROMPT)
    format.check()
    opening: list[Message] = [{"role": "user", "content": "What"}]
    history: list[Message] = [*opening, {"role": "assistant", "content": "Answer:"}]
    prompt, completion = format.render(opening, []), format.encode("Answer:<|im_end|>")
    bridged = format.bridge(prompt, completion, opening, [], history)
    full = format.render([*history, *opening], [])
    assert bridged is not None
    assert bridged != full
    assert format.decode(bridged) == format.decode(full)


def test_tokens_after_a_stop_token_are_never_cut_off(formats: dict[str, ChatFormat]) -> None:
    for name in ("family", "qwen"):
        format = formats[name]
        opening: list[Message] = [{"role": "user", "content": "hello"}]
        prompt, completion = format.render(opening, []), format.encode("hi<|im_end|>there")
        history: list[Message] = [*opening, {"role": "assistant", "content": "hi"}]
        assert format.bridge(prompt, completion, [{"role": "tool", "content": "x"}], [], history) is None


def test_an_assistants_message_is_never_bridged(formats: dict[str, ChatFormat]) -> None:
    for format in formats.values():
        opening: list[Message] = [{"role": "user", "content": "hello"}]
        said: Message = {"role": "assistant", "content": "hi"}
        prompt, completion = format.render(opening, []), format.encode("hi<|im_end|>")
        assert format.bridge(prompt, completion, [said], [], [*opening, said]) is None


class TestAdapting:
    nothing = Traits(False, False, False, False, False, False)
    messages: ClassVar[list[dict[str, Any]]] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hello"},
        {
            "role": "assistant",
            "content": "see",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "call00000", "function": {"name": "add", "arguments": '{"a": 1}'}}],
        },
        {"role": "tool", "content": "1", "tool_call_id": "call00000"},
        {"role": "tool", "content": "2", "tool_call_id": "call00001"},
        {"role": "user", "content": "go on"},
    ]

    def test_a_template_without_anything(self) -> None:
        adapted, tools = adapt(self.messages, TOOLS, self.nothing)
        assert tools == []
        assert [message["role"] for message in adapted] == ["user", "assistant", "user"]
        assert adapted[0]["content"].startswith("Be kind.\n\n# Tools")
        assert adapted[0]["content"].endswith("hello")
        assert json.dumps(TOOLS[0]) in adapted[0]["content"]
        call = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
        assert adapted[1] == {"role": "assistant", "content": f"<think>\nhm\n</think>\n\nsee\n{call}"}
        answers = "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>\ngo on"
        assert adapted[2] == {"role": "user", "content": answers}

    def test_a_template_with_everything_only_gets_arguments_as_objects(self) -> None:
        adapted, tools = adapt(self.messages, TOOLS, Traits(True, True, False, True, True, True))
        assert tools == TOOLS
        assert adapted[2]["tool_calls"][0]["function"] == {"name": "add", "arguments": {"a": 1}}
        adapted[2]["tool_calls"] = self.messages[2]["tool_calls"]
        assert adapted == self.messages

    def test_an_answer_without_a_call_is_a_users_message_where_the_template_refuses_it(self) -> None:
        adapted, _ = adapt(self.messages, [], Traits(True, True, True, True, False, True))
        assert [message["role"] for message in adapted] == ["system", "user", "assistant", "tool", "user"]
        assert adapted[-1]["content"] == "<tool_response>\n2\n</tool_response>\ngo on"

    def test_the_conversation_itself_is_left_alone(self) -> None:
        before = json.dumps(self.messages)
        adapt(self.messages, TOOLS, self.nothing)
        assert json.dumps(self.messages) == before


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qwen", Traits(True, True, False, True, True, False)),
        ("chatml", Traits(True, False, False, False, False, False)),
        ("gemma", Traits(False, False, False, False, False, False)),
        ("strict", Traits(True, True, False, True, False, False)),
        ("thoughts", Traits(True, False, False, False, False, True)),
    ],
)
def test_what_a_template_can_express_is_found_out(tmp_path: Path, name: str, expected: Traits) -> None:
    tokenizer = load_tokenizer(build_folder(tmp_path, TEMPLATES[name]))
    assert ChatTemplate(tokenizer, name, {}).traits == expected
