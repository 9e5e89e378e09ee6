"""Questions to a database that may not answer: asked in a thread, and waited for no longer than so.

A database that is down says so at once. One that hangs (a stopped server, a lost network) says
nothing, and an HTTP API that waits for it hangs too.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from tidemill.errors import StorageError

T = TypeVar("T")


async def within(timeout_s: float, ask: Callable[[], T]) -> T:
    """Return the answer of a function that blocks.

    Args:
        timeout_s: longest wait. A question whose turn had not come by then is never asked; what
            the others find is dropped.
        ask: the function; runs in a thread.

    Raises:
        StorageError: no answer in time, or what the function raised.
    """
    future = asyncio.get_running_loop().run_in_executor(None, ask)
    try:
        return await heard(future, timeout_s)
    except StorageError:
        future.cancel()
        raise


async def heard(future: "asyncio.Future[T]", timeout_s: float) -> T:
    """Return what a future holds in time; it goes on if it does not.

    Raises:
        StorageError: no answer in time, or what the future raised.
    """
    done, _ = await asyncio.wait({future}, timeout=timeout_s)
    if not done:
        # Nobody is left to hear what it raises in the end.
        future.add_done_callback(lambda late: late.cancelled() or late.exception())
        raise StorageError(f"the database did not answer within {timeout_s:g} s")
    return future.result()
