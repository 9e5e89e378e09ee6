from datetime import datetime

from ingest.comparison import Ends, Kept, compare_ends, digest_of
from tests.ingest_rig import seconds
from tidemill.storage.interaction_ends import InteractionEnd

ALL = {0: Kept(since=None, until=100)}


def end(digest: str | None = "d" * 64, state: str = "rewarded", **over: object) -> InteractionEnd:
    place: dict[str, object] = {"partition": 0, "offset": 3, "appended_at": seconds(0)} | over
    assert isinstance(place["partition"], int)
    assert isinstance(place["offset"], int)
    assert isinstance(place["appended_at"], datetime)
    reason = "silent" if state == "excluded" else None
    return InteractionEnd(
        place["partition"], place["offset"], place["appended_at"], state, reason, digest
    )


def of(**ends: InteractionEnd) -> Ends:
    """Return the ends of interactions of the tenant default, by their ids."""
    return {("default", one): end for one, end in ends.items()}


def test_equal_sides_have_one_digest_wherever_the_records_lie() -> None:
    live = of(a=end(), b=end(None, "excluded"))
    found = compare_ends(live, of(a=end(offset=9), b=end(None, "excluded")), ALL)
    assert (found.differences, found.num_compared, found.left_out) == ([], 2, {})
    assert found.digest == found.live_digest == digest_of(of(a=end()))
    assert digest_of(of(a=end("e" * 64))) != found.digest


def test_every_difference_is_said() -> None:
    live = of(a=end(), b=end(), c=end(None, "excluded"), e=end(None))
    again = of(a=end("e" * 64), b=end(None, "excluded"), d=end(), e=end())
    found = compare_ends(live, again, ALL)
    assert found.differences == [
        "a of default: the database has rewarded (experience dddddddddddd), "
        "the replay rewarded (experience eeeeeeeeeeee)",
        "b of default: the database has rewarded (experience dddddddddddd), "
        "the replay excluded (silent)",
        "c of default: the database has excluded (silent), the replay nothing",
        "d of default: the database has nothing, the replay rewarded (experience dddddddddddd)",
        "e of default: the database has rewarded (nothing), "
        "the replay rewarded (experience dddddddddddd)",
    ]
    assert found.digest != found.live_digest


def test_what_cannot_be_the_same_is_left_out_on_both_sides() -> None:
    live = of(
        erased=end(None, "erased"),
        open=end(None, "open"),
        later=end(),
        old=end(appended_at=seconds(-1)),
        elsewhere=end(partition=7),
    )
    again = of(
        erased=end(),
        open=end(),
        later=end(None, "open"),
        unread=end(offset=100),
    )
    found = compare_ends(live, again, {0: Kept(since=seconds(0), until=100)})
    assert found.num_compared == 0
    assert found.left_out == {"erased": 1, "open": 2, "past retention": 1, "not read yet": 2}
    assert found.digest == found.live_digest


def test_an_id_of_two_tenants_is_two_interactions() -> None:
    live = {("a", "one"): end("a" * 64), ("b", "one"): end("b" * 64)}
    found = compare_ends(live, dict(reversed(live.items())), ALL)
    assert (found.differences, found.num_compared) == ([], 2)
    assert found.digest == found.live_digest
    (said,) = compare_ends(live, live | {("b", "one"): end("c" * 64)}, ALL).differences
    assert said.startswith("one of b: the database has rewarded (experience bbbbbbbbbbbb)")
