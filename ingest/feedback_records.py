"""From a feedback body to the record that the log gets. Pure.

This is the hottest code of the feedback API. A body was validated once, so its event is put
together from parts that are known to be good, and never validated again: the bytes are those that
`codec.encode` gives for the event, which a test holds for whatever a body may say.
"""

from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from pydantic_core import to_json

from ingest.api_schemas import FeedbackBody
from tidemill.contracts.events import FeedbackSource, FeedbackValue
from tidemill.contracts.ids import new_feedback_id
from tidemill.eventlog.base import NewRecord
from tidemill.subjects import SubjectHasher

RecordKey = tuple[str, str]
"""Tenant and id: what another tenant holds is never told."""


def _json(value: Any) -> str:
    return to_json(value).decode()


_SOURCES = {source: _json(source) for source in FeedbackSource}


class FeedbackRecord(NamedTuple):
    """A feedback as the log gets it, and what the API itself must know of it."""

    key: RecordKey
    record: NewRecord
    """A `FeedbackReceived`, encoded, under its trajectory's id."""
    fingerprint: str
    """The event's body digest."""
    metric: str
    value: FeedbackValue
    names_interaction: bool
    rater: str | None
    """Keyed hash."""

    @property
    def feedback_id(self) -> str:
        """Return its id within the tenant."""
        return self.key[1]


class FeedbackEncoder:
    """Makes the records of one request; what all of them share is spelled once."""

    def __init__(self, *, tenant: str, hasher: SubjectHasher, received_at: datetime) -> None:
        """Spell what the records share.

        Args:
            tenant: from the caller's key.
            hasher: of raters.
            received_at: now.
        """
        self.received_at = received_at
        self._tenant = tenant
        self._tenant_json = _json(tenant)
        self._hasher = hasher
        self._received_json = _json(received_at)

    def record(self, body: FeedbackBody, stand_in_id: str | None = None) -> FeedbackRecord:
        """Return the record of a body; the rater is hashed.

        Args:
            body: what the caller said.
            stand_in_id: the id where the body gives none; None = a new one is made.
        """
        named = body.interaction_id
        trajectory = str(body.trajectory_id) if named is None else named.partition(".")[0]
        rater = None if body.rater is None else self._hasher.subject(self._tenant, body.rater)
        feedback_id = body.feedback_id or stand_in_id or new_feedback_id()
        # With the hash, not the raw rater: a digest of few possible bodies can be guessed.
        said = _said(body, rater)
        digest = sha256(f"{named or trajectory} {said}".encode()).hexdigest()
        # Ids are letters, digits and a few signs, which JSON writes as they are.
        payload = (
            f'{{"schema_version":1,"feedback_id":"{feedback_id}","tenant":{self._tenant_json},'
            f'"interaction_id":{_quoted(named)},"trajectory_id":"{trajectory}",{said},'
            f'"received_at":{self._received_json},"body_digest":"{digest}"}}'
        )
        return FeedbackRecord(
            (self._tenant, feedback_id),
            NewRecord(trajectory, payload.encode()),
            digest,
            body.metric,
            body.value,
            named is not None,
            rater,
        )


def _said(body: FeedbackBody, rater: str | None) -> str:
    """Return what the feedback says, in the event's own spelling: equal for equal bodies."""
    at = "null" if body.at is None else _json(body.at)
    return (
        f'"metric":{_json(body.metric)},"value":{_json(body.value)},'
        f'"source":{_SOURCES[body.source]},"rater":{_quoted(rater)},"at":{at}'
    )


def _quoted(plain: str | None) -> str:
    return "null" if plain is None else f'"{plain}"'
