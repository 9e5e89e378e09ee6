"""Two processes that migrate at once wait for each other, on a real PostgreSQL."""

import os
import subprocess
import sys
import time

import psycopg
import pytest

from tidemill.storage import schema
from tidemill.storage.database import Database

pytestmark = pytest.mark.integration
_WAIT_S = 60


def test_both_wait_for_the_lock_and_both_succeed(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as holder:
        holder.execute("SELECT pg_advisory_lock(%s)", [schema._ADVISORY_LOCK])
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tidemill.cli.main", "db", "upgrade"],
                env=os.environ | {"TIDEMILL_DATABASE__URL": postgres_url},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for _ in range(2)
        ]
        try:
            wait_until_waiting(holder, len(processes))
            holder.execute("SELECT pg_advisory_unlock(%s)", [schema._ADVISORY_LOCK])
            said = [process.communicate(timeout=_WAIT_S)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
    assert [process.returncode for process in processes] == [0, 0], said
    database = Database(postgres_url)
    assert schema.fetch_state(database).is_current
    assert schema.find_differences(database) is None
    database.close()


def wait_until_waiting(connection: psycopg.Connection, number: int) -> None:
    deadline = time.monotonic() + _WAIT_S
    query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"  # noqa: E501
    while time.monotonic() < deadline:
        row = connection.execute(query).fetchone()
        if row is not None and row[0] == number:
            return
        time.sleep(0.02)
    pytest.fail(f"not {number} processes wait for the lock")
