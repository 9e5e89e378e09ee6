import ssl
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tests.certificates import Authority
from tidemill.errors import ConfigurationError
from tidemill.eventlog.kafka_security import security_options
from tidemill.settings import KafkaSecuritySettings

PASSWORD = SecretStr("water")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.new(tmp_path_factory.mktemp("papers") / "authority")


def options_of(**security: Any) -> dict[str, Any]:
    return security_options(KafkaSecuritySettings(**security))


def test_encryption_trusts_the_named_authority_alone(authority: Authority) -> None:
    context = options_of(protocol="SSL", ca_file=authority.certificate)["ssl_context"]
    assert [one["subject"] for one in context.get_ca_certs()] == [
        ((("commonName", "authority of authority"),),)
    ]
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_encryption_without_a_named_authority_trusts_those_of_the_system() -> None:
    context = options_of(protocol="SSL")["ssl_context"]
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("written", "read"), [("water", "water"), ("water\r\n", "water"), (" wat er\n", " wat er")]
)
def test_the_password_of_a_file_ends_with_its_line(tmp_path: Path, written: str, read: str) -> None:
    file = tmp_path / "password"
    file.write_bytes(written.encode())
    options = options_of(protocol="SASL_PLAINTEXT", username="mill", password_file=file)
    assert options["sasl_plain_password"] == read


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
def test_a_file_without_a_password_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"password_file .* is (empty|no text)"):
        options_of(protocol="SASL_PLAINTEXT", username="mill", password_file=file)


@pytest.mark.parametrize(
    ("setting", "more"),
    [
        ("ca_file", {"protocol": "SSL"}),
        ("cert_file", {"protocol": "SSL"}),
        ("password_file", {"protocol": "SASL_PLAINTEXT", "username": "mill"}),
    ],
)
def test_a_missing_file_is_named(tmp_path: Path, setting: str, more: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=rf"log\.security\.{setting} .*no such file"):
        options_of(**more, **{setting: tmp_path / "missing"})
    with pytest.raises(ConfigurationError, match="no such file"):
        options_of(**more, **{setting: tmp_path})


def test_a_missing_key_is_named(authority: Authority, tmp_path: Path) -> None:
    certificate, _ = authority.issue("keyless")
    with pytest.raises(ConfigurationError, match=r"log\.security\.key_file .*no such file"):
        options_of(protocol="SSL", cert_file=certificate, key_file=tmp_path / "missing")


def test_files_that_hold_something_else_are_named(authority: Authority, tmp_path: Path) -> None:
    poem = tmp_path / "poem.pem"
    poem.write_text("A mill by the sea")
    with pytest.raises(ConfigurationError, match=r"ca_file .*poem\.pem holds no certificate"):
        options_of(protocol="SSL", ca_file=poem)
    certificate, _ = authority.issue("one")
    _, other_key = authority.issue("other")
    for key in (poem, other_key, None):
        with pytest.raises(ConfigurationError, match="are no certificate with its own key"):
            options_of(protocol="SSL", cert_file=certificate, key_file=key)


def test_an_encrypted_key_does_not_ask_the_terminal(authority: Authority) -> None:
    certificate, key = authority.issue("locked")
    locked = authority.lock(key, "water")
    with pytest.raises(ConfigurationError, match="not encrypted"):
        options_of(protocol="SSL", cert_file=certificate, key_file=locked)


@pytest.mark.parametrize(
    ("security", "problem"),
    [
        ({"protocol": "SASL_SSL"}, "needs a username"),
        ({"protocol": "SASL_SSL", "username": "mill"}, "needs one password.*0 are given"),
        (
            {
                "protocol": "SASL_SSL",
                "username": "mill",
                "password": PASSWORD,
                "password_file": Path("p"),
            },
            "needs one password.*2 are given",
        ),
        ({"protocol": "SSL", "username": "mill"}, "SSL has no login"),
        ({"password": PASSWORD}, "PLAINTEXT has no login"),
        ({"ca_file": Path("ca.pem")}, "does not encrypt, so ca_file would be ignored"),
        ({"protocol": "SSL", "key_file": Path("k")}, "key_file without cert_file"),
        ({"protocol": "TLS"}, "Input should be 'PLAINTEXT', 'SSL'"),
        (
            {"protocol": "SASL_SSL", "mechanism": "GSSAPI", "username": "m", "password": PASSWORD},
            "Input should be 'PLAIN', 'SCRAM-SHA-256' or 'SCRAM-SHA-512'",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    security: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        KafkaSecuritySettings(**security)
