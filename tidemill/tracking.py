"""The tracking mirror: one MLflow run and one registered model version for each policy version.

SQL decides, MLflow shows: whatever changed in SQL is written there by a thread of its own, off the
decision path. When MLflow is away, it is tried again; nothing waits for it.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.registry import PolicyRecord, PolicyRegistry, Traffic
from tidemill.settings import TrackingSettings
from tidemill.storage.policies import MirroredVersion, fetch_unmirrored, mark_mirrored

_log = logging.getLogger(__name__)

_POLL_S = 2.0
_REFRESH_S = 30.0
"""Live figures of versions that serve are written anew this often."""
_MAX_BACKOFF_S = 60.0
_MAX_TAG = 5000
"""MLflow's own limit for the value of a run's tag."""
_LAST_WORD_S = 10.0
"""Longest wait for the last write when the process ends."""


@dataclass(frozen=True, slots=True)
class VersionSheet:
    """What MLflow shows of one version."""

    metrics: Mapping[str, float]
    tags: Mapping[str, str]


Describe = Callable[[PolicyRegistry, PolicyRecord], VersionSheet]


class MlflowSink:
    """Writes runs, model versions and aliases; the only place that knows MLflow's client."""

    def __init__(self, uri: str, *, experiment: str, model_name: str) -> None:
        """Connect; the import alone takes seconds, so do this in the mirror's thread."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
        # A server that is away must not hold the thread for minutes: the mirror retries itself.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        import mlflow
        from mlflow import entities
        from mlflow.exceptions import MlflowException

        for noisy in ("mlflow", "alembic"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        self._refused = MlflowException
        self._entities = entities
        self._client = mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)
        self._model_name = model_name
        self._experiment_id = self._open_experiment(experiment)
        self._aliases: dict[str, str | None] = {}

    def write(self, record: PolicyRecord, sheet: VersionSheet) -> str:
        """Write a version's run and model version over what is there; return the run's id."""
        run_id = record.tracking_run or self._find_run(record.version)
        if run_id is None:
            run = self._client.create_run(
                self._experiment_id,
                run_name=record.version,
                tags={"tidemill.version": record.version},
            )
            run_id = str(run.info.run_id)
        now_ms = int(1000 * time.time())
        self._client.log_batch(
            run_id,
            metrics=[
                self._entities.Metric(name, value, now_ms, record.revision)
                for name, value in sheet.metrics.items()
            ],
            tags=[
                self._entities.RunTag(name, text[:_MAX_TAG]) for name, text in sheet.tags.items()
            ],
        )
        self._client.set_terminated(run_id)
        self._write_model_version(record, run_id)
        return run_id

    def point(self, traffic: Traffic) -> None:
        """Let the aliases `champion` and `challenger` follow the traffic."""
        for alias in ("champion", "challenger"):
            version = getattr(traffic, alias)
            if alias in self._aliases and self._aliases[alias] == version:
                continue
            if version is None:
                self._drop_alias(alias)
            else:
                number = self._find_model_version(version)
                if number is None:
                    continue
                self._client.set_registered_model_alias(self._model_name, alias, number)
            self._aliases[alias] = version

    def _open_experiment(self, name: str) -> str:
        known = self._client.get_experiment_by_name(name)
        if known is not None:
            return str(known.experiment_id)
        return str(self._client.create_experiment(name))

    def _find_run(self, version: str) -> str | None:
        runs = self._client.search_runs(
            [self._experiment_id], f"tags.`tidemill.version` = '{version}'", max_results=1
        )
        return str(runs[0].info.run_id) if runs else None

    def _write_model_version(self, record: PolicyRecord, run_id: str) -> None:
        try:
            self._client.get_registered_model(self._model_name)
        except self._refused:
            self._client.create_registered_model(self._model_name)
        number = self._find_model_version(record.version)
        if number is None:
            made = self._client.create_model_version(
                self._model_name,
                # The weights stay in the snapshot store; MLflow only names them.
                source=f"runs:/{run_id}/{record.version}",
                run_id=run_id,
                tags={"tidemill.version": record.version, "digest": record.digest},
                description=f"policy version {record.version}",
            )
            number = str(made.version)
        self._client.set_model_version_tag(self._model_name, number, "status", str(record.status))

    def _find_model_version(self, version: str) -> str | None:
        found = self._client.search_model_versions(
            f"name = '{self._model_name}' and tags.`tidemill.version` = '{version}'"
        )
        return str(found[0].version) if found else None

    def _drop_alias(self, alias: str) -> None:
        try:
            self._client.delete_registered_model_alias(self._model_name, alias)
        except self._refused as error:
            _log.debug("no alias %s to drop: %s", alias, error)


class TrackingMirror:
    """Follows the registry in a thread; use as a context manager around the gate's loop."""

    def __init__(
        self,
        registry: PolicyRegistry,
        describe: Describe,
        *,
        uri: str,
        settings: TrackingSettings,
    ) -> None:
        self._registry = registry
        self._describe = describe
        self._uri = uri
        self._settings = settings
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)
        self._sink: MlflowSink | None = None
        self._refreshed_at = 0.0

    def __enter__(self) -> "TrackingMirror":
        """Begin, unless tracking is off."""
        if self._settings.enabled:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Write what is left, but do not wait long for it."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_LAST_WORD_S)

    def sync(self) -> int:
        """Write everything that changed; return how many versions were written.

        Raises:
            StorageError: the rows cannot be read.
            Exception: MLflow refused or is away; what was written stays, the rest is retried.
        """
        registry = self._registry
        records = self._changed()
        if self._sink is None:
            if not records:
                return 0
            name = registry.model
            if registry.tenant != "default":
                name = f"{registry.model}-{registry.tenant}"
            self._sink = MlflowSink(
                self._uri, experiment=self._settings.experiment, model_name=name
            )
        for record in records:
            run_id = self._sink.write(record, self._describe(registry, record))
            mirrored = MirroredVersion(record.version, record.revision, run_id)
            with registry.database.transaction() as session:
                mark_mirrored(session, mirrored, model=registry.model, tenant=registry.tenant)
        self._sink.point(registry.traffic())
        return len(records)

    def _changed(self) -> list[PolicyRecord]:
        registry = self._registry
        with registry.database.reading() as session:
            rows = fetch_unmirrored(session, model=registry.model, tenant=registry.tenant)
        changed = {row.version: PolicyRecord.of_row(row) for row in rows}
        if time.monotonic() - self._refreshed_at >= _REFRESH_S:
            self._refreshed_at = time.monotonic()
            serving = (registry.champion(), registry.challenger())
            changed |= {record.version: record for record in serving if record is not None}
        return list(changed.values())

    def _run(self) -> None:
        wait_s = _POLL_S
        while not self._stop.is_set():
            wait_s = _POLL_S if self._try() else min(2 * wait_s, _MAX_BACKOFF_S)
            self._stop.wait(wait_s)
        self._refreshed_at = 0.0
        self._try()

    def _try(self) -> bool:
        try:
            self.sync()
        except Exception as error:
            # Whatever MLflow does, the gate decides without it.
            _log.warning("MLflow at %s does not follow yet: %s", _shown(self._uri), error)
            return False
        return True


def _shown(uri: str) -> str:
    """Return a URI without what may be a password."""
    return uri.rpartition("@")[2]


def read_run(uri: str, run_id: str) -> dict[str, Any]:
    """Return a run's metrics and tags: {"metrics": {...}, "tags": {...}}."""
    import mlflow

    run = mlflow.MlflowClient(tracking_uri=uri).get_run(run_id)
    return {"metrics": dict(run.data.metrics), "tags": dict(run.data.tags)}
