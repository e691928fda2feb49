from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from agent.contexts import context
from agentfly.envs.rewards import all_of, exact, f1, gated, has_format, max_length, multiple_choice, numeric
from agentfly.envs.rewards.answers import find_answer
from agentfly.envs.rewards.choice import find_letter
from agentfly.envs.rewards.numbers import find_number
from agentfly.envs.rewards.text import normalise, word_f1
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly.agent import Reward, weighted
from agentfly.errors import ConfigError, RewardError

texts = st.text(max_size=80)
plain = st.text(st.characters(exclude_characters="\\#<", exclude_categories=("Cs", "Cc")), min_size=1).map(str.strip)


async def score(reward: Reward, said: str, **fields: Any) -> float:
    assert not reward.missing(fields)
    return (await reward(final_response=said, trajectory=None, ctx=context(**fields))).value


ALL = [exact(), f1(), numeric(), multiple_choice(), exact(strict=True, extract=False, name="strict")]


@settings(deadline=None, max_examples=50)
@given(texts, texts)
async def test_every_comparison_is_between_0_and_1_and_survives_anything(said: str, right: str) -> None:
    for reward in ALL:
        assert 0.0 <= await score(reward, said, answer=right) <= 1.0


@settings(deadline=None, max_examples=50)
@given(plain.filter(bool))
async def test_the_right_answer_is_right_however_it_is_wrapped(answer: str) -> None:
    for said in (answer, f"so <answer>{answer}</answer>.", f"thus\n#### {answer}"):
        assert await score(exact(strict=True), said, answer=answer) == 1.0
        assert await score(exact(), said, answer=["something else", answer]) == 1.0
        assert await score(f1(), said, answer=answer) == 1.0


@settings(deadline=None, max_examples=50)
@given(plain.filter(lambda text: "{" not in text and "}" not in text))
def test_boxes_are_found_and_braces_in_them_paired(answer: str) -> None:
    assert find_answer(f"first \\boxed{{no}} then \\boxed{{{answer}{{1}}}}") == f"{answer}{{1}}".strip()
    assert find_answer(f"\\boxed{{{answer}}} and \\boxed{{never closed") == answer


@settings(deadline=None, max_examples=50)
@given(texts, texts)
def test_f1_is_symmetric_and_1_only_for_the_same_words(left: str, right: str) -> None:
    assert word_f1(left, right) == word_f1(right, left)
    same = sorted(normalise(left).split()) == sorted(normalise(right).split())
    assert (word_f1(left, right) == 1.0) == same


def test_f1_of_an_example() -> None:
    assert word_f1("The river Rhine", "a Rhine river valley") == pytest.approx(0.8)


@settings(deadline=None, max_examples=50)
@given(st.integers(-(10**12), 10**12), st.integers(1, 6))
def test_numbers_are_read_exactly(whole: int, digits: int) -> None:
    assert find_number(f"it is {whole:,} metres") == whole
    assert find_number(f"{whole}/7") == Fraction(whole, 7)
    assert find_number(f"{whole}%") == Fraction(whole, 100)
    assert find_number(f"{Fraction(whole, 10**digits).numerator} / {10**digits}") is not None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234.5 dollars.", Fraction("1234.5")),
        ("first 3 then -7.", -7),
        ("\N{MINUS SIGN}2e3", -2000),
        (".5", Fraction(1, 2)),
        ("1/0", 0),
        ("9e999999999", None),
        ("v2.0.1a", None),
        ("nothing", None),
    ],
)
def test_numbers_in_text(text: str, value: Fraction | None) -> None:
    if text == "1/0":
        assert find_number(text) is None  # never a zero or a one that was made of its parts
    else:
        assert find_number(text) == value


async def test_tolerances() -> None:
    assert await score(numeric(absolute=0.1), "3.05", answer=3) == 1.0
    assert await score(numeric(absolute=0.01), "3.05", answer=3) == 0.0
    assert await score(numeric(relative=0.02), "102", answer="100") == 1.0
    assert await score(numeric(), "none at all", answer="100") == 0.0
    with pytest.raises(ConfigError, match="negative"):
        numeric(absolute=-1)


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("b", "B"),
        ("(c)", "C"),
        ("D. because", "D"),
        ("The answer is (A).", "A"),
        ("option: b", "B"),
        ("I think so", None),
    ],
)
def test_letters(text: str, letter: str | None) -> None:
    assert find_letter(text) == letter


async def test_choice_needs_a_choice() -> None:
    assert await score(multiple_choice(), "Answer: C", answer="c") == 1.0
    assert await score(multiple_choice(), "A or B", answer="none of them") == 0.0


async def test_format_and_length() -> None:
    form = has_format(r"<think>.*</think>\s*<answer>.+</answer>")
    assert await score(form, "<think>a\nb</think>\n<answer>4</answer>") == 1.0
    assert await score(form, "<answer>4</answer>") == 0.0
    with pytest.raises(ConfigError, match="no regular expression"):
        has_format("(")
    assert await score(max_length(3), "abc") == 1.0
    assert await score(max_length(3), "abcd") == 0.0
    with pytest.raises(ConfigError, match="fades_until"):
        max_length(5, fades_until=4)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 50), st.integers(1, 50), st.integers(0, 200))
async def test_length_never_pays_for_more(characters: int, fading: int, length: int) -> None:
    reward = max_length(characters, fades_until=characters + fading)
    here, longer = await score(reward, "x" * length), await score(reward, "x" * (length + 1))
    assert 0.0 <= longer <= here <= 1.0


async def test_combinations() -> None:
    both = all_of(exact(), max_length(3))
    assert await score(both, "abc", answer="abc") == 1.0
    assert await score(both, "abcd", answer="abcd") == 0.0
    assert both.missing(()) == ["answer"]
    late = gated(has_format("a.*"), exact(strict=True))
    assert await score(late, "abc", answer="abc") == 1.0
    result = await late(final_response="xyz", trajectory=None, ctx=context(answer=[]))
    assert (result.value, result.metrics) == (0.0, {"format": 0.0})  # the bad field was never looked at
    mixed = weighted({exact(): 0.75, max_length(3): 0.25})
    assert await score(mixed, "abcd", answer="abcd") == 0.75
    with pytest.raises(ConfigError, match="names of their own"):
        all_of(exact(), exact())


async def test_a_task_without_answers_is_an_error_of_the_reward() -> None:
    with pytest.raises(RewardError, match="field 'answer'"):
        await score(exact(), "x", answer=[])
