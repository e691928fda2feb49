from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from agentfly.envs.rewards.verifier import SymbolicVerifier


@pytest_asyncio.fixture
async def verifier() -> AsyncIterator[SymbolicVerifier]:
    made = SymbolicVerifier()
    await made.start()
    yield made
    await made.stop()


async def test_formulas_are_equal_by_what_they_mean(verifier: SymbolicVerifier) -> None:
    same = [(r"\frac{1}{2}", "0.5"), ("(x+1)^2", "x^2+2x+1"), (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}")]
    for said, right in [*same, (r"\{1, 2\}", r"\{2, 1\}")]:
        assert await verifier.equal(said, [right]) is True, said
    for said in ("(x+1)^3", "x^2+1", "", "\\frac{", "\x00", "}{" * 50, "9" * 5000):
        assert await verifier.equal(said, ["x^2+2x+1"]) is False, said
    assert await verifier.equal("0.5", ["7", "1/2"]) is True


async def test_a_formula_that_takes_for_ever_ends_the_process_and_the_next_one_is_answered() -> None:
    verifier = SymbolicVerifier(timeout=2.0)
    await verifier.start()
    try:
        assert await verifier.equal("9^{9^{9^{9}}}", ["9^{9^{9^{8}}}"]) in (None, False)
        verifier._timeout = 30.0
        assert await verifier.equal("2+2", ["4"]) is True
    finally:
        await verifier.stop()


async def test_one_who_is_cancelled_leaves_no_answer_behind_for_the_next(verifier: SymbolicVerifier) -> None:
    asking = asyncio.create_task(verifier.equal("(x+1)^2", ["x^2+2x+1"]))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await verifier.equal("1", ["2"]) is False
