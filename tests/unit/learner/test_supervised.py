"""A base from nothing learns its examples; the same steps give the same weights."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from learner.supervised import (
    Example,
    Progress,
    SupervisedOptions,
    batch_order,
    rate_at,
    train_base,
)
from tests.policies import make_requests
from tests.tiny_model import tiny_base
from tidemill.errors import ConfigurationError, NonFiniteError
from tidemill.policy.base_model import load_base, read_record
from tidemill.policy.chat import render_prompt
from tidemill.policy.engine.batch_engine import generate
from tidemill.policy.fresh_base import LlamaShape
from tidemill.policy.importing import ImportOptions
from tidemill.settings import PolicySettings

CPU = PolicySettings(device="cpu")
SHAPE = LlamaShape(hidden_size=32, num_layers=2, num_heads=2, feed_forward=64, max_context=64)
ANSWERS = {"lamp": "light on", "door": "door open", "song": "play it", "heat": "warm up"}


class Butler:
    """Four requests with one right answer each."""

    def supervised_examples(self, seed: int, count: int) -> Iterator[Example]:
        rng = random.Random(seed)
        for _ in range(count):
            word = rng.choice(list(ANSWERS))
            yield [{"role": "user", "content": f"the {word}"}], (), ANSWERS[word]


class Nobody:
    """Has no examples."""

    def supervised_examples(self, seed: int, count: int) -> Iterator[Example]:  # noqa: ARG002
        return iter(())


def options(**over: object) -> SupervisedOptions:
    fields: dict[str, object] = {
        "steps": 150,
        "seconds": None,
        "num_examples": 128,
        "batch_size": 8,
        "shape": SHAPE,
    }
    return SupervisedOptions(**{**fields, **over})  # type: ignore[arg-type]


def test_a_base_learns_its_examples(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    seen: list[Progress] = []
    final = train_base(
        Butler(), tmp_path / "base", options=options(), policy=CPU, on_progress=seen.append
    )
    assert seen[-1] == final
    assert [progress.step for progress in seen] == list(range(1, 151))
    assert seen[0].loss > 3
    assert final.fraction == 1
    base = load_base(tmp_path / "base", settings=CPU)
    requests = make_requests([1] * 4, top_k=1)
    words = list(ANSWERS)
    asked = [
        replace(r, prompt_ids=render_prompt(base, [{"role": "user", "content": f"the {word}"}]))
        for r, word in zip(requests, words, strict=True)
    ]
    texts = [generation.text for generation in generate(base.model, base, asked)]
    assert texts == [ANSWERS[word] for word in words]
    assert "150 steps" in read_record(tmp_path / "base")["made_by"]


def test_the_same_steps_give_the_same_base(tmp_path: Path) -> None:
    records = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        few = options(steps=5, seed=seed)
        train_base(Butler(), tmp_path / name, options=few, policy=CPU)
        records.append(read_record(tmp_path / name))
    assert records[0] == records[1]
    assert records[0]["digest"] != records[2]["digest"]


def test_a_time_budget_ends_training(tmp_path: Path) -> None:
    final = train_base(
        Butler(), tmp_path / "base", options=options(steps=None, seconds=0.2), policy=CPU
    )
    assert final.step >= 1
    assert final.elapsed_s < 5


def test_a_given_model_learns_the_examples_and_stays_itself(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    source = tiny_base(tmp_path / "theirs", seed=3)
    seen: list[Progress] = []
    given = options(
        source=source, source_options=ImportOptions(licence="MIT"), steps=60, learning_rate=5e-3
    )
    train_base(Butler(), tmp_path / "base", options=given, policy=CPU, on_progress=seen.append)
    assert seen[-1].loss < seen[0].loss / 2
    record = read_record(tmp_path / "base")
    assert record["licence"] == "MIT"
    assert "from theirs" in record["made_by"]
    theirs, trained = (load_base(path, settings=CPU) for path in (source, tmp_path / "base"))
    assert trained.tokenizer.get_vocab() == theirs.tokenizer.get_vocab()
    assert trained.model.config.num_key_value_heads == theirs.model.config.num_key_value_heads
    assert trained.digest != theirs.digest


def test_a_pretrained_model_is_trained_more_gently() -> None:
    assert options(source=Path("theirs")).peak_rate < options().peak_rate
    assert options(source=Path("theirs"), learning_rate=0.5).peak_rate == 0.5


def test_a_given_model_that_is_none_is_refused(tmp_path: Path) -> None:
    wrong = options(source=tmp_path, source_options=ImportOptions(licence="MIT"))
    with pytest.raises(ConfigurationError, match="neither a"):
        train_base(Butler(), tmp_path / "base", options=wrong, policy=CPU)


def test_what_cannot_be_trained_is_said(tmp_path: Path) -> None:
    for dataset, wrong, complaint in (
        (Butler(), options(steps=None), "needs `steps` or `seconds`"),
        (Nobody(), options(), "no supervised example"),
        (
            Butler(),
            options(shape=LlamaShape(hidden_size=32, num_heads=2, max_context=4)),
            "context",
        ),
    ):
        with pytest.raises(ConfigurationError, match=complaint):
            train_base(dataset, tmp_path / "base", options=wrong, policy=CPU)
    with pytest.raises(NonFiniteError, match="lower the learning rate"):
        train_base(Butler(), tmp_path / "base", options=options(learning_rate=1e38), policy=CPU)
    assert not (tmp_path / "base").exists()


def test_the_rate_warms_up_and_cools_down() -> None:
    rates = [rate_at(at / 100) for at in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[5] == pytest.approx(1.0)
    assert rates[100] == pytest.approx(0.05)
    assert rates[5:] == sorted(rates[5:], reverse=True)


def test_an_epoch_visits_every_example_once_with_like_lengths_together() -> None:
    lengths = [(7 * i) % 50 for i in range(400)]
    batches = batch_order(lengths, options(batch_size=10))
    first = [next(batches) for _ in range(40)]
    assert sorted(i for batch in first for i in batch) == list(range(400))
    spread = [max(lengths[i] for i in b) - min(lengths[i] for i in b) for b in first]
    assert sum(spread) / len(spread) < 5
    second = [next(batches) for _ in range(40)]
    assert first != second
