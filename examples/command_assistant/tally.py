"""What the users saw, counted by the second; the live view, the plot and the summary read it."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime


@dataclass(slots=True)
class Second:
    """One second of traffic."""

    requests: int = 0
    liked: int = 0
    """Answers right by their user's true taste."""
    votes: int = 0
    """First votes of honest users."""
    accepted: int = 0
    """Of these, how many said yes: noise included."""
    by_version: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Tally:
    """All counts since the users began."""

    clock: Callable[[], float] = time.monotonic
    requests: int = 0
    failed_requests: int = 0
    feedback_sent: int = 0
    """Acknowledged by Tidemill, repeats and the malicious user's included."""
    feedback_refused: int = 0
    failures: list[str] = field(default_factory=list)
    """Why requests failed, the first few."""
    seconds: dict[int, Second] = field(default_factory=lambda: defaultdict(Second))
    started_at: float = 0.0
    began: datetime = field(default_factory=lambda: datetime.now(UTC))

    def start(self) -> None:
        """Begin to count: second 0 is now."""
        self.started_at, self.began = self.clock(), datetime.now(UTC)

    @property
    def now(self) -> int:
        """The second that runs."""
        return int(self.clock() - self.started_at)

    def answered(self, version: str, *, is_liked: bool) -> None:
        """Count an answer."""
        second = self.seconds[self.now]
        self.requests += 1
        second.requests += 1
        second.liked += is_liked
        second.by_version[version] += 1

    def failed(self, why: str) -> None:
        """Count a request that got no answer."""
        self.requests += 1
        self.failed_requests += 1
        if len(self.failures) < 10:
            self.failures.append(why)

    def voted(self, *, is_accepted: bool) -> None:
        """Count the first vote of an honest user."""
        second = self.seconds[self.now]
        second.votes += 1
        second.accepted += is_accepted

    def told(self, status: int) -> None:
        """Count a feedback by the status it got."""
        if status in (200, 202):
            self.feedback_sent += 1
        else:
            self.feedback_refused += 1

    def acceptance(self, last_s: int = 10) -> float | None:
        """Return the share of votes that said yes over the last seconds; None without votes."""
        recent = self._recent(last_s)
        votes = sum(second.votes for second in recent)
        return sum(second.accepted for second in recent) / votes if votes else None

    def rate(self, last_s: int = 5) -> float:
        """Return answers a second over the last seconds."""
        return sum(second.requests for second in self._recent(last_s)) / last_s

    def curve(self, name: str, *, width_s: int = 5) -> list[tuple[float, float]]:
        """Return (second, share) of `accepted` among votes or `liked` among requests."""
        total = "votes" if name == "accepted" else "requests"
        points = []
        for start in range(0, self.now + 1, width_s):
            span = [self.seconds[at] for at in range(start, start + width_s) if at in self.seconds]
            count = sum(getattr(second, total) for second in span)
            if count:
                share = sum(getattr(second, name) for second in span) / count
                points.append((start + width_s / 2, share))
        return points

    def _recent(self, last_s: int) -> list[Second]:
        now = self.now
        return [self.seconds[at] for at in range(now - last_s, now) if at in self.seconds]
