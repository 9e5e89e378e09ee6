"""How `make demo` takes its options, and what it does without what it needs."""

from pathlib import Path

import pytest
from rich.console import Console

from examples.command_assistant.demo import FOLDER, main, parse_options
from examples.command_assistant.demo_report import print_places
from examples.command_assistant.demo_service import Service
from examples.command_assistant.demo_settings import TINY, VARIANTS, write_settings
from examples.command_assistant.demo_stack import (
    EMBEDDED,
    PRODUCTION,
    require_servers,
    running_stack,
    server_settings,
)
from tidemill.cli.settings import read_settings
from tidemill.settings import EmbeddedLogSettings, KafkaLogSettings

SERVERS = server_settings(
    bootstrap="127.0.0.1:9092",
    database='postgresql://postgres:@/postgres?host=/a "quoted" path',
    mlflow="http://127.0.0.1:5000",
)


def test_nothing_said_is_the_embedded_stack() -> None:
    assert parse_options([]).stack == EMBEDDED
    assert parse_options(["--stack", "production", "--seed", "3"]).stack == PRODUCTION


def test_an_unknown_stack_is_a_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_options(["--stack", "staging"])
    assert ended.value.code == 2
    assert "'embedded', 'production'" in capsys.readouterr().err


def test_a_missing_kafka_ends_the_demo_before_it_removes_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    FOLDER.mkdir(parents=True)
    earlier = FOLDER / "tidemill.toml"
    earlier.write_text("")
    assert main(["--stack", "production"]) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "set KAFKA_HOME to an unpacked Apache Kafka" in said
    assert earlier.exists()


def test_the_embedded_stack_needs_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    require_servers(EMBEDDED)
    with running_stack(EMBEDDED, tmp_path) as servers:
        assert servers == ""


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_the_settings_name_the_servers(tmp_path: Path, variant) -> None:
    settings = read_settings(write_settings(tmp_path, variant, seed=3, servers=SERVERS))
    assert isinstance(settings.log, KafkaLogSettings)
    assert settings.log.bootstrap_servers == "127.0.0.1:9092"
    assert settings.database_url.endswith('?host=/a "quoted" path')
    assert settings.tracking_uri == "http://127.0.0.1:5000"


def test_without_servers_all_data_lies_in_the_folder(tmp_path: Path) -> None:
    service = Service(tmp_path, write_settings(tmp_path, TINY, seed=3))
    assert isinstance(read_settings(service.settings).log, EmbeddedLogSettings)
    assert service.database_url == f"sqlite:///{tmp_path / 'tidemill.db'}"


def test_the_demo_looks_at_the_rows_that_its_parts_write(tmp_path: Path) -> None:
    service = Service(tmp_path, write_settings(tmp_path, TINY, seed=3, servers=SERVERS))
    assert service.database_url.startswith("postgresql://")


def test_beside_servers_the_demo_has_more_time() -> None:
    assert TINY.beside_servers().limit_s == TINY.limit_s + TINY.servers_s
    assert TINY.beside_servers().name == TINY.name


def test_only_what_still_answers_is_offered_at_the_end() -> None:
    said = {}
    for stack in (EMBEDDED, PRODUCTION):
        console = Console(record=True, width=200)
        print_places(console, FOLDER, stack=stack)
        said[stack] = console.export_text()
        assert "make mlflow" in said[stack]
    assert "releases list" in said[EMBEDDED]
    assert "releases list" not in said[PRODUCTION]
