"""One feedback, from HTTP to a changed answer, on Kafka, PostgreSQL and an MLflow server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from tests.acceptance.production import PARTS, Production
from tests.acceptance.running_up import Product, wait_until
from tests.servers import running_kafka
from tidemill.registry import PolicyRegistry
from tidemill.storage.database import Database

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    # MLflow's client warns about its own dependencies.
    pytest.mark.filterwarnings("ignore"),
]

_MOST_TURNS = 400


@pytest.fixture
def production(tmp_path: Path, postgres_url: str, mlflow_url: str) -> Iterator[Production]:
    """Real servers, and an installation on them that is not started yet."""
    # A broker of its own: here the topics have the names that production gives them.
    with running_kafka(tmp_path / "kafka") as bootstrap:
        production = Production(tmp_path, bootstrap, postgres_url, mlflow_url)
        yield production
        production.stop()


@pytest.fixture
def database(production: Production) -> Iterator[Database]:
    """The rows, seen from outside."""
    database = Database(production.database)
    yield database
    database.close()


def test_one_feedback_changes_an_answer(production: Production, database: Database) -> None:
    product = production.prepare()
    production.start()
    registry = PolicyRegistry(database, model="tide", tenant="default")
    product.wait_for_answers()
    before = _ask(product)
    first = registry.traffic().champion
    assert before["version"] == first

    product.talk()
    followed = product.interactions[0], product.feedback[0]
    # Users of the first version are of two minds, those of later ones content.
    product.judge = lambda number, version: version != first or number % 2 == 0
    for _ in range(_MOST_TURNS):
        production.require_alive()
        if registry.traffic().champion != first:
            break
        product.talk()
    champion = registry.champion()
    assert champion is not None
    assert champion.version != first, production.command("releases", "show", "v1")

    wait_until(lambda: _ask(product)["version"] == champion.version, "serving did not swap")
    after = _ask(product)
    assert after["logprobs"] != before["logprobs"]
    _require_trace(database, *followed, step=champion.step)
    assert production.command("ledger").rstrip().endswith("balanced")
    wait_until(
        lambda: _alias(production.mlflow, "champion") == champion.version, "MLflow did not follow"
    )
    assert production.stop() == dict.fromkeys(PARTS, 0)


def _ask(product: Product) -> dict[str, Any]:
    """Ask the same question with the same seed; return the version and the tokens' log-probs."""
    answer = httpx.post(
        f"{product.addresses['serving']}/v1/chat/completions",
        headers={"authorization": f"Bearer {product.keys['completions']}"},
        json={
            "model": "tide",
            "messages": [{"role": "user", "content": "the same question"}],
            "seed": 7,
            "logprobs": True,
        },
        timeout=30,
    ).raise_for_status()
    (choice,) = answer.json()["choices"]
    return {
        "version": answer.headers["x-tidemill-policy-version"],
        "logprobs": [(t["token"], t["logprob"]) for t in choice["logprobs"]["content"]],
    }


def _require_trace(database: Database, interaction: str, feedback: str, *, step: int) -> None:
    """Follow one feedback through the rows, to a step that the new champion holds."""
    query = text(
        "SELECT f.state, i.state, e.num_uses, MIN(s.step) FROM feedback f "
        "JOIN interactions i ON i.interaction_id = f.interaction_id "
        "JOIN experiences e ON e.experience_id = i.interaction_id "
        "JOIN experience_uses u ON u.experience_id = e.experience_id "
        "JOIN learner_steps s ON s.learner = u.learner AND s.serial = u.serial "
        "WHERE f.feedback_id = :feedback AND i.interaction_id = :interaction "
        "GROUP BY f.state, i.state, e.num_uses"
    )
    with database.reading() as session:
        rows = session.execute(query, {"feedback": feedback, "interaction": interaction}).all()
    ((feedback_state, interaction_state, num_uses, first_step),) = rows
    assert (feedback_state, interaction_state) == ("joined", "rewarded")
    assert num_uses >= 1
    assert first_step <= step


def _alias(uri: str, alias: str) -> str | None:
    """Return the policy version that MLflow calls by an alias."""
    import mlflow
    from mlflow.exceptions import MlflowException

    client = mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)
    try:
        version = client.get_model_version_by_alias("tide", alias)
    except MlflowException:
        return None
    return str(client.get_run(version.run_id).data.tags["tidemill.version"])
