"""Invariant 1: a 2xx for feedback means it is durable; it is never lost, whatever dies when.

And the ledger's half of invariant 2: nothing is doubled, the sums balance, and a replay of the log
gives the same experiences. `make chaos` does the same at full size.
"""

from pathlib import Path

import pytest

from examples.servers.starting import MissingServerError
from tests.chaos.plan import Plan
from tests.chaos.run import Report, run_chaos
from tests.chaos.stacks import EMBEDDED, PRODUCTION
from tests.servers import missing_server

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.timeout(900)]

PLAN = Plan(seed=1, num_feedback=10_000, num_kills=5, num_restarts=1, num_poison=1_000)


def require_nothing_lost(report: Report, *, num_faults: int) -> None:
    assert report.problems == []
    assert report.num_faults == num_faults
    # A few are sent only once and may meet a server that is away.
    assert report.num_acknowledged > 0.95 * report.num_sent > PLAN.num_feedback
    assert report.num_poison == PLAN.num_poison
    assert report.num_records >= report.num_acknowledged + report.num_poison


def test_kills_on_the_embedded_column_lose_and_double_nothing(tmp_path: Path) -> None:
    report = run_chaos(EMBEDDED, PLAN, tmp_path)
    require_nothing_lost(report, num_faults=PLAN.num_kills + PLAN.num_restarts)


def test_kills_and_restarts_of_kafka_and_postgresql_lose_and_double_nothing(tmp_path: Path) -> None:
    try:
        report = run_chaos(PRODUCTION, PLAN, tmp_path)
    except MissingServerError as error:
        missing_server(str(error))
    require_nothing_lost(report, num_faults=PLAN.num_kills + 3 * PLAN.num_restarts)
