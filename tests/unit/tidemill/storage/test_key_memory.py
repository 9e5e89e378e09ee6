import asyncio

import pytest

from tidemill.errors import StorageError
from tidemill.storage.key_memory import KeyMemory
from tidemill.storage.keys import ApiKey


@pytest.mark.parametrize("keeps_unknown", [True, False])
def test_whether_a_refusal_outlives_the_database_is_declared(keeps_unknown: bool) -> None:
    now, is_down = 0.0, False

    def find(_: str) -> ApiKey | None:
        if is_down:
            raise StorageError("down")
        return None

    memory = KeyMemory(find, fresh_s=5, stale_s=60, keeps_unknown=keeps_unknown, clock=lambda: now)
    assert asyncio.run(memory.look_up("tdm_x")) is None
    now, is_down = 6.0, True
    if keeps_unknown:
        assert asyncio.run(memory.look_up("tdm_x")) is None
        return
    with pytest.raises(StorageError):
        asyncio.run(memory.look_up("tdm_x"))
