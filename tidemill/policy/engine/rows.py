"""One running request: what it has produced and when it ends. Knows no tensors."""

import math
from dataclasses import dataclass, field

from tidemill.contracts.events import FinishReason
from tidemill.policy.engine.requests import (
    Generation,
    GenerationRequest,
    TokenAlternative,
    TokenChunk,
)
from tidemill.policy.engine.text import GrowingText


@dataclass(slots=True)
class Row:
    """The state of one request while it runs."""

    request: GenerationRequest
    seed: int
    max_tokens: int
    end_ids: frozenset[int]
    text: GrowingText
    completion_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    kept_mass: list[float] = field(default_factory=list)
    top_logprobs: list[tuple[TokenAlternative, ...]] = field(default_factory=list)
    finish_reason: FinishReason | None = None

    @property
    def num_columns(self) -> int:
        """Tokens whose keys are in the cache once the last one was fed."""
        return len(self.request.prompt_ids) + len(self.completion_ids)

    def accept(self, token_id: int, logprob: float, kept_mass: float) -> str:
        """Take a sampled token; return the text that it made certain."""
        if not math.isfinite(logprob):
            self.finish_reason = FinishReason.ERROR
            return self.text.finish()
        self.completion_ids.append(token_id)
        self.logprobs.append(logprob)
        self.kept_mass.append(kept_mass)
        delta = self.text.push(token_id)
        if token_id in self.end_ids or self.text.is_stopped:
            self.finish_reason = FinishReason.STOP
        elif len(self.completion_ids) >= self.max_tokens:
            self.finish_reason = FinishReason.LENGTH
        return delta if self.finish_reason is None else delta + self.text.finish()

    def chunk(self, delta: str) -> TokenChunk:
        """Return the newest token as a chunk."""
        return TokenChunk(
            request_id=self.request.request_id,
            token_ids=(self.completion_ids[-1],),
            logprobs=(self.logprobs[-1],),
            text_delta=delta,
            top_logprobs=tuple(self.top_logprobs[-1:]),
        )

    def generation(self, reason: FinishReason) -> Generation:
        """Return all that was produced."""
        self.text.finish()
        is_truncated = self.request.sampling.is_truncated
        return Generation(
            request_id=self.request.request_id,
            prompt_ids=self.request.prompt_ids,
            completion_ids=tuple(self.completion_ids),
            logprobs=tuple(self.logprobs),
            kept_mass=tuple(self.kept_mass) if is_truncated else None,
            finish_reason=reason,
            text=self.text.text,
            top_logprobs=tuple(self.top_logprobs),
        )
