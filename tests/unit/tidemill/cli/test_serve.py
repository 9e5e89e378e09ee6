import pytest
from typer.testing import CliRunner

from tidemill.cli.main import app


@pytest.mark.parametrize("command", ["serve", "api", "ingest"])
def test_each_part_has_its_command(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
