"""Why a Kafka broker cannot be used: the client itself only says that nobody answered in time."""

import socket
import ssl
from contextlib import suppress

from tidemill.errors import EventLogUnavailableError
from tidemill.eventlog.kafka_security import build_context, encrypts
from tidemill.settings import KafkaLogSettings

_LOOK_S = 1.0
"""The longest wait for each step of the look."""
_ALERT_S = 0.3
"""A broker that wants another certificate says so this soon after the handshake."""


def bootstrap_servers(settings: KafkaLogSettings) -> list[str]:
    """Return the addresses of the brokers to begin with."""
    return [server.strip() for server in settings.bootstrap_servers.split(",")]


def refuse_strangers(settings: KafkaLogSettings) -> None:
    """Refuse at once a broker whose certificate is not trusted.

    The client would try again until its time is over, and lose a socket with each attempt.

    Raises:
        ConfigurationError: a file of the settings is missing or holds something else.
        EventLogUnavailableError: the first broker that takes a connection is not trusted.
    """
    if not encrypts(settings.security):
        return
    context = build_context(settings.security)
    for server in bootstrap_servers(settings):
        with suppress(OSError), _connection(server) as connection:
            problem = _distrust(connection, server, context)
            if problem is not None:
                raise EventLogUnavailableError(f"Kafka, connecting to {server}: {problem}")
            return


def explain_silence(settings: KafkaLogSettings) -> str:
    """Look at the first broker and return a sentence on what was seen.

    Raises:
        ConfigurationError: a file of the settings is missing or holds something else.
    """
    server = bootstrap_servers(settings)[0]
    try:
        connection = _connection(server)
    except OSError as error:
        return f"{server} takes no connection: {error.strerror or error}"
    with connection:
        if encrypts(settings.security):
            problem = _handshake(connection, server, build_context(settings.security))
            return f"{server} and TLS: {problem or 'the handshake was fine'}"
        if _handshake(connection, server, _unchecking_context()) is None:
            return f"{server} speaks TLS: set log.security.protocol to SSL or SASL_SSL"
    return f"{server} takes connections but did not answer: does this listener want a login?"


def _connection(server: str) -> socket.socket:
    return socket.create_connection((_host(server), int(server.rpartition(":")[2])), _LOOK_S)


def _host(server: str) -> str:
    return server.rpartition(":")[0].strip("[]")


def _distrust(connection: socket.socket, server: str, context: ssl.SSLContext) -> str | None:
    try:
        with context.wrap_socket(connection, server_hostname=_host(server)):
            return None
    except ssl.SSLCertVerificationError as error:
        return _not_trusted(error)


def _handshake(connection: socket.socket, server: str, context: ssl.SSLContext) -> str | None:
    try:
        with context.wrap_socket(connection, server_hostname=_host(server)) as wrapped:
            wrapped.settimeout(_ALERT_S)
            with suppress(TimeoutError):
                wrapped.recv(1)
    except ssl.SSLCertVerificationError as error:
        return _not_trusted(error)
    except OSError as error:
        reason = getattr(error, "reason", None) or error.strerror or str(error)
        if "CERTIFICATE" in reason:
            return f"it refused our certificate ({reason}); look at log.security.cert_file"
        return f"{reason}; is this the port of a listener with TLS?"
    return None


def _not_trusted(error: ssl.SSLCertVerificationError) -> str:
    return (
        f"its certificate is not trusted ({error.verify_message}); log.security.ca_file must "
        "hold the authority that signed it, for this host name"
    )


def _unchecking_context() -> ssl.SSLContext:
    # Nothing is sent or believed: the question is only whether the other side speaks TLS.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
