"""What an operator may set about ingest: the HTTP API and the worker."""

from typing import Self

from pydantic import Field, model_validator

from tidemill.settings import Block


class RateLimitSettings(Block):
    """What each key and each rater may send to one API process; records, alone or in batches."""

    key_per_s: float = Field(default=0.0, ge=0, le=1e6, allow_inf_nan=False)
    """Records a second of one key; 0 = no limit."""
    key_burst: int = Field(default=10_000, ge=1, le=10_000_000)
    """Records that a key may send at once after a pause."""
    rater_per_s: float = Field(default=0.0, ge=0, le=1e6, allow_inf_nan=False)
    """Feedbacks a second of one rater; 0 = no limit."""
    rater_burst: int = Field(default=100, ge=1, le=10_000_000)
    """Feedbacks that a rater may give at once after a pause."""
    remembered: int = Field(default=100_000, ge=1, le=10_000_000)
    """Keys, and raters, that a process keeps count of; the longest quiet ones are forgotten."""


class JudgeSettings(Block):
    """Where the judges of the metrics file are asked; prompts leave only when one is declared."""

    url: str | None = Field(default=None, pattern=r"^https?://[^\s?#]+$")
    """Base of an OpenAI-compatible API, `/v1` included; None = no judge may be declared."""
    api_key_env: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Name of the environment variable that holds the API key; None = none is sent."""
    timeout_s: float = Field(default=30.0, gt=0, le=600)
    """A vote that takes longer is a failed try."""
    wait_s: float = Field(default=3600.0, gt=0, le=30 * 86_400)
    """An interaction waits this long for its judges, then it is excluded as `judge_failed`."""
    retry_s: float = Field(default=1.0, gt=0, le=600)
    """Wait after a failed try; doubled with each further one."""
    retry_max_s: float = Field(default=60.0, gt=0, le=3600)
    """Longest wait between two tries."""
    concurrency: int = Field(default=4, ge=1, le=256)
    """Votes that one worker asks for at once."""
    poll_s: float = Field(default=0.5, gt=0, le=60)
    """How often an idle judge looks for work."""


class IngestSettings(Block):
    """The feedback API, the join and the closing of interactions."""

    host: str = "127.0.0.1"
    port: int = Field(default=8001, ge=0, le=65_535)
    """0 = a free port."""
    require_key: bool = True
    """False = no key is asked for: only behind something that checks callers itself."""
    key_cache_s: float = Field(default=5.0, ge=0, le=300)
    """A revoked key works at most this long; also how rarely keys cost a query."""
    consent_default: bool = False
    """Whether an interaction posted by a product may be trained on when it says nothing."""
    max_body_bytes: int = Field(default=262_144, ge=1024, le=524_288)
    """Larger requests get 413; the bound keeps every event below the log's 1 MiB."""
    max_batch_bytes: int = Field(default=4_194_304, ge=1024, le=67_108_864)
    """The same for a batch."""
    max_batch_items: int = Field(default=1000, ge=1, le=10_000)
    """Items in one batch."""
    max_ahead_s: float = Field(default=86_400.0, ge=3600, le=366 * 86_400, allow_inf_nan=False)
    """A product's own time (`at`, `served_at`) more seconds ahead of ours than this is refused;
    a clock that is an hour off always passes."""
    max_in_flight: int = Field(default=4096, ge=1)
    """Feedbacks and interactions that were not answered yet; more get 429."""
    max_in_flight_bytes: int = Field(default=67_108_864, ge=1024)
    """Bytes of bodies that were not answered yet, from when they are read; more get 429."""
    rate_limits: RateLimitSettings = RateLimitSettings()
    judge: JudgeSettings = JudgeSettings()
    answer_within_s: float = Field(default=1.7, gt=0, le=60)
    """A request to write waits no longer for the database and the log in all, then 503; the time in
    which its caller sends the body does not count."""
    look_up_timeout_s: float = Field(default=0.5, gt=0, le=10)
    """Longest wait for the database for a key, and for known ids; more than twice as long must fit
    into `answer_within_s`, so that a database that hangs leaves time for the log."""
    read_timeout_s: float = Field(default=5.0, gt=0, le=60)
    """Longest wait for the database where a request asks for what it holds."""
    ready_timeout_s: float = Field(default=1.0, gt=0, le=10)
    """`GET /ready` waits no longer for the database and the log, then it is 503."""
    recent_ids: int = Field(default=100_000, ge=0)
    """Acknowledged ids that a process remembers, so that repeats are told at once."""
    count_every_s: float = Field(default=1.0, gt=0)
    """How often the number of acknowledged records is written down."""

    consumer_group: str = Field(default="ingest", min_length=1, max_length=128)
    """Workers of one group share the partitions."""
    poll_records: int = Field(default=500, ge=1, le=100_000)
    """Records in one transaction at most."""
    poll_timeout_s: float = Field(default=0.2, gt=0, le=60)
    """Wait for records when there are none."""
    batch_every_s: float = Field(default=0.01, ge=0, le=60)
    """Shortest time between two transactions while traffic is thin."""
    close_every_s: float = Field(default=0.25, gt=0)
    """How often interactions and pending feedback are looked at."""
    close_grace_s: float = Field(default=1.0, ge=0)
    """Wait beyond a window, so that a record stamped inside it has been stored by then."""
    close_records: int = Field(default=500, ge=1)
    """Interactions closed in one transaction at most."""
    retain_every_s: float = Field(default=10.0, gt=0)
    """How often the embedded log is looked at for records past its retention."""
    unmatched_after_s: float = Field(default=3600.0, gt=0)
    """Feedback whose interaction has not come by then becomes a dead letter."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if 2 * self.look_up_timeout_s >= self.answer_within_s:
            raise ValueError(
                f"look_up_timeout_s {self.look_up_timeout_s:g} leaves no time for the log within "
                f"answer_within_s {self.answer_within_s:g}: give less than half of it"
            )
        return self
