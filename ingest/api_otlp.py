"""The route that takes evaluations from OpenTelemetry exporters (OTLP over HTTP, JSON)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from ingest.acceptor import Outcome, Status
from ingest.api_errors import ProblemError
from ingest.api_parts import Api
from ingest.api_writing import Writing
from ingest.arrivals import Wanted, receive
from ingest.feedback_records import FeedbackEncoder, FeedbackRecord
from ingest.otlp import UnusableRecordError, feedback_of, read_export
from tidemill.storage.keys import Scope

_TAKEN = (Status.ACCEPTED, Status.DUPLICATE)
_REASONS_TOLD = 5
_WANTED = (
    "this route reads OTLP in JSON alone: set OTEL_EXPORTER_OTLP_LOGS_PROTOCOL=http/json, or let a "
    "collector's otlphttp exporter send with `encoding: json`"
)


@dataclass(frozen=True, slots=True)
class Evaluations:
    """One route with the scope `feedback:write`."""

    api: Api
    writing: Writing

    async def post_logs(self, request: Request) -> Response:
        """Take evaluations: 200, with the number of those that were refused; 503, send again."""
        settings = self.api.settings
        wanted = Wanted(Scope.FEEDBACK_WRITE, settings.max_batch_bytes, takes_gzip=True)
        with await receive(self.api, request, wanted) as arrival:
            _require_json(request.headers.get("content-type", ""))
            records = read_export(arrival.body)
            self.api.quotas.charge_key(arrival.caller, len(records))
            encoder = self.writing.encoder(arrival.caller)
            outcomes: list[Outcome] = []
            reasons: list[str] = []
            # A collector's own batches are larger than ours, and it drops what is refused for its
            # size; others get their turn between the parts.
            for start in range(0, len(records), settings.max_batch_items):
                part = records[start : start + settings.max_batch_items]
                good, why_not = self._sort(part, encoder)
                reasons += why_not
                take = self.api.acceptor.take_feedback
                outcomes += await take(good, deadline_s=arrival.deadline_s)
        return _answer(outcomes, reasons)

    def _sort(
        self, records: Sequence[Any], encoder: FeedbackEncoder
    ) -> tuple[list[FeedbackRecord], list[str]]:
        good: list[FeedbackRecord] = []
        reasons: list[str] = []
        for record in records:
            try:
                body = feedback_of(record, self.api.acceptor.metrics.metrics)
                good.append(self.writing.record(body, encoder))
            except (UnusableRecordError, ProblemError) as error:
                reasons.append(str(error))
        return good, reasons


def _answer(outcomes: Sequence[Outcome], reasons: list[str]) -> Response:
    if any(one.status is Status.RETRY for one in outcomes):
        # What is stored already is known by its id when it comes again.
        raise ProblemError(503, "the log cannot store now; send the same records again")
    reasons = reasons + [one.reason or one.status for one in outcomes if one.status not in _TAKEN]
    if not reasons:
        return JSONResponse({})
    counted = Counter(reasons).most_common(_REASONS_TOLD)
    told = "; ".join(f"{number} x {reason}" for reason, number in counted)
    # JSON of protobuf writes 64-bit integers as text.
    refused = {"rejectedLogRecords": str(len(reasons)), "errorMessage": told}
    return JSONResponse({"partialSuccess": refused})


def _require_json(content_type: str) -> None:
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ProblemError(415, f"the content type is no application/json; {_WANTED}")
