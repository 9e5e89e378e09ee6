"""What the sinks of both logs share: how futures are settled, and what no log could store."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

from tidemill.errors import EventLogError
from tidemill.eventlog.base import Appended, NewRecord, Position
from tidemill.eventlog.topics import check_record


def settle_one(future: Future[Position], outcome: Appended) -> None:
    """Give a future its record's place, or the reason why it has none."""
    if isinstance(outcome, EventLogError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def find_flaws(topic: str, records: Sequence[NewRecord]) -> dict[int, EventLogError]:
    """Return, by index, why some of the records can never be stored."""
    flaws: dict[int, EventLogError] = {}
    for index, record in enumerate(records):
        try:
            check_record(topic, record.key, record.value)
        except EventLogError as error:
            flaws[index] = error
    return flaws


def refused(error: EventLogError) -> Future[Position]:
    """Return the future of a record that was not even tried."""
    future: Future[Position] = Future()
    future.set_exception(error)
    return future


def with_flaws(
    stored: Future[list[Appended]], flaws: Mapping[int, EventLogError]
) -> Future[list[Appended]]:
    """Return the outcomes of all records, where those with flaws were never handed over."""
    future: Future[list[Appended]] = Future()

    def settle(_: Future[list[Appended]]) -> None:
        if stored.cancelled():
            future.cancel()
            return
        good = iter(stored.result())
        number = len(stored.result()) + len(flaws)
        outcomes: list[Appended] = [
            flaws[index] if index in flaws else next(good) for index in range(number)
        ]
        with suppress(InvalidStateError):
            future.set_result(outcomes)

    def pass_on(_: Future[list[Appended]]) -> None:
        if future.cancelled():
            stored.cancel()

    stored.add_done_callback(settle)
    future.add_done_callback(pass_on)
    return future
