import pytest

from serving.callers import read_caller
from serving.errors import ApiError
from serving.interactions import Caller
from tidemill.contracts.ids import is_trajectory_id, new_trajectory_id


def read(headers: dict[str, str], *, user: str | None = None, default: bool = False) -> Caller:
    return read_caller(
        headers,
        user=user,
        tenant="acme",
        hash_subject=lambda tenant, raw: f"hash of {tenant}/{raw}",
        consent_default=default,
    )


def test_a_caller_who_says_nothing_begins_a_trajectory() -> None:
    caller = read({})

    assert is_trajectory_id(caller.trajectory_id)
    assert (caller.subject, caller.context, caller.consent_train) == (None, None, False)
    assert caller.unit == caller.trajectory_id
    assert read({}, default=True).consent_train is True


def test_headers_are_read() -> None:
    trajectory_id = new_trajectory_id()
    caller = read(
        {
            "x-tidemill-trajectory": trajectory_id,
            "x-tidemill-subject": "ada",
            "x-tidemill-consent": "no",
            "x-tidemill-context": "lights",
        },
        user="bob",
        default=True,
    )

    assert caller.trajectory_id == trajectory_id
    assert caller.subject == caller.unit == "hash of acme/ada"
    assert caller.context == "lights"
    assert caller.consent_train is False


def test_the_body_s_user_stands_in_for_the_subject() -> None:
    assert read({}, user="bob").subject == "hash of acme/bob"
    assert read({"x-tidemill-consent": "yes"}).consent_train is True


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("x-tidemill-trajectory", "seven"),
        ("x-tidemill-consent", "maybe"),
        ("x-tidemill-context", "x" * 257),
        ("x-tidemill-subject", "x" * 513),
    ],
)
def test_values_that_cannot_be_meant_are_refused(header: str, value: str) -> None:
    with pytest.raises(ApiError, match=header) as caught:
        read({header: value})
    assert caught.value.status == 400
