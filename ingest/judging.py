"""Closes interactions with what their judges said, or wants to know it first.

A judge is asked only about interactions that get a reward otherwise, by `judge_pool`, never here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ingest.closing import Closing, ExcludedReason, InteractionState, close, exclusion
from tidemill.contracts.events import InteractionServed
from tidemill.rewards.judging import Question, judge_scores, questions_about
from tidemill.rewards.metrics import MetricsFile
from tidemill.rewards.verifiers import Verifier, run_verifiers
from tidemill.rewards.votes import Vote
from tidemill.storage.database import Session
from tidemill.storage.interactions import InteractionKey
from tidemill.storage.judgements import (
    JudgementState,
    NewJudgement,
    fetch_judgements,
    insert_wanted,
)
from tidemill.storage.tables import JudgementRow

Wanted = list[tuple[InteractionKey, Question]]
"""Interactions and what must be asked about them."""

Checked = Mapping[str, float] | ExcludedReason
"""Scores of verifiers and judges, or why there are none."""

_REWARDED = (InteractionState.REWARDED, InteractionState.DEFAULTED)


@dataclass(frozen=True, slots=True)
class Case:
    """An interaction whose windows are over, and all that was said of it."""

    event: InteractionServed
    served_at: datetime
    votes: list[Vote]

    @property
    def key(self) -> InteractionKey:
        """What names the interaction."""
        return (self.event.tenant, self.event.interaction_id)


def close_all(
    session: Session,
    cases: Iterable[Case],
    metrics: MetricsFile,
    verifiers: Mapping[str, Verifier],
) -> tuple[dict[InteractionKey, Closing], Wanted]:
    """Return the end of each interaction that can be closed, and what the others wait for."""
    closings: dict[InteractionKey, Closing] = {}
    rewarded: list[tuple[Case, Mapping[str, float]]] = []
    whatever_they_say = dict.fromkeys(metrics.judges, 1.0)
    for case in cases:
        checked = _verify(case.event, verifiers)
        if isinstance(checked, ExcludedReason):
            closing = _close(case, metrics, checked)
        else:
            closing = _close(case, metrics, {**checked, **whatever_they_say})
            if metrics.judges and closing.state in _REWARDED:
                rewarded.append((case, checked))
                continue
        closings[case.key] = closing
    wanted: Wanted = []
    known = fetch_judgements(session, [case.event.interaction_id for case, _ in rewarded])
    for case, checked in rewarded:
        interaction_id = case.event.interaction_id
        questions = questions_about(case.event, metrics)
        missing = [one for one in questions if (interaction_id, one.digest) not in known]
        wanted += [(case.key, question) for question in missing]
        answers = [
            (one, known[interaction_id, one.digest]) for one in questions if one not in missing
        ]
        # Another worker may have wanted one since this one looked which interactions wait.
        if missing or any(row.state == JudgementState.WANTED for _, row in answers):
            continue
        closings[case.key] = _close(case, metrics, _judged(checked, metrics, answers))
    return closings, wanted


def want(session: Session, wanted: Wanted, *, now: datetime, wait_s: float) -> None:
    """Leave questions to the judges."""
    insert_wanted(
        session,
        [
            NewJudgement(
                tenant=tenant,
                interaction_id=interaction_id,
                digest=question.digest,
                judge=question.judge,
                item=question.item,
                wanted_at=now,
                gives_up_at=now + timedelta(seconds=wait_s),
            )
            for (tenant, interaction_id), question in wanted
        ],
    )


def _verify(event: InteractionServed, verifiers: Mapping[str, Verifier]) -> Checked:
    if exclusion(event) is not None or event.is_malformed:
        return {}
    scores = run_verifiers(verifiers, event)
    return ExcludedReason.VERIFIER_FAILED if scores is None else scores


def _judged(
    checked: Mapping[str, float],
    metrics: MetricsFile,
    answers: Sequence[tuple[Question, JudgementRow]],
) -> Checked:
    if any(row.state != JudgementState.ANSWERED for _, row in answers):
        return ExcludedReason.JUDGE_FAILED
    votes = [(question.judge, question.item, row.scores) for question, row in answers]
    return {**checked, **judge_scores(metrics, votes)}


def _close(case: Case, metrics: MetricsFile, checked: Checked) -> Closing:
    return close(case.event, case.votes, metrics, served_at=case.served_at, checked=checked)
