from pathlib import Path
from random import Random

import pytest
from sqlalchemy import func, select

from benchmarks.ingest.column import Column
from benchmarks.ingest.filling import Filling
from benchmarks.ingest.growth import bars
from benchmarks.ingest.parts import FULL, QUICK, unmeasured
from tidemill.storage.database import Database
from tidemill.storage.schema import upgrade
from tidemill.storage.tables import InteractionRow


def test_a_table_is_filled_to_a_number_and_every_row_is_open(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'x.db'}")
    upgrade(database)
    filling = Filling(database, num_partitions=4)
    for number in (10, 25, 25):
        filling.fill_to(number)
        with database.reading() as session:
            rows = session.scalar(select(func.count()).where(InteractionRow.state == "open"))
            ids = set(session.scalars(select(InteractionRow.interaction_id)))
        assert rows == filling.num_rows == number
        assert {one for one, _ in filling.sample} < ids
        # It must not meet a transaction that is open still.
        filling.settle()
    database.close()


def test_nothing_is_taken_twice() -> None:
    filling = Filling(Database("sqlite://"), num_partitions=4)
    filling.sample = [(f"{one}.x", f"{one}") for one in range(10)]
    dice = Random(1)
    taken = filling.take(6, dice) + filling.take(4, dice)
    assert sorted(taken) == [(f"{one}.x", f"{one}") for one in range(10)]
    with pytest.raises(ValueError, match="1 of 0 interactions"):
        filling.take(1, dice)


def test_what_changes_little_is_flat() -> None:
    met = {"embedded/growth/memory_change": 0.10, "embedded/growth/cost_change": 0.16}
    assert [one.met for one in bars(Column.EMBEDDED, dict(met))] == [True, False]


def test_a_short_run_says_that_it_left_growth_out() -> None:
    assert set(FULL) - set(QUICK) == {"growth"}
    missed = unmeasured(Column.KAFKA, is_quick=True)
    assert {(one.name, one.value, one.met) for one in missed} == {
        ("kafka/growth/memory_change", None, False),
        ("kafka/growth/cost_change", None, False),
    }
    assert unmeasured(Column.KAFKA, is_quick=False) == []
