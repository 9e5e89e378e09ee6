import asyncio
import threading

import pytest

from tidemill.errors import StorageError
from tidemill.storage.patience import within


def test_an_answer_in_time_is_returned_and_an_error_raised() -> None:
    assert asyncio.run(within(5, lambda: "answer")) == "answer"

    def down() -> None:
        raise StorageError("down")

    with pytest.raises(StorageError, match="down"):
        asyncio.run(within(5, down))


def test_nobody_waits_longer_than_declared_whatever_comes_late() -> None:
    gate = threading.Event()

    def slow() -> None:
        gate.wait(10)
        raise StorageError("too late to be heard")

    async def ask() -> None:
        try:
            with pytest.raises(StorageError, match=r"did not answer within 0\.01 s"):
                await within(0.01, slow)
        finally:
            gate.set()

    asyncio.run(ask())
