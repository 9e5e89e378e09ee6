"""What an operator may set about serving; every default suits one machine."""

from pydantic import Field

from tidemill.settings import Block


class ServingSettings(Block):
    """The OpenAI-style API, the batch, the queue and the swap."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65_535)
    """0 = a free port."""
    replica: str = Field(default="serving", min_length=1, max_length=128)
    """Name in heartbeats and swap records; one for each process, e.g. `serving#2`."""
    require_key: bool = True
    """False = no key is asked for: only behind something that checks callers itself."""
    key_cache_s: float = Field(default=5.0, ge=0, le=300)
    """A revoked key works at most this long; also how rarely keys cost a query."""
    key_stale_s: float = Field(default=300.0, ge=0)
    """How long a key that was good stays good while the database is away."""
    consent_default: bool = False
    """Whether an interaction may be trained on when the request says nothing."""

    max_batch: int = Field(default=64, ge=1, le=1024)
    """Completions decoded together by one version."""
    max_waiting: int = Field(default=256, ge=0, le=100_000)
    """Requests accepted beyond the batch; more get 429."""
    max_context: int = Field(default=4096, ge=8)
    """Prompt and completion tokens together; the model's own limit holds when lower."""
    max_body_bytes: int = Field(default=262_144, ge=1024, le=524_288)
    """Larger requests get 413; the bound keeps every event below the log's 1 MiB."""
    default_max_tokens: int = Field(default=256, ge=1)
    """Completion tokens when the request names no limit."""
    default_temperature: float = Field(default=1.0, gt=0, le=2)
    """Sampling temperature when the request names none; below 0.05 = greedy."""

    poll_s: float = Field(default=0.2, gt=0, le=60)
    """How often the registry is asked who serves."""
    refused_retry_s: float = Field(default=5.0, gt=0)
    """Wait before a version that failed its digest or probes is tried again."""
    append_timeout_s: float = Field(default=2.0, gt=0, le=60)
    """Wait for the log; then the interaction goes to the spool."""
    spool_drain_s: float = Field(default=1.0, gt=0)
    """How often the spool is emptied into the log."""
    shutdown_notice_s: float = Field(default=0.0, ge=0, le=300)
    """Time between a failing readiness and the closed port, so that a balancer can notice."""
    drain_timeout_s: float = Field(default=30.0, gt=0)
    """Longest wait for running requests at SIGTERM."""
