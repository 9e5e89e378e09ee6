"""What a caller is told when a request cannot be taken: `application/problem+json` (RFC 9457)."""

from typing import Any

from pydantic import ValidationError

from ingest.api_schemas import SENTENCES
from tidemill.contracts.complaints import first_complaint
from tidemill.errors import TidemillError

MEDIA_TYPE = "application/problem+json"

_TITLES = {
    401: "no valid key",
    403: "not allowed",
    404: "not found",
    405: "method not allowed",
    409: "conflict",
    413: "too large",
    415: "another form is needed",
    422: "invalid",
    429: "too many at once",
    500: "failed here",
    503: "cannot be stored now",
}


class ProblemError(TidemillError):
    """A request that is answered with an error; the process goes on."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        field: str | None = None,
        ids: dict[str, str | None] | None = None,
        retry_after_s: int = 1,
    ) -> None:
        """Keep what the answer needs.

        Args:
            status: of HTTP.
            detail: what was wrong, and what to do.
            field: the name of the field that was wrong.
            ids: of the record that the answer is about, under the names that a caller sends them.
            retry_after_s: when to come again, where that helps.
        """
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.field = field
        self.ids = ids or {}
        self.retry_after_s = retry_after_s

    @property
    def body(self) -> dict[str, Any]:
        """The answer's JSON: text of ours, names of fields and ids; nothing else is repeated."""
        body: dict[str, Any] = {
            "type": "about:blank",
            "title": _TITLES.get(self.status, "refused"),
            "status": self.status,
            "detail": self.detail,
        }
        if self.field is not None:
            body["field"] = self.field
        return body | self.ids

    @property
    def headers(self) -> dict[str, str]:
        """How to go on, where that helps."""
        if self.status == 401:
            return {"www-authenticate": "Bearer"}
        return {"retry-after": str(self.retry_after_s)} if self.status in (429, 503) else {}


def invalid(error: ValidationError) -> ProblemError:
    """Turn the first complaint into an answer; the caller's input is not repeated."""
    found = first_complaint(error, sentences=SENTENCES)
    field = None if found.field is None else printable(found.field)
    if found.is_unknown_field:
        return ProblemError(422, f"unknown field {field}; see docs/api.md", field=field)
    return ProblemError(422, printable(str(found)), field=field)


def printable(text: str) -> str:
    """Return a text that any JSON reader takes."""
    return text.encode("ascii", "backslashreplace").decode()[:500]
