"""From a feedback body to the record that the log gets. Pure.

This is the hottest code of the feedback API. A body was validated once, so its event is put
together from parts that are known to be good, and never validated again: the bytes are those that
`codec.encode` gives for the event, which a test holds for whatever a body may say.
"""

from datetime import datetime
from hashlib import sha256
from typing import NamedTuple

from pydantic_core import to_json

from ingest.api_schemas import FeedbackBody
from tidemill.contracts.events import FeedbackValue
from tidemill.contracts.ids import new_feedback_id
from tidemill.subjects import SubjectHasher


class FeedbackRecord(NamedTuple):
    """A feedback as the log gets it, and what the API itself must know of it."""

    tenant: str
    feedback_id: str
    trajectory_id: str
    names_interaction: bool
    metric: str
    value: FeedbackValue
    rater: str | None
    """Keyed hash."""
    payload: bytes
    """A `FeedbackReceived`, encoded."""
    body_digest: str


def build_record(
    body: FeedbackBody,
    *,
    tenant: str,
    hasher: SubjectHasher,
    received_at: datetime,
    stand_in_id: str | None = None,
) -> FeedbackRecord:
    """Return the record of a body; the rater is hashed.

    Args:
        body: what the caller said.
        tenant: from the caller's key.
        hasher: of raters.
        received_at: now.
        stand_in_id: the id where the body gives none; None = a new one is made.
    """
    named = body.interaction_id
    trajectory = str(body.trajectory_id) if named is None else named.partition(".")[0]
    rater = None if body.rater is None else hasher.subject(tenant, body.rater)
    feedback_id = body.feedback_id or stand_in_id or new_feedback_id()
    # With the hash, not the raw rater: a digest of few possible bodies can be guessed.
    said = _said(body, rater)
    digest = sha256(b"%b %b" % ((named or trajectory).encode(), said)).hexdigest()
    interaction = b"null" if named is None else b'"%b"' % named.encode()
    # Ids are letters, digits and a few signs, which JSON writes as they are.
    payload = (
        b'{"schema_version":1,"feedback_id":"%b","tenant":%b,"interaction_id":%b,'
        b'"trajectory_id":"%b",%b,"received_at":%b,"body_digest":"%b"}'
        % (
            feedback_id.encode(),
            to_json(tenant),
            interaction,
            trajectory.encode(),
            said,
            to_json(received_at),
            digest.encode(),
        )
    )
    return FeedbackRecord(
        tenant,
        feedback_id,
        trajectory,
        named is not None,
        body.metric,
        body.value,
        rater,
        payload,
        digest,
    )


def _said(body: FeedbackBody, rater: str | None) -> bytes:
    """Return what the feedback says, in the event's own spelling: equal for equal bodies."""
    fields = {
        "metric": body.metric,
        "value": body.value,
        "source": body.source,
        "rater": rater,
        "at": body.at,
    }
    return to_json(fields)[1:-1]
