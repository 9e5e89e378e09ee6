"""Who asks: from request headers to a `Caller`. Pure but for the keyed hash it is given.

`x-tidemill-trajectory`, `x-tidemill-subject` (or the body's `user`), `x-tidemill-consent: yes|no`,
`x-tidemill-context`.
"""

from collections.abc import Callable, Mapping

from serving.errors import ApiError
from serving.interactions import Caller
from tidemill.contracts.ids import is_trajectory_id, new_trajectory_id

TRAJECTORY_HEADER = "x-tidemill-trajectory"
SUBJECT_HEADER = "x-tidemill-subject"
CONSENT_HEADER = "x-tidemill-consent"
CONTEXT_HEADER = "x-tidemill-context"
INTERACTION_HEADER = "x-tidemill-interaction"
VERSION_HEADER = "x-tidemill-policy-version"

MAX_SUBJECT = 512
MAX_CONTEXT = 256

HashSubject = Callable[[str, str], str]
"""(tenant, raw id) to the keyed hash."""


def read_caller(
    headers: Mapping[str, str],
    *,
    user: str | None,
    tenant: str,
    hash_subject: HashSubject,
    consent_default: bool,
) -> Caller:
    """Return who asks; without a trajectory a new one begins.

    Raises:
        ApiError: a header has a value that cannot be meant.
    """
    raw = headers.get(SUBJECT_HEADER) or user
    return Caller(
        tenant=tenant,
        trajectory_id=_trajectory(headers.get(TRAJECTORY_HEADER)),
        subject=hash_subject(tenant, _bounded(SUBJECT_HEADER, raw, MAX_SUBJECT)) if raw else None,
        consent_train=_consent(headers.get(CONSENT_HEADER), default=consent_default),
        context=_bounded(CONTEXT_HEADER, headers.get(CONTEXT_HEADER) or "", MAX_CONTEXT) or None,
    )


def _trajectory(text: str | None) -> str:
    if text is None:
        return new_trajectory_id()
    if not is_trajectory_id(text):
        raise _bad(TRAJECTORY_HEADER, f"{text!r:.80} is no UUID in lower case; leave it out")
    return text


def _consent(text: str | None, *, default: bool) -> bool:
    if text is None:
        return default
    if text not in ("yes", "no"):
        raise _bad(CONSENT_HEADER, f"{text!r:.80} is neither yes nor no")
    return text == "yes"


def _bounded(header: str, text: str, limit: int) -> str:
    if len(text) > limit:
        raise _bad(header, f"{len(text)} characters; at most {limit}")
    return text


def _bad(header: str, message: str) -> ApiError:
    return ApiError(400, f"{header}: {message}", code="invalid_header", param=header)
