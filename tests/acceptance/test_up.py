"""`tidemill up` with every part as a real process: killed, restarted, stopped, started again."""

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from tests.acceptance.running_up import (
    PARTS,
    Product,
    Up,
    require_everything_stored,
    settle,
    wait_until,
    write_project,
)
from tidemill.storage.database import Database

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One installation for all tests here, since its parts take seconds to start."""
    folder = tmp_path_factory.mktemp("up")
    write_project(folder)
    up = Up(folder).start()
    yield up
    up.end()


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
    settle(up)
    require_everything_stored(up.database, product)
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
    settle(up)
    assert set(before) <= set(_versions(up))
    require_everything_stored(up.database, product)
    require_everything_stored(up.database, again)
    assert up.stop() == 0, up.output


def _versions(up: Up) -> list[str]:
    with up.database.reading() as session:
        return [row[0] for row in session.execute(text("SELECT version FROM policy_versions"))]


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
