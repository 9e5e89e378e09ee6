"""What a product uses to tell Tidemill what its users thought: `docs/api.md` has examples.

It needs httpx and the standard library alone, so that any product can afford to import it.
"""

from tidemill.client.answers import (
    InteractionReceipt,
    ItemResult,
    Receipt,
    Rejection,
    Status,
)
from tidemill.client.awaiting import AsyncFeedbackClient
from tidemill.client.blocking import FeedbackClient
from tidemill.client.options import Options
from tidemill.client.records import (
    Content,
    Feedback,
    Interaction,
    Sampling,
    ToolCall,
    Value,
    comment,
    demonstration,
    final_text,
    kept_fraction,
)
from tidemill.errors import (
    ClientClosedError,
    DeliveryError,
    InvalidRecordError,
    OutboxFullError,
    Problem,
    RefusedError,
    UnacknowledgedError,
)

__all__ = [
    "AsyncFeedbackClient",
    "ClientClosedError",
    "Content",
    "DeliveryError",
    "Feedback",
    "FeedbackClient",
    "Interaction",
    "InteractionReceipt",
    "InvalidRecordError",
    "ItemResult",
    "Options",
    "OutboxFullError",
    "Problem",
    "Receipt",
    "RefusedError",
    "Rejection",
    "Sampling",
    "Status",
    "ToolCall",
    "UnacknowledgedError",
    "Value",
    "comment",
    "demonstration",
    "final_text",
    "kept_fraction",
]
