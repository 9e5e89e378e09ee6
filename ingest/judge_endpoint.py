"""Asks a judge over an OpenAI-compatible API. What comes back is untrusted: a score or an error."""

import asyncio
import json
import threading
from collections.abc import Mapping
from concurrent.futures import CancelledError
from typing import Any

import httpx

from ingest.settings import JudgeSettings
from tidemill.errors import ConfigurationError, JudgeError
from tidemill.rewards.judging import parse_score
from tidemill.rewards.metrics import MetricsFile

_MAX_ANSWER_BYTES = 1_048_576
"""A score needs a few bytes, and reasoning models send their thoughts along."""


class JudgeEndpoint:
    """One connection pool on an event loop of its own; safe to share between threads.

    The loop is there for its deadline: a blocking client bounds the pause between two bytes, so
    that an answer which trickles in for ever would keep its thread for ever.
    """

    def __init__(self, url: str, *, api_key: str | None, timeout_s: float) -> None:
        """Connect lazily.

        Args:
            url: base of the API, `/v1` included.
            api_key: sent as a bearer token; None = none.
            timeout_s: bound of one question, from the first connection to the last byte.
        """
        # Packed, a few bytes could unpack to any number, or to none for ever.
        headers = {"accept-encoding": "identity"}
        if api_key is not None:
            headers["authorization"] = f"Bearer {api_key}"
        self._url = f"{url.rstrip('/')}/chat/completions"
        self._timeout_s = timeout_s
        self._client = httpx.AsyncClient(headers=headers, timeout=timeout_s)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="judge-endpoint", daemon=True)
        self._thread.start()

    def ask(self, request: Mapping[str, Any]) -> float:
        """Return the score in [0, 1] that a judge gives.

        Raises:
            JudgeError: it cannot be reached, took too long, or said something that is no score.
        """
        question = self._post(request)
        try:
            answer = asyncio.run_coroutine_threadsafe(question, self._loop)
        except RuntimeError as error:  # the loop is closed
            question.close()
            raise JudgeError("no judge is asked any more: the worker ends") from error
        try:
            return parse_score(_words(answer.result()))
        except CancelledError as error:
            raise JudgeError("the judge is not asked any more: the worker ends") from error

    def close(self) -> None:
        """Give up what is asked now, and close all connections."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    async def _end(self) -> None:
        asked = asyncio.all_tasks() - {asyncio.current_task()}
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        await self._client.aclose()

    async def _post(self, request: Mapping[str, Any]) -> bytes:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._exchange(request)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise JudgeError("the judge took too long") from error
        except httpx.HTTPError as error:
            raise JudgeError(f"the judge cannot be asked: {type(error).__name__}") from error

    async def _exchange(self, request: Mapping[str, Any]) -> bytes:
        body = bytearray()
        async with self._client.stream("POST", self._url, json=request) as answer:
            # No word of the answer: it may repeat the prompt or the key.
            if answer.status_code != httpx.codes.OK:
                raise JudgeError(f"the judge answered {answer.status_code}")
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise JudgeError("the judge packed its answer, which it was asked not to do")
            async for chunk in answer.aiter_raw():
                body += chunk
                if len(body) > _MAX_ANSWER_BYTES:
                    raise JudgeError(f"the judge's answer is larger than {_MAX_ANSWER_BYTES} bytes")
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


def _words(body: bytes) -> str:
    try:
        words = json.loads(body)["choices"][0]["message"]["content"]
    # RecursionError: JSON that is nested deeper than Python goes.
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise JudgeError("the judge's answer is no chat completion") from error
    if not isinstance(words, str):
        raise JudgeError("the judge's answer holds no text")
    return words
