"""The settings that more than one part reads. Each stage's own lie beside the stage.

`tidemill/cli/settings.py` puts all blocks together, from one TOML file and the environment; every
other function receives the block it needs. Unknown keys are refused.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from tidemill.tenants import check_tenant


class Block(BaseModel):
    """A frozen block of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EmbeddedLogSettings(Block):
    """The durable log in SQLite files under the data folder."""

    kind: Literal["embedded"] = "embedded"
    num_partitions: int = Field(default=4, ge=1, le=256)
    group_commit_ms: float = Field(default=0.0, ge=0, le=100)
    """Longest wait for company before a commit; 0 = whatever is queued goes together."""
    lease_s: float = Field(default=5.0, gt=0)
    """A group member that was silent this long loses its partitions."""
    retention_s: float | None = Field(default=None, gt=0)
    """Records older than this (seconds) are removed once ingest has stored them; None = none."""
    retention_bytes: int | None = Field(default=None, ge=65_536)
    """A topic that uses more bytes loses its oldest stored records; None = none."""


class KafkaSecuritySettings(Block):
    """Encryption and login at the brokers."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """SSL encrypts, SASL logs in; SASL_PLAINTEXT shows the records to the whole network."""
    ca_file: Path | None = None
    """PEM of the authority that signed the brokers' certificates; None = those of the system."""
    cert_file: Path | None = None
    """PEM of our own certificate, where the brokers want one; may hold its key too."""
    key_file: Path | None = None
    """PEM of its key, not encrypted; None = the key is in `cert_file`."""
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    """How to log in; PLAIN sends the password itself, so only inside SASL_SSL."""
    username: str | None = Field(default=None, min_length=1, max_length=256)
    """Who logs in."""
    password: SecretStr | None = None
    """Best as TIDEMILL_LOG__SECURITY__PASSWORD in the environment; never printed."""
    password_file: Path | None = None
    """A file that holds nothing but the password, instead of `password`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        problem = self._login_problem() or self._encryption_problem()
        if problem is not None:
            raise ValueError(problem)
        return self

    def _login_problem(self) -> str | None:
        num_passwords = (self.password is not None) + (self.password_file is not None)
        if not self.protocol.startswith("SASL_"):
            if self.username is None and num_passwords == 0:
                return None
            return (
                f"protocol {self.protocol} has no login; take SASL_SSL, or drop user and password"
            )
        if self.username is None:
            return f"protocol {self.protocol} needs a username"
        if num_passwords != 1:
            return (
                f"user {self.username!r} needs one password: TIDEMILL_LOG__SECURITY__PASSWORD in "
                f"the environment, or password_file; {num_passwords} are given"
            )
        return None

    def _encryption_problem(self) -> str | None:
        files = [name for name in ("ca_file", "cert_file", "key_file") if getattr(self, name)]
        if files and not self.protocol.endswith("SSL"):
            return (
                f"protocol {self.protocol} does not encrypt, so {files[0]} would be ignored; "
                "take SSL or SASL_SSL, or drop it"
            )
        if self.key_file is not None and self.cert_file is None:
            return "key_file without cert_file: name the certificate of this key"
        return None


class KafkaLogSettings(Block):
    """Apache Kafka."""

    kind: Literal["kafka"] = "kafka"
    bootstrap_servers: str = Field(pattern=r"^[^\s,]+:\d+(\s*,\s*[^\s,]+:\d+)*$")
    """`host:port` of one broker or more, with commas between."""
    num_partitions: int = Field(default=4, ge=1, le=1024)
    replication_factor: int = Field(default=1, ge=1)
    """3 in production; one broker can keep only one copy."""
    min_insync_replicas: int | None = Field(default=None, ge=1)
    """Copies that make a record acknowledged; None = one less than there are, but at least 1."""
    retention_s: float | None = Field(default=None, gt=0)
    """The brokers remove records older than this (seconds), stored or not; None = none."""
    retention_bytes: int | None = Field(default=None, ge=1_048_576)
    """The brokers remove the oldest records of a larger partition, stored or not; None = none."""
    security: KafkaSecuritySettings = KafkaSecuritySettings()
    """Encryption and login; as shipped neither."""
    connect_timeout_s: float = Field(default=10.0, gt=0)
    """No broker answers for this long: the process cannot start, or a read fails."""
    append_timeout_s: float = Field(default=2.0, gt=0)
    """No acknowledgement after this long: the API answers 503."""
    session_timeout_s: float = Field(default=10.0, ge=0.5, le=1800)
    """A member that was silent this long loses its partitions; the brokers set bounds too."""
    max_poll_interval_s: float = Field(default=60.0, ge=1, le=3600)
    """A member that lives but has not asked for records this long loses its partitions."""

    @property
    def num_insync(self) -> int:
        """Copies that make a record acknowledged."""
        return self.min_insync_replicas or max(1, self.replication_factor - 1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.num_insync > self.replication_factor:
            raise ValueError(
                f"min_insync_replicas {self.num_insync} is above replication_factor "
                f"{self.replication_factor}: nothing could be acknowledged"
            )
        return self


LogSettings = Annotated[EmbeddedLogSettings | KafkaLogSettings, Field(discriminator="kind")]


class DatabaseSettings(Block):
    """Rows."""

    url: str | None = None
    """`postgresql://...`; None = SQLite under the data folder."""


class TrackingSettings(Block):
    """MLflow."""

    enabled: bool = True
    uri: str | None = None
    """An MLflow server or store; None = a SQLite store under the data folder."""
    experiment: str = "tidemill"


class LoraSettings(Block):
    """The adapter that learning updates."""

    rank: int = Field(default=8, ge=1, le=512)
    alpha: float = Field(default=16.0, gt=0)
    target_modules: tuple[str, ...] | Literal["all-linear"] = "all-linear"


class PolicySettings(Block):
    """The base model and how it is held in memory."""

    base: Path | None = None
    """Folder of the base; None = `base` under the data folder."""
    device: str = "auto"
    """auto = CUDA where there is one, else CPU."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    num_threads: int = Field(default=1, ge=1)
    """torch threads of each part."""
    lora: LoraSettings = LoraSettings()


class SharedSettings(Block):
    """What every part of one installation agrees on."""

    data: Path = Path(".tidemill")
    """State of the embedded column: database, log, snapshots, base, checkpoints, addresses."""
    model: str = Field(default="tide", min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.\-]+$")
    """The name that clients ask for."""
    tenant: Annotated[str, AfterValidator(check_tenant)] = "default"
    """Whose the releases are, and whatever names no other tenant."""
    metrics: Path = Path("metrics.toml")
    """Declared metrics and the reward spec."""
    environment: str | None = None
    """`package.module:attribute` of the environment for backfill and the offline suite."""
    secret: str | None = None
    """Key of the keyed hashes of end users; None = a random one under the data folder."""
    log: LogSettings = EmbeddedLogSettings()
    database: DatabaseSettings = DatabaseSettings()
    tracking: TrackingSettings = TrackingSettings()
    policy: PolicySettings = PolicySettings()

    @property
    def database_url(self) -> str:
        """Where rows go."""
        return self.database.url or f"sqlite:///{self.data / 'tidemill.db'}"

    @property
    def tracking_uri(self) -> str:
        """Where MLflow keeps its own rows."""
        return self.tracking.uri or f"sqlite:///{self.data / 'mlflow.db'}"

    @property
    def base_path(self) -> Path:
        """Folder of the base model."""
        return self.policy.base or self.data / "base"

    @property
    def snapshots_path(self) -> Path:
        """Folder of the snapshot store."""
        return self.data / "snapshots"

    @property
    def log_path(self) -> Path:
        """Folder of the embedded log."""
        return self.data / "log"
