import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.contracts.ids import (
    PolicyVersion,
    is_feedback_id,
    is_interaction_id,
    is_trajectory_id,
    new_feedback_id,
    new_interaction_id,
    new_trajectory_id,
    trajectory_of,
)


def test_an_interaction_id_names_its_trajectory() -> None:
    trajectory_id = new_trajectory_id()
    assert trajectory_of(new_interaction_id(trajectory_id)) == trajectory_id


def test_ids_of_one_kind_are_not_of_another() -> None:
    trajectory_id = new_trajectory_id()
    assert is_trajectory_id(trajectory_id)
    assert not is_interaction_id(trajectory_id)
    assert not is_trajectory_id(new_interaction_id(trajectory_id))


@pytest.mark.parametrize("text", ["", "x", "x.y", "a" * 36, "01A23886-F157-751A-8701-DE1C6F0D3EF3"])
def test_a_text_that_is_no_interaction_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an interaction id"):
        trajectory_of(text)


def test_fresh_ids_are_ordered_by_time() -> None:
    ids = [new_trajectory_id() for _ in range(100)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 100


@pytest.mark.parametrize(
    ("text", "fits"),
    [("a", True), ("order-7:thumb.up_1", True), ("a" * 128, True)]
    + [(text, False) for text in ("", "a" * 129, "two words", "new\nline", "ü", "a/b")],
)
def test_a_client_may_name_feedback_by_a_plain_word(text: str, fits: bool) -> None:
    assert is_feedback_id(text) is fits


def test_an_id_of_ours_is_one_that_a_client_may_give() -> None:
    assert is_feedback_id(new_feedback_id())


@given(st.integers(0, 10**17), st.binary(min_size=32, max_size=32))
def test_a_version_reads_back_from_its_text(number: int, digest: bytes) -> None:
    version = PolicyVersion.of(number, digest.hex())
    assert PolicyVersion.parse(str(version)) == version
    assert version.digest12 == digest.hex()[:12]


@pytest.mark.parametrize(
    "text",
    ["v1", "v01-0123456789ab", "v1-0123456789AB", "v1-0123456789ab/..", "1-0123456789ab", "v-1-0"],
)
def test_a_text_that_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a policy version"):
        PolicyVersion.parse(text)


def test_versions_are_ordered_by_number_first() -> None:
    assert PolicyVersion.parse("v9-ffffffffffff") < PolicyVersion.parse("v10-000000000000")
