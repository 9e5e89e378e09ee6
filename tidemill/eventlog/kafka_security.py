"""Encryption and login at Kafka's brokers: from settings to what its clients take."""

import logging
import os
import ssl
from pathlib import Path
from typing import Any

from tidemill.errors import ConfigurationError
from tidemill.settings import KafkaSecuritySettings

_TELLTALES = ("kafka.net.connection", "kafka.net.transport", "kafka.admin.client", "kafka.protocol")
"""Loggers that write requests or settings, and so passwords, at DEBUG."""


def security_options(security: KafkaSecuritySettings) -> dict[str, Any]:
    """Return the options of encryption and login that every client takes.

    Raises:
        ConfigurationError: a file is missing or holds something else.
    """
    options: dict[str, Any] = {"security_protocol": security.protocol}
    if encrypts(security):
        options["ssl_context"] = build_context(security)
    if logs_in(security):
        _keep_out_of_logs()
        options["sasl_mechanism"] = security.mechanism
        options["sasl_plain_username"] = security.username
        options["sasl_plain_password"] = _read_password(security)
    return options


def encrypts(security: KafkaSecuritySettings) -> bool:
    """Tell whether connections are encrypted."""
    return security.protocol in {"SSL", "SASL_SSL"}


def logs_in(security: KafkaSecuritySettings) -> bool:
    """Tell whether clients name themselves with a password."""
    return security.protocol in {"SASL_PLAINTEXT", "SASL_SSL"}


def build_context(security: KafkaSecuritySettings) -> ssl.SSLContext:
    """Return what a TLS connection to a broker checks, and what it shows.

    Raises:
        ConfigurationError: a file is missing or holds something else.
    """
    context = _trusting(security.ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if security.cert_file is not None:
        _show_certificate(context, security.cert_file, security.key_file)
    return context


def _trusting(ca_file: Path | None) -> ssl.SSLContext:
    if ca_file is None:
        return ssl.create_default_context()
    _require(ca_file, "ca_file")
    try:
        # This authority alone, not also those of the system.
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        raise ConfigurationError(
            f"log.security.ca_file {ca_file} holds no certificate in PEM: {_reason(error)}"
        ) from error


def _show_certificate(context: ssl.SSLContext, cert_file: Path, key_file: Path | None) -> None:
    _require(cert_file, "cert_file")
    if key_file is not None:
        _require(key_file, "key_file")
    try:
        # The empty password: OpenSSL must not ask the terminal for one.
        context.load_cert_chain(cert_file, key_file, password=b"")
    except ssl.SSLError as error:
        files = f"log.security.cert_file {cert_file}"
        if key_file is not None:
            files += f" and key_file {key_file}"
        raise ConfigurationError(
            f"{files} are no certificate with its own key, not encrypted, in PEM: {_reason(error)}"
        ) from error


def _read_password(security: KafkaSecuritySettings) -> str:
    if security.password is not None:
        source, password = "log.security.password", security.password.get_secret_value()
    else:
        file = security.password_file or Path()
        source = f"log.security.password_file {file}"
        _require(file, "password_file")
        try:
            # Editors end a file with a line end that is no part of the password.
            password = file.read_text(encoding="utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            # Without its cause, which would show bytes of the password.
            raise ConfigurationError(f"{source} is no text in UTF-8") from None
    if not password:
        raise ConfigurationError(f"{source} is empty; write the password of {security.username!r}")
    return password


def _require(file: Path, setting: str) -> None:
    if not file.is_file():
        raise ConfigurationError(f"log.security.{setting} {file}: no such file")
    if not os.access(file, os.R_OK):
        raise ConfigurationError(f"log.security.{setting} {file}: this process may not read it")


def _reason(error: ssl.SSLError) -> str:
    return error.reason or str(error)


def _keep_out_of_logs() -> None:
    for name in _TELLTALES:
        logger = logging.getLogger(name)
        logger.setLevel(max(logging.INFO, logger.getEffectiveLevel()))
