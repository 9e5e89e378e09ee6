"""How the product talks to Tidemill: the official `openai` client, and `tidemill.client`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai

from tidemill.client import (
    AsyncFeedbackClient,
    Feedback,
    Options,
    RefusedError,
    Status,
    UnacknowledgedError,
)
from tidemill.environments.base import Task

BEHAVIOUR_TEMPERATURE = 1.0
"""Untruncated sampling at 1: what is learned from is what users meet."""
MAX_TOKENS = 48
_SENDING = Options(
    timeout_s=10.0,
    attempts=6,
    backoff_first_s=0.2,
    max_connections=128,
    max_idle_connections=64,
)
"""Six attempts over some three seconds on average: longer than a restart of the feedback API."""


@dataclass(frozen=True, slots=True)
class Access:
    """Where Tidemill is, and the keys to it; `tidemill up` writes both files."""

    serving: str
    feedback: str
    keys: Mapping[str, str]

    @classmethod
    def of(cls, data: Path) -> "Access":
        """Read the files of a data folder.

        Raises:
            OSError: `tidemill up` has not written them yet.
        """
        addresses = json.loads((data / "addresses.json").read_text())
        keys = json.loads((data / "keys.json").read_text())
        return cls(addresses["serving"], addresses["feedback"], keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back for one request."""

    text: str
    """The call as JSON, or whatever was said instead."""
    interaction_id: str
    policy_version: str


class Product:
    """The example product's connection to Tidemill."""

    def __init__(self, access: Access, *, model: str = "tide") -> None:
        self._openai = openai.AsyncOpenAI(
            base_url=f"{access.serving}/v1",
            api_key=access.keys["completions"],
            max_retries=0,
            timeout=120.0,
        )
        key = access.keys["feedback:write"]
        self._feedback = AsyncFeedbackClient(access.feedback, key, options=_SENDING)
        # The client sends no garbage.
        self._garbage = httpx.AsyncClient(
            base_url=access.feedback,
            headers={"authorization": f"Bearer {key}"},
            timeout=_SENDING.timeout_s,
        )
        self._model = model

    async def aclose(self) -> None:
        """Close all connections."""
        await self._openai.close()
        await self._feedback.close()
        await self._garbage.aclose()

    async def ask(
        self, task: Task, *, subject: str, model: str | None = None, consent: str = "yes"
    ) -> Answer:
        """Send a request as one trajectory of its own and return the answer.

        Raises:
            openai.OpenAIError: no answer came.
        """
        raw = await self._openai.chat.completions.with_raw_response.create(
            model=model or self._model,
            messages=list(task.messages),  # type: ignore[arg-type]
            tools=list(task.tools),  # type: ignore[arg-type]
            temperature=BEHAVIOUR_TEMPERATURE,
            max_tokens=MAX_TOKENS,
            extra_headers={
                "x-tidemill-subject": subject,
                "x-tidemill-context": task.context,
                "x-tidemill-consent": consent,
            },
        )
        return Answer(
            text=answer_text(json.loads(raw.content)["choices"][0]["message"]),
            interaction_id=raw.headers["x-tidemill-interaction"],
            policy_version=raw.headers["x-tidemill-policy-version"],
        )

    async def tell(self, feedback: Feedback) -> int:
        """Send feedback until it is answered for good; return the last status, 0 = none."""
        try:
            receipt = await self._feedback.send(feedback)
        except (RefusedError, UnacknowledgedError) as error:
            return 0 if error.problem is None else error.problem.status
        return 202 if receipt.status is Status.ACCEPTED else 200

    async def tell_garbage(self, body: bytes) -> int:
        """Post bytes that are no feedback, once; return the status, 0 = none."""
        try:
            return (await self._garbage.post("/v1/feedback", content=body)).status_code
        except httpx.HTTPError:
            return 0


def answer_text(message: Mapping[str, Any]) -> str:
    """Return the call of an assistant's message as JSON text, else its content."""
    calls = message.get("tool_calls") or []
    if len(calls) != 1:
        return message.get("content") or ""
    function = calls[0]["function"]
    return f'{{"name":{json.dumps(function["name"])},"arguments":{function["arguments"]}}}'
