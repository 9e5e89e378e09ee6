"""Questions to a database that may not answer: asked in a thread, and waited for no longer than so.

A database that is down says so at once. One that hangs (a stopped server, a lost network) says
nothing, and a feedback API that waits for it hangs too.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from tidemill.errors import StorageError

T = TypeVar("T")


async def within(timeout_s: float, ask: Callable[[], T]) -> T:
    """Return the answer of a function that blocks.

    Args:
        timeout_s: longest wait; the thread goes on, whatever it finds is dropped.
        ask: the function; runs in a thread.

    Raises:
        StorageError: no answer in time, or what the function raised.
    """
    future = asyncio.get_running_loop().run_in_executor(None, ask)
    done, _ = await asyncio.wait({future}, timeout=timeout_s)
    if not done:
        # Nobody is left to hear what it raises in the end.
        future.add_done_callback(lambda late: late.cancelled() or late.exception())
        raise StorageError(f"the database did not answer within {timeout_s:g} s")
    return future.result()
