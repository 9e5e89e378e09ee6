import pytest

from tidemill.contracts.ids import PolicyVersion
from tidemill.contracts.lifecycle import Move, PolicyStatus, Verdict
from tidemill.errors import (
    IllegalTransitionError,
    NoChampionError,
    PolicyNotFoundError,
    RegistryError,
)
from tidemill.registry import GateRun, PolicyRecord, PolicyRegistry, Traffic, Why
from tidemill.storage.database import Database

WHY = Why(reason="because", actor="test")


@pytest.fixture
def registry(any_database: Database) -> PolicyRegistry:
    return PolicyRegistry(any_database, model="tide", tenant="default")


def publish(registry: PolicyRegistry, parent: str | None = None) -> str:
    number = registry.next_number()
    digest = f"{number:064x}"[::-1]
    version = str(PolicyVersion.of(number, digest))
    registry.register(
        PolicyRecord(
            version=version,
            digest=digest,
            base_digest="b" * 64,
            parent=parent,
            step=10 * number,
            snapshot=version,
            provenance={"origin": "live"},
        )
    )
    return version


def test_numbers_are_given_out_once(registry: PolicyRegistry) -> None:
    assert [registry.next_number() for _ in range(3)] == [1, 2, 3]


def test_a_registered_version_is_a_candidate_and_nobody_serves(registry: PolicyRegistry) -> None:
    version = publish(registry)
    record = registry.get(version)
    assert (record.status, record.number, record.step) == (PolicyStatus.CANDIDATE, 1, 10)
    assert registry.traffic() == Traffic()
    assert (registry.champion(), registry.challenger()) == (None, None)
    assert registry.next_number() == 2


def test_registering_again_changes_nothing(registry: PolicyRegistry) -> None:
    version = publish(registry)
    record = registry.get(version)
    assert registry.register(record) == record
    assert len(registry.list()) == 1


def test_a_version_is_never_replaced(registry: PolicyRegistry) -> None:
    version = publish(registry)
    digest = registry.get(version).digest
    with pytest.raises(RegistryError, match="never replaced"):
        registry.register(PolicyRecord(version=version, digest=digest, base_digest="c" * 64))
    with pytest.raises(RegistryError, match="does not name its digest"):
        registry.register(PolicyRecord(version=version, digest="f" * 64, base_digest="b" * 64))


def test_a_person_may_shorten_a_version(registry: PolicyRegistry) -> None:
    version = publish(registry)
    assert {registry.find(text).version for text in ("v1", "1", version)} == {version}
    for text in ("v2", "v2-000000000000", "x"):
        with pytest.raises(PolicyNotFoundError, match="releases list"):
            registry.find(text)


def test_a_canary_points_traffic_and_takes_fresh_salt(registry: PolicyRegistry) -> None:
    first, second, third = (publish(registry) for _ in range(3))
    with pytest.raises(NoChampionError):
        registry.start_canary(first, share=0.5, alpha=0.05, why=WHY)
    registry.promote(first, why=WHY)
    registry.start_canary(second, share=0.25, alpha=0.05, why=WHY)
    traffic = registry.traffic()
    assert (traffic.champion, traffic.challenger) == (first, second)
    assert traffic.challenger_share == 0.25
    with pytest.raises(RegistryError, match="end that one first"):
        registry.start_canary(third, share=0.5, alpha=0.05, why=WHY)
    registry.reject(second, why=WHY, log_e_value=-1.5)
    assert registry.traffic().challenger is None
    registry.start_canary(third, share=0.5, alpha=0.04, why=WHY)
    after = registry.traffic()
    assert after.salt != traffic.salt
    assert after.revision > traffic.revision
    ended, running = registry.canaries()
    assert (ended.number, ended.verdict, ended.log_e_value) == (1, Verdict.REJECT, -1.5)
    assert (running.number, running.alpha, running.ended_at) == (2, 0.04, None)
    assert registry.canaries(third) == [running]


@pytest.mark.parametrize(("share", "alpha"), [(0.0, 0.05), (1.0, 0.05), (0.5, 0.0), (0.5, 1.0)])
def test_a_canary_needs_sane_figures(registry: PolicyRegistry, share: float, alpha: float) -> None:
    with pytest.raises(RegistryError, match="between 0 and 1"):
        registry.start_canary("v1-000000000000", share=share, alpha=alpha, why=WHY)


def test_a_promotion_retires_the_old_champion(registry: PolicyRegistry) -> None:
    first, second = publish(registry), publish(registry)
    registry.promote(first, why=WHY)
    registry.start_canary(second, share=0.5, alpha=0.05, why=WHY)
    registry.promote(second, why=WHY, log_e_value=3.2)
    assert registry.get(first).status is PolicyStatus.RETIRED
    champion = registry.champion()
    assert champion is not None
    assert champion.version == second
    assert registry.traffic().challenger is None
    assert registry.canaries()[0].verdict is Verdict.PROMOTE
    moves = [(t.version, t.move) for t in registry.transitions()]
    assert moves == [
        (first, Move.PROMOTE),
        (second, Move.START_CANARY),
        (first, Move.RETIRE),
        (second, Move.PROMOTE),
    ]


def test_a_forced_promotion_lets_the_running_canary_go_undecided(
    registry: PolicyRegistry,
) -> None:
    first, second, third = (publish(registry) for _ in range(3))
    registry.promote(first, why=WHY)
    registry.start_canary(second, share=0.5, alpha=0.05, why=WHY)
    registry.promote(third, why=WHY)
    assert registry.get(second).status is PolicyStatus.REJECTED
    assert registry.transitions(second)[-1].move is Move.SUPERSEDE
    assert registry.canaries()[0].verdict is Verdict.HOLD
    assert registry.traffic().champion == third


def test_a_rollback_restores_the_champion_before_not_the_parent(registry: PolicyRegistry) -> None:
    first, second, third = (publish(registry) for _ in range(3))
    for version in (first, second, third):
        registry.promote(version, why=WHY)
    assert registry.roll_back(why=WHY) == second
    assert registry.get(third).status is PolicyStatus.RETIRED
    assert registry.traffic().champion == second
    assert registry.roll_back(why=WHY) == first
    with pytest.raises(RegistryError, match="first champion"):
        registry.roll_back(why=WHY)
    assert registry.traffic().champion == first


def test_a_rollback_never_returns_to_one_that_was_rolled_back(registry: PolicyRegistry) -> None:
    first, bad, good = (publish(registry) for _ in range(3))
    registry.promote(first, why=WHY)
    registry.promote(bad, why=WHY)
    registry.roll_back(why=WHY)
    registry.promote(good, why=WHY)
    assert registry.roll_back(why=WHY) == first


def test_a_rollback_withdraws_the_challenger_and_minds_who_is_champion(
    registry: PolicyRegistry,
) -> None:
    first, second, third = (publish(registry) for _ in range(3))
    with pytest.raises(NoChampionError):
        registry.roll_back(why=WHY)
    registry.promote(first, why=WHY)
    registry.promote(second, why=WHY)
    registry.start_canary(third, share=0.5, alpha=0.05, why=WHY)
    with pytest.raises(RegistryError, match="is champion by now"):
        registry.roll_back(why=WHY, expected=first)
    registry.roll_back(why=WHY, expected=second)
    assert registry.traffic() == Traffic(
        first, None, 0.0, registry.traffic().salt, registry.traffic().revision
    )
    assert registry.transitions(third)[-1].move is Move.SUPERSEDE


def test_an_illegal_move_changes_nothing(registry: PolicyRegistry) -> None:
    first, second = publish(registry), publish(registry)
    registry.promote(first, why=WHY)
    registry.reject(second, why=WHY)
    before = registry.traffic()
    with pytest.raises(IllegalTransitionError):
        registry.promote(second, why=WHY)
    with pytest.raises(IllegalTransitionError):
        registry.promote(first, why=WHY)
    with pytest.raises(PolicyNotFoundError):
        registry.promote("v9-000000000000", why=WHY)
    assert registry.traffic() == before
    assert registry.get(first).status is PolicyStatus.CHAMPION


def test_candidates_come_newest_first_and_leave_when_superseded(registry: PolicyRegistry) -> None:
    first, second = publish(registry), publish(registry)
    assert [record.version for record in registry.candidates()] == [second, first]
    registry.supersede(first, why=WHY)
    assert [record.version for record in registry.candidates()] == [second]
    assert registry.canaries() == []


def test_a_decision_is_stored_with_its_move_and_bumps_the_revision(
    registry: PolicyRegistry,
) -> None:
    version = publish(registry)
    hold = GateRun(stage="offline", verdict="hold", reasons=("no suite",))
    registry.record_decision(version, hold)
    passed = GateRun(stage="offline", verdict="promote", reasons=("good",), evidence={"score": 0.9})
    registry.promote(version, why=Why(reason="good", actor="gate", evidence=passed))
    assert [stored.run for stored in registry.decisions(version)] == [hold, passed]
    assert registry.get(version).revision == 4
    assert registry.decisions("v7-000000000000") == []


def test_models_do_not_see_each_other(any_database: Database, registry: PolicyRegistry) -> None:
    version = publish(registry)
    other = PolicyRegistry(any_database, model="other", tenant="default")
    assert other.list() == []
    with pytest.raises(PolicyNotFoundError):
        other.promote(version, why=WHY)
    assert other.next_number() == 1
