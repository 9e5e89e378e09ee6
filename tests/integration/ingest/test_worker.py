"""The worker against two databases: replay, fencing, poison, outages."""

import random
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select

from ingest.member import Member
from ingest.settings import IngestSettings
from ingest.worker import work
from tests.factories import make_feedback, make_interaction
from tests.hostile_events import mutants
from tests.ingest_rig import METRICS, Rig, seconds
from tests.memory_log import MemoryLog
from tidemill.contracts.codec import encode
from tidemill.contracts.events import FEEDBACK, INTERACTIONS, Event, InteractionServed
from tidemill.errors import FencedError, StorageError
from tidemill.ledger import take_ledger
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.storage.database import Database
from tidemill.storage.experiences import fetch_experience_digests
from tidemill.storage.ledger import fetch_rows_side
from tidemill.storage.tables import FeedbackRow, InteractionRow, metadata


def traffic(log: MemoryLog, *, seed: int, num_interactions: int) -> None:
    """Put interactions and feedback of every kind onto a log, by their drawn times."""
    rng = random.Random(seed)
    planned: list[tuple[float, Event]] = [(0, make_feedback())]
    for number in range(num_interactions):
        interaction = make_interaction(
            consent_train=rng.random() > 0.1,
            completion_ids=() if rng.random() < 0.05 else (7, 8),
        )
        served = number * 0.5 + rng.uniform(0, 5)
        planned += [(served + again, interaction) for again in range(1 + (rng.random() < 0.1))]
        for _ in range(rng.randrange(4)):
            rater = rng.choice(["r", "s", None])
            feedback = make_feedback(interaction, rater=rater, value=rng.random() < 0.5)
            # A few come before their interaction, a few after its window.
            at = served + rng.uniform(-5, 80)
            planned += [(at + again, feedback) for again in range(1 + (rng.random() < 0.2))]
    for at, event in sorted(planned, key=lambda one: one[0]):
        log.put(event, seconds(at))
    log.put_bytes(FEEDBACK, "k", b"junk")


def states(database: Database) -> tuple[Any, ...]:
    with database.reading() as session:
        feedback = select(FeedbackRow.feedback_id, FeedbackRow.state)
        interactions = select(InteractionRow.interaction_id, InteractionRow.state)
        return (
            fetch_experience_digests(session),
            {one: state for one, state in session.execute(feedback)},  # noqa: C416
            {one: state for one, state in session.execute(interactions)},  # noqa: C416
        )


def test_a_replay_from_zero_gives_the_same_experiences_byte_for_byte(
    any_database: Database, tmp_path: Path
) -> None:
    log = MemoryLog()
    traffic(log, seed=1, num_interactions=120)
    # Live: little by little, closing all the time, as the clock goes by.
    live = Rig(any_database, log, settings=IngestSettings(poll_records=7, close_grace_s=0))
    moment = 0.0
    while live.worker.read_once(timeout_s=0):
        moment += 2
        live.close_at(seconds(moment))
    live.close_at(seconds(10_000))
    # Replay: everything at once, feedback first, long afterwards.
    fresh = Database(f"sqlite:///{tmp_path / 'fresh.db'}")
    metadata.create_all(fresh.engine)
    replayed = Rig(fresh, log, settings=IngestSettings(close_grace_s=0))
    replayed.read(only=FEEDBACK)
    replayed.read()
    replayed.close_at(seconds(10_000))
    assert states(any_database) == states(fresh)
    assert len(states(fresh)[0]) > 30
    for database in (any_database, fresh):
        taken = take_ledger(database, log)
        assert taken.problems == []
    fresh.close()


def test_a_worker_that_lost_its_partition_writes_nothing(any_database: Database) -> None:
    log = MemoryLog()
    first, second = Rig(any_database, log), Rig(any_database, log)
    interaction = make_interaction()
    log.put(interaction, seconds(0))
    assert first.read() == 1
    log.put(make_feedback(interaction), seconds(1))
    assert second.read() == 1
    log.put(make_feedback(interaction), seconds(2))
    first.worker._source.poll(max_records=1, timeout_s=0)
    with pytest.raises(FencedError):
        first.read()
    # It reads its place again, and goes on from there.
    assert first.read() == 1
    first.close_at(seconds(100))
    assert take_ledger(any_database, log).problems == []
    assert states(any_database)[2] == {interaction.interaction_id: "rewarded"}


def test_an_interaction_is_closed_by_one_worker_only(any_database: Database) -> None:
    log = MemoryLog()
    first, second = Rig(any_database, log), Rig(any_database, log)
    for number in range(20):
        log.put(make_interaction(consent_train=number % 2 == 0), seconds(0))
    first.read()
    results: list[object] = []

    def race(rig: Rig) -> None:
        try:
            results.append(rig.close_at(seconds(100)))
        except StorageError as error:
            results.append(error)

    threads = [threading.Thread(target=race, args=(rig,)) for rig in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(one for one in results if isinstance(one, int)) == 20
    with any_database.reading() as session:
        assert fetch_rows_side(session, group="ingest").excluded == {"no_consent": 10, "silent": 10}


POISONED = make_interaction()
SEEDS: tuple[Event, ...] = (POISONED, make_feedback(POISONED))


@given(
    st.integers(0, 1),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=4),
    st.sampled_from(["replace", "insert", "cut"]),
)
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_mutated_bytes_are_dead_letters_or_valid_events(
    database: Database, which: int, edits: list[tuple[int, int]], how: str
) -> None:
    """Ten mutants of each draw; the rows of one draw are removed again."""
    log = MemoryLog()
    event = SEEDS[which]
    topic = INTERACTIONS if isinstance(event, InteractionServed) else FEEDBACK
    for shift in range(10):
        log.put_bytes(topic, event.key, _mutated(encode(event), edits, how, shift))
    rig = Rig(database, log)
    assert rig.read() == 10
    rig.close_at(seconds(10_000))
    assert take_ledger(database, log).problems == []
    with database.transaction() as session:
        for table in metadata.sorted_tables[::-1]:
            session.execute(delete(table))


def _mutated(payload: bytes, edits: list[tuple[int, int]], how: str, shift: int) -> bytes:
    mutant = bytearray(payload)
    for place, byte in edits:
        at = (place + shift * 37) % len(mutant)
        if how == "replace":
            mutant[at] = byte
        elif how == "insert":
            mutant.insert(at, byte)
        else:
            del mutant[at : at + 1 + byte % 8]
    return bytes(mutant)


NASTY: tuple[bytes, ...] = (
    b"",
    b"\0",
    b"\xff" * 100,
    b"{}",
    b'{"schema_version":1}',
    b'{"schema_version":99}',
    b'{"schema_version":1e400}',
    b"[" * 10_000,
    encode(SEEDS[0]).replace(b'"turn":0', b'"turn":' + b"9" * 30),
    encode(SEEDS[0]).replace(b'"subject-1"', b'"\\u0000"'),
    encode(SEEDS[0]).replace(b'"subject-1"', b'"\\ud800"'),
    encode(SEEDS[0]).replace(b'"prompt_ids":[1', b'"prompt_ids":[99999999999'),
    encode(SEEDS[0]).replace(b'"kept_mass":null', b'"kept_mass":[NaN,1,1]'),
    encode(SEEDS[1]).replace(b'"rater-1"', b'"\\u0000"'),
    encode(SEEDS[1]).replace(b'"value":true', b'"value":1e999'),
    encode(SEEDS[1]).replace(b'"value":true', b'"value":' + b"9" * 400),
    encode(SEEDS[1]).replace(b'"accepted"', b'"acc\\u0000pted"'),
)


def test_known_poison_stops_neither_database(any_database: Database) -> None:
    log = MemoryLog()
    for topic in (INTERACTIONS, FEEDBACK):
        for payload in NASTY:
            log.put_bytes(topic, POISONED.key, payload)
    rig = Rig(any_database, log)
    assert rig.read() == 2 * len(NASTY)
    assert len(rig.dead_letters()) == 2 * len(NASTY)
    assert take_ledger(any_database, log).problems == []


@pytest.mark.parametrize("which", [0, 1], ids=["interactions", "feedback"])
def test_no_single_bad_value_stops_either_database(any_database: Database, which: int) -> None:
    log = MemoryLog()
    event = SEEDS[which]
    topic = (INTERACTIONS, FEEDBACK)[which]
    for number, payload in enumerate(mutants(encode(event))):
        # Ids of its own, so that none is a mere conflict with the one before.
        trajectory = f"0193e3a0-0000-7000-8000-{number:012x}"
        one = payload.replace(event.key.encode(), trajectory.encode())
        one = one.replace(b'"feedback_id": "', f'"feedback_id": "n{number}-'.encode())
        log.put_bytes(topic, trajectory, one)
    rig = Rig(any_database, log)
    assert rig.read() == number + 1
    while rig.close_at(seconds(10_000)):
        pass
    assert take_ledger(any_database, log).problems == []


def test_a_worker_outlives_a_database_that_is_away(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'rows.db'}")
    log = MemoryLog()
    options = IngestSettings(close_grace_s=0, batch_every_s=0, poll_timeout_s=0.01)
    worker = Member(database, log, options, parse_metrics(METRICS))
    log.put(make_interaction(), seconds(0))
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(worker, stop))
    thread.start()
    try:
        assert _until(lambda: worker.counters.get("failures", 0) > 0)
        metadata.create_all(database.engine)
        assert _until(lambda: worker.counters.get("interactions", 0) == 1)
    finally:
        stop.set()
        thread.join()
        worker.close()
        database.close()


def _until(condition: Any, timeout_s: float = 20) -> bool:
    pause = threading.Event()
    for _ in range(int(timeout_s / 0.02)):
        if condition():
            return True
        pause.wait(0.02)
    return False
