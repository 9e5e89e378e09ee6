"""Where a run takes place: the embedded column, or a Kafka and a PostgreSQL that it may restart."""

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import psycopg
from sqlalchemy.engine import make_url

from examples.servers.kafka import KafkaBroker, find_kafka
from examples.servers.postgres import Postgres, running_postgres
from ingest.settings import IngestSettings
from tests.chaos.traffic import METRICS
from tidemill.settings import (
    DatabaseSettings,
    KafkaLogSettings,
    SharedSettings,
    TrackingSettings,
)

EMBEDDED, PRODUCTION = "embedded", "production"
STACKS = (EMBEDDED, PRODUCTION)

_LONGEST_OUTAGE_S = 3.0

Restart = Callable[[random.Random], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What the processes of a run share."""

    shared: SharedSettings
    num_apis: int
    servers: dict[str, Restart] = field(default_factory=dict)
    """What can be restarted, by name."""


@contextmanager
def running_stack(name: str, folder: Path) -> Iterator[Stack]:
    """Run a stack whose data lies in a folder.

    Raises:
        ServerError: a server is missing or did not start.
    """
    metrics = folder / "metrics.toml"
    metrics.write_text(METRICS)
    shared = SharedSettings(
        data=folder / "data",
        metrics=metrics,
        secret="of a run that nobody attacks",
        tracking=TrackingSettings(enabled=False),
    )
    shared.data.mkdir()
    if name == EMBEDDED:
        yield Stack(shared=shared, num_apis=1)
        return
    with ExitStack() as ends:
        postgres = ends.enter_context(
            running_postgres(folder / "postgres", folder / "postgres.log")
        )
        broker = KafkaBroker(find_kafka(), folder / "kafka", folder / "kafka.log")
        ends.callback(broker.kill)
        broker.start()
        log = KafkaLogSettings(bootstrap_servers=broker.bootstrap, session_timeout_s=6)
        database = DatabaseSettings(url=_new_database(postgres))
        yield Stack(
            shared=shared.model_copy(update={"log": log, "database": database}),
            num_apis=2,
            servers={
                "broker": lambda rng: _restart_broker(broker, rng),
                "database": lambda rng: postgres.crash_and_restart(down_s=_outage_s(rng)),
            },
        )


def write_settings(stack: Stack, settings: IngestSettings, path: Path) -> None:
    """Write what the command line has to know of a run."""
    blocks = stack.shared.model_dump(mode="json", exclude_none=True)
    blocks["ingest"] = settings.model_dump(mode="json", exclude_defaults=True)
    path.write_text("".join(f"{name} = {_toml(value)}\n" for name, value in blocks.items()))


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + " }"
    # These JSON values are TOML values too.
    return json.dumps(value)


def _restart_broker(broker: KafkaBroker, rng: random.Random) -> None:
    if rng.random() < 0.5:
        broker.kill()
    else:
        broker.stop()
    time.sleep(_outage_s(rng))
    broker.start()


def _outage_s(rng: random.Random) -> float:
    return rng.uniform(0.0, _LONGEST_OUTAGE_S)


def _new_database(postgres: Postgres) -> str:
    name = f"tidemill_{uuid4().hex[:16]}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return make_url(postgres.url).set(database=name).render_as_string(hide_password=False)
