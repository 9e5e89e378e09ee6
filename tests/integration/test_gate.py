"""The gate on real rows: what it does with candidates, canaries and champions."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from sqlalchemy import delete

from gating.canary import find_length_cap
from gating.context import GateContext
from gating.decisions import Missing
from gating.gate import Gate
from gating.settings import (
    CanarySettings,
    ChampionSettings,
    GatingSettings,
    GuardrailSettings,
    OfflineSettings,
)
from gating.suite import NO_SUITE, SuiteResult
from gating.worker import run_pass
from tests.live_traffic import LiveTraffic
from tidemill.contracts.events import Arm
from tidemill.contracts.ids import PolicyVersion
from tidemill.contracts.lifecycle import Move, PolicyStatus, Verdict
from tidemill.errors import ProbeFailedError, StorageError
from tidemill.registry import PolicyRecord, PolicyRegistry, Why
from tidemill.storage.database import Database
from tidemill.storage.tables import ExperienceRow, InteractionRow

SETTINGS = GatingSettings(
    canary=CanarySettings(share=0.5, alpha=0.1, min_pairs=30, max_duration_s=3000.0, max_lift=0.9),
    champion=ChampionSettings(min_pairs=20),
)


@dataclass
class Scene:
    """A gate with a fake suite, and traffic at hand."""

    database: Database
    settings: GatingSettings = SETTINGS
    scores: dict[str, float] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.traffic = LiveTraffic(self.database)
        self.registry = PolicyRegistry(
            self.database, model="tide", tenant="default", now=self.traffic.clock
        )
        self.gate = self.restarted()

    def restarted(self) -> Gate:
        context = GateContext(self.registry, self.settings, now=self.traffic.clock)
        return Gate(context, self.measure)

    def measure(self, version: str) -> SuiteResult | Missing:
        if version in self.broken:
            raise ProbeFailedError(f"{version} computes something else")
        if version not in self.scores:
            return Missing(NO_SUITE)
        return SuiteResult(
            suite={},
            num_tasks=200,
            score=self.scores[version],
            malformed_rate=0.0,
            mean_tokens=20.0,
        )

    def publish(self, score: float | None = 0.8, *, learner: str = "tide") -> str:
        number = self.registry.next_number()
        digest = f"{number:012x}" + "0" * 52
        version = str(PolicyVersion.of(number, digest))
        self.registry.register(
            PolicyRecord(
                version=version,
                digest=digest,
                base_digest="b" * 64,
                provenance={"origin": "live", "learner": learner},
            )
        )
        if score is not None:
            self.scores[version] = score
        return version

    def compare(self, champion: float, challenger: float, count: int, seed: int = 0) -> None:
        """Serve both arms of the canary, with looks in between as in life."""
        chance = random.Random(seed)
        traffic = self.registry.traffic()
        assert traffic.champion is not None
        assert traffic.challenger is not None
        for _ in range(count // 10):
            for version, arm, rate in (
                (traffic.champion, Arm.CHAMPION, champion),
                (traffic.challenger, Arm.CHALLENGER, challenger),
            ):
                rewards = [float(chance.random() < rate) for _ in range(10)]
                self.traffic.serve(version, arm, rewards)
            self.gate.run_once()
            if self.registry.challenger() is None:
                return

    def status(self, version: str) -> PolicyStatus:
        return self.registry.get(version).status


@pytest.fixture
def scene(any_database: Database) -> Iterator[Scene]:
    return Scene(any_database)  # type: ignore[return-value]


def force(scene: Scene, version: str) -> None:
    scene.registry.promote(version, why=Why(reason="we know", actor="operator"))
    # What is served next is served after the promotion.
    scene.traffic.pass_time(100)


def crown(scene: Scene) -> str:
    first = scene.publish()
    scene.gate.run_once()
    assert scene.status(first) is PolicyStatus.CHAMPION
    return first


def test_the_first_that_passes_becomes_champion_at_once(scene: Scene) -> None:
    poor = scene.publish(0.3)
    scene.gate.run_once()
    assert scene.status(poor) is PolicyStatus.REJECTED
    first = crown(scene)
    decision = scene.registry.decisions(first)[0].run
    assert (decision.stage, decision.verdict) == ("offline", Verdict.PROMOTE)
    assert decision.evidence["score"] == 0.8
    assert decision.evidence["threshold"] == 0.6


def test_a_better_challenger_is_promoted_with_its_evidence(scene: Scene) -> None:
    first, second = crown(scene), scene.publish()
    scene.gate.run_once()
    assert scene.status(second) is PolicyStatus.CHALLENGER
    assert scene.registry.traffic().challenger_share == 0.5
    scene.compare(0.4, 0.7, 300)
    assert scene.status(second) is PolicyStatus.CHAMPION
    assert scene.status(first) is PolicyStatus.RETIRED
    evidence = scene.registry.decisions(second)[-1].run.evidence
    comparison = evidence["comparison"]
    assert comparison["num_pairs"] >= 30
    assert comparison["lift"] > 0
    assert evidence["rules"]["alpha"] == scene.registry.canaries()[0].alpha
    assert scene.registry.canaries()[0].log_e_value == comparison["better"]["max_log_e_value"]


def test_a_worse_challenger_dies_early(scene: Scene) -> None:
    first, bad = crown(scene), scene.publish()
    scene.gate.run_once()
    scene.compare(0.7, 0.1, 300)
    assert scene.status(bad) is PolicyStatus.REJECTED
    assert scene.registry.traffic().champion == first
    assert scene.registry.transitions(bad)[-1].move is Move.REJECT
    assert scene.registry.decisions(bad)[-1].run.evidence["comparison"]["num_pairs"] <= 60


def test_malformed_answers_end_a_canary(scene: Scene) -> None:
    first, bad = crown(scene), scene.publish()
    scene.gate.run_once()
    scene.traffic.serve(bad, Arm.CHALLENGER, [1.0])
    scene.traffic.serve(first, Arm.CHAMPION, [None] * 60)
    scene.traffic.serve(bad, Arm.CHALLENGER, [None] * 60, malformed=True)
    scene.gate.run_once()
    assert scene.status(bad) is PolicyStatus.REJECTED
    assert "malformed_rate is broken" in scene.registry.transitions(bad)[-1].reason


def test_silence_and_pinned_traffic_hold_and_time_ends_it_without_blame(scene: Scene) -> None:
    first, second = crown(scene), scene.publish()
    scene.gate.run_once()
    for version, arm in ((second, Arm.CHALLENGER), (first, Arm.CHAMPION)):
        scene.traffic.serve(version, arm, [None] * 100)
    scene.traffic.serve(second, Arm.PINNED, [1.0] * 300)
    scene.gate.run_once()
    assert scene.status(second) is PolicyStatus.CHALLENGER
    hold = scene.registry.decisions(second)[-1].run
    assert hold.verdict == Verdict.HOLD
    assert "0 labelled pairs" in hold.reasons[0]
    scene.traffic.pass_time(4000)
    scene.gate.run_once()
    assert scene.registry.transitions(second)[-1].move is Move.SUPERSEDE
    assert scene.registry.canaries()[0].verdict is Verdict.HOLD


def test_only_what_has_settled_before_the_oldest_open_interaction_counts(scene: Scene) -> None:
    first, second = crown(scene), scene.publish()
    scene.gate.run_once()
    scene.traffic.serve(second, Arm.CHALLENGER, [1.0] * 5)
    scene.traffic.serve(first, Arm.CHAMPION, [0.0] * 20)
    open_one = scene.traffic.serve(second, Arm.CHALLENGER, [1.0])[0]
    scene.traffic.serve(second, Arm.CHALLENGER, [1.0] * 100)
    with scene.database.transaction() as session:
        row = session.get(InteractionRow, (open_one, "default"))
        assert row is not None
        row.state = "open"
    scene.gate.run_once()
    comparison = scene.registry.decisions(second)[-1].run.evidence["comparison"]
    # The very first marks when the canary began to serve.
    assert comparison["challenger"]["num_labelled"] == 4
    assert comparison["champion"]["num_labelled"] == 20


def test_a_candidate_waits_while_a_canary_runs_and_the_newest_goes_next(scene: Scene) -> None:
    crown(scene)
    second = scene.publish()
    scene.gate.run_once()
    third, fourth, other = scene.publish(), scene.publish(), scene.publish(0.1, learner="drill")
    scene.gate.run_once()
    assert len(scene.registry.candidates()) == 3
    scene.compare(0.7, 0.1, 300)
    assert scene.status(second) is PolicyStatus.REJECTED
    for _ in range(3):
        scene.gate.run_once()
    assert scene.status(fourth) is PolicyStatus.CHALLENGER
    assert scene.registry.transitions(third)[-1].move is Move.SUPERSEDE
    assert scene.status(other) is PolicyStatus.CANDIDATE


def test_a_forced_champion_that_does_harm_is_rolled_back(scene: Scene) -> None:
    first = crown(scene)
    scene.traffic.serve(first, Arm.CHAMPION, [1.0, 1.0, 0.0] * 40)
    bad, waiting = scene.publish(0.1), scene.publish()
    force(scene, bad)
    lines = scene.gate.run_once()
    assert lines[-1] == "candidates wait until the champion has shown itself"
    assert scene.status(waiting) is PolicyStatus.CANDIDATE
    for _ in range(10):
        scene.traffic.serve(bad, Arm.CHAMPION, [0.0] * 5)
        scene.gate.run_once()
        if scene.status(bad) is PolicyStatus.RETIRED:
            break
    assert scene.registry.traffic().champion == first
    assert scene.registry.transitions(bad)[-1].move is Move.ROLL_BACK
    run = scene.registry.decisions(bad)[-1].run
    assert (run.stage, run.verdict) == ("champion", Verdict.ROLL_BACK)
    assert run.evidence["comparison"]["num_pairs"] <= 40
    # The restored champion is trusted: the waiting candidate goes on.
    assert scene.status(waiting) is PolicyStatus.CHALLENGER


def test_a_good_forced_champion_stays_and_lets_the_next_canary_begin(scene: Scene) -> None:
    first = crown(scene)
    scene.traffic.serve(first, Arm.CHAMPION, [1.0, 0.0] * 40)
    forced, waiting = scene.publish(), scene.publish()
    force(scene, forced)
    scene.traffic.serve(forced, Arm.CHAMPION, [1.0, 0.0] * 15)
    scene.gate.run_once()
    assert scene.registry.traffic().champion == forced
    assert scene.status(waiting) is PolicyStatus.CHALLENGER


def test_a_watch_ends(scene: Scene) -> None:
    first = crown(scene)
    scene.traffic.serve(first, Arm.CHAMPION, [1.0] * 40)
    forced = scene.publish()
    force(scene, forced)
    scene.traffic.pass_time(100_000)
    scene.traffic.serve(forced, Arm.CHAMPION, [0.0] * 40)
    assert scene.gate.run_once() == []
    assert scene.registry.traffic().champion == forced


def test_a_damaged_snapshot_is_rejected_and_a_missing_suite_holds(scene: Scene) -> None:
    damaged, unmeasured = scene.publish(), scene.publish(None, learner="other")
    scene.broken.add(damaged)
    scene.gate.run_once()
    assert scene.status(damaged) is PolicyStatus.REJECTED
    scene.gate.run_once()
    scene.gate.run_once()
    assert scene.status(unmeasured) is PolicyStatus.CANDIDATE
    (hold,) = scene.registry.decisions(unmeasured)
    assert hold.run.verdict == Verdict.HOLD
    assert hold.run.reasons == (NO_SUITE,)


def test_a_champion_that_cannot_be_measured_holds_the_candidate(scene: Scene) -> None:
    first = crown(scene)
    second = scene.publish()
    scene.gate = scene.restarted()
    scene.broken.add(first)
    scene.gate.run_once()
    assert scene.status(second) is PolicyStatus.CANDIDATE
    assert "cannot be measured" in scene.registry.decisions(second)[0].run.reasons[0]


def test_without_a_suite_only_an_explicit_setting_lets_versions_pass(
    any_database: Database,
) -> None:
    settings = SETTINGS.model_copy(update={"offline": OfflineSettings(allow_without_suite=True)})
    scene = Scene(any_database, settings)
    first = scene.publish(None)
    scene.gate.run_once()
    assert scene.status(first) is PolicyStatus.CHAMPION


def test_holds_are_stored_once_in_a_while_not_at_every_look(scene: Scene) -> None:
    first, second = crown(scene), scene.publish()
    scene.gate.run_once()
    for _ in range(5):
        scene.traffic.serve(second, Arm.CHALLENGER, [1.0])
        scene.traffic.serve(first, Arm.CHAMPION, [1.0])
        scene.gate.run_once()
    stages = [stored.run.stage for stored in scene.registry.decisions(second)]
    assert stages == ["offline", "canary"]
    scene.traffic.pass_time(700)
    scene.gate.run_once()
    assert len(scene.registry.decisions(second)) == 3


def test_a_restarted_gate_goes_on_where_it_was(scene: Scene) -> None:
    crown(scene)
    second = scene.publish()
    scene.gate.run_once()
    scene.compare(0.4, 0.7, 20)
    scene.gate = scene.restarted()
    scene.compare(0.4, 0.7, 300, seed=1)
    assert scene.status(second) is PolicyStatus.CHAMPION


def lose_experiences(scene: Scene) -> None:
    with scene.database.transaction() as session:
        session.execute(delete(ExperienceRow))


def test_labels_whose_rewards_are_gone_hold(scene: Scene) -> None:
    first, second = crown(scene), scene.publish()
    scene.gate.run_once()
    scene.traffic.serve(second, Arm.CHALLENGER, [1.0] * 200)
    scene.traffic.serve(first, Arm.CHAMPION, [0.0] * 200)
    lose_experiences(scene)
    (line,) = scene.gate.run_once()
    assert "the evidence cannot be used" in line
    assert scene.status(second) is PolicyStatus.CHALLENGER


def test_a_watch_without_usable_evidence_moves_nobody(scene: Scene) -> None:
    first = crown(scene)
    scene.traffic.serve(first, Arm.CHAMPION, [1.0] * 40)
    forced = scene.publish()
    force(scene, forced)
    scene.traffic.serve(forced, Arm.CHAMPION, [0.0] * 40)
    lose_experiences(scene)
    (line,) = scene.gate.run_once()
    assert "the evidence cannot be used" in line
    assert scene.registry.traffic().champion == forced


@pytest.mark.parametrize(("declared", "cap"), [(64, 64), (None, 80)])
def test_the_length_cap_is_known_before_the_canary(
    database: Database, declared: int | None, cap: int
) -> None:
    rails = GuardrailSettings(length_cap=declared)
    settings = SETTINGS.model_copy(update={"guardrails": rails})
    scene = Scene(database, settings)
    first = crown(scene)
    assert find_length_cap(scene.registry, first, settings) == cap
    unmeasured = scene.publish()
    assert find_length_cap(scene.registry, unmeasured, settings) == (declared or 1024)


def test_a_pass_survives_what_registry_and_database_refuse() -> None:
    class Refusing:
        def run_once(self) -> list[str]:
            raise StorageError("the database is away")

    class Idle:
        def run_once(self) -> list[str]:
            return []

    assert run_pass(Refusing()) == "retrying: the database is away"
    assert run_pass(Idle()) == "nothing to judge"
