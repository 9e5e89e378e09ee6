"""An answer of a metric with `closes` ends its interaction at once, on both databases."""

import itertools

import pytest

from ingest.settings import IngestSettings
from tests.factories import make_feedback, make_interaction
from tests.ingest_rig import Rig, seconds
from tests.memory_log import MemoryLog
from tidemill.contracts.events import InteractionServed
from tidemill.errors import StorageError
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.storage.database import Database
from tidemill.storage.tables import ExperienceRevisionRow, metadata

METRICS = """
[metrics.accepted]
type = "bool"
window_s = 60
closes = true

[metrics.stars]
type = "float"
range = [1, 5]
window_s = 600
optional = true
"""


@pytest.fixture
def rig(any_database: Database) -> Rig:
    return new_rig(any_database)


def new_rig(database: Database, log: MemoryLog | None = None) -> Rig:
    return Rig(database, log or MemoryLog(), metrics=parse_metrics(METRICS))


def rate(rig: Rig, interaction: InteractionServed, stars: float, at: float, name: str) -> None:
    rating = make_feedback(interaction, metric="stars", value=stars, feedback_id=name)
    rig.log.put(rating, seconds(at))


def accept(rig: Rig, interaction: InteractionServed, at: float, name: str = "yes") -> None:
    rig.log.put(make_feedback(interaction, feedback_id=name), seconds(at))


def test_the_experience_is_there_as_soon_as_the_answer_was_read(rig: Rig) -> None:
    interaction = make_interaction()
    rig.log.put(interaction, seconds(0))
    rate(rig, interaction, 3, 1, "stars")
    rig.read()
    assert rig.interaction(interaction.interaction_id).state == "open"
    accept(rig, interaction, 2)
    rig.read()
    assert rig.interaction(interaction.interaction_id).state == "rewarded"
    experience = rig.experience(interaction.interaction_id)
    assert experience is not None
    assert experience.reward == 0.75


def test_an_answer_that_comes_first_closes_when_its_interaction_comes(rig: Rig) -> None:
    interaction = make_interaction()
    accept(rig, interaction, 1)
    rig.read()
    rig.log.put(interaction, seconds(2))
    rig.read()
    assert rig.interaction(interaction.interaction_id).state == "rewarded"


def test_whatever_comes_after_it_is_late_and_revises(rig: Rig) -> None:
    interaction = make_interaction()
    rig.log.put(interaction, seconds(0))
    accept(rig, interaction, 1)
    rig.read()
    rate(rig, interaction, 1, 2, "stars")
    rig.read()
    assert rig.state_of("stars") == "late"
    experience = rig.experience(interaction.interaction_id)
    assert experience is not None
    assert experience.reward == 1
    (revision,) = rig._all(ExperienceRevisionRow)
    assert revision.reward == 0.5


def test_without_an_answer_the_windows_decide(rig: Rig) -> None:
    interaction = make_interaction()
    rig.log.put(interaction, seconds(0))
    rate(rig, interaction, 5, 1, "stars")
    accept(rig, interaction, 61)
    rig.read()
    assert rig.state_of("yes") == "late"
    assert rig.interaction(interaction.interaction_id).state == "open"
    rig.run_to(seconds(601))
    assert rig.interaction(interaction.interaction_id).excluded_reason == "silent"


def test_every_order_of_reading_ends_the_same(any_database: Database) -> None:
    interaction = make_interaction()
    log = MemoryLog(num_partitions=1)
    source = new_rig(any_database, log)
    log.put(interaction, seconds(5))
    rate(source, interaction, 4, 1, "before")
    # In one millisecond: only their order in the log tells which came first.
    accept(source, interaction, 6)
    rate(source, interaction, 1, 6, "after")
    accept(source, interaction, 7, "again")
    found = []
    for topics in itertools.permutations(["tidemill.interactions", "tidemill.feedback", None]):
        metadata.drop_all(any_database.engine)
        metadata.create_all(any_database.engine)
        rig = new_rig(any_database, log)
        for topic in topics:
            rig.read(topic)
        rig.run_to(seconds(700))
        experience = rig.experience(interaction.interaction_id)
        assert experience is not None
        states = [rig.state_of(name) for name in ("before", "yes", "after", "again")]
        revisions = [(row.feedback_id, row.reward) for row in rig._all(ExperienceRevisionRow)]
        found.append((experience.reward, states, sorted(revisions)))
    assert all(one == found[0] for one in found)
    assert found[0][:2] == (0.875, ["joined", "joined", "late", "late"])


def test_what_failed_to_close_is_tried_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    interaction = make_interaction()
    rig.log.put(interaction, seconds(0))
    accept(rig, interaction, 1)
    closer = type(rig.worker._closer)

    def down(*_: object) -> int:
        raise StorageError("down")

    with monkeypatch.context() as patch:
        patch.setattr(closer, "close_ended", down)
        with pytest.raises(StorageError):
            rig.read()
    assert rig.interaction(interaction.interaction_id).state == "open"
    rig.worker.close_once()
    assert rig.interaction(interaction.interaction_id).state == "rewarded"


def test_what_a_killed_worker_left_open_closes_with_its_windows(any_database: Database) -> None:
    rig = new_rig(any_database)
    interaction = make_interaction()
    rig.log.put(interaction, seconds(0))
    accept(rig, interaction, 1)
    rate(rig, interaction, 1, 2, "stars")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(rig.worker), "_close_ended", lambda _: None)
        rig.read()
    other = Rig(any_database, rig.log, rig.metrics, IngestSettings(close_grace_s=0))
    assert other.close_at(seconds(601)) == 1
    experience = other.experience(interaction.interaction_id)
    assert experience is not None
    assert experience.reward == 1
