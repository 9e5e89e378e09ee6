import pytest
from kafka.errors import KafkaTimeoutError, SaslAuthenticationFailedError
from pydantic import SecretStr, ValidationError

from tidemill.errors import EventLogUnavailableError
from tidemill.eventlog.kafka_clients import client_options, kafka_errors
from tidemill.settings import KafkaLogSettings, KafkaSecuritySettings


def test_a_plain_broker_needs_no_more_than_its_address() -> None:
    options = client_options(KafkaLogSettings(bootstrap_servers="a:1,b:2"))
    assert options["bootstrap_servers"] == ["a:1", "b:2"]
    assert options["security_protocol"] == "PLAINTEXT"
    assert not any(name.startswith(("sasl", "ssl")) for name in options)


def test_spaces_between_addresses_are_no_part_of_them() -> None:
    options = client_options(KafkaLogSettings(bootstrap_servers="a:1 , b:2"))
    assert options["bootstrap_servers"] == ["a:1", "b:2"]


@pytest.mark.parametrize("servers", ["", "broker", "broker:9092,", "broker:port", "a:1 b:2"])
def test_an_address_without_a_port_is_refused(servers: str) -> None:
    with pytest.raises(ValidationError, match="bootstrap_servers"):
        KafkaLogSettings(bootstrap_servers=servers)


def test_a_login_is_passed_on() -> None:
    security = KafkaSecuritySettings(
        protocol="SASL_PLAINTEXT", username="mill", password=SecretStr("water")
    )
    options = client_options(KafkaLogSettings(bootstrap_servers="a:1", security=security))
    assert options["security_protocol"] == "SASL_PLAINTEXT"
    assert options["sasl_mechanism"] == "SCRAM-SHA-512"
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("mill", "water")


def test_errors_of_the_client_become_ours() -> None:
    with pytest.raises(EventLogUnavailableError, match="Kafka, trying"), kafka_errors("trying"):
        raise KafkaTimeoutError("late")


def test_a_refused_login_says_where_to_look() -> None:
    with (
        pytest.raises(EventLogUnavailableError, match=r"login was refused .*log\.security"),
        kafka_errors("connecting"),
    ):
        raise SaslAuthenticationFailedError("no")
