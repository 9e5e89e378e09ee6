"""The ledger: what the log holds against what the rows say, counted apart.

Left, from the log itself: records between the first and the committed offset of each partition,
those that retention removed counted by their offsets. Right, from the rows: whatever stands for a
record. Both are taken without stopping anybody.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tidemill.contracts.events import FEEDBACK, INTERACTIONS
from tidemill.eventlog.base import Bounds, EventLog
from tidemill.storage.database import Database
from tidemill.storage.dead_letters import LetterState
from tidemill.storage.ledger import Place, Progress, RowsSide, fetch_rows_side
from tidemill.storage.revisions import REVISION_STATES

TOPICS_COUNTED = (INTERACTIONS, FEEDBACK)

INTERACTION_STATES = ("open", "rewarded", "defaulted", "malformed", "excluded", "erased")
FEEDBACK_STATES = ("joined", "superseded", "pending", "late", "dead_lettered", "erased")

LETTER_STATES = tuple(state.value for state in LetterState)

_READ_AT_ONCE = 5000


@dataclass(frozen=True, slots=True)
class LogCount:
    """What was found in one partition of the log."""

    num_processed: int
    """Records below the committed offset, with those that retention removed."""
    num_total: int
    """The same up to the end."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Both sides, and where they differ."""

    records: dict[str, dict[str, int]]
    """For each topic: in_log, processed, waiting, rows, acknowledged."""
    interactions: dict[str, int]
    excluded: dict[str, int]
    feedback: dict[str, int]
    num_duplicates: int
    dead_letters: dict[str, int]
    """By reason."""
    letters: dict[str, int]
    """Dead letters by state: those replayed or returned have a later record that counts instead."""
    dropped: dict[str, int]
    """Experiences that no learner uses any more, by reason."""
    revisions: dict[str, int]
    """Of experiences, by late feedback: due (for a learner), taken, idle (never trained on)."""
    problems: list[str] = field(default_factory=list)
    """What does not balance, in words; empty = all does."""

    @property
    def is_balanced(self) -> bool:
        """Whether both sides agree."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """Return the ledger as JSON."""
        return {"balanced": self.is_balanced, **asdict(self)}


def take_ledger(database: Database, log: EventLog, *, group: str = "ingest") -> Ledger:
    """Count both sides.

    Raises:
        StorageError: the database cannot be asked.
        EventLogError: the log cannot be read.
    """
    with database.reading() as session:
        rows = fetch_rows_side(session, group=group)
    # The log after the rows: whatever was committed or acknowledged by then must be in it.
    counts: dict[Place, LogCount] = {}
    for topic in TOPICS_COUNTED:
        for partition, bounds in log.bounds(topic).items():
            place = (topic, partition)
            counts[place] = _count(log, place, bounds, rows.progress.get(place))
    return build_ledger(rows, counts)


def build_ledger(rows: RowsSide, counts: Mapping[Place, LogCount]) -> Ledger:
    """Compare both sides; a partition that one of them does not know counts as 0 there."""
    places = set(counts) | set(rows.progress) | set(rows.records)
    problems: list[str] = []
    sums = {
        topic: dict.fromkeys(("in_log", "processed", "waiting", "rows", "acknowledged"), 0)
        for topic in TOPICS_COUNTED
    }
    for topic, partition in sorted(places):
        count = counts.get((topic, partition), LogCount(0, 0))
        progress = rows.progress.get((topic, partition))
        recorded = 0 if progress is None else progress.num_records
        stored = rows.records.get((topic, partition), 0)
        if not count.num_processed == recorded == stored:
            problems.append(
                f"{topic}[{partition}]: the log holds {count.num_processed} records below the "
                f"committed offset, the group processed {recorded}, rows stand for {stored}"
            )
        total = sums.setdefault(topic, dict.fromkeys(next(iter(sums.values())), 0))
        total["in_log"] += count.num_total
        total["processed"] += recorded
        total["waiting"] += count.num_total - count.num_processed
        total["rows"] += stored
    for topic, number in sorted(rows.acknowledged.items()):
        sums[topic]["acknowledged"] = number
        # What was appended from a dead letter was acknowledged to nobody.
        held = sums[topic]["in_log"] - rows.replayed.get(topic, 0)
        if number > held:
            problems.append(f"{topic}: {number} records were acknowledged, the log holds {held}")
    return Ledger(
        records=sums,
        interactions=_all_states(rows.interactions, INTERACTION_STATES),
        excluded=rows.excluded,
        feedback=_all_states(rows.feedback, FEEDBACK_STATES),
        num_duplicates=rows.num_duplicates,
        dead_letters=rows.dead_letters,
        letters=_all_states(rows.letters, LETTER_STATES),
        dropped=rows.dropped,
        revisions=_all_states(rows.revisions, REVISION_STATES),
        problems=problems + _row_problems(rows),
    )


def _row_problems(rows: RowsSide) -> list[str]:
    problems = [
        f"{number} {what}"
        for number, what in (
            (rows.num_without_experience, "closed interactions have no experience"),
            (rows.num_without_interaction, "live experiences have no closed interaction"),
            (rows.num_without_letter, "dead-lettered feedbacks have no dead letter"),
            (rows.num_baseless_revisions, "revisions have no experience or no feedback"),
        )
        if number
    ]
    for name, counts, known in (
        ("interactions", rows.interactions, INTERACTION_STATES),
        ("feedbacks", rows.feedback, FEEDBACK_STATES),
        ("dead letters", rows.letters, LETTER_STATES),
    ):
        for state in sorted(set(counts) - set(known)):
            problems.append(f"{counts[state]} {name} are in the unknown state {state!r}")
    return problems


def _all_states(counts: Mapping[str, int], known: tuple[str, ...]) -> dict[str, int]:
    return dict.fromkeys(known, 0) | dict(counts)


def _count(log: EventLog, place: Place, bounds: Bounds, progress: Progress | None) -> LogCount:
    first = bounds.first if progress is None else progress.first_offset
    committed = first if progress is None else progress.next_offset
    offset = max(first, bounds.first)
    num_total = offset - first
    num_processed = min(offset, max(committed, first)) - first
    while offset < bounds.end:
        records = log.read(place[0], place[1], offset=offset, max_records=_READ_AT_ONCE)
        found_at = records[0].offset if records else bounds.end
        if found_at > offset:
            # Taken by retention since the bounds were asked for, or gone without a reason.
            kept_from = min(found_at, log.bounds(place[0])[place[1]].first)
            num_total += max(0, kept_from - offset)
            num_processed += max(0, min(kept_from, committed) - offset)
        num_total += len(records)
        num_processed += sum(record.offset < committed for record in records)
        offset = records[-1].offset + 1 if records else bounds.end
    return LogCount(num_processed, num_total)
