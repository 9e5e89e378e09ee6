"""Mutated events on the log itself, as a broken or hostile producer would leave them."""

import json
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle, islice

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.contract.test_events import golden
from tests.hostile_events import mutants, with_strange_bytes
from tidemill.contracts.events import FEEDBACK, INTERACTIONS
from tidemill.contracts.ids import trajectory_of
from tidemill.errors import EventLogError
from tidemill.eventlog.base import EventLog
from tidemill.eventlog.topics import MAX_RECORD_BYTES

GOLDEN = {INTERACTIONS: golden("interaction_served_v1"), FEEDBACK: golden("feedback_received_v1")}
KEY = trajectory_of(json.loads(GOLDEN[FEEDBACK])["interaction_id"])
"""Of every mutant: what names another trajectory lies in the wrong partition."""

_CHUNK = 50
_APPEND_TIMEOUT_S = 30.0

Mutant = tuple[str, bytes]
"""Topic and payload."""


def draw_mutants(number: int, *, seed_number: int) -> list[Mutant]:
    """Return so many mutants of each kind in turns: bad values, bad bytes, cut, another version."""
    rng = random.Random(seed_number)
    kinds = [
        cycle(_with_bad_values(rng)),
        iter(_with_bad_bytes(number, seed_number)),
        _cut(rng),
        _of_other_versions(rng),
    ]
    found = [mutant for turn in zip(*kinds, strict=False) for mutant in turn]
    # They take a megabyte each.
    return _huge() + found[: max(0, number - 4)]


def _with_bad_values(rng: random.Random) -> list[Mutant]:
    found = [(topic, one) for topic, payload in GOLDEN.items() for one in mutants(payload)]
    rng.shuffle(found)
    return found


def _with_bad_bytes(number: int, seed_number: int) -> list[Mutant]:
    found: list[Mutant] = []

    @seed(seed_number)
    @settings(
        max_examples=number // 3 + 10,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(sorted(GOLDEN)), st.data())
    def keep(topic: str, data: st.DataObject) -> None:
        found.append((topic, data.draw(with_strange_bytes(GOLDEN[topic]))))

    keep()
    return found


def _cut(rng: random.Random) -> Iterator[Mutant]:
    while True:
        topic, payload = rng.choice(list(GOLDEN.items()))
        yield topic, payload[: rng.randrange(len(payload))]


def _of_other_versions(rng: random.Random) -> Iterator[Mutant]:
    while True:
        topic, payload = rng.choice(list(GOLDEN.items()))
        version = rng.choice((0, -1, 2, 99, 10**30, True, None, "1", 1.5, [1], {}))
        yield topic, json.dumps(json.loads(payload) | {"schema_version": version}).encode()


def _huge() -> list[Mutant]:
    """Return the largest records that the log takes, valid JSON and not."""
    found = []
    for topic, payload in GOLDEN.items():
        found.append((topic, payload.ljust(MAX_RECORD_BYTES)))
        found.append((topic, b"\xff" * MAX_RECORD_BYTES))
    return found


@dataclass(kw_only=True)
class Poisoner(threading.Thread):
    """Appends mutants until all are acknowledged; one that was not is appended again."""

    log: EventLog
    mutants: list[Mutant]
    allowed: Callable[[], int]
    """How many may be appended by now."""
    stop: threading.Event
    num_appended: int = 0
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        """Append everything, in chunks."""
        sink = self.log.sink()
        left = iter(self.mutants)
        while (chunk := list(islice(left, _CHUNK))) and not self.stop.is_set():
            while chunk and not self.stop.is_set():
                if self.allowed() < self.num_appended + len(chunk):
                    self.stop.wait(0.1)
                    continue
                futures = [(one, sink.append(one[0], KEY, one[1])) for one in chunk]
                chunk = [
                    one
                    for one, future in futures
                    if future.exception(_APPEND_TIMEOUT_S) is not None
                ]
                self.num_appended += len(futures) - len(chunk)
        try:
            sink.close()
        except EventLogError as error:
            self.errors.append(str(error))
