from datetime import timedelta

import pytest

from tests.factories import NOW, make_experience
from tidemill.contracts.experience import Origin
from tidemill.errors import StorageError
from tidemill.storage.database import Database
from tidemill.storage.experiences import (
    fetch_experience,
    fetch_experience_counts,
    fetch_experience_digests,
    fetch_experiences,
    insert_experience,
    insert_experiences,
)


def test_an_experience_comes_back_bit_for_bit(any_database: Database) -> None:
    experience = make_experience(
        behaviour_logprobs=(-0.1, -1e-12, -123.456789012345),
        kept_mass=(1.0, 0.25, 0.1),
        is_truncated=True,
        reward=1 / 3,
        group="g",
    )
    bare = make_experience(behaviour_logprobs=None, subject=None)
    with any_database.transaction() as session:
        insert_experience(session, experience, created_at=NOW)
        insert_experiences(session, [bare], created_at=NOW)
        insert_experiences(session, [], created_at=NOW)
    with any_database.reading() as session:
        for one in (experience, bare):
            found = fetch_experience(session, tenant="default", experience_id=one.experience_id)
            assert found == one
        unknown = {"tenant": "default", "experience_id": "unknown"}
        assert fetch_experience(session, **unknown) is None
        digests = fetch_experience_digests(session)
    assert digests == {("default", one.experience_id): one.digest for one in (experience, bare)}


def test_the_newest_come_first(database: Database) -> None:
    made = [make_experience(origin=Origin.LIVE if n % 2 else Origin.SIMULATED) for n in range(4)]
    with database.transaction() as session:
        for number, one in enumerate(made):
            insert_experience(session, one, created_at=NOW + timedelta(seconds=number))
        insert_experience(session, make_experience(tenant="other"), created_at=NOW)
    with database.reading() as session:
        newest = fetch_experiences(session, model="tide", tenant="default", limit=3)
        live = fetch_experiences(session, model="tide", tenant="default", origin=Origin.LIVE)
        counts = fetch_experience_counts(session, model="tide", tenant="default")
    assert newest == made[:0:-1]
    assert live == [made[3], made[1]]
    assert counts == {"ready": 4, "used": 0, "dropped": 0}


def test_an_id_is_stored_once(database: Database) -> None:
    experience = make_experience()
    with database.transaction() as session:
        insert_experience(session, experience, created_at=NOW)
    with pytest.raises(StorageError), database.transaction() as session:
        insert_experience(session, experience, created_at=NOW)
