"""Replays the whole log into a fresh database, through the same member that the worker runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ingest.comparison import Comparison, Kept, compare_ends, digest_of
from ingest.frozen import FrozenLog
from ingest.intake import TOPICS_READ
from ingest.member import Member
from ingest.settings import IngestSettings
from tidemill.contracts.events import INTERACTIONS
from tidemill.errors import ConfigurationError
from tidemill.eventlog.base import Bounds, EventLog
from tidemill.rewards.metrics import MetricsFile
from tidemill.rewards.verifiers import Verifier
from tidemill.storage.database import Database
from tidemill.storage.interaction_ends import fetch_interaction_ends
from tidemill.storage.judgements import copy_finished
from tidemill.storage.offsets import fetch_progress
from tidemill.storage.schema import find_occupant, upgrade


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A replay that was made."""

    log: FrozenLog
    database: Database
    settings: IngestSettings
    at: datetime
    """The wall clock when the log was frozen: what was due by then is closed."""
    num_records: int
    num_interactions: int
    num_experiences: int
    digest: str
    """Of all experiences' content."""


def prepare_fresh(database: Database) -> None:
    """Make the tables in an empty database.

    What is not empty is left as it is: it may be another installation, of an older version.

    Raises:
        ConfigurationError: it holds something already.
        StorageError: it cannot be reached.
    """
    occupant = find_occupant(database)
    if occupant is not None:
        where = database.url.render_as_string()
        raise ConfigurationError(
            f"{where} is not fresh, it holds {occupant}; give --into an empty database"
        )
    upgrade(database)


def reuse_judgements(live: Database, fresh: Database) -> int:
    """Copy what judges said, so that the replay asks nobody; return how many answers.

    An interaction without a finished judgement stays open in the replay.

    Raises:
        StorageError: a database cannot be asked.
    """
    with live.reading() as source, fresh.transaction() as target:
        return copy_finished(source, target)


def replay_log(
    log: EventLog,
    database: Database,
    *,
    settings: IngestSettings,
    metrics: MetricsFile,
    verifiers: dict[str, Verifier],
) -> Replay:
    """Take everything that the log holds now into a fresh database, and close what is due.

    Raises:
        EventLogError: the log cannot be read.
        StorageError: the database refused.
    """
    # Before the bounds: what is appended later is later than this moment too.
    at = datetime.now(UTC)
    frozen = FrozenLog(log, {topic: log.bounds(topic) for topic in TOPICS_READ})
    member = Member(database, frozen, settings, metrics, verifiers, now=lambda: at)
    while member.read_once(timeout_s=0):
        pass
    while _close(member):
        pass
    member.close()
    with database.reading() as session:
        ends = fetch_interaction_ends(session)
    return Replay(
        log=frozen,
        database=database,
        settings=settings,
        at=at,
        num_records=member.counters.get("records", 0),
        num_interactions=len(ends),
        num_experiences=sum(end.digest is not None for end in ends.values()),
        digest=digest_of(ends),
    )


def compare_replay(replay: Replay, live: Database) -> Comparison:
    """Hold a replay against the live database.

    Raises:
        EventLogError: the log cannot be read.
        StorageError: a database cannot be asked.
    """
    with live.reading() as session:
        progress = fetch_progress(session, replay.settings.consumer_group)
        theirs = fetch_interaction_ends(session)
    with replay.database.reading() as session:
        ours = fetch_interaction_ends(session)
    return compare_ends(theirs, ours, _kept(replay, progress))


def _close(member: Member) -> int:
    before = member.counters.get("expired", 0)
    return member.close_once() + member.counters.get("expired", 0) - before


def _kept(replay: Replay, progress: Mapping[tuple[str, int], int]) -> dict[int, Kept]:
    # Asked again: retention may have gone on meanwhile.
    now = {topic: replay.log.log.bounds(topic) for topic in TOPICS_READ}
    # Feedback that retention took may have waited so long for its interaction, and a repeat of it
    # that is still there as long again.
    margin = timedelta(seconds=2 * replay.settings.unmatched_after_s)
    kept: dict[int, Kept] = {}
    for partition, bounds in replay.log.bounds(INTERACTIONS).items():
        cuts = [
            _cut(replay, topic, partition, now[topic][partition])
            for topic in TOPICS_READ
            if now[topic][partition].first > 0
        ]
        kept[partition] = Kept(
            since=max(cuts) + margin if cuts else None,
            until=min(bounds.end, progress.get((INTERACTIONS, partition), 0)),
        )
    return kept


def _cut(replay: Replay, topic: str, partition: int, bounds: Bounds) -> datetime:
    """Return the append time of the oldest record that is kept."""
    records = replay.log.log.read(topic, partition, offset=bounds.first, max_records=1)
    return records[0].appended_at if records else replay.at
