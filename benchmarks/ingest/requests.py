"""HTTP as bytes: an HTTP client library would take longer for a request than the endpoint does."""

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from uuid_utils.compat import uuid7

_NUM_INTERACTIONS = 1000
_NUM_RATERS = 100
METRIC = "accepted"


def to_request(path: str, body: bytes, *, key: str = "", kind: str = "application/json") -> bytes:
    """Return one POST; an empty key is not sent."""
    return b"%b%d\r\n\r\n%b" % (_head(path, key=key, kind=kind), len(body), body)


def feedback_requests(key: str, *, num_items: int) -> Iterator[bytes]:
    """Yield requests to the product, without end, each with ids that were never sent before.

    Args:
        key: of the API.
        num_items: feedbacks in one request; more than one go as NDJSON to the batch route.
    """
    run = secrets.token_hex(6).encode()
    tails = [_tail(number) for number in range(_NUM_INTERACTIONS)]
    is_single = num_items == 1
    head = _head(
        "/v1/feedback" if is_single else "/v1/feedback:batch",
        key=key,
        kind="application/json" if is_single else "application/x-ndjson",
    )
    first = 0
    while True:
        body = b"\n".join(
            b'{"feedback_id": "%b-%010d", %b' % (run, number, tails[number % _NUM_INTERACTIONS])
            for number in range(first, first + num_items)
        )
        yield b"%b%d\r\n\r\n%b" % (head, len(body), body)
        first += num_items


def assessment_requests(traces: Sequence[str]) -> Iterator[bytes]:
    """Yield what `mlflow.log_feedback` sends for these traces, over and over."""
    sent = [
        to_request(f"/api/3.0/mlflow/traces/{trace}/assessments", _json(_assessment(number, trace)))
        for number, trace in enumerate(traces)
    ]
    while True:
        yield from sent


def feedback_request_on(interaction_id: str, *, key: str) -> bytes:
    """Return the one feedback on an interaction."""
    body = {
        "feedback_id": f"on-{interaction_id}",
        "interaction_id": interaction_id,
        "metric": METRIC,
        "value": True,
        "rater": _rater(int(interaction_id[-4:], 16)),
    }
    return to_request("/v1/feedback", _json(body), key=key)


class NotTakenError(Exception):
    """A request was not taken as it has to be; the figures would mean nothing."""


class AnswerBuffer:
    """What came in on one connection that has one request under way."""

    def __init__(self) -> None:
        self._held = b""

    def take(self, data: bytes) -> bytes | None:
        """Add bytes; return the answer once it is whole, by its length."""
        self._held += data
        end = self._held.find(b"\r\n\r\n")
        if end < 0:
            return None
        at = self._held.lower().find(b"content-length:", 0, end)
        length = int(self._held[at + 15 : self._held.find(b"\r", at)])
        if len(self._held) < end + 4 + length:
            return None
        whole, self._held = self._held, b""
        return whole


def _assessment(number: int, trace: str) -> dict[str, Any]:
    # As MLflow's own client writes it, but for the times, of which one is as good as another.
    moment = "2026-01-01T00:00:00.000Z"
    return {
        "assessment": {
            "assessment_name": METRIC,
            "trace_id": trace,
            "source": {"source_type": "HUMAN", "source_id": _rater(number)},
            "create_time": moment,
            "last_update_time": moment,
            "feedback": {"value": number % 3 > 0},
            "valid": True,
        }
    }


def _tail(number: int) -> bytes:
    """Return a feedback but for its opening brace and its id."""
    return _json(
        {
            "interaction_id": f"{uuid7()}.{uuid7()}",
            "metric": METRIC,
            "value": number % 3 > 0,
            "rater": _rater(number),
        }
    )[1:]


def _rater(number: int) -> str:
    return f"rater-{number % _NUM_RATERS:03d}"


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode()


def _head(path: str, *, key: str, kind: str) -> bytes:
    credential = f"Authorization: Bearer {key}\r\n" if key else ""
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{credential}"
        f"Content-Type: {kind}\r\nContent-Length: "
    ).encode()
