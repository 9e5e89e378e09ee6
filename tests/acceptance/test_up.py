"""`tidemill up` with every part as a real process: killed, restarted, stopped, started again."""

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from tests.acceptance.running_up import PARTS, Product, Up, wait_until, write_project
from tidemill.eventlog.opening import open_log
from tidemill.ledger import take_ledger
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One installation for all tests here, since its parts take seconds to start."""
    folder = tmp_path_factory.mktemp("up")
    write_project(folder)
    up = Up(folder).start()
    yield up
    if up.process is not None and up.process.poll() is None:
        up.process.kill()
        up.process.wait()


@pytest.fixture
def product(up: Up) -> Product:
    """A product whose questions are answered."""
    product = up.product()
    product.wait_for_answers()
    return product


def test_nothing_acknowledged_is_lost_when_any_part_is_killed(up: Up, product: Product) -> None:
    product.start_talking()
    for part in PARTS:
        wait_until(lambda part=part: up.pid(part), f"{part} is not ready")
        before = len(product.feedback)
        up.kill(part)
        wait_until(lambda before=before: len(product.feedback) > before, "the product waits")
        assert f"{part}: was ended by SIGKILL" in up.output
    product.finish()
    _settle(up)
    _require_everything_stored(up.database, product)
    _require_declared_uses(up.database)


def test_a_second_up_on_the_same_folder_is_refused(up: Up, product: Product) -> None:
    assert product
    refused = up.command("up", "--port", "0")
    assert refused.returncode == 2
    assert "another `tidemill up`" in refused.stderr


def test_a_second_start_goes_on_where_the_first_was(up: Up, product: Product) -> None:
    product.talk()
    before = _versions(up)
    assert up.stop() == 0, up.output
    assert "stopped 5 parts" in up.output

    again = up.start().product()
    assert again.keys == product.keys
    again.wait_for_answers()
    again.talk()
    _settle(up)
    assert set(before) <= set(_versions(up))
    _require_everything_stored(up.database, product)
    _require_everything_stored(up.database, again)
    assert up.stop() == 0, up.output


def _versions(up: Up) -> list[str]:
    with up.database.reading() as session:
        return [row[0] for row in session.execute(text("SELECT version FROM policy_versions"))]


def _settle(up: Up) -> None:
    """Wait until every window is closed and nothing waits in the log; then all must balance."""
    database, log = up.database, open_log(SharedSettings(data=up.data))

    def is_settled() -> bool:
        ledger = take_ledger(database, log)
        waiting = sum(topic["waiting"] for topic in ledger.records.values())
        return not (waiting or ledger.interactions["open"] or ledger.feedback["pending"])

    try:
        wait_until(is_settled, "the ledger did not settle")
    finally:
        log.close()
        database.close()
    ledger = up.command("ledger")
    assert ledger.returncode == 0, ledger.stdout


def _require_everything_stored(database: Database, product: Product) -> None:
    with database.reading() as session:
        rows = session.execute(text("SELECT interaction_id, state FROM interactions"))
        states = {row[0]: row[1] for row in rows}
        rows = session.execute(text("SELECT feedback_id, state FROM feedback"))
        feedback = {row[0]: row[1] for row in rows}
    assert set(product.interactions) <= set(states)
    assert set(product.feedback) <= set(feedback)
    # A window may have closed while the part that should take the feedback was dead.
    assert {feedback[one] for one in product.feedback} <= {"joined", "late"}


def _require_declared_uses(database: Database) -> None:
    with database.reading() as session:
        rows = session.execute(
            text(
                "SELECT e.num_uses, COUNT(u.experience_id) FROM experiences e "
                "LEFT JOIN experience_uses u ON u.experience_id = e.experience_id "
                "GROUP BY e.experience_id, e.num_uses"
            )
        )
        uses = [(declared, counted) for declared, counted in rows]
    assert uses
    # `uses_per_experience = 2`: never more, and each use has its step.
    assert all(declared == counted <= 2 for declared, counted in uses)
    assert any(counted == 2 for _, counted in uses)
