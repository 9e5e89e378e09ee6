"""From a request and its generation to the event on the log. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from serving.lineup import Route
from tidemill.contracts.events import (
    Content,
    FinishReason,
    InteractionServed,
    Sampling,
    ToolCall,
)
from tidemill.policy.engine.requests import Generation

NO_CALL = "tool_choice demanded a call, none came"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, and what they declared in headers."""

    tenant: str
    trajectory_id: str
    subject: str | None
    """Keyed hash; None = unknown."""
    consent_train: bool
    context: str | None

    @property
    def unit(self) -> str:
        """What the traffic split keeps together."""
        return self.subject or self.trajectory_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the model is shown."""

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    must_call: bool = False
    """An answer without a tool call breaks what the caller demanded."""
    prompt_ids: tuple[int, ...]

    @property
    def turn(self) -> int:
        """How many answers of the assistant came before."""
        return sum(message.get("role") == "assistant" for message in self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An interaction under way: all that is known before the first token."""

    interaction_id: str
    model: str
    caller: Caller
    prompt: Prompt
    route: Route
    sampling: Sampling
    requested_at: datetime

    def complete(
        self,
        generation: Generation,
        *,
        tool_calls: Sequence[ToolCall],
        served_at: datetime,
        latency_ms: float,
    ) -> InteractionServed:
        """Return the event: token ids and log-probs exactly as the engine gave them."""
        caller, version = self.caller, self.route.version
        masses = generation.kept_mass
        is_known = all(map(math.isfinite, (*generation.logprobs, *(masses or ()))))
        return InteractionServed(
            interaction_id=self.interaction_id,
            trajectory_id=caller.trajectory_id,
            turn=self.prompt.turn,
            tenant=caller.tenant,
            model=self.model,
            subject=caller.subject,
            consent_train=caller.consent_train,
            oldest_policy_version=version,
            newest_policy_version=version,
            arm=self.route.assignment.arm,
            assignment_probability=self.route.assignment.probability,
            content=Content(
                messages=tuple(dict(message) for message in self.prompt.messages),
                tools=tuple(dict(tool) for tool in self.prompt.tools),
                completion=generation.text,
            ),
            context=caller.context,
            prompt_ids=generation.prompt_ids,
            completion_ids=generation.completion_ids,
            behaviour_logprobs=generation.logprobs if is_known else None,
            kept_mass=masses if is_known else None,
            sampling=self.sampling,
            tool_calls=tuple(tool_calls),
            finish_reason=generation.finish_reason,
            latency_ms=latency_ms,
            requested_at=self.requested_at,
            served_at=served_at,
        )


def judged_calls(
    calls: Sequence[ToolCall], *, must_call: bool, finish_reason: FinishReason
) -> tuple[ToolCall, ...]:
    """Add the breach of a demanded call to the calls that were found.

    A completion that was aborted had no chance to call.
    """
    if must_call and not calls and finish_reason is not FinishReason.ABORTED:
        return (ToolCall(name="", arguments="", valid=False, reason=NO_CALL),)
    return tuple(calls)
