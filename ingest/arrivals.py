"""What a request to write brings: who sends it, its body, and until when it is to be answered."""

import asyncio
import re
import zlib
from typing import NamedTuple

from fastapi import Request

from ingest.api_errors import ProblemError, printable
from ingest.api_parts import Api
from ingest.room import Room
from tidemill.storage.keys import ApiKey, Scope

_LENGTH = re.compile("[0-9]{1,18}")


class Wanted(NamedTuple):
    """What a route asks of its requests."""

    scope: Scope
    max_bytes: int
    num_records: int = 0
    """What the key is charged before its body is read; 0 = nothing yet."""
    takes_gzip: bool = False


class Arrival:
    """A request that has come whole; a context manager around its answer, so that it is counted."""

    __slots__ = ("_num_bytes", "_room", "body", "caller", "deadline_s")

    def __init__(self, caller: ApiKey, room: Room) -> None:
        """Hold nothing yet."""
        self.caller = caller
        self.body = b""
        self.deadline_s = 0.0
        """On the loop's clock: nobody may wait for the database or the log any longer."""
        self._room = room
        self._num_bytes = 0

    def __enter__(self) -> "Arrival":
        """Begin to answer."""
        return self

    def __exit__(self, *_: object) -> None:
        """Count it no more."""
        self.leave()

    def hold(self, num_bytes: int) -> None:
        """Count bytes that the process holds for this request.

        Raises:
            ProblemError: 429, too many are held.
        """
        self._room.add_bytes(num_bytes, beside=self._num_bytes)
        self._num_bytes += num_bytes

    def leave(self) -> None:
        """Give the bytes back."""
        self._room.num_bytes -= self._num_bytes
        self._num_bytes = 0


async def receive(api: Api, request: Request, wanted: Wanted) -> Arrival:
    """Return a request with its body; to be left.

    Raises:
        ProblemError: 401, 403, 503: its key; 413, 415, 422: its body; 429: too much at once.
    """
    clock = asyncio.get_running_loop().time
    began_s = clock()
    caller = await api.caller(request, wanted.scope)
    waited_s = clock() - began_s
    api.quotas.charge_key(caller, wanted.num_records)
    is_packed = _is_packed(request, takes_gzip=wanted.takes_gzip)
    arrival = Arrival(caller, api.acceptor.room)
    try:
        body = await _read(request, wanted.max_bytes, arrival)
        arrival.body = _unpacked(body, wanted.max_bytes, arrival) if is_packed else body
    except BaseException:
        arrival.leave()
        raise
    # The time that the caller took to send its body is not ours.
    arrival.deadline_s = clock() + api.settings.answer_within_s - waited_s
    return arrival


def _is_packed(request: Request, *, takes_gzip: bool) -> bool:
    said = request.headers.getlist("content-encoding")
    if not said:
        return False
    packings = [one.strip().lower() for line in said for one in line.split(",")]
    packings = [one for one in packings if one not in ("", "identity")]
    if not packings or (takes_gzip and packings == ["gzip"]):
        return bool(packings)
    known = "packed with gzip, or as it is" if takes_gzip else "as it is, without this header"
    told = printable(", ".join(packings)[:100])
    raise ProblemError(415, f"Content-Encoding {told!r} is not read here: send the body {known}")


async def _read(request: Request, limit: int, arrival: Arrival) -> bytes:
    declared = request.headers.get("content-length", "")
    # What is no short number is counted as it comes.
    if _LENGTH.fullmatch(declared) and int(declared) > limit:
        raise ProblemError(413, f"the body has {declared} bytes; at most {limit}")
    body = bytearray()
    async for chunk in request.stream():
        arrival.hold(len(chunk))
        body += chunk
        if len(body) > limit:
            raise ProblemError(413, f"the body has more than {limit} bytes")
    return bytes(body)


def _unpacked(packed: bytes, limit: int, arrival: Arrival) -> bytes:
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        # One byte more tells that there is more, and a bomb gets no further.
        body = unpacker.decompress(packed, limit + 1)
    except zlib.error as error:
        raise ProblemError(422, "the body is no gzip, although its header says so") from error
    if len(body) > limit:
        raise ProblemError(413, f"the body has more than {limit} bytes when it is unpacked")
    if not unpacker.eof:
        raise ProblemError(422, "the body ends in the middle of its gzip")
    if unpacker.unused_data:
        # A second member would be lost without a word.
        raise ProblemError(422, "the body goes on after its gzip: send one gzip member")
    arrival.hold(len(body))
    return body
