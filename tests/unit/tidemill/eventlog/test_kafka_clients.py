from pathlib import Path

import pytest
from kafka.errors import KafkaTimeoutError

from tidemill.errors import EventLogUnavailableError
from tidemill.eventlog.kafka_clients import client_options, kafka_errors
from tidemill.settings import KafkaLogSettings


def test_a_plain_broker_needs_no_more_than_its_address() -> None:
    options = client_options(KafkaLogSettings(bootstrap_servers="a:1,b:2"))
    assert options["bootstrap_servers"] == ["a:1", "b:2"]
    assert options["security_protocol"] == "PLAINTEXT"
    assert not any(name.startswith(("sasl", "ssl")) for name in options)


def test_encryption_and_credentials_are_passed_on() -> None:
    options = client_options(
        KafkaLogSettings(
            bootstrap_servers="a:1",
            security_protocol="SASL_SSL",
            ssl_cafile=Path("ca.pem"),
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username="mill",
            sasl_password="water",
        )
    )
    assert options["security_protocol"] == "SASL_SSL"
    assert options["ssl_cafile"] == "ca.pem"
    assert options["sasl_mechanism"] == "SCRAM-SHA-512"
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("mill", "water")


def test_errors_of_the_client_become_ours() -> None:
    with pytest.raises(EventLogUnavailableError, match="Kafka, trying"), kafka_errors("trying"):
        raise KafkaTimeoutError("late")
