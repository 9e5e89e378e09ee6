"""The batch engine: company changes nothing, newcomers join, everybody ends for a reason."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.policies import make_requests, random_weights
from tests.tiny_model import load_tiny_base
from tidemill.contracts.events import FinishReason
from tidemill.errors import ContractError
from tidemill.policy.adapters import load_adapter
from tidemill.policy.base_model import BaseModel
from tidemill.policy.chat import decode_completion
from tidemill.policy.engine.batch_engine import (
    MAX_ADMISSION_WAIT,
    MAX_PREFILL_TOKENS,
    BatchEngine,
    generate,
)
from tidemill.policy.engine.requests import Generation, GenerationRequest, TokenChunk

LENGTHS = (3, 11, 1, 40, 7, 22, 5, 30, 2, 17)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> BaseModel:
    torch.set_num_threads(1)
    return load_tiny_base(Path(tmp_path_factory.mktemp("base")))


@pytest.fixture(scope="module")
def model(base: BaseModel) -> torch.nn.Module:
    return load_adapter(base, random_weights(base, seed=1))


def run(engine: BatchEngine) -> tuple[dict[str, Generation], dict[str, list[TokenChunk]]]:
    """Step until nobody is left."""
    done: dict[str, Generation] = {}
    chunks: dict[str, list[TokenChunk]] = {}
    while engine.num_active or engine.num_waiting:
        for event in engine.step():
            if isinstance(event, Generation):
                done[event.request_id] = event
            else:
                chunks.setdefault(event.request_id, []).append(event)
    return done, chunks


@pytest.mark.parametrize("over", [{}, {"top_p": 0.8}, {"top_k": 5}, {"top_k": 1}])
def test_company_changes_nothing(
    base: BaseModel, model: torch.nn.Module, over: dict[str, float]
) -> None:
    requests = make_requests(LENGTHS, temperature=0.8, **over)
    together = generate(model, base, requests)
    crowded = generate(model, base, requests, max_batch=3)
    for request, one, other in zip(requests, together, crowded, strict=True):
        alone = generate(model, base, [request])[0]
        assert one.completion_ids == other.completion_ids == alone.completion_ids
        assert one.logprobs == pytest.approx(alone.logprobs, abs=1e-5)
        assert one.text == decode_completion(base, one.completion_ids)
        assert one.prompt_ids == request.prompt_ids
        is_truncated = bool(over)
        assert (one.kept_mass is not None) is is_truncated
        assert all(0 < mass <= 1 for mass in one.kept_mass or ())


def test_newcomers_join_running_requests(base: BaseModel, model: torch.nn.Module) -> None:
    requests = make_requests(LENGTHS, max_tokens=20)
    expected = {g.request_id: g for g in generate(model, base, requests)}
    engine = BatchEngine(model, base, max_batch=4)
    done: dict[str, Generation] = {}
    waiting = list(requests)
    most = 0
    while waiting or engine.num_active or engine.num_waiting:
        if waiting:
            engine.submit(waiting.pop(0))
        done |= {e.request_id: e for e in engine.step() if isinstance(e, Generation)}
        most = max(most, engine.num_active)
    assert 1 < most <= 4
    assert {k: g.completion_ids for k, g in done.items()} == {
        k: g.completion_ids for k, g in expected.items()
    }


def test_two_versions_alternate_without_touching_each_other(base: BaseModel) -> None:
    models = [load_adapter(base, random_weights(base, seed=seed)) for seed in (1, 2)]
    requests = make_requests(LENGTHS)
    alone = [generate(m, base, requests) for m in models]
    engines = [BatchEngine(m, base) for m in models]
    for engine in engines:
        for request in requests:
            engine.submit(request)
    done: list[dict[str, Generation]] = [{}, {}]
    while any(engine.num_active or engine.num_waiting for engine in engines):
        for place, engine in enumerate(engines):
            done[place] |= {e.request_id: e for e in engine.step() if isinstance(e, Generation)}
    for place in range(2):
        ids = [done[place][r.request_id].completion_ids for r in requests]
        assert ids == [g.completion_ids for g in alone[place]]
    assert alone[0] != alone[1]


def test_chunks_join_to_the_generation(base: BaseModel, model: torch.nn.Module) -> None:
    engine = BatchEngine(model, base)
    for request in make_requests(LENGTHS, max_tokens=15):
        engine.submit(replace(request, is_streamed=True, top_logprobs=3))
    done, chunks = run(engine)
    for request_id, generation in done.items():
        pieces = chunks[request_id]
        assert "".join(piece.text_delta for piece in pieces) == generation.text
        assert tuple(i for piece in pieces for i in piece.token_ids) == generation.completion_ids
        assert tuple(v for piece in pieces for v in piece.logprobs) == generation.logprobs
        assert sum((piece.top_logprobs for piece in pieces), ()) == generation.top_logprobs
        for alternatives in generation.top_logprobs:
            values = [alternative.logprob for alternative in alternatives]
            assert len(values) == 3
            assert values == sorted(values, reverse=True)


def test_a_request_ends_at_its_length_its_end_token_or_its_stop_text(
    base: BaseModel, model: torch.nn.Module
) -> None:
    requests = make_requests([9] * 60, temperature=1.0, max_tokens=40)
    generations = generate(model, base, requests)
    by_reason = {g.finish_reason: g for g in generations}
    assert by_reason.keys() == {FinishReason.STOP, FinishReason.LENGTH}
    assert by_reason[FinishReason.STOP].completion_ids[-1] in base.end_ids
    assert len(by_reason[FinishReason.LENGTH].completion_ids) == 40
    whole, stop = next(
        (g, g.text[at : at + 2])
        for g in generations
        for at in range(2, len(g.text) - 1)
        if g.text[at : at + 2].isascii()
    )
    request = next(r for r in requests if r.request_id == whole.request_id)
    stopped = generate(model, base, [replace(request, stop=(stop,))])[0]
    assert stopped.finish_reason is FinishReason.STOP
    assert stopped.text == whole.text[: whole.text.index(stop)]
    count = len(stopped.completion_ids)
    assert stopped.completion_ids == whole.completion_ids[:count]


def test_the_context_bounds_prompt_and_completion(base: BaseModel, model: torch.nn.Module) -> None:
    engine = BatchEngine(model, base, max_context=16)
    for length in (0, 16, 99):
        with pytest.raises(ContractError, match="takes 1 to 15"):
            engine.submit(make_requests([length])[0])
    engine.submit(make_requests([14], max_tokens=50)[0])
    done, _ = run(engine)
    assert len(done["0"].completion_ids) <= 2


def test_cancelling_returns_what_there_was(base: BaseModel, model: torch.nn.Module) -> None:
    requests = make_requests([9] * 6, max_tokens=30)
    expected = {g.request_id: g for g in generate(model, base, requests)}
    engine = BatchEngine(model, base, max_batch=5)
    for request in requests:
        engine.submit(request)
    for _ in range(3):
        engine.step()
    waiting, running = engine.cancel("5"), engine.cancel("1")
    assert waiting is not None
    assert running is not None
    assert (waiting.completion_ids, waiting.finish_reason) == ((), FinishReason.ABORTED)
    count = len(running.completion_ids)
    assert count > 0
    assert running.completion_ids == expected["1"].completion_ids[:count]
    assert engine.cancel("nobody") is None
    done, _ = run(engine)
    assert {k: g.completion_ids for k, g in done.items()} == {
        k: g.completion_ids for k, g in expected.items() if k not in ("5", "1")
    }


def test_a_model_that_gives_nan_ends_in_error(base: BaseModel) -> None:
    weights = random_weights(base, seed=1)
    for tensor in weights.tensors.values():
        tensor.fill_(float("nan"))
    engine = BatchEngine(load_adapter(base, weights), base)
    for request in make_requests([4, 5]):
        engine.submit(replace(request, is_streamed=True))
    done, chunks = run(engine)
    assert {g.finish_reason for g in done.values()} == {FinishReason.ERROR}
    assert chunks == {}


def test_requests_without_a_seed_differ(base: BaseModel, model: torch.nn.Module) -> None:
    request = make_requests([9], seed=None, max_tokens=20)[0]
    copies = [replace(request, request_id=str(place)) for place in range(4)]
    assert len({g.completion_ids for g in generate(model, base, copies)}) > 1


def test_long_prompts_are_let_in_by_portions(base: BaseModel, model: torch.nn.Module) -> None:
    engine = BatchEngine(model, base)
    each = 600
    for request in make_requests([each] * 7, max_tokens=60):
        engine.submit(request)
    engine.step()
    assert engine.num_active == MAX_PREFILL_TOKENS // each
    assert engine.num_waiting == 7 - MAX_PREFILL_TOKENS // each


def test_generations_come_in_the_order_of_requests(base: BaseModel, model: torch.nn.Module) -> None:
    requests: list[GenerationRequest] = make_requests([5] * 9, max_tokens=9)
    generations = generate(model, base, requests, max_batch=2)
    assert [g.request_id for g in generations] == [r.request_id for r in requests]


def test_a_lone_newcomer_waits_a_few_steps_for_company(
    base: BaseModel, model: torch.nn.Module
) -> None:
    engine = BatchEngine(model, base)
    for request in make_requests([5] * 4, max_tokens=30):
        engine.submit(replace(request, request_id=f"first {request.request_id}"))
    engine.step()
    newcomers = [replace(r, request_id=f"new {r.request_id}") for r in make_requests([5] * 3)]
    engine.submit(newcomers[0])
    for _ in range(MAX_ADMISSION_WAIT - 1):
        engine.step()
        assert engine.num_waiting == 1
    engine.step()
    assert engine.num_waiting == 0
    # Half as many as are running do not wait.
    engine.submit(newcomers[1])
    engine.submit(newcomers[2])
    engine.step()
    assert engine.num_waiting == 0
