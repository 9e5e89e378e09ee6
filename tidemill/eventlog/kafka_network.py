"""The network of a Kafka client, taught to give up when a broker refuses its login."""

from functools import partial
from typing import Any

from kafka.errors import (
    KafkaConnectionError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kafka.net.compat import KafkaNetClient
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

LOGIN_ERRORS = (SaslAuthenticationFailedError, UnsupportedSaslMechanismError)
_MAX_HANG_UPS = 3
"""A broker that hung up during the login this often did not do so by chance."""


class _Manager(KafkaConnectionManager):  # type: ignore[misc]
    """While a client looks for its first broker, a refused login ends the search.

    kafka-python would try the same password until its time is over, and then say only that nobody
    answered: it does not read a refusal that comes together with the end of the connection. Later
    connections are tried again and again, since a broker may learn its users after its start.
    """

    def __init__(self, net: NetworkSelector, **config: Any) -> None:
        self._watched: KafkaConnection | None = None
        self._refusal: BaseException | None = None
        self._num_hang_ups = 0
        super().__init__(net, **config)

    def get_connection(self, node_id: Any, **how: Any) -> KafkaConnection:
        if self._refusal is not None and not self.bootstrapped:
            raise self._refusal
        connection = super().get_connection(node_id, **how)
        if connection is not self._watched:
            self._watched = connection
            connection.init_future.add_errback(partial(self._judge, connection))
        return connection

    def _judge(self, connection: KafkaConnection, error: BaseException) -> None:
        if isinstance(error, LOGIN_ERRORS):
            self._refusal = error
        # After the exchange of versions nothing but the login is left.
        was_greeted = connection.parser is not None and connection.broker_version_data is not None
        if was_greeted and connection.sasl_enabled and isinstance(error, KafkaConnectionError):
            self._num_hang_ups += 1
        if self._num_hang_ups >= _MAX_HANG_UPS:
            self._refusal = SaslAuthenticationFailedError("the broker hung up during the login")


class Network(KafkaNetClient):  # type: ignore[misc]
    """What a client takes as `kafka_client`."""

    def __init__(self, **config: Any) -> None:
        """Begin a network thread of its own."""
        net = NetworkSelector(**config)
        super().__init__(net=net, manager=_Manager(net, **config))
