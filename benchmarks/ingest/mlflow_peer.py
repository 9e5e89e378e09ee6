"""The feedback API beside MLflow's, by turns, on the same kind of database."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

import httpx
from sqlalchemy.engine import make_url

from benchmarks.figures import Target, judge, median, median_ratio
from benchmarks.harness import Rounds
from benchmarks.ingest.column import (
    Column,
    Servers,
    installed,
    new_database,
    serving,
    serving_api,
)
from benchmarks.ingest.load import Answered, Load, send_apart
from examples.servers.starting import free_port

_CONNECTIONS = 8
_NUM_TRACES = 200
_PRODUCT, _MLFLOW = "product", "mlflow"
_LEAST_RATIO = 20.0
# Without its job runners: ten processes that nobody here needs.
_ENVIRONMENT = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    num_rounds: int
    seconds: float
    """Of each load."""


QUICK = Size(num_rounds=1, seconds=2.0)
FULL = Size(num_rounds=5, seconds=10.0)


@dataclass(slots=True)
class MlflowPart:
    """All rounds of one column."""

    column: Column
    size: Size
    rounds: Rounds

    def measure(self, servers: Servers) -> None:
        """Measure every round that is not kept, on one installation and one MLflow."""
        numbers = range(self.size.num_rounds)
        keys = [self._key(number, who) for number in numbers for who in (_MLFLOW, _PRODUCT)]
        if all(self.rounds.has(key) for key in keys):
            return
        with ExitStack() as stack:
            installation = stack.enter_context(installed(servers))
            stack.enter_context(serving_api(installation))
            port = stack.enter_context(_serving_mlflow(servers))
            loads = {
                _MLFLOW: self._load(port).model_copy(update={"traces": _make_traces(port)}),
                _PRODUCT: self._load(installation.settings.port, installation.key),
            }
            for number in numbers:
                for who, load in loads.items():
                    run = partial(send_apart, load)
                    self.rounds.measure(self._key(number, who), Answered, run)

    def figures(self) -> dict[str, float | None]:
        """Return medians over the rounds, and the ratio."""
        name = f"{self.column}/mlflow"
        found: dict[str, float | None] = {}
        for who in (_MLFLOW, _PRODUCT):
            answers = self._answers(who)
            found[f"{name}/c{_CONNECTIONS}/{who}/per_s"] = median([one.per_s for one in answers])
            found[f"{name}/c{_CONNECTIONS}/{who}/p99_ms"] = median([one.p99_ms for one in answers])
        found[f"{name}/ratio"] = median_ratio(
            [one.per_s for one in self._answers(_PRODUCT)],
            [one.per_s for one in self._answers(_MLFLOW)],
        )
        return found

    def targets(self) -> list[Target]:
        """Hold the ratio against what the issue asks."""
        name = f"{self.column}/mlflow/ratio"
        return [judge(name, self.figures()[name], _LEAST_RATIO, side="least")]

    def _load(self, port: int, key: str = "") -> Load:
        return Load(port=port, key=key, num_connections=_CONNECTIONS, seconds=self.size.seconds)

    def _answers(self, who: str) -> list[Answered]:
        return [
            self.rounds.kept(self._key(number, who), Answered)
            for number in range(self.size.num_rounds)
        ]

    def _key(self, number: int, who: str) -> str:
        return f"{self.column}/mlflow/{who}/{self.size.seconds}s/{number}"


@contextmanager
def _serving_mlflow(servers: Servers) -> Iterator[int]:
    """Run an MLflow of one process, as the product's API is, and yield its port."""
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-", ignore_cleanup_errors=True) as name:
        folder, port = Path(name), free_port()
        arguments = ["server", "--port", str(port), "--workers", "1"]
        # A line for each request would cost it time; the product writes none either.
        arguments += ["--uvicorn-opts", "--log-level warning --no-access-log"]
        arguments += ["--backend-store-uri", _store(servers, folder)]
        arguments += ["--artifacts-destination", str(folder / "artifacts")]
        with serving("mlflow", arguments, port, health="/health", environment=_ENVIRONMENT):
            yield port


def _store(servers: Servers, folder: Path) -> str:
    url = new_database(servers.maintenance_url)
    if url is None:
        return f"sqlite:///{folder / 'mlflow.db'}"
    chosen = make_url(url).set(drivername="postgresql+psycopg")
    return chosen.render_as_string(hide_password=False)


def _make_traces(port: int) -> tuple[str, ...]:
    """Make the traces that feedback is given on."""
    names = tuple(f"tr-{uuid4().hex}" for _ in range(_NUM_TRACES))
    place = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "0"}}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
        for name in names:
            about = {
                "trace_id": name,
                "trace_location": place,
                "request_time": "2026-01-01T00:00:00.000Z",
                "execution_duration": "0.1s",
                "state": "OK",
            }
            body = {"trace": {"trace_info": about}}
            http.post("/api/3.0/mlflow/traces", json=body).raise_for_status()
    return names
