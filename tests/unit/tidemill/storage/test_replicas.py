from typing import Any

from tests.factories import NOW, VERSION
from tidemill.storage.database import Database
from tidemill.storage.replicas import (
    FLIPPED,
    REFUSED,
    STARTED,
    SwapFigures,
    fetch_replica_versions,
    fetch_swap_figures,
    insert_replica_version,
)
from tidemill.storage.tables import ReplicaVersionRow


def insert(database: Database, **over: Any) -> None:
    values: dict[str, Any] = {
        "replica": "serving",
        "model": "tide",
        "tenant": "default",
        "version": VERSION,
        "role": "champion",
        "outcome": FLIPPED,
        "detail": "",
        "in_flight": 9,
        "pause_ms": 12.5,
        "load_ms": 80.0,
        "at": NOW,
    }
    with database.transaction() as session:
        insert_replica_version(session, ReplicaVersionRow(**(values | over)))


def figures(database: Database) -> SwapFigures:
    with database.reading() as session:
        return fetch_swap_figures(session, model="tide", tenant="default")


def test_without_a_swap_there_are_no_figures(any_database: Database) -> None:
    insert(any_database, outcome=STARTED, in_flight=0)
    assert figures(any_database) == SwapFigures(0, 0, None, None)


def test_figures_are_over_all_replicas_of_one_model(any_database: Database) -> None:
    insert(any_database, pause_ms=5.0, in_flight=20)
    insert(any_database, pause_ms=25.0, in_flight=11, replica="serving#2")
    insert(any_database, outcome=REFUSED, pause_ms=900.0, in_flight=0)
    insert(any_database, model="other", pause_ms=900.0, in_flight=0)

    assert figures(any_database) == SwapFigures(2, 1, 25.0, 11)


def test_records_come_newest_first(any_database: Database) -> None:
    for number in range(3):
        insert(any_database, in_flight=number)
    with any_database.reading() as session:
        rows = fetch_replica_versions(session, model="tide", tenant="default", limit=2)
    assert [row.in_flight for row in rows] == [2, 1]
