"""TLS and login at a real broker: let in with the right papers, told why without them."""

import base64
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.certificates import Authority
from tests.servers import KafkaBroker, free_port, new_kafka_broker
from tidemill.errors import ConfigurationError, EventLogUnavailableError
from tidemill.eventlog.kafka import KafkaLog
from tidemill.eventlog.kafka_diagnosis import explain_silence
from tidemill.settings import KafkaLogSettings, KafkaSecuritySettings

pytestmark = [pytest.mark.integration, pytest.mark.slow]

USER, PASSWORD = "mill", "Water-5$ runs=on"
LISTENERS = ("SSL", "MUTUAL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True)
class SecuredBroker:
    broker: KafkaBroker
    authority: Authority
    ports: dict[str, int]

    def settings(self, listener: str, security: dict[str, Any]) -> KafkaLogSettings:
        return KafkaLogSettings(
            bootstrap_servers=f"127.0.0.1:{self.ports[listener]}",
            num_partitions=1,
            connect_timeout_s=1.5,
            security=KafkaSecuritySettings(**security),
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """One broker with a listener of each kind."""
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority.new(folder / "trusted")
    broker = new_kafka_broker(folder / "kafka")
    ports = {name: free_port() for name in LISTENERS}
    broker.more = _listeners(broker, ports) | _papers(authority)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        user = f'{mechanism}=[name="{USER}",password="{PASSWORD}"]'
        broker.format_options += ("--add-scram", user)
    broker.start()
    yield SecuredBroker(broker, authority, ports)
    broker.kill()


def _listeners(broker: KafkaBroker, ports: dict[str, int]) -> dict[str, str]:
    open_to = {"PLAINTEXT": broker.port} | ports
    addresses = ",".join(f"{name}://127.0.0.1:{port}" for name, port in open_to.items())
    kinds = {name: name for name in open_to} | {"MUTUAL": "SSL", "CONTROLLER": "PLAINTEXT"}
    return {
        "listeners": f"{addresses},CONTROLLER://127.0.0.1:{broker.controller_port}",
        "advertised.listeners": addresses,
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": ",".join(f"{a}:{b}" for a, b in kinds.items()),
    }


def _papers(authority: Authority) -> dict[str, str]:
    module = "org.apache.kafka.common.security"
    papers = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.key_store("broker")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{listener}"
        papers[f"{prefix}.plain.sasl.jaas.config"] = (
            f'{module}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        )
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            papers[f"{prefix}.{mechanism}.sasl.jaas.config"] = (
                f"{module}.scram.ScramLoginModule required;"
            )
    return papers


def round_trip(settings: KafkaLogSettings) -> None:
    """Use an admin client, a producer, a reader and a member of a group."""
    log, topic = KafkaLog(settings), f"t.{uuid4().hex[:8]}"
    log.create_topics((topic,))
    sink = log.sink()
    place = sink.append(topic, "k", b"v").result(timeout=20)
    sink.close()
    assert [record.value for record in log.read(topic, 0, offset=0, max_records=5)] == [b"v"]
    source = log.source((topic,), group=uuid4().hex, positions=lambda _: None)
    deadline = time.monotonic() + 20
    while not (polled := source.poll(max_records=5, timeout_s=0.5)):
        assert time.monotonic() < deadline, "the member got nothing"
    source.close()
    log.close()
    assert [record.offset for record in polled] == [place.offset]


def refusal(settings: KafkaLogSettings) -> str:
    """Return why the broker was of no use; the answer must come within a bounded time."""
    log = KafkaLog(settings)
    began = time.monotonic()
    with pytest.raises(EventLogUnavailableError) as from_admin:
        log.create_topics(("t",))
    with pytest.raises(EventLogUnavailableError) as from_producer:
        log.sink()
    # Each has a connect timeout of 1.5 s, and a look at the broker of at most 2.3 s.
    assert time.monotonic() - began < 10
    log.close()
    message = str(from_admin.value)
    assert message.split(";")[-1] == str(from_producer.value).split(";")[-1]
    assert PASSWORD not in message
    return message


def login(**more: Any) -> dict[str, Any]:
    return {"protocol": "SASL_PLAINTEXT", "username": USER, "password": PASSWORD} | more


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_right_password_lets_every_client_in(secured: SecuredBroker, mechanism: str) -> None:
    round_trip(secured.settings("SASL_PLAINTEXT", login(mechanism=mechanism)))


def test_tls_with_the_right_authority(secured: SecuredBroker) -> None:
    ca_file = secured.authority.certificate
    round_trip(secured.settings("SSL", {"protocol": "SSL", "ca_file": ca_file}))


def test_tls_with_a_certificate_of_our_own(secured: SecuredBroker) -> None:
    certificate, key = secured.authority.issue("client")
    papers = {"protocol": "SSL", "ca_file": secured.authority.certificate}
    round_trip(secured.settings("MUTUAL", papers | {"cert_file": certificate, "key_file": key}))
    message = refusal(secured.settings("MUTUAL", papers))
    assert "it refused our certificate" in message
    assert "log.security.cert_file" in message


def test_login_inside_tls_with_a_password_from_a_file(
    secured: SecuredBroker, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n", encoding="utf-8")
    papers = {"protocol": "SASL_SSL", "ca_file": secured.authority.certificate}
    more = {"username": USER, "password_file": file}
    round_trip(secured.settings("SASL_SSL", papers | more))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_told_at_once(secured: SecuredBroker, mechanism: str) -> None:
    message = refusal(
        secured.settings("SASL_PLAINTEXT", login(mechanism=mechanism, password="Fire"))
    )
    assert "the login was refused" in message
    assert "password of log.security" in message
    assert "Fire" not in message


def test_an_unknown_authority_is_told(secured: SecuredBroker, tmp_path: Path) -> None:
    other = Authority.new(tmp_path / "other")
    message = refusal(secured.settings("SSL", {"protocol": "SSL", "ca_file": other.certificate}))
    assert "its certificate is not trusted" in message
    assert "log.security.ca_file" in message


def test_a_certificate_for_another_host_is_told(secured: SecuredBroker) -> None:
    security = {"protocol": "SSL", "ca_file": secured.authority.certificate}
    settings = secured.settings("SSL", security)
    renamed = settings.model_copy(
        update={"bootstrap_servers": settings.bootstrap_servers.replace("127.0.0.1", "localhost")}
    )
    assert "its certificate is not trusted (Hostname mismatch" in refusal(renamed)


@pytest.mark.parametrize(
    ("listener", "told"),
    [
        ("SSL", "speaks TLS: set log.security.protocol to SSL or SASL_SSL"),
        ("SASL_PLAINTEXT", "does this listener want a login?"),
    ],
)
def test_a_listener_that_wants_more_is_told(
    secured: SecuredBroker, listener: str, told: str
) -> None:
    assert told in refusal(secured.settings(listener, {}))


def test_tls_to_a_listener_without_it_is_told(secured: SecuredBroker) -> None:
    # Not through a client, which would lose a socket with each of its attempts.
    settings = secured.settings("SASL_PLAINTEXT", {"protocol": "SSL"})
    assert "is this the port of a listener with TLS?" in explain_silence(settings)


def test_a_login_where_there_is_none_is_told(secured: SecuredBroker) -> None:
    plain = secured.settings("SSL", login()).model_copy(
        update={"bootstrap_servers": secured.broker.bootstrap}
    )
    assert "Kafka, connecting" in refusal(plain)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_no_log_shows_the_password(
    secured: SecuredBroker, caplog: pytest.LogCaptureFixture, mechanism: str
) -> None:
    caplog.set_level(logging.DEBUG)
    round_trip(secured.settings("SASL_PLAINTEXT", login(mechanism=mechanism)))
    assert any(record.name.startswith("kafka.") for record in caplog.records)
    written = caplog.text
    as_bytes = PASSWORD.encode()
    for form in (PASSWORD, repr(as_bytes)[2:-1], base64.b64encode(as_bytes).decode()):
        assert form not in written
    # All of PLAIN's message, as it would stand in a request.
    assert repr(f"\0{USER}\0".encode())[2:-1] not in written


def test_a_missing_file_is_told_before_anything_is_tried(tmp_path: Path) -> None:
    settings = KafkaLogSettings(
        bootstrap_servers="127.0.0.1:1",
        security=KafkaSecuritySettings(protocol="SSL", ca_file=tmp_path / "no.pem"),
    )
    with pytest.raises(ConfigurationError, match=r"log\.security\.ca_file .*no\.pem: no such file"):
        KafkaLog(settings)
