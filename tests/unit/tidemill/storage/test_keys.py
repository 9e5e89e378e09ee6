import hashlib
from datetime import timedelta

import pytest

from tests.factories import NOW
from tidemill.errors import ConfigurationError
from tidemill.storage.database import Database
from tidemill.storage.keys import (
    Scope,
    authenticate,
    create_key,
    fetch_key_events,
    fetch_keys,
    revoke_key,
)
from tidemill.storage.tables import ApiKeyRow


def make(database: Database, *scopes: str, tenant: str = "acme") -> tuple[str, str]:
    with database.transaction() as session:
        return create_key(session, tenant=tenant, scopes=scopes, label="test", now=NOW)


@pytest.mark.parametrize("tenant", ["", "t" * 129, "a\0b", "\udcff"])
def test_a_tenant_that_no_event_could_name_gets_no_key(database: Database, tenant: str) -> None:
    with pytest.raises(ConfigurationError, match="1 to 128 characters"):
        make(database, "read", tenant=tenant)
    with database.reading() as session:
        assert fetch_keys(session) == []
    make(database, "read", tenant="\U0001f600" * 128)


def test_a_key_proves_its_tenant_and_scopes(any_database: Database) -> None:
    public_id, text = make(any_database, "feedback:write", "read")
    assert text.startswith(f"tdm_{public_id}_")
    with any_database.reading() as session:
        key = authenticate(session, text)
    assert key is not None
    assert (key.public_id, key.tenant) == (public_id, "acme")
    assert key.allows(Scope.READ)
    assert not key.allows(Scope.COMPLETIONS)


def test_admin_may_do_everything(database: Database) -> None:
    _, text = make(database, "admin")
    with database.reading() as session:
        key = authenticate(session, text)
    assert key is not None
    assert all(key.allows(scope) for scope in Scope)


def test_only_a_hash_is_kept(database: Database) -> None:
    public_id, text = make(database, "read")
    with database.reading() as session:
        row = session.get_one(ApiKeyRow, public_id)
    secret = text.removeprefix(f"tdm_{public_id}_")
    assert (len(public_id), len(secret)) == (12, 43)
    assert row.secret_hash == hashlib.sha256(secret.encode()).hexdigest()
    assert secret not in f"{row.secret_hash}{row.label}"


def test_any_other_text_is_nobody(database: Database) -> None:
    public_id, text = make(database, "read")
    wrong = ["", "tdm", text[:-1], text + "x", text.replace("tdm_", "sk_", 1), f"tdm_{public_id}"]
    wrong += [f"tdm_{public_id}_", "tdm_\0bcdefghijkl_x", "tdm_aaaaaaaaaaaa_x", text + "\ud800"]
    with database.reading() as session:
        assert [authenticate(session, one) for one in wrong] == [None] * len(wrong)


def test_a_revoked_key_is_nobody_for_good(database: Database) -> None:
    public_id, text = make(database, "read")
    with database.transaction() as session:
        assert revoke_key(session, public_id, now=NOW)
    with database.transaction() as session:
        assert not revoke_key(session, public_id, now=NOW)
        assert not revoke_key(session, "unknown", now=NOW)
        assert authenticate(session, text) is None


def test_each_creation_and_revocation_is_kept(
    any_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    first, second = make(any_database, "read")[0], make(any_database, "admin", tenant="other")[0]
    for _ in range(2):
        with any_database.transaction() as session:
            revoke_key(session, first, now=NOW + timedelta(hours=1))
    with any_database.reading() as session:
        events = fetch_key_events(session)
        (only,) = fetch_key_events(session, public_id=second)
    found = [(one.public_id, one.action, one.tenant, one.scopes) for one in events]
    assert found == [
        (first, "created", "acme", ["read"]),
        (second, "created", "other", ["admin"]),
        (first, "revoked", "acme", ["read"]),
    ]
    assert {(one.actor, one.label) for one in events} == {("ann", "test")}
    assert [one.at - NOW for one in events] == [timedelta(0), timedelta(0), timedelta(hours=1)]
    assert only.public_id == second


def test_a_user_without_a_name_is_the_operator(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody() -> str:
        raise OSError("no name")

    monkeypatch.setattr("getpass.getuser", nobody)
    make(database, "read")
    with database.reading() as session:
        assert fetch_key_events(session)[0].actor == "operator"


@pytest.mark.parametrize("scopes", [(), ("everything",), ("read", "write")])
def test_scopes_must_be_known(database: Database, scopes: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match="feedback:write"):
        make(database, *scopes)


def test_keys_are_listed_by_tenant(database: Database) -> None:
    first, second = make(database, "read")[0], make(database, "read", tenant="other")[0]
    with database.reading() as session:
        assert {row.public_id for row in fetch_keys(session)} == {first, second}
        assert [row.public_id for row in fetch_keys(session, tenant="other")] == [second]
