"""What the engine takes and gives."""

from dataclasses import dataclass

from tidemill.contracts.events import FinishReason, Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One completion to generate."""

    request_id: str
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    """Without a seed the engine draws one; `top_k` 1 is greedy."""
    stop: tuple[str, ...] = ()
    """Texts that end the completion; they are cut from `text`, their tokens stay."""
    is_streamed: bool = True
    """Whether `step` gives `TokenChunk`s; a `Generation` comes in any case."""
    top_logprobs: int = 0
    """Alternatives to report with each token of a chunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenAlternative:
    """One of the most probable tokens at a position."""

    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenChunk:
    """What one step added to one streamed request; the deltas join to the generation's text."""

    request_id: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text_delta: str
    """May be empty: a character or a stop text can be incomplete."""
    top_logprobs: tuple[tuple[TokenAlternative, ...], ...] = ()
    """For each token its alternatives, most probable first; empty when not asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One finished completion."""

    request_id: str
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    """With the end token, when the model ended itself."""
    logprobs: tuple[float, ...]
    """One for each completion token, at the sampling temperature, before truncation."""
    kept_mass: tuple[float, ...] | None
    """Mass that top-p/top-k left at each token; None = untruncated."""
    finish_reason: FinishReason
    text: str
    """Without special tokens and without the stop text."""
    top_logprobs: tuple[tuple[TokenAlternative, ...], ...] = ()
    """For each token its alternatives; empty when not asked for."""
