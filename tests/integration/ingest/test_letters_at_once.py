"""Dead letters under several hands at once, and after retention took their records away."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import cast

import pytest

from ingest.letters import Clerk, Ending, Handled
from ingest.member import Member
from ingest.settings import IngestSettings
from tests.factories import make_feedback, make_interaction
from tests.ingest_rig import METRICS, Rig, seconds
from tidemill.contracts.codec import decode, encode
from tidemill.contracts.events import FEEDBACK, INTERACTIONS, FeedbackReceived
from tidemill.eventlog.base import EventSink, Position
from tidemill.eventlog.embedded import EmbeddedLog
from tidemill.ledger import take_ledger
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.settings import EmbeddedLogSettings
from tidemill.storage.database import Database
from tidemill.storage.dead_letters import LetterPlace, LetterQuery, find_dead_letters

MORE_METRICS = METRICS + '\n[metrics.kept]\ntype = "bool"\nwindow_s = 60\noptional = true\n'
OPERATORS = 4


def place_of_the_letter(database: Database) -> LetterPlace:
    with database.reading() as session:
        (row,) = find_dead_letters(session, LetterQuery(state=None))
    return LetterPlace(row.topic, row.partition, row.log_offset)


@pytest.fixture
def rig(any_database: Database) -> Rig:
    """A worker that knows the metric of a feedback only after it has died."""
    before = Rig(any_database)
    interaction = make_interaction()
    before.log.put(interaction, seconds(0))
    before.log.put(make_feedback(interaction, feedback_id="k", metric="kept"), seconds(1))
    before.read()
    return Rig(any_database, before.log, metrics=parse_metrics(MORE_METRICS))


def at_once(*hands: Callable[[], Handled]) -> list[Handled]:
    """Let all begin at the same moment."""
    ready = Barrier(len(hands))

    def begin(hand: Callable[[], Handled]) -> Handled:
        ready.wait(20)
        return hand()

    with ThreadPoolExecutor(len(hands)) as pool:
        return list(pool.map(begin, hands))


def num_records(rig: Rig) -> int:
    return sum(bounds.end for bounds in rig.log.bounds(FEEDBACK).values())


def test_of_several_operators_one_replays(rig: Rig) -> None:
    place, sink = place_of_the_letter(rig.database), rig.log.sink()

    def operator(number: int) -> Callable[[], Handled]:
        clerk = Clerk(database=rig.database, metrics=rig.worker.metrics, actor=f"op-{number}")
        return lambda: clerk.replay(place, sink, now=seconds(9))

    done = at_once(*map(operator, range(OPERATORS)))
    endings = Counter(one.ending for one in done)
    assert endings == {Ending.REPLAYED: 1, Ending.REFUSED: OPERATORS - 1}
    assert all("replayed already" in one.detail for one in done if one.ending is Ending.REFUSED)
    assert num_records(rig) == 2
    rig.read()
    assert rig.state_of("k") == "joined"
    assert take_ledger(rig.database, rig.log).problems == []


def test_of_a_replay_and_a_drop_one_is_done(rig: Rig) -> None:
    place, sink = place_of_the_letter(rig.database), rig.log.sink()
    clerk = Clerk(database=rig.database, metrics=rig.worker.metrics, actor="op")
    replayed, dropped = at_once(
        lambda: clerk.replay(place, sink, now=seconds(9)),
        lambda: clerk.drop(place, reason="noise", now=seconds(9)),
    )
    assert {replayed.ending, dropped.ending} in (
        {Ending.REPLAYED, Ending.REFUSED},
        {Ending.DROPPED, Ending.REFUSED},
    )
    assert num_records(rig) == 1 + (replayed.ending is Ending.REPLAYED)
    rig.read()
    taken = take_ledger(rig.database, rig.log)
    assert taken.problems == []
    joined, still_dead = taken.feedback["joined"], taken.letters["dropped"]
    assert joined + still_dead == 1


def test_what_counts_already_is_not_dropped_but_closed_by_a_replay(rig: Rig) -> None:
    place = place_of_the_letter(rig.database)
    clerk = Clerk(database=rig.database, metrics=rig.worker.metrics, actor="op")
    with rig.database.reading() as session:
        (row,) = find_dead_letters(session, LetterQuery())
    # As an operator leaves it who is killed between the append and the mark.
    rig.log.put(decode(FeedbackReceived, row.payload), seconds(8))
    rig.read()
    assert rig.state_of("k") == "joined"
    refused = clerk.drop(place, reason="noise", now=seconds(9))
    assert refused.ending is Ending.REFUSED
    assert "counts" in refused.detail
    assert clerk.replay(place, rig.log.sink(), now=seconds(9)).ending is Ending.REPLAYED
    rig.read()
    taken = take_ledger(rig.database, rig.log)
    assert taken.problems == []
    assert (taken.feedback["joined"], taken.letters["replayed"], taken.letters["open"]) == (1, 1, 0)


class Killed(BaseException):
    """The operator's process is gone."""


@dataclass
class LastSink:
    """Takes a record, and no word of that comes back."""

    sink: EventSink

    def append(self, topic: str, key: str, value: bytes) -> Future[Position]:
        self.sink.append(topic, key, value).result(20)
        raise Killed


def test_what_may_be_on_its_way_to_the_worker_is_not_dropped(rig: Rig) -> None:
    place, sink = place_of_the_letter(rig.database), rig.log.sink()
    clerk = Clerk(database=rig.database, metrics=rig.worker.metrics, actor="op")
    with pytest.raises(Killed):
        clerk.replay(place, cast("EventSink", LastSink(sink)), now=seconds(8))
    assert num_records(rig) == 2
    refused = clerk.drop(place, reason="noise", now=seconds(9))
    assert (refused.ending, refused.detail) == (
        Ending.REFUSED,
        "op began to replay it; replay it, which closes it",
    )
    # For who knows no such metric, as the worker before, the record can only die again.
    unaware = Clerk(database=rig.database, metrics=parse_metrics(METRICS), actor="op")
    assert unaware.replay(place, sink, now=seconds(9)).ending is Ending.REFUSED
    assert clerk.replay(place, sink, now=seconds(9)).ending is Ending.REPLAYED
    rig.read()
    taken = take_ledger(rig.database, rig.log)
    assert taken.problems == []
    assert (taken.feedback["joined"], taken.num_duplicates) == (1, 1)
    assert (taken.letters["replayed"], taken.letters["dropped"]) == (1, 0)


def test_a_replay_that_was_stopped_may_be_dropped_once_its_record_can_only_die(rig: Rig) -> None:
    place = place_of_the_letter(rig.database)
    clerk = Clerk(database=rig.database, metrics=rig.worker.metrics, actor="op")
    with pytest.raises(Killed):
        clerk.replay(place, cast("EventSink", LastSink(rig.log.sink())), now=seconds(8))
    unaware = Clerk(database=rig.database, metrics=parse_metrics(METRICS), actor="op")
    assert unaware.drop(place, reason="noise", now=seconds(9)).ending is Ending.DROPPED
    Rig(rig.database, rig.log).read()
    taken = take_ledger(rig.database, rig.log)
    assert taken.problems == []
    assert (taken.letters["dropped"], taken.letters["open"]) == (1, 1)


def test_a_letter_outlives_its_record_in_the_log(any_database: Database, tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path / "log", EmbeddedLogSettings(num_partitions=1, retention_s=60))
    log.create_topics((INTERACTIONS, FEEDBACK))
    interaction = make_interaction()
    feedback = make_feedback(interaction, feedback_id="k", metric="kept")
    sink = log.sink()
    for topic, event in ((INTERACTIONS, interaction), (FEEDBACK, feedback)):
        sink.append(topic, interaction.key, encode(event)).result(20)

    def member(metrics: str, now: datetime) -> Member:
        return Member(any_database, log, IngestSettings(), parse_metrics(metrics), now=lambda: now)

    later = datetime.now(UTC) + timedelta(seconds=120)
    first = member(METRICS, later)
    while first.read_once(timeout_s=0.5):
        pass
    assert first.retain_once() == 2
    first.close()
    assert log.read(FEEDBACK, 0, offset=0, max_records=5) == []
    clerk = Clerk(database=any_database, metrics=parse_metrics(MORE_METRICS), actor="op")
    place = place_of_the_letter(any_database)
    handled = clerk.replay(place, sink, now=later)
    assert (handled.ending, handled.detail) == (Ending.REPLAYED, f"appended as {FEEDBACK}/0/1")
    sink.close()
    second = member(MORE_METRICS, later)
    while second.read_once(timeout_s=0.5):
        pass
    second.close()
    taken = take_ledger(any_database, log)
    assert taken.problems == []
    assert taken.feedback["joined"] == taken.letters["replayed"] == 1
    log.close()
