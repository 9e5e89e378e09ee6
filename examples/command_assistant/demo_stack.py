"""What the demo runs on: SQLite files, or a Kafka, a PostgreSQL and an MLflow server of its own."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from examples.servers.kafka import KafkaBroker, find_kafka
from examples.servers.mlflow import MlflowServer
from examples.servers.postgres import find_postgres, running_postgres

EMBEDDED, PRODUCTION = "embedded", "production"
STACKS = (EMBEDDED, PRODUCTION)
SERVERS = "servers"
"""Where the data of Kafka and PostgreSQL lies, in the demo's folder."""

_SETTINGS = """\

[log]
kind = "kafka"
bootstrap_servers = {bootstrap}

[database]
url = {database}

[tracking]
uri = {mlflow}
"""


def require_servers(stack: str) -> None:
    """Look for what the stack needs, before anything is started or removed.

    Raises:
        MissingServerError: this machine lacks it; the message says how to get it.
    """
    if stack == PRODUCTION:
        find_kafka()
        find_postgres()


@contextmanager
def running_stack(stack: str, folder: Path) -> Iterator[str]:
    """Run the servers of a stack; yield what the settings say of them, nothing when embedded.

    Kafka and PostgreSQL answer by then. MLflow may take a minute more: the mirror waits for it, and
    its first version comes later than that. They end in order, MLflow first.

    Args:
        stack: one of `STACKS`.
        folder: the demo's; logs go to `logs` in it, MLflow's rows where `make mlflow` looks.

    Raises:
        ServerError: one is missing, did not start, or MLflow did not answer to the end.
    """
    if stack == EMBEDDED:
        yield ""
        return
    logs = folder / "logs"
    with ExitStack() as ends:
        database = ends.enter_context(
            running_postgres(folder / SERVERS / "postgres", logs / "postgres.log")
        )
        broker = KafkaBroker(find_kafka(), folder / SERVERS / "kafka", logs / "kafka.log")
        ends.callback(broker.stop)
        broker.start()
        mlflow = MlflowServer(folder, logs / "mlflow.log")
        ends.callback(mlflow.stop)
        mlflow.start()
        yield server_settings(bootstrap=broker.bootstrap, database=database.url, mlflow=mlflow.url)
        # Nothing waited for it, so nothing else would tell that its pages are empty.
        mlflow.wait_ready()


def server_settings(*, bootstrap: str, database: str, mlflow: str) -> str:
    """Return the blocks of `tidemill.toml` that name the servers."""
    # A JSON string is a TOML string too, whatever the path of a socket holds.
    return _SETTINGS.format(
        bootstrap=json.dumps(bootstrap), database=json.dumps(database), mlflow=json.dumps(mlflow)
    )
