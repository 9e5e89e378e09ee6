"""The routes that take feedback and interactions, one or many at once."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import Response
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from ingest.acceptor import Outcome, Status
from ingest.api_errors import ProblemError, invalid
from ingest.api_parts import Api
from ingest.api_schemas import FeedbackBody, InteractionBody
from ingest.arrivals import Arrival, Wanted, receive
from ingest.batch_bodies import read_items
from ingest.feedback_records import FeedbackEncoder, FeedbackRecord
from ingest.idempotency import HEADER
from tidemill.contracts.events import InteractionServed
from tidemill.contracts.ids import trajectory_of
from tidemill.storage.keys import ApiKey, Scope

B = TypeVar("B", bound=BaseModel)
E = TypeVar("E", bound=FeedbackRecord | InteractionServed)

_STATUS = {
    Status.ACCEPTED: 202,
    Status.DUPLICATE: 200,
    Status.REJECTED: 422,
    Status.TOO_LARGE: 413,
    Status.CONFLICT: 409,
    Status.RETRY: 503,
}

_IN_BATCH = {Status.CONFLICT: Status.REJECTED, Status.TOO_LARGE: Status.REJECTED}
"""In a batch these are rejections with their own reasons: sending it again never helps."""


@dataclass(frozen=True, slots=True)
class Writing:
    """Routes with the scopes `feedback:write` and `interactions:write`."""

    api: Api

    async def post_feedback(self, request: Request) -> Response:
        """Take one feedback: 202 accepted, 200 duplicate, 409 conflict, 422, 503."""
        wanted = Wanted(Scope.FEEDBACK_WRITE, self.api.settings.max_body_bytes, 1)
        with (
            await receive(self.api, request, wanted) as arrival,
            self._identity(request, arrival.caller) as stand_in_id,
        ):
            body = _parse(FeedbackBody, arrival.body)
            record = self.record(body, self.encoder(arrival.caller), stand_in_id)
            self.api.quotas.charge_rater(record)
            take = self.api.acceptor.take_feedback
            (outcome,) = await take([record], deadline_s=arrival.deadline_s)
        ids: dict[str, str | None] = {"feedback_id": record.feedback_id}
        if outcome.status is Status.CONFLICT and record.feedback_id == stand_in_id:
            raise ProblemError(422, "this key was sent with another body", field=HEADER, ids=ids)
        return _answer(outcome, ids)

    async def post_feedback_batch(self, request: Request) -> Response:
        """Take many feedbacks: 207 with an item each, in order."""
        wanted = Wanted(Scope.FEEDBACK_WRITE, self.api.settings.max_batch_bytes)
        with (
            await receive(self.api, request, wanted) as arrival,
            self._identity(request, arrival.caller) as identity,
        ):
            items = self._items(request, "feedback", arrival)
            encoder = self.encoder(arrival.caller)

            def read(index: int, item: Any) -> FeedbackRecord:
                stand_in_id = None if identity is None else f"{identity}.{index}"
                record = self.record(_validate(FeedbackBody, item), encoder, stand_in_id)
                self.api.quotas.charge_rater(record)
                return record

            take = partial(self.api.acceptor.take_feedback, deadline_s=arrival.deadline_s)
            outcomes = await _take(_each(items, read), take)
        return _answers(outcomes, lambda one: {"feedback_id": one})

    async def post_interaction(self, request: Request) -> Response:
        """Take one interaction that the product served itself."""
        wanted = Wanted(Scope.INTERACTIONS_WRITE, self.api.settings.max_body_bytes, 1)
        with await receive(self.api, request, wanted) as arrival:
            body = _parse(InteractionBody, arrival.body)
            try:
                event = self._interaction(body, arrival.caller)
            except ValidationError as error:
                raise invalid(error) from error
            take = self.api.acceptor.take_interactions
            (outcome,) = await take([event], deadline_s=arrival.deadline_s)
        return _answer(outcome, _interaction_ids(event.interaction_id))

    async def post_interaction_batch(self, request: Request) -> Response:
        """Take many interactions: 207 with an item each, in order."""
        wanted = Wanted(Scope.INTERACTIONS_WRITE, self.api.settings.max_batch_bytes)
        with await receive(self.api, request, wanted) as arrival:
            items = self._items(request, "interactions", arrival)

            def read(_: int, item: Any) -> InteractionServed:
                return self._interaction(_validate(InteractionBody, item), arrival.caller)

            take = partial(self.api.acceptor.take_interactions, deadline_s=arrival.deadline_s)
            outcomes = await _take(_each(items, read), take)
        return _answers(outcomes, _interaction_ids)

    def _identity(self, request: Request, caller: ApiKey) -> AbstractContextManager[str | None]:
        return self.api.idempotency.hold(request.headers.get(HEADER), caller)

    def encoder(self, caller: ApiKey) -> FeedbackEncoder:
        """Return what makes the records of a request that came just now."""
        now = self.api.acceptor.now()
        return FeedbackEncoder(tenant=caller.tenant, hasher=self.api.hasher, received_at=now)

    def record(
        self, body: FeedbackBody, encoder: FeedbackEncoder, stand_in_id: str | None = None
    ) -> FeedbackRecord:
        """Return what the log gets of a feedback; the stand-in is its id where it gives none.

        Raises:
            ProblemError: 422, its time lies too far ahead.
        """
        if body.at is not None:
            self._check_time("at", body.at, encoder.received_at)
        return encoder.record(body, stand_in_id)

    def _interaction(self, body: InteractionBody, caller: ApiKey) -> InteractionServed:
        self._check_time("served_at", body.served_at, self.api.acceptor.now())
        return body.to_event(
            tenant=caller.tenant,
            model=self.api.model,
            hasher=self.api.hasher,
            consent_default=self.api.settings.consent_default,
        )

    def _check_time(self, field: str, moment: datetime, now: datetime) -> None:
        most = self.api.settings.max_ahead_s
        ahead_s = (moment - now).total_seconds()
        if ahead_s > most:
            raise ProblemError(
                422,
                f"{field} {moment.isoformat()} is {ahead_s:.0f} s ahead of this clock, "
                f"{now:%Y-%m-%dT%H:%M:%SZ}; at most {most:g} s: check the sender's clock and unit",
                field=field,
            )

    def _items(self, request: Request, field: str, arrival: Arrival) -> list[Any]:
        items = read_items(
            arrival.body,
            field=field,
            content_type=request.headers.get("content-type", ""),
            limit=self.api.settings.max_batch_items,
        )
        self.api.quotas.charge_key(arrival.caller, len(items))
        return items


def _parse(kind: type[B], raw: bytes) -> B:
    try:
        return kind.model_validate_json(raw)
    except ValidationError as error:
        raise invalid(error) from error


def _validate(kind: type[B], item: Any) -> B:
    return kind.model_validate_json(item) if isinstance(item, bytes) else kind.model_validate(item)


def _each(items: Sequence[Any], read: Callable[[int, Any], E]) -> list[E | Outcome]:
    """Return a record, or why there is none, for each item: one never spoils the rest."""
    events: list[E | Outcome] = []
    for index, item in enumerate(items):
        try:
            events.append(read(index, item))
        except ValidationError as error:
            events.append(Outcome(Status.REJECTED, None, invalid(error).detail))
        except ProblemError as problem:
            # A rater over its limit may come again; the id goes along, so that it counts once.
            status = Status.RETRY if problem.status == 429 else Status.REJECTED
            events.append(Outcome(status, problem.ids.get("feedback_id"), problem.detail))
    return events


async def _take(
    events: Sequence[E | Outcome], take: Callable[[Sequence[E]], Awaitable[list[Outcome]]]
) -> list[Outcome]:
    taken = iter(await take([one for one in events if not isinstance(one, Outcome)]))
    return [one if isinstance(one, Outcome) else next(taken) for one in events]


def _answer(outcome: Outcome, ids: dict[str, str | None]) -> Response:
    status = _STATUS[outcome.status]
    if status >= 400:
        # With the ids: whoever sent none must send these again, or the repeat counts twice.
        raise ProblemError(status, outcome.reason or outcome.status.value, ids=ids)
    return _json(ids | {"status": outcome.status}, status)


def _answers(
    outcomes: Sequence[Outcome], ids: Callable[[str | None], dict[str, str | None]]
) -> Response:
    items = [
        {
            "index": index,
            "status": _IN_BATCH.get(one.status, one.status),
            **ids(one.record_id),
            "reason": one.reason,
        }
        for index, one in enumerate(outcomes)
    ]
    return _json({"items": items}, 207)


def _json(body: Any, status: int) -> Response:
    return Response(to_json(body), status, media_type="application/json")


def _interaction_ids(interaction_id: str | None) -> dict[str, str | None]:
    trajectory = None if interaction_id is None else trajectory_of(interaction_id)
    return {"interaction_id": interaction_id, "trajectory_id": trajectory}
