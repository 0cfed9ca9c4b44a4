"""Orders to rejoin are read as they are written, and a checksum sees every bit."""

from __future__ import annotations

import pytest
import torch

from falcon_torch._hook import Rejoin, decode_rejoin
from falcon_torch._state import checksum


@pytest.mark.parametrize(
    "values", [[], [0, 1, 0, 0], [0, -1, 0, 0, 0], [0, 1, 0, 1, 4], [0, 1, 0, 0, 1, 2], [0, 1, 0, 0, 1, 2, 2]]
)
def test_orders_that_cannot_be_followed_are_refused(values: list[int]) -> None:
    with pytest.raises(ValueError, match="rejoin"):
        decode_rejoin(1, values)


def test_an_order_to_rejoin_is_read() -> None:
    order = decode_rejoin(4, [0, 9, 5, 2, 6, 2, 1, 3, 1])
    assert order == Rejoin(4, 5 << 31 | 9, False, [6, 2], {3: 1})


def test_a_checksum_sees_every_bit() -> None:
    tensor = torch.arange(37, dtype=torch.float32).to(torch.bfloat16)[1:]
    other = tensor.clone()
    assert checksum([tensor]) == checksum([other])
    other.view(torch.int16)[17] ^= 1
    assert checksum([tensor]) != checksum([other])
    assert checksum([tensor, other]) != checksum([other, tensor])
