"""One judgement at a time: claims it, asks for one vote, writes what came of it.

Claim and write are short transactions of their own; nothing is held open while the judge thinks.
A claim that its owner left behind (kill -9) is taken over when its time is over, and at most the
one vote under way is asked for again.
"""

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import Any

from ingest.settings import JudgeSettings
from tidemill.contracts.codec import decode
from tidemill.contracts.events import InteractionServed
from tidemill.errors import JudgeError
from tidemill.rewards.judging import Question, questions_about
from tidemill.rewards.metrics import MetricsFile
from tidemill.storage.database import Database
from tidemill.storage.judgements import (
    Claim,
    claim_wanted,
    delete_claimed,
    has_due,
    mark_given_up,
    write_failure,
    write_vote,
)

_log = logging.getLogger(__name__)

_LEASE_TIMEOUTS = 2
"""One for the question; the other is room to write the vote while the database is busy."""
_MAX_DOUBLINGS = 20

Ask = Callable[[Mapping[str, Any]], float]
"""Returns a score in [0, 1] for a chat completion request, or raises JudgeError."""


class Step(Enum):
    """What one step of the desk came to."""

    IDLE = auto()
    DONE = auto()
    FAILED = auto()


@dataclass(slots=True, kw_only=True)
class JudgeDesk:
    """Used by one thread."""

    database: Database
    metrics: MetricsFile
    settings: JudgeSettings
    ask: Ask
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    counters: dict[str, int] = field(default_factory=dict)

    def step(self) -> Step:
        """Ask for one vote, if one is wanted.

        Raises:
            StorageError: the database refused; what was claimed is free again after its lease.
        """
        moment = self.now()
        with self.database.reading() as session:
            if not has_due(session, now=moment):
                return Step.IDLE
        lease = timedelta(seconds=_LEASE_TIMEOUTS * self.settings.timeout_s)
        with self.database.transaction() as session:
            self._count("judge_gave_up", mark_given_up(session, now=moment))
            claim = claim_wanted(
                session, token=secrets.token_hex(8), now=moment, until=moment + lease
            )
        if claim is None:
            return Step.IDLE
        if claim.is_answered:
            self._count("judge_reused", 1)
            return Step.DONE
        question = self._question(claim)
        if question is None:
            with self.database.transaction() as session:
                delete_claimed(session, claim)
            return Step.DONE
        return self._ask(claim, question)

    def _question(self, claim: Claim) -> Question | None:
        """Return what to ask; None = the rubric changed or the interaction is gone."""
        if claim.document is None:
            return None
        event = decode(InteractionServed, claim.document)
        asked = questions_about(event, self.metrics)
        return next((one for one in asked if one.digest == claim.key[1]), None)

    def _ask(self, claim: Claim, question: Question) -> Step:
        try:
            score = self.ask(question.request)
        except JudgeError as error:
            self._count("judge_failures", 1)
            _log.warning("%s.%s on %s: %s", claim.judge, claim.item, claim.key[0], error)
            self._put_off(claim, str(error))
            return Step.FAILED
        with self.database.transaction() as session:
            write_vote(session, claim, score, num_votes=question.votes, now=self.now())
        self._count("judge_votes", 1)
        return Step.DONE

    def _put_off(self, claim: Claim, detail: str) -> None:
        wait_s = backoff_s(claim.num_failures, self.settings)
        due_at = min(self.now() + timedelta(seconds=wait_s), claim.gives_up_at)
        with self.database.transaction() as session:
            write_failure(session, claim, detail, due_at=due_at)

    def _count(self, name: str, number: int) -> None:
        self.counters[name] = self.counters.get(name, 0) + number


def backoff_s(num_failures: int, settings: JudgeSettings) -> float:
    """Return the wait (seconds) after a try that failed, and so many failures before it."""
    doubled = settings.retry_s * 2.0 ** min(num_failures, _MAX_DOUBLINGS)
    return min(doubled, settings.retry_max_s)
