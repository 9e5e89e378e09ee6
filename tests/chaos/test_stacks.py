"""The command line reads the settings of a run as its processes have them."""

from pathlib import Path

from tests.chaos.run import SETTINGS
from tests.chaos.stacks import Stack, write_settings
from tidemill.cli.settings import read_settings
from tidemill.settings import DatabaseSettings, KafkaLogSettings, SharedSettings


def test_written_settings_are_read_as_they_were(tmp_path: Path) -> None:
    shared = SharedSettings(
        data=tmp_path,
        log=KafkaLogSettings(bootstrap_servers="127.0.0.1:1"),
        database=DatabaseSettings(url="postgresql://postgres:@/rows?host=%2Ftmp"),
    )
    path = tmp_path / "tidemill.toml"
    write_settings(Stack(shared=shared, num_apis=2), SETTINGS, path)
    settings = read_settings(path)
    assert settings.shared == shared
    assert settings.ingest == SETTINGS
