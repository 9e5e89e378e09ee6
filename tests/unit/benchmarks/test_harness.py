import json
from pathlib import Path

import pytest
from pydantic import BaseModel

from benchmarks.facts import Subject, machine
from benchmarks.figures import judge
from benchmarks.harness import Rounds, write_result


class Figure(BaseModel):
    per_s: float


def measured_anew(per_s: float) -> Figure:
    return Figure(per_s=per_s)


def refused() -> Figure:
    raise AssertionError("measured again")


def test_a_stopped_run_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "rounds.json"
    Rounds(path, "abc").measure("a", Figure, lambda: measured_anew(5.0))
    again = Rounds(path, "abc")
    assert again.has("a")
    assert not again.has("b")
    assert again.measure("a", Figure, refused) == Figure(per_s=5.0)


@pytest.mark.parametrize(("first", "then"), [("abc", "abd"), ("abc-dirty", "abc-dirty")])
def test_rounds_of_other_code_are_not_taken_up(tmp_path: Path, first: str, then: str) -> None:
    path = tmp_path / "rounds.json"
    Rounds(path, first).measure("a", Figure, lambda: measured_anew(5.0))
    again = Rounds(path, then)
    assert not again.has("a")
    assert again.measure("a", Figure, lambda: measured_anew(6.0)) == Figure(per_s=6.0)


def test_a_complete_run_leaves_no_rounds(tmp_path: Path) -> None:
    path = tmp_path / "rounds.json"
    rounds = Rounds(path, "abc")
    rounds.measure("a", Figure, lambda: measured_anew(5.0))
    rounds.forget()
    assert not path.exists()


def test_a_result_says_what_was_measured_where_and_what_was_missed(tmp_path: Path) -> None:
    path = tmp_path / "results" / "x.json"
    missed = judge("ratio", 0.1, 0.6, side="least")
    subject = Subject("abc-dirty", machine())
    write_result(path, name="x", subject=subject, figures={"rate": 5.0}, targets=[missed])
    document = json.loads(path.read_text())
    assert set(document) == {"name", "commit", "machine", "figures", "targets"}
    assert document["targets"] == [{"name": "ratio", "value": 0.1, "target": 0.6, "met": False}]
    assert document["commit"] == "abc-dirty"
    assert document["machine"]["cores"] >= 1
    assert document["machine"]["load_average"] >= 0
