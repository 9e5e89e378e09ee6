"""The MLflow mirror, against a real store and a real server."""

import re
import time
from pathlib import Path

import pytest

from gating.figures import describe_version
from tests.factories import NOW
from tests.live_traffic import LiveTraffic
from tidemill.contracts.events import Arm
from tidemill.registry import GateRun, PolicyRecord, PolicyRegistry, Why
from tidemill.settings import TrackingSettings
from tidemill.storage.database import Database
from tidemill.tracking import MlflowSink, TrackingMirror, read_run

# MLflow and its dependencies warn about themselves.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]

VERSIONS = ("v1-000000000001", "v2-000000000002", "v3-000000000003")
MODEL = "mirrored"
WHY = Why(reason="because", actor="test")


@pytest.fixture
def registry(database: Database) -> PolicyRegistry:
    """One champion with live figures, one challenger, one candidate that nobody judged."""
    registry = PolicyRegistry(database, model=MODEL, tenant="default")
    for number, version in enumerate(VERSIONS, 1):
        registry.register(
            PolicyRecord(
                version=version,
                digest=f"{number:012x}" + "0" * 52,
                base_digest="b" * 64,
                parent=VERSIONS[number - 2] if number > 1 else None,
                provenance={
                    "origin": "live",
                    "num_experiences": 64,
                    "metrics": {"max_staleness": 3.0, "kl_reference": 0.02},
                },
                created_at=NOW,
            )
        )
    passed = GateRun(
        stage="offline",
        verdict="promote",
        reasons=("good",),
        evidence={"score": 0.8, "malformed_rate": 0.0, "mean_tokens": 20.0},
    )
    why = Why(reason="good", actor="gate", evidence=passed)
    registry.promote(VERSIONS[0], why=why)
    registry.start_canary(VERSIONS[1], share=0.5, alpha=0.05, why=why)
    traffic = LiveTraffic(database, model=MODEL)
    traffic.serve(VERSIONS[0], Arm.CHAMPION, [1.0, 0.0] * 10)
    traffic.serve(VERSIONS[1], Arm.CHALLENGER, [1.0] * 10)
    return registry


def mirror(registry: PolicyRegistry, uri: str, experiment: str) -> TrackingMirror:
    settings = TrackingSettings(experiment=experiment)
    return TrackingMirror(registry, describe_version, uri=uri, settings=settings)


def aliases(uri: str) -> dict[str, str]:
    import mlflow

    model = mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri).get_registered_model(MODEL)
    return {alias: str(version) for alias, version in model.aliases.items()}


def check_mirrored(registry: PolicyRegistry, uri: str, experiment: str) -> None:
    following = mirror(registry, uri, experiment)
    assert following.sync() == 3
    runs = [registry.get(version).tracking_run for version in VERSIONS]
    assert None not in runs
    champion, challenger, candidate = (read_run(uri, str(run)) for run in runs)
    # Two versions that met users carry the same names; one that nobody judged has the same tags.
    assert champion["metrics"].keys() == challenger["metrics"].keys()
    for other in (challenger, candidate):
        assert champion["tags"].keys() == other["tags"].keys()
    assert {
        "offline/score",
        "live/acceptance",
        "live/acceptance_low",
        "live/acceptance_high",
        "guardrail/malformed_rate",
        "guardrail/mean_tokens",
        "events",
        "staleness",
        "kl",
    } <= champion["metrics"].keys()
    assert champion["metrics"]["live/acceptance"] == 0.5
    assert challenger["metrics"]["kl"] == 0.02
    assert challenger["tags"]["parent"] == VERSIONS[0]
    assert challenger["tags"]["verdict"] == "promote"
    assert candidate["tags"]["offline/score"] == "unknown"
    assert "offline/score" not in candidate["metrics"]
    assert set(aliases(uri)) == {"champion", "challenger"}
    registry.promote(VERSIONS[1], why=WHY)
    following.sync()
    assert aliases(uri) == {"champion": "2"}
    assert read_run(uri, str(runs[0]))["tags"]["status"] == "retired"
    # A mirror that starts anew finds its runs again.
    assert mirror(registry, uri, experiment).sync() == 1
    assert [registry.get(version).tracking_run for version in VERSIONS] == runs


@pytest.mark.integration
def test_the_mirror_follows_on_a_local_store(registry: PolicyRegistry, tmp_path: Path) -> None:
    check_mirrored(registry, f"sqlite:///{tmp_path / 'mlflow.db'}", "local")


@pytest.mark.integration
def test_the_mirror_follows_on_a_server(registry: PolicyRegistry, mlflow_url: str) -> None:
    check_mirrored(registry, mlflow_url, "served")


@pytest.mark.integration
def test_a_run_that_was_written_but_not_noted_is_found_again(
    registry: PolicyRegistry, mlflow_url: str
) -> None:
    sink = MlflowSink(mlflow_url, experiment="again", model_name="again")
    record = registry.get(VERSIONS[2])
    sheet = describe_version(registry, record)
    assert sink.write(record, sheet) == sink.write(record, sheet)


def test_an_mlflow_that_is_away_never_blocks(
    registry: PolicyRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    started = time.monotonic()
    with mirror(registry, "http://someone:secret@127.0.0.1:9", "away"):
        assert time.monotonic() - started < 1
        until = time.monotonic() + 60
        while "does not follow yet" not in caplog.text and time.monotonic() < until:
            time.sleep(0.1)
    assert re.search(r"MLflow at 127\.0\.0\.1:9 does not follow yet", caplog.text)
    assert registry.get(VERSIONS[0]).tracking_run is None


def test_tracking_may_be_off(registry: PolicyRegistry) -> None:
    off = TrackingSettings(enabled=False)
    with TrackingMirror(registry, describe_version, uri="nowhere", settings=off):
        time.sleep(0.05)
    assert registry.get(VERSIONS[0]).tracking_run is None
