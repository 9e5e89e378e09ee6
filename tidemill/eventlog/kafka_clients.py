"""How every Kafka client of ours is set up, and what its errors mean to the rest."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from kafka.errors import KafkaError
from kafka.net.compat import KafkaNetClient

from tidemill.errors import EventLogUnavailableError
from tidemill.settings import KafkaLogSettings

MAX_MESSAGE_BYTES = 2 << 20
"""Twice the largest record: room for its key and for what the batch adds."""


def client_options(settings: KafkaLogSettings) -> dict[str, Any]:
    """Return the options that producers, consumers and admin clients share."""
    options: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap_servers.split(","),
        "security_protocol": settings.security_protocol,
        "bootstrap_timeout_ms": int(settings.connect_timeout_s * 1000),
        # A broker that comes back is found within a second.
        "reconnect_backoff_max_ms": 1_000,
    }
    if settings.ssl_cafile is not None:
        options["ssl_cafile"] = str(settings.ssl_cafile)
    if settings.sasl_mechanism is not None:
        options["sasl_mechanism"] = settings.sasl_mechanism
        options["sasl_plain_username"] = settings.sasl_username
        options["sasl_plain_password"] = settings.sasl_password
    return options


Client = TypeVar("Client")


def connect(kind: Callable[..., Client], options: dict[str, Any]) -> Client:
    """Return a new client of a kind, or end what a failed one began: its thread and its sockets.

    Raises:
        EventLogUnavailableError: no broker answers.
    """
    begun: list[KafkaNetClient] = []

    def begin(**network: Any) -> KafkaNetClient:
        begun.append(KafkaNetClient(**network))
        return begun[-1]

    with kafka_errors("connecting"):
        try:
            return kind(**options, kafka_client=begin)
        except KafkaError:
            for network in begun:
                network.close()
            raise


@contextmanager
def kafka_errors(doing: str) -> Iterator[None]:
    """Turn the client's errors into ours.

    Raises:
        EventLogUnavailableError: the broker refused or did not answer.
    """
    try:
        yield
    except KafkaError as error:
        raise EventLogUnavailableError(f"Kafka, {doing}: {error!r}") from error
