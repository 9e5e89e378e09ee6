"""Examples for the OpenAPI document; tests send them and read them. Pure."""

import json
from typing import Any

Json = dict[str, Any]

TRAJECTORY_ID = "0193e3a0-0000-7000-8000-000000000001"
INTERACTION_ID = f"{TRAJECTORY_ID}.0193e3a0-0001-7000-8000-000000000002"
REQUEST_ID = "0193e3a0-0002-7000-8000-000000000003"
_TIME = "2026-12-01T12:00:00+00:00"

FEEDBACK: Json = {
    "feedback_id": "order-7:thumb",
    "interaction_id": INTERACTION_ID,
    "metric": "accepted",
    "value": True,
    "source": "end_user",
    "rater": "user-17",
    "at": "2026-12-01T12:00:00Z",
}
FEEDBACK_ANSWER: Json = {"feedback_id": "order-7:thumb", "status": "accepted"}
FEEDBACK_ITEMS: Json = {
    "items": [
        {"index": 0, "status": "accepted", "feedback_id": "order-7:thumb", "reason": None},
        {
            "index": 1,
            "status": "rejected",
            "feedback_id": None,
            "reason": "metric: Field required",
        },
    ]
}
FEEDBACK_VIEW: Json = {
    "feedback_id": "order-7:thumb",
    "state": "joined",
    "trajectory_id": TRAJECTORY_ID,
    "interaction_id": INTERACTION_ID,
    "metric": "accepted",
    "value": True,
    "source": "end_user",
    "appended_at": _TIME,
    "dead_letters": [],
}
INTERACTION: Json = {
    "interaction_id": INTERACTION_ID,
    "policy_version": "v3-0123456789ab",
    "content": {
        "messages": [{"role": "user", "content": "lights on"}],
        "completion": "The lights are on.",
    },
    "prompt_ids": [1, 2],
    "completion_ids": [3, 4],
    "behaviour_logprobs": [-0.5, -0.1],
    "sampling": {"temperature": 1.0, "max_tokens": 64},
    "subject": "user-17",
    "consent": True,
    "served_at": "2026-12-01T12:00:00Z",
}
INTERACTION_ANSWER: Json = {
    "interaction_id": INTERACTION_ID,
    "trajectory_id": TRAJECTORY_ID,
    "status": "accepted",
}
INTERACTION_ITEMS: Json = {
    "items": [
        {
            "index": 0,
            "status": "accepted",
            "interaction_id": INTERACTION_ID,
            "trajectory_id": TRAJECTORY_ID,
            "reason": None,
        }
    ]
}
INTERACTION_VIEW: Json = {
    "interaction_id": INTERACTION_ID,
    "trajectory_id": TRAJECTORY_ID,
    "turn": 0,
    "model": "tide",
    "policy_version": "v3-0123456789ab",
    "arm": "external",
    "state": "open",
    "excluded_reason": None,
    "appended_at": _TIME,
    "closes_at": "2026-12-01T13:00:00+00:00",
    "reward": None,
    "components": None,
}
METRICS: Json = {
    "metrics": {"accepted": {"type": "bool", "level": "interaction", "window_s": 3600.0}},
    "verifiers": {},
    "judges": {},
    "reward_spec_hash": "9f2c" * 16,
}
ERASURE: Json = {
    "request_id": REQUEST_ID,
    "state": "queued",
    "requested_at": _TIME,
    "finished_at": None,
}
EVALUATIONS: Json = {
    "resourceLogs": [
        {
            "scopeLogs": [
                {
                    "logRecords": [
                        {
                            "timeUnixNano": "1796126400000000000",
                            "eventName": "gen_ai.evaluation.result",
                            "attributes": [
                                {
                                    "key": "gen_ai.evaluation.name",
                                    "value": {"stringValue": "accepted"},
                                },
                                {
                                    "key": "gen_ai.evaluation.score.value",
                                    "value": {"doubleValue": 1.0},
                                },
                                {
                                    "key": "gen_ai.response.id",
                                    "value": {"stringValue": INTERACTION_ID},
                                },
                            ],
                        }
                    ]
                }
            ]
        }
    ]
}
EVALUATIONS_ANSWER: Json = {
    "partialSuccess": {
        "rejectedLogRecords": "1",
        "errorMessage": "1 x the event is 'http.request', not gen_ai.evaluation.result",
    }
}
PROBLEMS: dict[int, Json] = {
    401: {"title": "no valid key", "detail": "this key is unknown or revoked"},
    403: {"title": "not allowed", "detail": "this key lacks the scope read"},
    404: {"title": "not found", "detail": "no feedback with this id"},
    409: {
        "title": "conflict",
        "detail": "this id is known with another body",
        "feedback_id": "order-7:thumb",
    },
    413: {"title": "too large", "detail": "the body has more than 262144 bytes"},
    415: {
        "title": "another form is needed",
        "detail": "Content-Encoding 'br' is not read here: send the body as it is",
    },
    422: {"title": "invalid", "detail": "metric: Field required", "field": "metric"},
    429: {"title": "too many at once", "detail": "4096 records are on their way; try again"},
    503: {
        "title": "cannot be stored now",
        "detail": "the log cannot store now; send it again with this id",
        "feedback_id": "order-7:thumb",
    },
}


def as_line(document: Json) -> str:
    """Return a document as one line of NDJSON."""
    return json.dumps(document, separators=(",", ":")) + "\n"


FIGURES = """\
# TYPE tidemill_ingest_ledger_feedback gauge
tidemill_ingest_ledger_feedback{tenant="default",state="joined"} 17
"""
