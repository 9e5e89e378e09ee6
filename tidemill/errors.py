"""The error tree of Tidemill.

    TidemillError
    |-- ConfigurationError         (also ValueError)  wrong settings: the process must not start
    |-- ContractError                                 a peer broke a shared schema
    |   |-- UndecodableEventError                     bytes that are no event of ours
    |   `-- UnknownSchemaVersionError                 an event newer than this reader
    |-- EventLogError                                 the log refused: retry with backoff
    |   `-- EventLogUnavailableError                  nothing was stored: answer 503
    |-- StorageError                                  the database refused
    |   `-- FencedError                               another worker owns this partition now
    |-- SnapshotError
    |   |-- SnapshotCorruptError                      a digest differs: never serve it
    |   `-- ProbeFailedError                          the weights load, but compute something else
    |-- RegistryError
    |   |-- PolicyNotFoundError
    |   |-- NoChampionError                           nothing passed the offline suite yet
    |   `-- IllegalTransitionError                    e.g. rejected -> champion
    |-- LearningError
    |   |-- EstimatorError                            (also ValueError) an estimator on unfit data
    |   `-- NonFiniteError                            NaN or infinity: the step is refused
    |-- JudgeError                                    a judge gave no score: ask it again
    `-- DeliveryError                                 a client could not hand a record over
        |-- InvalidRecordError                        (also ValueError) no API would take it
        |-- RefusedError                              the API said no: do not send it again
        |-- UnacknowledgedError                       send it again, with the same id
        |-- OutboxFullError                           too much waits to be sent
        `-- ClientClosedError                         the client was closed before

Bad data is not an exception: it is a dead letter with a reason.
Messages say what was wrong, the value, and what to do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


class TidemillError(Exception):
    """Root of the tree; catch it only at the edge of a process."""


class ConfigurationError(TidemillError, ValueError):
    """Settings, metrics or command line are wrong; the process must not start."""


class ContractError(TidemillError):
    """A peer broke a shared schema; the record becomes a dead letter, the process goes on."""


class UndecodableEventError(ContractError):
    """Bytes that are not an event of ours; the record becomes a dead letter."""


class UnknownSchemaVersionError(ContractError):
    """An event written by a newer Tidemill; upgrade this reader, then replay the dead letter."""


class EventLogError(TidemillError):
    """The log refused an operation; the caller may retry with backoff."""


class EventLogUnavailableError(EventLogError):
    """The log cannot store now; nothing was stored, the API answers 503."""


class StorageError(TidemillError):
    """The database refused; the transaction was rolled back as a whole."""


class FencedError(StorageError):
    """Another worker moved this partition's offset first; drop the batch and read again."""


class SnapshotError(TidemillError):
    """A snapshot cannot be written or read; the version is not served."""


class SnapshotCorruptError(SnapshotError):
    """A digest differs from the manifest; never serve this snapshot."""


class ProbeFailedError(SnapshotError):
    """Loaded weights do not give the log-probs their manifest promises; never serve them."""


class RegistryError(TidemillError):
    """The registry of policy versions refused; its rows are unchanged."""


class PolicyNotFoundError(RegistryError):
    """No such policy version; list the known ones with `tidemill releases list`."""


class NoChampionError(RegistryError):
    """No version has passed the offline suite yet; serving stays not ready."""


class IllegalTransitionError(RegistryError):
    """The lifecycle table has no such move; the row is unchanged."""


class LearningError(TidemillError):
    """A learning step cannot be made; the learner keeps its last good state."""


class EstimatorError(LearningError, ValueError):
    """An estimator was asked for data on which it is not defined, such as a group of one."""


class NonFiniteError(LearningError):
    """A loss, gradient or log-prob is NaN or infinite; the step is refused."""


class JudgeError(TidemillError):
    """A judge gave no score: an outage, or words that are none; ask again, never count it as 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why the feedback API refused: the fields of its `application/problem+json` (RFC 9457)."""

    status: int
    """Of HTTP."""
    title: str
    detail: str
    """What was wrong, and what to do."""
    type: str = "about:blank"
    ids: Mapping[str, str] = field(default_factory=dict)
    """Of the record that the answer is about, where it names them."""
    field: str | None = None
    """The name of the field that was wrong."""

    def __str__(self) -> str:
        """Return it as one line."""
        where = "" if self.field is None else f" (field {self.field})"
        return f"{self.status} {self.title}: {self.detail}{where}"


class DeliveryError(TidemillError):
    """The client could not hand a record over; the message and `problem` say why."""

    def __init__(self, message: str, *, problem: Problem | None = None) -> None:
        """Keep what the feedback API said, where it said something."""
        super().__init__(message)
        self.problem = problem


class InvalidRecordError(DeliveryError, ValueError):
    """A record that the feedback API could never take; nothing was sent."""


class RefusedError(DeliveryError):
    """The feedback API refused a record for good; sending it again does not help."""

    def __init__(self, problem: Problem) -> None:
        """Keep the problem; it is also the message."""
        super().__init__(str(problem), problem=problem)
        self.problem: Problem = problem


class UnacknowledgedError(DeliveryError):
    """All attempts failed; the record may be stored or not: send it again with the same id."""


class OutboxFullError(DeliveryError):
    """As much feedback as allowed waits to be sent; this one was not taken, the others stay."""


class ClientClosedError(DeliveryError):
    """The client was closed; make a new one."""
