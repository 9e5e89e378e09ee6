"""The deterministic verifier: is the answer valid? It knows nothing of taste."""

import json

from examples.command_assistant.kinds import KIND_BY_NAME
from tidemill.environments.base import Task, Verification
from tidemill.policy.tool_calls import parse_tool_calls


def verify(task: Task, completion: str) -> Verification:
    """Score a completion: one schema-valid call of a right tool, with what the request named.

    The score is the share of the named arguments that are right, 0 without a valid call of a
    tool that fits the request.
    """
    parsed = parse_tool_calls(completion, task.tools)
    if len(parsed.tool_calls) != 1 or parsed.text_without_calls:
        return _failed("not exactly one tool call")
    call = parsed.tool_calls[0]
    if not call.valid:
        return _failed(call.reason or "invalid call")
    kind = KIND_BY_NAME[task.reference["kind"]]
    if call.name not in {way.tool for way in kind.ways}:
        components = {"form": 1.0, "tool": 0.0, "arguments": 0.0}
        reason = f"{call.name} is the wrong tool"
        return Verification(score=0.0, components=components, is_malformed=False, reason=reason)
    arguments = json.loads(call.arguments)
    named = task.reference["slots"]
    wrong = [name for name, value in named.items() if arguments[name] != value]
    share = 1.0 - len(wrong) / len(named)
    return Verification(
        score=share,
        components={"form": 1.0, "tool": 1.0, "arguments": share},
        is_malformed=False,
        reason=f"wrong {', '.join(wrong)}" if wrong else "right",
    )


def _failed(reason: str) -> Verification:
    return Verification(
        score=0.0,
        components={"form": 0.0, "tool": 0.0, "arguments": 0.0},
        is_malformed=True,
        reason=reason,
    )
