"""HTTP as the clients use it; the only file of the client that knows what httpx answers."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import httpx

from tidemill import __version__
from tidemill.client.answers import Answer, Rejection, parse_retry_after
from tidemill.client.options import Options
from tidemill.client.records import Feedback
from tidemill.errors import ConfigurationError

_log = logging.getLogger("tidemill.client")

_NUM_NAMED = 20


def http_arguments(base_url: str, key: str | None, options: Options) -> dict[str, Any]:
    """Return the arguments of an `httpx.Client` or `httpx.AsyncClient`.

    Raises:
        ConfigurationError: the address or the key cannot be used.
    """
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL as error:
        raise ConfigurationError(f"base_url {base_url!r}: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigurationError(f"base_url {base_url!r} must be like http://127.0.0.1:8001")
    headers = {"user-agent": f"tidemill-client/{__version__}"}
    if key is not None:
        if not (key.isascii() and key.isprintable() and key and " " not in key):
            raise ConfigurationError("the key is no key of Tidemill: they begin with tdm_")
        headers["authorization"] = f"Bearer {key}"
    return {
        "base_url": url,
        "headers": headers,
        "timeout": options.timeout_s,
        "limits": httpx.Limits(
            max_connections=options.max_connections,
            max_keepalive_connections=options.max_idle_connections,
        ),
    }


def answer_of(response: httpx.Response) -> Answer:
    """Return what a response says."""
    asked = parse_retry_after(response.headers.get("retry-after"), now=datetime.now(UTC))
    return Answer(response.status_code, response.content, asked)


def no_answer(error: httpx.HTTPError) -> Answer:
    """Return why none came."""
    said = str(error)
    name = type(error).__name__
    return Answer(0, why=f"{name}: {said}" if said else name)


def log_rejection(rejection: Rejection) -> None:
    """Log what was rejected and why; never what the user said."""
    one = rejection.feedback
    _log.error("feedback %s (%s) was rejected: %s", one.feedback_id, one.metric, rejection.reason)


def log_unsent(unsent: Sequence[Feedback]) -> None:
    """Log what was not acknowledged when the client was closed; never what the user said."""
    named = ", ".join(one.feedback_id for one in unsent[:_NUM_NAMED])
    more = "" if len(unsent) <= _NUM_NAMED else ", ..."
    _log.error("%d feedbacks were not acknowledged: %s%s", len(unsent), named, more)
