"""Senders: threads that send until what they sent is acknowledged, and keep what was."""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import httpx

from tests.chaos.traffic import Body, Request

_STORED = ("accepted", "duplicate")
_AGAIN = (429, 503)


@dataclass
class Book:
    """What was sent and what was acknowledged, over all senders."""

    bodies: dict[str, Body] = field(default_factory=dict)
    """By id: the first; others under its id are in conflict with it, and sent once it is stored."""
    acknowledged: set[str] = field(default_factory=set)
    num_records: int = 0
    """Acknowledged with `accepted`: each is a record of the log."""
    over: set[str] = field(default_factory=set)
    """Feedback ids that are acknowledged, or that nobody sends again."""
    num_attempts: int = 0
    refusals: list[str] = field(default_factory=list)
    """Answers that nobody should get."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note_sent(self, bodies: Sequence[Body]) -> None:
        """Keep what is about to be sent."""
        with self._lock:
            self.num_attempts += 1
            for body in bodies:
                self.bodies.setdefault(name_of(body), body)

    def note_stored(self, names: Sequence[str], *, num_accepted: int) -> None:
        """Keep what was acknowledged."""
        with self._lock:
            self.acknowledged.update(names)
            self.over.update(one for one in names if not is_interaction(one))
            self.num_records += num_accepted

    def note_given_up(self, bodies: Sequence[Body]) -> None:
        """Keep what nobody sends again."""
        with self._lock:
            self.over.update(one["feedback_id"] for one in bodies)

    def refuse(self, what: str) -> None:
        """Keep an answer that nobody should get."""
        with self._lock:
            self.refusals.append(what)


def name_of(body: Body) -> str:
    """Return the id of a feedback or an interaction."""
    name: str = body.get("feedback_id") or body["interaction_id"]
    return name


def is_interaction(name: str) -> bool:
    """Tell whether an id is that of an interaction: only these hold a dot."""
    return "." in name


@dataclass(kw_only=True)
class Sender(threading.Thread):
    """Sends one request after the other, each to an API process of its choice."""

    urls: Sequence[str]
    key: str
    requests: Iterator[Request]
    book: Book
    rng: random.Random
    may_send: threading.Event
    stop: threading.Event

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        """Send everything."""
        headers = {"authorization": f"Bearer {self.key}"}
        with httpx.Client(headers=headers, timeout=10) as http:
            for request in self.requests:
                while not self.may_send.wait(0.2) and not self.stop.is_set():
                    pass
                self._deliver(http, request)

    def _deliver(self, http: httpx.Client, request: Request) -> None:
        left = list(request.bodies)
        while left and not self.stop.is_set():
            self.book.note_sent(left)
            done: set[str] = set()
            with suppress(httpx.TransportError):
                # Without an answer nothing is known of these: the same ids are sent again.
                done = self._send(http, request, left)
            left = [one for one in left if name_of(one) not in done]
            if request.is_once:
                self.book.note_given_up(left)
                return
            if left:
                time.sleep(self.rng.uniform(0.02, 0.1))

    def _send(self, http: httpx.Client, request: Request, bodies: list[Body]) -> set[str]:
        """Send once; return the ids that need not be sent again."""
        url = f"{self.rng.choice(self.urls)}/v1/{request.kind}"
        if len(bodies) == 1:
            answer = http.post(url, json=bodies[0])
            status = answer.json().get("status")
            items = [{"index": 0, "status": status, "reason": answer.text}]
            expected = (200, 202, 409) if request.is_in_conflict else (200, 202)
        else:
            answer = http.post(f"{url}:batch", json={request.kind: bodies})
            items = answer.json().get("items", [])
            expected = (207,)
        if answer.status_code in _AGAIN:
            return set()
        if answer.status_code not in expected:
            self.book.refuse(f"{answer.status_code} for {bodies[0]}: {answer.text}")
            return {name_of(one) for one in bodies}
        return self._note(request, bodies, items)

    def _note(self, request: Request, bodies: list[Body], items: list[Body]) -> set[str]:
        done = [name_of(bodies[one["index"]]) for one in items if one["status"] != "retry"]
        stored = [name_of(bodies[one["index"]]) for one in items if one["status"] in _STORED]
        num_accepted = sum(one["status"] == "accepted" for one in items)
        if not request.is_in_conflict:
            for one in items:
                if one["status"] not in (*_STORED, "retry"):
                    self.book.refuse(f"{one} for {bodies[one['index']]}")
        self.book.note_stored(stored, num_accepted=num_accepted)
        return set(done)
