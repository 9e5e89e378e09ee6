"""What a caller is told when a request cannot be served, in the shape of the OpenAI API.

`{"error": {"message", "type", "param", "code"}}` with a status; the official client turns each
status into its own exception class.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.errors import TidemillError

RETRY_AFTER_S = "1"

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
}


class ApiError(TidemillError):
    """A request that is answered with an error; the process goes on."""

    def __init__(self, status: int, message: str, *, code: str, param: str | None = None) -> None:
        """Keep what the answer needs."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param

    @property
    def body(self) -> dict[str, Any]:
        """The answer's JSON."""
        kind = _TYPES.get(self.status, "invalid_request_error")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}

    @property
    def headers(self) -> dict[str, str]:
        """When to come again, where that helps."""
        return {"retry-after": RETRY_AFTER_S} if self.status in (429, 503) else {}


def context_length_exceeded(*, num_prompt: int, num_completion: int, limit: int) -> ApiError:
    """Say that prompt and completion do not fit together."""
    return ApiError(
        400,
        f"this model's maximum context length is {limit} tokens; you asked for "
        f"{num_prompt + num_completion} ({num_prompt} in the prompt, {num_completion} in the "
        "completion); shorten one of them",
        code="context_length_exceeded",
        param="messages",
    )


def model_not_found(name: str, *, known: Sequence[str]) -> ApiError:
    """Say which names would have worked."""
    return ApiError(
        404,
        f"the model {name!r:.200} does not exist here; served now: {', '.join(known) or 'none'}",
        code="model_not_found",
        param="model",
    )


def invalid_request(error: Mapping[str, Any]) -> ApiError:
    """Turn pydantic's first complaint into an answer; the caller's input is not repeated."""
    kind = str(error["type"])
    path = [str(part) for part in error["loc"] if part != "body"]
    param = ".".join(path) or None
    message = str(error["msg"])
    if kind == "extra_forbidden":
        return ApiError(
            400, f"unknown parameter {param!r:.200}", code="unknown_parameter", param=param
        )
    code = {
        "missing": "missing_required_parameter",
        "json_invalid": "invalid_json",
        "unsupported_value": "unsupported_value",
    }.get(kind, "invalid_value")
    where = f"{param}: " if param and code != "unsupported_value" else ""
    return ApiError(400, f"{where}{message}", code=code, param=param)
