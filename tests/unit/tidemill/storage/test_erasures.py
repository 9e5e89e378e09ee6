import threading

from tests.factories import NOW
from tidemill.storage.database import Database
from tidemill.storage.erasures import QUEUED, fetch_erasure, queue_erasure


def queue(database: Database, subject: str = "s", tenant: str = "acme") -> str:
    with database.transaction() as session:
        row = queue_erasure(session, tenant=tenant, subject=subject, requested_by="key", now=NOW)
        assert (row.tenant, row.subject, row.state) == (tenant, subject, QUEUED)
        return row.request_id


def test_a_subject_is_queued_once(any_database: Database) -> None:
    first = queue(any_database)
    assert queue(any_database) == first
    others = {queue(any_database, subject="t"), queue(any_database, tenant="other")}
    assert len(others | {first}) == 3


def test_a_request_is_found_within_its_tenant(any_database: Database) -> None:
    request_id = queue(any_database)
    with any_database.reading() as session:
        found = fetch_erasure(session, tenant="acme", request_id=request_id)
        assert found is not None
        assert (found.requested_by, found.requested_at, found.finished_at) == ("key", NOW, None)
        assert fetch_erasure(session, tenant="other", request_id=request_id) is None
        assert fetch_erasure(session, tenant="acme", request_id="unknown") is None


def test_all_that_ask_at_once_get_the_same_request(any_database: Database) -> None:
    ids: list[str] = []
    threads = [threading.Thread(target=lambda: ids.append(queue(any_database))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 4
    assert len(set(ids)) == 1
