"""Asks a judge over an OpenAI-compatible API. What comes back is untrusted: a score or an error."""

import json
import time
from collections.abc import Mapping
from typing import Any

import httpx

from ingest.settings import JudgeSettings
from tidemill.errors import ConfigurationError, JudgeError
from tidemill.rewards.judging import parse_score
from tidemill.rewards.metrics import MetricsFile

_MAX_ANSWER_BYTES = 1_048_576
"""A score needs a few bytes, and reasoning models send their thoughts along."""


class JudgeEndpoint:
    """One connection pool; safe to share between threads."""

    def __init__(self, url: str, *, api_key: str | None, timeout_s: float) -> None:
        """Connect lazily.

        Args:
            url: base of the API, `/v1` included.
            api_key: sent as a bearer token; None = none.
            timeout_s: bound of one question, and of each phase of its exchange.
        """
        headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
        self._url = f"{url.rstrip('/')}/chat/completions"
        self._timeout_s = timeout_s
        self._client = httpx.Client(headers=headers, timeout=timeout_s)

    def ask(self, request: Mapping[str, Any]) -> float:
        """Return the score in [0, 1] that a judge gives.

        Raises:
            JudgeError: it cannot be reached, took too long, or said something that is no score.
        """
        return parse_score(_words(self._post(request)))

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def _post(self, request: Mapping[str, Any]) -> bytes:
        deadline = time.monotonic() + self._timeout_s
        body = bytearray()
        try:
            with self._client.stream("POST", self._url, json=request) as answer:
                # No word of the answer: it may repeat the prompt or the key.
                if answer.status_code != httpx.codes.OK:
                    raise JudgeError(f"the judge answered {answer.status_code}")
                for chunk in answer.iter_bytes():
                    body += chunk
                    _check_size(len(body), is_late=time.monotonic() > deadline)
        except httpx.HTTPError as error:
            raise JudgeError(f"the judge cannot be asked: {type(error).__name__}") from error
        return bytes(body)


def open_endpoint(
    metrics: MetricsFile, settings: JudgeSettings, environment: Mapping[str, str]
) -> JudgeEndpoint | None:
    """Return the endpoint of the declared judges; None = no judge is declared.

    Raises:
        ConfigurationError: a judge is declared, and the endpoint or its key is not.
    """
    if not metrics.judges:
        return None
    if settings.url is None:
        name = next(iter(metrics.judges))
        raise ConfigurationError(
            f"judges.{name} is declared in the metrics file, but ingest.judge.url is not set: "
            "name the OpenAI-compatible API that prompts may go to, or take the judge out"
        )
    key = None
    if settings.api_key_env is not None:
        key = environment.get(settings.api_key_env)
        if not key or not key.isascii() or not key.isprintable():
            raise ConfigurationError(
                f"ingest.judge.api_key_env names {settings.api_key_env}, but that environment "
                "variable holds no key (printable ASCII); set it, or take the setting out"
            )
    return JudgeEndpoint(settings.url, api_key=key, timeout_s=settings.timeout_s)


def _check_size(num_bytes: int, *, is_late: bool) -> None:
    if is_late:
        raise JudgeError("the judge took too long")
    if num_bytes > _MAX_ANSWER_BYTES:
        raise JudgeError(f"the judge's answer is larger than {_MAX_ANSWER_BYTES} bytes")


def _words(body: bytes) -> str:
    try:
        words = json.loads(body)["choices"][0]["message"]["content"]
    # RecursionError: JSON that is nested deeper than Python goes.
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise JudgeError("the judge's answer is no chat completion") from error
    if not isinstance(words, str):
        raise JudgeError("the judge's answer holds no text")
    return words
