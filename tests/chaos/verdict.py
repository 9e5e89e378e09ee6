"""What must hold at the end of a run; whatever does not is a problem in words.

The log is the reference: each of its records must stand in exactly one place of the database, and
each acknowledged id in the log's own content, whole.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select

from tests.chaos.senders import Book, is_interaction
from tests.chaos.traffic import Body
from tidemill.contracts.codec import decode
from tidemill.contracts.events import FEEDBACK, INTERACTIONS, FeedbackReceived, InteractionServed
from tidemill.errors import ContractError
from tidemill.eventlog.base import EventLog, Record
from tidemill.storage.database import Database, Session
from tidemill.storage.tables import DeadLetterRow, DuplicateDeliveryRow, FeedbackRow, InteractionRow

Place = tuple[str, int, int]
"""Topic, partition, offset."""

FINAL_FEEDBACK = {"joined", "superseded", "late", "dead_lettered"}
FINAL_INTERACTIONS = {"rewarded", "defaulted", "malformed", "excluded"}
_SHOWN = 5
_READ_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class Stood:
    """What stands for one record."""

    what: str
    reason: str = ""


def read_log(log: EventLog) -> list[Record]:
    """Return every record of both topics."""
    found: list[Record] = []
    for topic in (INTERACTIONS, FEEDBACK):
        for partition, bounds in log.bounds(topic).items():
            offset = bounds.first
            while offset < bounds.end:
                found += log.read(topic, partition, offset=offset, max_records=_READ_AT_ONCE)
                offset = found[-1].offset + 1
    return found


def find_problems(database: Database, records: list[Record], book: Book) -> list[str]:
    """Hold the database against the log, and both against what the senders know."""
    with database.reading() as session:
        standing = _standing(session)
        feedback = {row.feedback_id: row for row in session.scalars(select(FeedbackRow))}
        interactions = {row.interaction_id: row for row in session.scalars(select(InteractionRow))}
    return [
        *_place_problems({_place(one): one for one in records}, standing),
        *_id_problems("feedback", book, feedback, FINAL_FEEDBACK, _is_whole_feedback),
        *_id_problems("interaction", book, interactions, FINAL_INTERACTIONS, _is_whole_interaction),
    ]


def find_command_problems(settings: Path, fresh_database_url: str) -> list[str]:
    """Ask the commands: does the ledger balance, and does a replay give the same?"""
    problems = []
    ledger = _tidemill(settings, "ledger", "--json")
    if ledger.returncode != 0:
        problems.append(f"tidemill ledger: exit {ledger.returncode}: {ledger.stdout[-2000:]}")
    replay = _tidemill(
        settings, "log", "replay", "--into", fresh_database_url, "--compare", "--json"
    )
    if replay.returncode != 0:
        return [
            *problems,
            f"tidemill log replay: exit {replay.returncode}: {replay.stdout[-2000:]}",
        ]
    made = json.loads(replay.stdout)
    compared = made["comparison"]
    if compared["left_out"] or compared["num_compared"] != made["interactions"]:
        problems.append(f"the replay left out {compared['left_out']} of {made['interactions']}")
    if not compared["digest"] == compared["live_digest"] == made["digest"]:
        problems.append(f"the replay has another digest: {made['digest']}, {compared}")
    return problems


def find_replay_problems(live: Database, replayed: Database) -> list[str]:
    """Hold all that ingest wrote against what a replay made: not the experiences alone."""
    ours, theirs = (_everything(database) for database in (replayed, live))
    return _say(
        "rows differ between the database and the replay",
        [
            f"{name}: {theirs.get(name)}, the replay {ours.get(name)}"
            for name in sorted(ours.keys() | theirs.keys())
            if ours.get(name) != theirs.get(name)
        ],
    )


def _everything(database: Database) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return what each feedback, repeat and dead letter came to, whatever database holds it."""
    row, repeat, letter = FeedbackRow, DuplicateDeliveryRow, DeadLetterRow
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    with database.reading() as session:
        query = select(row.tenant, row.feedback_id, row.state, row.partition, row.log_offset)
        for tenant, feedback_id, *stands in session.execute(query):
            found["feedback", tenant, feedback_id] = tuple(stands)
        places = select(repeat.topic, repeat.partition, repeat.log_offset, repeat.record_id)
        for *place, record_id in session.execute(places):
            found["repeat", *place] = (record_id,)
        letters = select(
            letter.topic, letter.partition, letter.log_offset, letter.reason, letter.state
        )
        for *place, reason, state in session.execute(letters):
            found["letter", *place] = (reason, state)
    return found


def _tidemill(settings: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tidemill.cli.main", "--settings", str(settings), *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)


def _standing(session: Session) -> dict[Place, list[Stood]]:
    found: dict[Place, list[Stood]] = {}
    for topic, row in ((INTERACTIONS, InteractionRow), (FEEDBACK, FeedbackRow)):
        for partition, offset in session.execute(select(row.partition, row.log_offset)):
            found.setdefault((topic, partition, offset), []).append(Stood("row"))
    repeat, letter = DuplicateDeliveryRow, DeadLetterRow
    for place in session.execute(select(repeat.topic, repeat.partition, repeat.log_offset)):
        found.setdefault(tuple(place), []).append(Stood("repeat"))
    query = select(
        letter.topic, letter.partition, letter.log_offset, letter.reason, letter.detail
    ).where(letter.owns_record)
    for *place, reason, detail in session.execute(query):
        found.setdefault(tuple(place), []).append(Stood("letter", reason if detail else ""))
    return found


def _place_problems(
    records: Mapping[Place, Record], standing: Mapping[Place, list[Stood]]
) -> list[str]:
    missing = [place for place in records if place not in standing]
    strange = [place for place in standing if place not in records]
    double = [f"{place}: {found}" for place, found in standing.items() if len(found) > 1]
    wrong = [
        f"{place}: {found}"
        for place, (found, *_) in standing.items()
        if place in records and not _fits(records[place], found)
    ]
    return [
        *_say("records of the log stand nowhere", missing),
        *_say("rows stand for records that the log does not hold", strange),
        *_say("records stand in two places", double),
        *_say("records that cannot be read are no dead letters with a reason", wrong),
    ]


def _fits(record: Record, stood: Stood) -> bool:
    """Tell whether a record is a dead letter with a reason, or one that the schema allows."""
    if stood.what == "letter":
        return bool(stood.reason)
    kind = InteractionServed if record.topic == INTERACTIONS else FeedbackReceived
    try:
        return decode(kind, record.value).key == record.key
    except ContractError:
        return False


def _id_problems(
    kind: str,
    book: Book,
    rows: Mapping[str, Any],
    final: set[str],
    is_whole: Callable[[Any, Body], bool],
) -> list[str]:
    sent = {
        name: body
        for name, body in book.bodies.items()
        if is_interaction(name) == (kind == "interaction")
    }
    lost = [name for name in sent if name in book.acknowledged and name not in rows]
    states = Counter(row.state for row in rows.values())
    torn = [name for name, body in sent.items() if name in rows and not is_whole(rows[name], body)]
    return [
        *_say(f"{kind}: acknowledged and lost", lost),
        *_say(f"{kind}: another content than was sent", torn),
        *_say(f"{kind}: in no final state", sorted(set(states) - final)),
    ]


def _is_whole_feedback(row: FeedbackRow, body: Body) -> bool:
    event = decode(FeedbackReceived, row.document or b"")
    value = event.value if isinstance(event.value, bool | float) else event.value.model_dump()
    said = (event.metric, value, event.interaction_id or event.trajectory_id)
    meant = (body["metric"], body["value"], body.get("interaction_id") or body["trajectory_id"])
    kept = (row.metric, row.value, row.target_id)
    return said == meant == kept and row.rater == event.rater is not None


def _is_whole_interaction(row: InteractionRow, body: Body) -> bool:
    event = decode(InteractionServed, row.document or b"")
    return (
        event.content.completion == body["content"]["completion"]
        and list(event.completion_ids) == body["completion_ids"]
        and list(event.behaviour_logprobs or ()) == body["behaviour_logprobs"]
        and event.turn == body["turn"] == row.turn
    )


def _place(record: Record) -> Place:
    return (record.topic, record.partition, record.offset)


def _say(what: str, found: list[Any]) -> list[str]:
    return [f"{len(found)} {what}: {found[:_SHOWN]}"] if found else []
