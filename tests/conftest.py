"""Fixtures that every test may use; each gives fresh state, only the servers last for a session."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from tests.servers import PostgresServer, running_kafka, running_mlflow, running_postgres
from tidemill.eventlog.base import EventLog
from tidemill.eventlog.embedded import EmbeddedLog
from tidemill.settings import EmbeddedLogSettings, KafkaLogSettings
from tidemill.storage.database import Database
from tidemill.storage.tables import metadata


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A SQLite file with all tables."""
    database = Database(f"sqlite:///{tmp_path / 'tidemill.db'}")
    metadata.create_all(database.engine)
    yield database
    database.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A real PostgreSQL, started when a test first needs it."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> Iterator[str]:
    """The name of a database with all tables, to copy from."""
    url = postgres_server.create_database()
    database = Database(url)
    metadata.create_all(database.engine)
    # A database with connections cannot be copied.
    database.close()
    name = make_url(url).database
    assert name is not None
    yield name
    postgres_server.drop_database(url)


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a fresh, empty PostgreSQL database."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def postgres_database(
    postgres_server: PostgresServer, postgres_template: str
) -> Iterator[Database]:
    """A fresh PostgreSQL database with all tables."""
    url = postgres_server.create_database(template=postgres_template)
    database = Database(url)
    yield database
    database.close()
    postgres_server.drop_database(url)


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.integration)],
)
def any_database(request: pytest.FixtureRequest) -> Database:
    """Both databases, one after the other, with all tables."""
    name = "database" if request.param == "sqlite" else "postgres_database"
    database: Database = request.getfixturevalue(name)
    return database


@pytest.fixture(scope="session")
def kafka_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real Kafka broker, started when a test first needs it."""
    with running_kafka(tmp_path_factory.mktemp("kafka")) as bootstrap:
        yield bootstrap


@pytest.fixture(scope="session")
def mlflow_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real MLflow server, whose start takes long; name models of your own."""
    with running_mlflow(tmp_path_factory.mktemp("mlflow")) as url:
        yield url


@pytest.fixture
def embedded_log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    """An embedded log with two partitions and no topics."""
    log = EmbeddedLog(tmp_path / "log", EmbeddedLogSettings(num_partitions=2, lease_s=1.0))
    yield log
    log.close()


@pytest.fixture
def kafka_log(kafka_bootstrap: str) -> Iterator[EventLog]:
    """A log on Kafka; topics outlive the test, so each test takes names of its own."""
    # Its client library takes a second to import.
    from tidemill.eventlog.kafka import KafkaLog

    log = KafkaLog(KafkaLogSettings(bootstrap_servers=kafka_bootstrap, num_partitions=2))
    yield log
    log.close()


@pytest.fixture(
    params=["embedded", pytest.param("kafka", marks=pytest.mark.integration)],
)
def any_log(request: pytest.FixtureRequest) -> EventLog:
    """Both logs, one after the other, with two partitions a topic."""
    log: EventLog = request.getfixturevalue(f"{request.param}_log")
    return log
