import pytest

from learner.lineage import ResetReason, find_ancestors, find_judged, is_live_data_over_stale


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        ([], None),
        ([("v3", "promote"), ("v3", "start_canary")], None),
        ([("v3", "supersede")], None),
        ([("v3", "reject")], ResetReason.REJECTED),
        ([("v9", "reject")], None),
        ([("v3", "roll_back")], ResetReason.ROLLED_BACK),
        ([("v1", "roll_back")], ResetReason.ROLLED_BACK),
        ([("v9", "roll_back"), ("v2", "restore")], None),
        ([("v1", "reject")], None),
        ([("v7", "promote")], ResetReason.SUCCEEDED),
        ([("v2", "promote")], None),
    ],
)
def test_only_verdicts_on_the_own_lineage_count(
    moves: list[tuple[str, str]], expected: ResetReason | None
) -> None:
    assert (
        find_judged(moves, own=["v3", "v4"], former=["v2", "v7"], ancestors=["v2", "v1"])
        == expected
    )


@pytest.mark.parametrize(
    ("live_steps", "expected"),
    [([10], True), ([11], False), ([10, 12], False), ([], False)],
)
def test_live_data_is_over_stale_when_even_the_newest_version_is(
    live_steps: list[int], expected: bool
) -> None:
    # Learner at 17, two uses: staleness 7 + 1 of the version at step 10.
    found = is_live_data_over_stale(live_steps, learner_step=17, num_uses=2, max_staleness=7)
    assert found is expected


def test_ancestors_go_back_to_the_base() -> None:
    parents = {"v3": "v2", "v2": "v0", "v0": None, "v5": "v3"}
    assert find_ancestors("v3", parents) == {"v3", "v2", "v0"}
    assert find_ancestors("unknown", parents) == {"unknown"}
