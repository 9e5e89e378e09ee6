"""How every Kafka client of ours is set up, and what its errors mean to the rest."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from kafka.errors import KafkaError, KafkaTimeoutError

from tidemill.errors import EventLogUnavailableError
from tidemill.eventlog.kafka_diagnosis import bootstrap_servers, explain_silence, refuse_strangers
from tidemill.eventlog.kafka_network import LOGIN_ERRORS, Network
from tidemill.eventlog.kafka_security import security_options
from tidemill.settings import KafkaLogSettings

MAX_MESSAGE_BYTES = 2 << 20
"""Twice the largest record: room for its key and for what the batch adds."""


def client_options(settings: KafkaLogSettings) -> dict[str, Any]:
    """Return the options that producers, consumers and admin clients share.

    Raises:
        ConfigurationError: a file of the security settings is missing or holds something else.
    """
    return {
        "bootstrap_servers": bootstrap_servers(settings),
        "bootstrap_timeout_ms": int(settings.connect_timeout_s * 1000),
        # A broker that comes back is found within a second.
        "reconnect_backoff_max_ms": 1_000,
    } | security_options(settings.security)


Client = TypeVar("Client")


def connect(
    kind: Callable[..., Client], settings: KafkaLogSettings, options: dict[str, Any] | None = None
) -> Client:
    """Return a new client of a kind, or end what a failed one began: its thread and its sockets.

    Args:
        kind: of client.
        settings: the brokers, and how to be let in.
        options: of this kind, beside those that all share.

    Raises:
        ConfigurationError: a file of the security settings is missing or holds something else.
        EventLogUnavailableError: no broker answers, or it let us not in; the message says why.
    """
    all_options = client_options(settings) | (options or {})
    refuse_strangers(settings)
    begun: list[Network] = []

    def begin(**network: Any) -> Network:
        begun.append(Network(**network))
        return begun[-1]

    with kafka_errors("connecting"):
        try:
            return kind(**all_options, kafka_client=begin)
        except KafkaError as error:
            for network in begun:
                network.close()
            if not isinstance(error, KafkaTimeoutError):
                raise
            raise KafkaTimeoutError(f"{error}; {explain_silence(settings)}") from error


@contextmanager
def kafka_errors(doing: str) -> Iterator[None]:
    """Turn the client's errors into ours.

    Raises:
        EventLogUnavailableError: the broker refused or did not answer.
    """
    try:
        yield
    except LOGIN_ERRORS as error:
        raise EventLogUnavailableError(
            f"Kafka, {doing}: the login was refused ({error}); look at mechanism, username and "
            "password of log.security"
        ) from error
    except KafkaError as error:
        raise EventLogUnavailableError(f"Kafka, {doing}: {error!r}") from error
