from __future__ import annotations

import numpy as np
from agentfly.backends.native.batching import Sample, collate, micro_batches, trained_tokens
from hypothesis import given
from hypothesis import strategies as st
from native.toys import segment


def test_the_mask_is_shifted_to_the_place_that_predicts() -> None:
    one = Sample(segment([7, 8, 9, 10], [2, 3], {2: -0.5, 3: -0.25}), advantage=2.0, weight=0.5)
    two = Sample(segment([5, 6], [1], {1: -1.0}), advantage=-1.0, weight=0.25)
    batch = collate([one, two], padding_id=99)
    assert batch.ids.tolist() == [[7, 8, 9, 10], [5, 6, 99, 99]]
    assert batch.rows.tolist() == [0, 0, 1]
    assert batch.columns.tolist() == [1, 2, 0]
    assert batch.targets.tolist() == [9, 10, 6]
    assert batch.old_logprobs.tolist() == [-0.5, -0.25, -1.0]
    assert batch.advantages.tolist() == [2.0, 2.0, -1.0]
    assert batch.weights.tolist() == [0.5, 0.5, 0.25]


def test_a_first_token_cannot_be_learned() -> None:
    assert trained_tokens(segment([1, 2], [0, 1])) == 1


LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=20)


@given(lengths=LENGTHS, budget=st.integers(1, 200))
def test_every_segment_comes_once_and_the_budget_holds(lengths: list[int], budget: int) -> None:
    samples = [Sample(segment([index] * length, []), 0.0, 0.0) for index, length in enumerate(lengths)]
    seen = []
    for batch in micro_batches(samples, budget, padding_id=-1):
        assert batch.ids.numel() <= budget or len(batch.ids) == 1
        seen += [(int(row[0]), int((row >= 0).sum())) for row in batch.ids]
    assert sorted(seen) == list(enumerate(lengths))


def test_arrays_have_the_types_that_torch_indexes_with() -> None:
    batch = collate([Sample(segment([1, 2], [1]), 1.0, 1.0)])
    assert {batch.ids.dtype, batch.rows.dtype, batch.columns.dtype, batch.targets.dtype} == {batch.ids.dtype}
    assert batch.ids.numpy().dtype == np.int64
