"""Continuous batching: requests join running ones and leave as soon as they are finished.

Single-threaded: the owner submits, then calls `step` in a loop. A request's tokens depend on its
prompt, its sampling and its seed, not on who else is in the batch.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from tidemill.contracts.events import FinishReason
from tidemill.errors import ContractError
from tidemill.policy.base_model import BaseModel
from tidemill.policy.chat import decode_completion
from tidemill.policy.engine.forward import CachedForward
from tidemill.policy.engine.requests import (
    Generation,
    GenerationRequest,
    TokenAlternative,
    TokenChunk,
)
from tidemill.policy.engine.rows import Row
from tidemill.policy.engine.sampler import RowSampler
from tidemill.policy.engine.text import GrowingText

MAX_PREFILL_TOKENS = 2048
"""Prompt tokens read in one step: bounds how long running requests wait for newcomers."""
MAX_ADMISSION_WAIT = 4
"""Steps that a lone newcomer waits for company while others run: reading one prompt costs a small
model about as much as a step for everybody."""


class BatchEngine:
    """Generates for many requests at once with one model."""

    def __init__(
        self,
        model: nn.Module,
        base: BaseModel,
        *,
        max_batch: int = 64,
        max_context: int | None = None,
        seed: int | None = None,
    ) -> None:
        self._base = base
        self._forward = CachedForward(model, base.device)
        self._max_batch = max_batch
        self._max_context = min(max_context or base.max_context, base.max_context)
        self._random = np.random.default_rng(seed)
        self._end_ids = base.end_ids
        self._waiting: deque[GenerationRequest] = deque()
        self._rows: list[Row] = []
        self._sampler = RowSampler([], base.device)
        self._waited_steps = 0

    @property
    def num_active(self) -> int:
        """Requests that are generating."""
        return len(self._rows)

    @property
    def num_waiting(self) -> int:
        """Requests that have not begun."""
        return len(self._waiting)

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request.

        Raises:
            ContractError: its prompt is empty or leaves no room in the context.
        """
        length = len(request.prompt_ids)
        if not 0 < length < self._max_context:
            raise ContractError(
                f"a prompt of {length} tokens; this model takes 1 to {self._max_context - 1}"
            )
        self._waiting.append(request)

    @torch.inference_mode()
    def cancel(self, request_id: str) -> Generation | None:
        """End a request; return what it has produced so far (aborted), None if it is unknown."""
        for request in self._waiting:
            if request.request_id == request_id:
                self._waiting.remove(request)
                return self._new_row(request).generation(FinishReason.ABORTED)
        for index, row in enumerate(self._rows):
            if row.request.request_id == request_id:
                generation = row.generation(FinishReason.ABORTED)
                self._remove([index])
                return generation
        return None

    @torch.inference_mode()
    def step(self) -> list[TokenChunk | Generation]:
        """Let newcomers in, add one token to every running request, return what came out."""
        events: list[TokenChunk | Generation] = []
        self._admit(events)
        if self._rows:
            width = max(row.num_columns for row in self._rows)
            logits_BV = self._forward.decode(
                self._sampler.last_ids_B, self._sampler.columns_B, width=width
            )
            self._accept(self._sampler, logits_BV, self._rows, events)
            self._leave(events)
        return events

    def _admit(self, events: list[TokenChunk | Generation]) -> None:
        cohort = self._next_cohort()
        if not cohort:
            return
        prompts = [row.request.prompt_ids for row in cohort]
        logits_BV = self._forward.prefill(prompts, first_row=len(self._rows))
        self._accept(RowSampler(cohort, self._base.device), logits_BV, cohort, events)
        self._rows += cohort
        self._sampler = RowSampler(self._rows, self._base.device)
        self._leave(events)

    def _next_cohort(self) -> list[Row]:
        cohort: list[Row] = []
        width = 0
        if not self._is_time_to_admit():
            return cohort
        while self._waiting and len(self._rows) + len(cohort) < self._max_batch:
            width = max(width, len(self._waiting[0].prompt_ids))
            if cohort and width * (len(cohort) + 1) > MAX_PREFILL_TOKENS:
                break
            cohort.append(self._new_row(self._waiting.popleft()))
        return cohort

    def _is_time_to_admit(self) -> bool:
        if self._waiting and self._rows and len(self._waiting) < len(self._rows) // 2:
            self._waited_steps += 1
            if self._waited_steps < MAX_ADMISSION_WAIT:
                return False
        self._waited_steps = 0
        return True

    def _new_row(self, request: GenerationRequest) -> Row:
        seed = request.sampling.seed
        room = self._max_context - len(request.prompt_ids)
        return Row(
            request=request,
            seed=int(self._random.integers(2**63)) if seed is None else seed % 2**64,
            max_tokens=min(request.sampling.max_tokens, room),
            end_ids=self._end_ids,
            text=GrowingText(lambda ids: decode_completion(self._base, ids), request.stop),
        )

    def _accept(
        self,
        sampler: RowSampler,
        logits_BV: Tensor,
        rows: Sequence[Row],
        events: list[TokenChunk | Generation],
    ) -> None:
        drawn = sampler.draw(logits_BV)
        for index, row in enumerate(rows):
            if row.request.top_logprobs:
                row.top_logprobs.append(_alternatives(sampler, logits_BV, index, row))
            delta = row.accept(drawn.ids[index], drawn.logprobs[index], drawn.kept_mass[index])
            if row.request.is_streamed and row.finish_reason is not FinishReason.ERROR:
                events.append(row.chunk(delta))

    def _leave(self, events: list[TokenChunk | Generation]) -> None:
        finished = [index for index, row in enumerate(self._rows) if row.finish_reason]
        events += [row.generation(row.finish_reason) for row in self._rows if row.finish_reason]
        if finished:
            self._remove(finished)

    def _remove(self, indices: Sequence[int]) -> None:
        """Fill each gap with the last row, so that the running rows stay together."""
        for index in sorted(indices, reverse=True):
            last = len(self._rows) - 1
            if index != last:
                row = self._rows[last]
                self._forward.move_row(last, index, row.num_columns)
                self._rows[index] = row
            self._rows.pop()
        self._sampler = RowSampler(self._rows, self._base.device)


def generate(
    model: nn.Module,
    base: BaseModel,
    requests: Sequence[GenerationRequest],
    *,
    max_batch: int = 64,
) -> list[Generation]:
    """Generate all requests (unique ids) and return the generations in their order."""
    engine = BatchEngine(model, base, max_batch=max_batch, seed=0)
    for request in requests:
        engine.submit(replace(request, is_streamed=False))
    done: dict[str, Generation] = {}
    while engine.num_active or engine.num_waiting:
        done |= {e.request_id: e for e in engine.step() if isinstance(e, Generation)}
    return [done[request.request_id] for request in requests]


def _alternatives(
    sampler: RowSampler, logits_BV: Tensor, index: int, row: Row
) -> tuple[TokenAlternative, ...]:
    logprobs_V = (logits_BV[index].float() / sampler.temperature_B[index]).log_softmax(-1)
    best = logprobs_V.topk(min(row.request.top_logprobs, logprobs_V.shape[-1]))
    return tuple(
        TokenAlternative(token_id=int(token_id), logprob=float(logprob))
        for logprob, token_id in zip(best.values, best.indices, strict=True)
    )
