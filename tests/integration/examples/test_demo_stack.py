"""The servers that the demo starts for itself on the production column."""

from pathlib import Path

import pytest

from examples.command_assistant.demo_settings import TINY, write_settings
from examples.command_assistant.demo_stack import PRODUCTION, require_servers, running_stack
from examples.servers.starting import MissingServerError, listens
from tests.servers import missing_server
from tidemill.cli.settings import read_settings
from tidemill.eventlog.opening import open_log
from tidemill.settings import KafkaLogSettings, SharedSettings
from tidemill.storage import schema
from tidemill.storage.database import Database

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_servers_take_tidemill_and_end_with_the_demo(tmp_path: Path) -> None:
    try:
        require_servers(PRODUCTION)
    except MissingServerError as error:
        missing_server(str(error))
    folder = tmp_path / "demo"
    with running_stack(PRODUCTION, folder) as servers:
        path = write_settings(folder, TINY, seed=1, servers=servers)
        shared = read_settings(path).shared
        _use(shared)
    # MLflow, which nothing waited for, did answer, or the end had raised.
    for port in _ports(shared):
        assert not listens(port)
    assert (folder / "mlflow.db").exists(), "`make mlflow` looks here"
    logs = {log.name for log in (folder / "logs").iterdir()}
    assert logs == {"kafka.log", "mlflow.log", "postgres.log"}


def _use(shared: SharedSettings) -> None:
    log = open_log(shared)
    log.create_topics(("one",))
    assert len(log.bounds("one")) == 4
    log.close()
    database = Database(shared.database_url)
    assert schema.upgrade(database).is_current
    database.close()


def _ports(shared: SharedSettings) -> list[int]:
    assert isinstance(shared.log, KafkaLogSettings)
    addresses = (shared.log.bootstrap_servers, shared.tracking_uri)
    return [int(address.rpartition(":")[2]) for address in addresses]
