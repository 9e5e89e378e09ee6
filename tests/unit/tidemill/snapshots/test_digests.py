"""Digests cover type, shape and every bit."""

import pytest
import torch
from torch import tensor

from tidemill.snapshots.digests import tensor_digest, whole_digest

ONE = tensor([[1.0, 2.0], [3.0, 4.0]])


def test_equal_tensors_have_equal_digests() -> None:
    assert tensor_digest(ONE) == tensor_digest(ONE.clone())
    assert tensor_digest(ONE.T) == tensor_digest(ONE.T.contiguous())
    assert tensor_digest(torch.zeros(0)) == tensor_digest(torch.zeros(0))


@pytest.mark.parametrize(
    "other",
    [
        ONE.T,
        ONE.view(4),
        ONE.bfloat16(),
        ONE.view(torch.int32),
        ONE + 1e-6,
    ],
)
def test_any_difference_shows(other: torch.Tensor) -> None:
    assert tensor_digest(other) != tensor_digest(ONE)


def test_signed_zeros_differ() -> None:
    assert tensor_digest(tensor([0.0])) != tensor_digest(tensor([-0.0]))


def test_a_whole_digest_ignores_order_but_not_borders() -> None:
    assert whole_digest({"a": "1", "b": "2"}) == whole_digest({"b": "2", "a": "1"})
    assert whole_digest({"a": "1b"}) != whole_digest({"a1": "b"})
    assert whole_digest({}) != whole_digest({"": ""})
