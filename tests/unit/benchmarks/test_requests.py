import json
from itertools import islice
from typing import Any

from benchmarks.ingest.requests import (
    AnswerBuffer,
    assessment_requests,
    feedback_requests,
    to_request,
)
from ingest.api_schemas import FeedbackBody


def parted(request: bytes) -> tuple[list[str], bytes]:
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[-1] == f"Content-Length: {len(body)}"
    return lines, body


def test_a_request_tells_its_length_and_its_key() -> None:
    lines, body = parted(to_request("/v1/x", b"{}", key="k"))
    assert lines[0] == "POST /v1/x HTTP/1.1"
    assert "Authorization: Bearer k" in lines
    assert body == b"{}"


def test_without_a_key_none_is_sent() -> None:
    assert b"Authorization" not in to_request("/v1/x", b"{}")


def test_no_feedback_id_is_sent_twice() -> None:
    bodies = [parted(one)[1] for one in islice(feedback_requests("k", num_items=1), 2500)]
    given = [FeedbackBody.model_validate_json(one) for one in bodies]
    assert len({one.feedback_id for one in given}) == 2500
    assert len({one.interaction_id for one in given}) == 1000


def test_a_batch_has_a_line_for_each_item() -> None:
    lines, body = parted(next(feedback_requests("k", num_items=100)))
    assert lines[0].split()[1] == "/v1/feedback:batch"
    given = [FeedbackBody.model_validate_json(line) for line in body.splitlines()]
    assert len({one.feedback_id for one in given}) == 100


def test_an_assessment_is_what_mlflow_itself_would_send() -> None:
    request = next(assessment_requests(["tr-1", "tr-2"]))
    lines, body = parted(request)
    assert lines[0].split()[1] == "/api/3.0/mlflow/traces/tr-1/assessments"
    ours = json.loads(body)["assessment"]
    theirs = sent_by_mlflow("tr-1", value=ours["feedback"]["value"])
    moments = {"create_time", "last_update_time"}
    assert set(ours) == set(theirs)
    assert {name: ours[name] for name in set(ours) - moments} == {
        name: theirs[name] for name in set(theirs) - moments
    }


def sent_by_mlflow(trace: str, *, value: bool) -> dict[str, Any]:
    from mlflow.entities import Feedback
    from mlflow.entities.assessment_source import AssessmentSource
    from mlflow.protos.service_pb2 import CreateAssessment
    from mlflow.utils.proto_json_utils import message_to_json

    source = AssessmentSource(source_type="HUMAN", source_id="rater-000")
    feedback = Feedback(name="accepted", value=value, source=source, trace_id=trace)
    assessment = feedback.to_proto()  # type: ignore[no-untyped-call]
    text = message_to_json(CreateAssessment(assessment=assessment))
    document: dict[str, Any] = json.loads(text)["assessment"]
    return document


def test_an_answer_is_whole_by_its_length_however_it_is_cut() -> None:
    answer = b"HTTP/1.1 202 Accepted\r\nContent-Length: 5\r\n\r\nhello"
    for cut in range(1, len(answer)):
        buffer = AnswerBuffer()
        assert buffer.take(answer[:cut]) is None
        assert buffer.take(answer[cut:]) == answer
        assert buffer.take(answer) == answer
