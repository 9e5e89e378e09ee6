"""What the feedback API answered, read with suspicion: only its own form acknowledges. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any

from tidemill.client.records import Feedback
from tidemill.errors import Problem

_LATER = (408, 425, 429)
"""Beside all of 5xx: statuses that say nothing against the record."""


class Status(StrEnum):
    """What became of one record."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """It was stored before, with the same body."""
    REJECTED = "rejected"
    """It can never be taken; do not send it again."""
    RETRY = "retry"
    """It was not acknowledged; send it again with the same id."""


ACKNOWLEDGED = (Status.ACCEPTED, Status.DUPLICATE)


@dataclass(frozen=True, slots=True)
class Receipt:
    """The acknowledgement of one feedback: it is stored durably."""

    feedback_id: str
    status: Status
    """`accepted` or `duplicate`."""


@dataclass(frozen=True, slots=True)
class InteractionReceipt:
    """The acknowledgement of one interaction: it is stored durably."""

    interaction_id: str
    trajectory_id: str
    status: Status
    """`accepted` or `duplicate`."""


@dataclass(frozen=True, slots=True)
class ItemResult:
    """What became of one feedback of a batch."""

    feedback_id: str
    status: Status
    reason: str | None = None
    """Why it was rejected, or not acknowledged."""
    problem: Problem | None = None
    """The answer, where it was about the request as a whole."""

    @property
    def is_acknowledged(self) -> bool:
        """Whether it is stored durably."""
        return self.status in ACKNOWLEDGED


@dataclass(frozen=True, slots=True)
class Rejection:
    """A queued feedback that can never be taken."""

    feedback: Feedback
    reason: str
    problem: Problem | None = None
    """The answer, where it was about the request as a whole, such as a wrong key."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One response, or why there is none."""

    status: int
    """Of HTTP; 0 = none came."""
    body: bytes = b""
    retry_after_s: float | None = None
    why: str = ""
    """Why none came."""

    @property
    def is_later(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status < 200 or self.status >= 500 or self.status in _LATER

    @property
    def is_too_much(self) -> bool:
        """Whether a smaller batch may succeed."""
        return self.status in (413, 422)

    def document(self) -> Mapping[str, Any]:
        """Return the JSON object of the body; empty when it is none."""
        try:
            read = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return read if isinstance(read, dict) else {}

    def problem(self) -> Problem | None:
        """Return what it says is wrong; None = no answer came."""
        if self.status == 0:
            return None
        said = {name: text for name, text in self.document().items() if isinstance(text, str)}
        ids = {name: text for name, text in said.items() if name.endswith("_id")}
        return Problem(
            status=self.status,
            title=said.get("title", "not an answer of the feedback API"),
            detail=said.get("detail", "see the address that the client was given"),
            type=said.get("type", "about:blank"),
            field=said.get("field"),
            ids=ids,
        )

    def __str__(self) -> str:
        """Return it as one line."""
        return self.why if self.status == 0 else str(self.problem())


def read_status(answer: Answer, **ids: str) -> Status | None:
    """Return what a 2xx answer acknowledges about the record with these ids; None = nothing."""
    said = answer.document()
    if answer.status not in (200, 202) or any(said.get(name) != ids[name] for name in ids):
        return None
    return next((status for status in ACKNOWLEDGED if said.get("status") == status), None)


def read_items(answer: Answer, items: Sequence[Feedback]) -> list[ItemResult] | None:
    """Return a result for each item of a batch; None = it is no answer to this batch."""
    said = answer.document().get("items")
    if answer.status != 207 or not isinstance(said, list) or len(said) != len(items):
        return None
    return [_read_item(item, one) for item, one in zip(items, said, strict=True)]


def parse_retry_after(text: str | None, *, now: datetime) -> float | None:
    """Return the seconds that a `Retry-After` header asks for; None when it says nothing."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        # A longer number is beyond any limit.
        return float(text[:9])
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return max(0.0, (aware - now).total_seconds())


def _read_item(item: Feedback, said: Any) -> ItemResult:
    told = said if isinstance(said, dict) else {}
    reason = told.get("reason")
    reason = reason if isinstance(reason, str) else None
    status = next((one for one in Status if told.get("status") == one), Status.RETRY)
    if status in ACKNOWLEDGED and told.get("feedback_id") != item.feedback_id:
        return ItemResult(item.feedback_id, Status.RETRY, "the answer names another feedback_id")
    return ItemResult(item.feedback_id, status, reason)
