"""Judges, over real HTTP: votes, outages, several workers, a kill, and the replay."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from ingest.judge_desk import JudgeDesk, Step, backoff_s
from ingest.judge_endpoint import JudgeEndpoint
from ingest.judge_pool import JudgePool
from ingest.member import Member
from ingest.replay import compare_replay, prepare_fresh, replay_log, reuse_judgements
from ingest.settings import IngestSettings, JudgeSettings
from tests.factories import make_feedback, make_interaction
from tests.ingest_rig import Rig, seconds
from tests.scripted_judge import Says, ScriptedJudge, score, scripted_judge
from tests.servers import free_port
from tidemill.contracts.events import Content, InteractionServed
from tidemill.ledger import take_ledger
from tidemill.rewards.metrics import MetricsFile
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.storage.database import Database
from tidemill.storage.judgements import fetch_judgements
from tidemill.storage.ledger import fetch_rows_side
from tidemill.storage.tables import ExperienceRevisionRow

METRICS = """
[metrics.accepted]
type = "bool"
window_s = 60

[judges.helpful]
model = "judge"
votes = 3
temperature = 1.0

[judges.helpful.items.kind]
question = "Is it kind?"
"""
SPEC = parse_metrics(METRICS)
JUDGE = JudgeSettings(timeout_s=20, wait_s=600, retry_s=1, retry_max_s=8)


def rig_on(database: Database, spec: MetricsFile = SPEC) -> Rig:
    settings = IngestSettings(close_grace_s=0, unmatched_after_s=600, judge=JUDGE)
    return Rig(database, metrics=spec, settings=settings)


def desk_of(rig: Rig, judge: ScriptedJudge, **over: float) -> JudgeDesk:
    endpoint = JudgeEndpoint(judge.url, api_key=None, timeout_s=over.pop("timeout_s", 20.0))
    return JudgeDesk(
        database=rig.database,
        metrics=rig.metrics,
        settings=JUDGE,
        ask=endpoint.ask,
        now=lambda: rig.clock,
    )


def served(
    rig: Rig, text: str = "good day", *, answered: bool = True, **over: str
) -> InteractionServed:
    """Put an interaction with feedback on the log, and close it as far as it goes."""
    content = Content(messages=({"role": "user", "content": "hello"},), completion=text)
    event = make_interaction(content=content, **over)
    rig.log.put(event, seconds(0))
    if answered:
        rig.log.put(make_feedback(event), seconds(1))
    rig.run_to(seconds(61))
    return event


def served_now(rig: Rig, *texts: str) -> list[InteractionServed]:
    """Leave interactions to judges whose threads live by the real clock."""
    contents = [Content(messages=(), completion=text) for text in texts]
    events = [make_interaction(content=content) for content in contents]
    for event in events:
        rig.log.put(event, seconds(0))
        rig.log.put(make_feedback(event), seconds(1))
    rig.read()
    rig.close_at(max(seconds(61), datetime.now(UTC)))
    return events


def steps(desk: JudgeDesk) -> list[Step]:
    """Work until there is nothing to do."""
    done = []
    while (step := desk.step()) is not Step.IDLE:
        done.append(step)
    return done


def test_an_interaction_waits_for_the_votes_and_is_then_rewarded(any_database: Database) -> None:
    rig = rig_on(any_database)
    with scripted_judge(score(2), score(9), score(4)) as judge:
        event = served(rig)
        assert rig.interaction(event.interaction_id).state == "open"
        assert rig.close_at(seconds(62)) == 0
        assert judge.requests == []  # neither reading nor closing asks anybody
        assert steps(desk_of(rig, judge)) == [Step.DONE] * 3
    rig.close_at(seconds(63))
    experience = rig.experience(event.interaction_id)
    assert experience is not None
    # median(0.2, 0.9, 0.4) = 0.4; (1 + 0.4) / 2
    assert experience.components == {"accepted": 1.0, "helpful": 0.4}
    assert experience.reward == pytest.approx(0.7)
    assert take_ledger(any_database, rig.log, group="ingest").is_balanced


def test_nobody_is_asked_about_what_has_no_reward_anyway(database: Database) -> None:
    rig = rig_on(database)
    silent = served(rig, answered=False)
    refused = make_interaction(consent_train=False)
    rig.log.put(refused, seconds(0))
    rig.run_to(seconds(70))
    with scripted_judge() as judge:
        assert steps(desk_of(rig, judge)) == []
    reasons = [rig.interaction(one.interaction_id).excluded_reason for one in (silent, refused)]
    assert reasons == ["silent", "no_consent"]


def test_a_tenant_does_not_wait_for_the_judge_of_another(any_database: Database) -> None:
    rig = rig_on(any_database)
    ours = served(rig)
    theirs = served(rig, interaction_id=ours.interaction_id, tenant="other")

    def states() -> list[str]:
        return [rig.interaction(one.interaction_id, one.tenant).state for one in (ours, theirs)]

    with scripted_judge(*[score(2)] * 3, *[score(9)] * 3) as judge:
        desk = desk_of(rig, judge)
        assert [desk.step() for _ in range(3)] == [Step.DONE] * 3
        rig.close_at(seconds(63))
        assert sorted(states()) == ["open", "rewarded"]
        assert steps(desk) == [Step.DONE] * 3
    rig.close_at(seconds(64))
    assert states() == ["rewarded"] * 2
    both = [rig.experience(one.interaction_id, one.tenant) for one in (ours, theirs)]
    assert sorted(one.components["helpful"] for one in both if one) == [0.2, 0.9]


def test_failures_are_put_off_and_never_a_zero(any_database: Database) -> None:
    rig = rig_on(any_database)
    answers = (Says(status=500), Says("I like it"), score(10), Says(status=429), score(10))
    with scripted_judge(*answers) as judge:
        judge.usual = score(10)
        event, desk = served(rig), desk_of(rig, judge)
        assert (desk.step(), desk.step()) == (Step.FAILED, Step.IDLE)
        rig.clock += timedelta(seconds=1)
        assert (desk.step(), desk.step()) == (Step.FAILED, Step.IDLE)
        rig.clock += timedelta(seconds=1)
        assert desk.step() is Step.IDLE  # twice as long after the second failure
        rig.clock += timedelta(seconds=1)
        assert steps(desk) == [Step.DONE, Step.FAILED]
        rig.clock += timedelta(seconds=1)  # a vote in between: the wait begins anew
        assert steps(desk) == [Step.DONE, Step.DONE]
        assert desk.counters["judge_failures"] == 3
    rig.close_at(rig.clock)
    experience = rig.experience(event.interaction_id)
    assert experience is not None
    assert experience.components["helpful"] == 1.0


def test_words_of_a_judge_are_put_off_without_being_repeated(any_database: Database) -> None:
    rig = rig_on(any_database)
    with scripted_judge(Says('{"score": 1, "\\u0000 a secret of the user": 1}')) as judge:
        event, desk = served(rig), desk_of(rig, judge)
        assert steps(desk) == [Step.FAILED]
    with any_database.reading() as session:
        (row,) = fetch_judgements(session, [event.interaction_id]).values()
    # Put off at once, and not when the claim of a worker that failed has run out.
    assert (row.claim, row.num_failures) == (None, 1)
    assert row.detail == "no score: a field beside score and reason"


def test_an_outage_ends_as_judge_failed_after_the_declared_time(any_database: Database) -> None:
    rig = rig_on(any_database)
    away = ScriptedJudge(port=free_port())
    event, desk = served(rig), desk_of(rig, away)
    wanted_at = rig.clock
    while rig.clock < wanted_at + timedelta(seconds=600):
        assert steps(desk) in ([], [Step.FAILED])
        assert rig.close_at(rig.clock) == 0
        rig.clock += timedelta(seconds=4)
    assert steps(desk) == []
    assert desk.counters["judge_gave_up"] == 1
    assert rig.close_at(rig.clock) == 1
    row = rig.interaction(event.interaction_id)
    assert (row.state, row.excluded_reason) == ("excluded", "judge_failed")
    assert rig.experience(event.interaction_id) is None
    with any_database.reading() as session:
        assert fetch_rows_side(session, group="ingest").excluded == {"judge_failed": 1}
    assert take_ledger(any_database, rig.log, group="ingest").is_balanced


def test_equal_content_is_judged_once(any_database: Database) -> None:
    rig = rig_on(any_database)
    with scripted_judge() as judge:
        first, second = served(rig), served(rig)
        desk = desk_of(rig, judge)
        steps(desk)
        third = served(rig)
        assert steps(desk) == []  # known when it was wanted
        assert judge.asked_about() == {("good day", "Is it kind?"): 3}
        assert desk.counters["judge_reused"] == 1
    rig.close_at(rig.clock)
    for event in (first, second, third):
        experience = rig.experience(event.interaction_id)
        assert experience is not None
        assert experience.components["helpful"] == 0.8


def test_a_claim_left_behind_is_taken_over_and_its_late_answer_is_not_counted(
    any_database: Database,
) -> None:
    rig = rig_on(any_database)
    goes_on = threading.Event()
    with scripted_judge(score(8), Says('{"score": 0}', waits=goes_on)) as judge:
        event = served(rig)
        dead = desk_of(rig, judge)
        dead.step()
        judge.asked.clear()
        stuck = threading.Thread(target=dead.step)
        stuck.start()
        assert judge.asked.wait(20)
        alive = desk_of(rig, judge)
        assert alive.step() is Step.IDLE  # somebody asks already
        rig.clock += timedelta(seconds=5 * JUDGE.timeout_s)
        assert steps(alive) == [Step.DONE, Step.DONE]
        goes_on.set()
        stuck.join(20)
        assert len(judge.requests) == 4  # the first vote was kept, only the lost one asked again
    with any_database.reading() as session:
        (row,) = fetch_judgements(session, [event.interaction_id]).values()
    assert (row.state, row.scores) == ("answered", [0.8, 0.8, 0.8])


def test_a_changed_rubric_forgets_what_nobody_wants(database: Database) -> None:
    rig = rig_on(database)
    with scripted_judge() as judge:
        event = served(rig)
        changed = parse_metrics(METRICS.replace("kind?", "short?"))
        later = rig_on(database, changed)
        later.clock = rig.clock
        desk = desk_of(later, judge)
        assert steps(desk) == [Step.DONE]
        assert judge.requests == []
        later.log = rig.log
        member = Member(database, rig.log, later.settings, changed, now=lambda: later.clock)
        member.read_once(timeout_s=0)
        member.close_once()
        steps(desk)
        member.close_once()
        assert judge.asked_about() == {("good day", "Is it short?"): 3}
    assert later.experience(event.interaction_id) is not None


def test_many_threads_of_several_workers_ask_for_each_vote_once(any_database: Database) -> None:
    rig = rig_on(any_database)
    texts = [f"answer {number}" for number in range(12)]
    served_now(rig, *texts)
    settings = JUDGE.model_copy(update={"poll_s": 0.01, "concurrency": 3})
    with scripted_judge() as judge:
        pools = [
            JudgePool(
                any_database,
                SPEC,
                settings,
                JudgeEndpoint(judge.url, api_key=None, timeout_s=20),
            )
            for _ in range(2)
        ]
        with pools[0], pools[1]:
            wait = threading.Event()
            for _ in range(2000):
                if sum(pool.counters.get("judge_votes", 0) for pool in pools) == 36:
                    break
                wait.wait(0.01)
        assert judge.asked_about() == {(text, "Is it kind?"): 3 for text in texts}
    assert rig.close_at(rig.clock) == 12


def test_what_is_asked_while_a_worker_ends_is_given_up_and_due_again(database: Database) -> None:
    rig = rig_on(database)
    events = served_now(rig, "one", "two", "three")
    settings = JUDGE.model_copy(update={"poll_s": 0.01, "concurrency": 3})
    never = threading.Event()
    with scripted_judge() as judge:
        judge.usual = Says("{}", waits=never)
        endpoint = JudgeEndpoint(judge.url, api_key=None, timeout_s=600)
        with JudgePool(database, SPEC, settings, endpoint):
            for _ in range(2000):
                if len(judge.requests) == len(events):
                    break
                never.wait(0.01)
        with database.reading() as session:
            rows = fetch_judgements(session, [one.interaction_id for one in events]).values()
        assert [(row.claim, row.num_failures) for row in rows] == [(None, 1)] * 3
        assert {row.detail for row in rows} == {"the judge is not asked any more: the worker ends"}
        never.set()


def test_a_pool_without_judges_asks_nobody(database: Database) -> None:
    with JudgePool(database, SPEC, JUDGE, None) as pool:
        assert pool.counters == {}


def test_a_replay_asks_nobody_and_gives_the_same_experiences(
    any_database: Database, tmp_path: Path
) -> None:
    rig = rig_on(any_database)
    with scripted_judge(score(1), score(5), score(6)) as judge:
        served(rig, "first")
        steps(desk_of(rig, judge))
    away = desk_of(rig, ScriptedJudge(port=free_port()))
    lost = served(rig, "second")
    away.step()
    rig.clock += timedelta(seconds=JUDGE.wait_s)
    away.step()
    rig.close_at(rig.clock)
    assert rig.interaction(lost.interaction_id).excluded_reason == "judge_failed"
    waiting = served(rig, "third")
    fresh = Database(f"sqlite:///{tmp_path / 'fresh.db'}")
    prepare_fresh(fresh)
    assert reuse_judgements(any_database, fresh) == 2
    again = replay_log(rig.log, fresh, settings=rig.settings, metrics=SPEC, verifiers={})
    compared = compare_replay(again, any_database)
    fresh.close()
    assert (compared.differences, compared.num_compared) == ([], 2)
    assert compared.left_out == {"open": 1}
    assert compared.digest == compared.live_digest
    assert again.num_experiences == 1
    assert rig.interaction(waiting.interaction_id).state == "open"


def test_late_feedback_keeps_what_the_judge_said(any_database: Database) -> None:
    rig = rig_on(any_database)
    with scripted_judge() as judge:
        while_waiting, afterwards = served(rig, "one"), served(rig, "two")
        deny = make_feedback(while_waiting, value=False)
        rig.log.put(deny, seconds(70))
        rig.read()
        steps(desk_of(rig, judge))
        rig.close_at(seconds(71))
        rig.log.put(make_feedback(afterwards, value=False), seconds(80))
        rig.read()
        num_asked = len(judge.requests)
    row = ExperienceRevisionRow
    with any_database.reading() as session:
        revised = session.execute(select(row.experience_id, row.components)).all()
    scores = {"accepted": 0.0, "helpful": 0.8}
    assert dict(revised) == {one.interaction_id: scores for one in (while_waiting, afterwards)}
    assert num_asked == 6


def test_waits_double_up_to_the_longest() -> None:
    waits = [backoff_s(number, JUDGE) for number in (0, 1, 2, 3, 4, 10_000)]
    assert waits == [1, 2, 4, 8, 8, 8]
