from collections.abc import Mapping
from datetime import timedelta

from ingest.sifting import Sifted, read_batch, sift_feedback, sift_interactions
from tests.factories import NOW, make_feedback, make_interaction
from tests.ingest_rig import METRICS
from tests.memory_log import MemoryLog
from tidemill.contracts.codec import encode
from tidemill.contracts.events import FEEDBACK, INTERACTIONS
from tidemill.eventlog.base import Record
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.storage.interactions import InteractionKey

SPEC = parse_metrics(METRICS)


def sift(*records: Record, known: Mapping[InteractionKey, bytes | None] | None = None) -> Sifted:
    decoded = read_batch(
        [one for one in records if one.topic == INTERACTIONS],
        [one for one in records if one.topic == FEEDBACK],
        SPEC,
    )
    sifted = sift_interactions(decoded, known or {}, window_s=60)
    sift_feedback(decoded, {("default", "old"): "a"}, sifted, unmatched_after_s=600)
    return sifted


def test_every_record_ends_as_exactly_one_thing() -> None:
    log = MemoryLog()
    interaction = make_interaction()
    records = [
        log.put(interaction),
        log.put(interaction),
        log.put(interaction.model_copy(update={"turn": 3})),
        log.put(make_feedback(interaction, feedback_id="new", body_digest="a")),
        log.put(make_feedback(interaction, feedback_id="new", body_digest="a")),
        log.put(make_feedback(interaction, feedback_id="new", body_digest="b")),
        log.put(make_feedback(interaction, feedback_id="old", body_digest="a")),
        log.put(make_feedback(interaction, feedback_id="old", body_digest="b")),
        log.put_bytes(INTERACTIONS, "k", b"junk"),
        log.put_bytes(FEEDBACK, "k", b"junk"),
    ]
    sifted = sift(*records)
    assert (len(sifted.interactions), len(sifted.feedback)) == (1, 1)
    assert [one.record_id for one in sifted.duplicates] == [
        interaction.interaction_id,
        "new",
        "old",
    ]
    reasons = [letter.reason for letter in sifted.letters]
    assert reasons == ["undecodable"] * 2 + ["conflicting_body"] * 3
    places = {
        *((one.topic, one.partition, one.offset) for one in sifted.duplicates),
        *((one.topic, one.partition, one.offset) for one in sifted.letters),
    }
    assert len(places) == len(records) - 2


def test_times_are_counted_from_the_append_time() -> None:
    log = MemoryLog()
    interaction = make_interaction()
    sifted = sift(log.put(interaction, NOW), log.put(make_feedback(interaction), NOW))
    assert sifted.interactions[0].closes_at == NOW + timedelta(seconds=60)
    assert sifted.feedback[0].expires_at == NOW + timedelta(seconds=600)


def test_a_repeat_of_something_erased_is_a_duplicate() -> None:
    interaction = make_interaction()
    known = {("default", interaction.interaction_id): None}
    sifted = sift(MemoryLog().put(interaction), known=known)
    assert (len(sifted.duplicates), len(sifted.interactions)) == (1, 0)


def test_a_repeat_of_a_stored_one_is_told_by_its_bytes() -> None:
    interaction = make_interaction()
    known = {("default", interaction.interaction_id): encode(interaction)}
    assert len(sift(MemoryLog().put(interaction), known=known).duplicates) == 1


def test_an_id_of_one_tenant_says_nothing_of_another() -> None:
    log = MemoryLog()
    ours, theirs = (make_interaction(tenant=tenant) for tenant in ("default", "other"))
    same = {"interaction_id": ours.interaction_id, "trajectory_id": ours.trajectory_id}
    theirs = theirs.model_copy(update=same)
    records = [log.put(one) for one in (ours, theirs)]
    records += [log.put(make_feedback(one, feedback_id="f")) for one in (ours, theirs)]
    sifted = sift(*records, known={("third", ours.interaction_id): b"another body"})
    assert [one.event for one in sifted.interactions] == [ours, theirs]
    assert [one.event.tenant for one in sifted.feedback] == ["default", "other"]
    assert (sifted.duplicates, sifted.letters) == ([], [])
