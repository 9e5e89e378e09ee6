"""Right-padded batches and values at their completions."""

import pytest
import torch

from tidemill.policy.batches import align_completion_values, build_token_batch

PAIRS = [((5, 6, 7), (8, 9)), ((5,), (6,)), ((5, 6), ())]


def test_a_batch_holds_each_sequence_then_padding() -> None:
    batch = build_token_batch(PAIRS, pad_id=1)
    assert batch.input_ids_BT.tolist() == [[5, 6, 7, 8, 9], [5, 6, 1, 1, 1], [5, 6, 1, 1, 1]]
    assert batch.attention_mask_BT.tolist() == [[1] * 5, [1, 1, 0, 0, 0], [1, 1, 0, 0, 0]]
    assert batch.completion_mask_BT.int().tolist() == [[0, 0, 0, 1, 1], [0, 1, 0, 0, 0], [0] * 5]
    assert (batch.num_sequences, batch.num_completion_tokens) == (3, 3)
    assert batch.to("cpu").input_ids_BT.equal(batch.input_ids_BT)


@pytest.mark.parametrize("pairs", [[], [((), (1,))]])
def test_a_prompt_is_needed(pairs: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> None:
    with pytest.raises(ValueError, match="at least one sequence"):
        build_token_batch(pairs, pad_id=0)


def test_values_lie_at_their_tokens() -> None:
    batch = build_token_batch(PAIRS, pad_id=1)
    values_BT = align_completion_values(batch, [[-0.5, -1.0], [-2.0], []])
    assert values_BT.tolist() == [[0, 0, 0, -0.5, -1.0], [0, -2.0, 0, 0, 0], [0] * 5]
    assert values_BT.dtype is torch.float32


def test_one_value_for_each_token() -> None:
    with pytest.raises(ValueError, match="values for completions"):
        align_completion_values(build_token_batch(PAIRS, pad_id=1), [[-0.5], [-2.0], []])
