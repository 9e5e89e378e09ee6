"""What dies when, and what is sent, is a function of the seed."""

import random
from collections import Counter
from itertools import islice

from tests.chaos.plan import KILL, PAUSE, RESTART, Plan, plan_faults
from tests.chaos.poison import draw_mutants
from tests.chaos.senders import name_of
from tests.chaos.traffic import FEEDBACK, INTERACTIONS, requests

PLAN = Plan(seed=3, num_feedback=1000, num_kills=50, num_restarts=5, num_poison=100)
PROCESSES = ("api-1", "api-2", "worker-1", "worker-2")
SERVERS = ("broker", "database")


def test_faults_are_spread_evenly_over_targets_and_time() -> None:
    targets = {"processes": PROCESSES, "workers": PROCESSES[2:], "servers": SERVERS}
    faults = plan_faults(PLAN, **targets)
    assert faults == plan_faults(PLAN, **targets) == sorted(faults)
    counts = Counter((fault.what, fault.target) for fault in faults)
    assert [counts[RESTART, server] for server in SERVERS] == [PLAN.num_restarts] * 2
    assert sum(counts[PAUSE, worker] for worker in PROCESSES[2:]) == PLAN.num_restarts
    kills_of = [counts[KILL, process] for process in PROCESSES]
    assert sum(kills_of) == PLAN.num_kills
    assert max(kills_of) - min(kills_of) <= 1
    kills = [fault.at for fault in faults if fault.what == KILL]
    # One in each fiftieth of the run.
    assert [int(at * PLAN.num_kills) for at in kills] == list(range(PLAN.num_kills))


def test_traffic_has_every_id_once_and_feedback_of_every_kind() -> None:
    sent = list(requests(random.Random(1), num_feedback=1000, prefix="s"))
    feedback = [one for one in sent if one.kind == FEEDBACK]
    names = Counter(name_of(body) for one in feedback for body in one.bodies)
    assert set(names) == {f"s-{number}" for number in range(1000)}
    assert max(names.values()) > 1
    assert any(one.is_in_conflict for one in feedback)
    assert any(one.is_once for one in feedback)
    served: set[str] = set()
    early, unknown = 0, set()
    for one in sent:
        if one.kind == INTERACTIONS:
            served |= {name_of(body) for body in one.bodies}
        else:
            missing = {body.get("interaction_id") for body in one.bodies} - served - {None}
            early += len(missing)
            unknown |= missing
    assert unknown - served
    assert early > len(unknown - served)


def test_mutants_are_as_many_as_asked_for_and_of_many_kinds() -> None:
    drawn = draw_mutants(100, seed_number=1)
    assert drawn == draw_mutants(100, seed_number=1)
    assert len(drawn) == 100
    payloads = [payload for _, payload in islice(drawn, 100)]
    assert max(map(len, payloads)) == 1 << 20
    assert len(set(payloads)) > 80
