import pytest

from ingest.api_errors import ProblemError
from ingest.idempotency import Idempotency
from tidemill.contracts.ids import is_feedback_id
from tidemill.storage.keys import ApiKey
from tidemill.subjects import SubjectHasher

HASHER = SubjectHasher(b"0123456789abcdef")


def caller(public_id: str = "a", tenant: str = "acme") -> ApiKey:
    return ApiKey(public_id, tenant, frozenset())


def identity(header: str | None, who: ApiKey | None = None) -> str | None:
    # A new one each time, as after a restart.
    with Idempotency(HASHER).hold(header, who or caller()) as found:
        return found


def test_a_key_stands_for_one_id_for_good() -> None:
    first = identity("order-7")
    assert first is not None
    assert is_feedback_id(f"{first}.999")
    assert identity(' "order-7" ') == identity("order-7") == first
    assert "order-7" not in first
    assert identity(None) is None


def test_keys_callers_and_tenants_are_told_apart() -> None:
    found = [
        identity("k"),
        identity("K"),
        identity("k", caller("b")),
        identity("k", caller(tenant="b")),
    ]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("header", ["", '""', "a b", "\xe9", "x" * 256, "a\x7f"])
def test_what_is_no_key_is_422(header: str) -> None:
    with pytest.raises(ProblemError) as caught:
        identity(header)
    assert (caught.value.status, caught.value.field) == (422, "Idempotency-Key")


def test_a_key_is_free_again_once_its_request_is_answered() -> None:
    keys = Idempotency(HASHER)
    with keys.hold("k", caller()) as first:
        with keys.hold("other", caller()), keys.hold("k", caller("b")):
            pass
        with pytest.raises(ProblemError) as caught, keys.hold("k", caller()):
            pass
        assert caught.value.status == 409
    with pytest.raises(ZeroDivisionError), keys.hold("k", caller()):
        raise ZeroDivisionError
    with keys.hold("k", caller()) as again:
        assert again == first
