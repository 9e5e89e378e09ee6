"""Two databases made of one log: do they hold the same experiences? Pure.

What cannot be the same is left out on both sides: erased interactions, those past retention, and
those that one side has not closed yet.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ingest.closing import InteractionState
from tidemill.storage.interaction_ends import InteractionEnd
from tidemill.storage.interactions import InteractionKey

Ends = Mapping[InteractionKey, InteractionEnd]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What of one partition can be compared."""

    since: datetime | None
    """Interactions appended before may have lost something to retention; None = all is kept."""
    until: int
    """The first offset that one of the sides has not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What was compared, and what differs."""

    digest: str
    """Of the experiences that the replay made."""
    live_digest: str
    """Of the experiences in the live database."""
    num_compared: int
    left_out: dict[str, int]
    """Interactions by the reason for which they were left out."""
    differences: list[str] = field(default_factory=list)
    """In words, by interaction."""


def digest_of(ends: Ends) -> str:
    """Return the SHA-256 of all experiences' content; neither order nor times of writing count."""
    digest = hashlib.sha256()
    for (_, interaction_id), end in sorted(ends.items(), key=lambda item: item[0][::-1]):
        if end.digest is not None:
            # Which is of the tenant too.
            digest.update(f"{interaction_id} {end.digest}\n".encode())
    return digest.hexdigest()


def compare_ends(live: Ends, again: Ends, kept: Mapping[int, Kept]) -> Comparison:
    """Hold what the live database has against what a replay made of the same log."""
    left_out: Counter[str] = Counter()
    compared: set[InteractionKey] = set()
    for key in live.keys() | again.keys():
        sides = [side[key] for side in (live, again) if key in side]
        why = _left_out(sides, kept)
        if why is None:
            compared.add(key)
        else:
            left_out[why] += 1
    ours = {one: end for one, end in again.items() if one in compared}
    theirs = {one: end for one, end in live.items() if one in compared}
    return Comparison(
        digest=digest_of(ours),
        live_digest=digest_of(theirs),
        num_compared=len(compared),
        left_out=dict(left_out),
        differences=[
            f"{one[1]} of {one[0]}: the database has {_say(theirs.get(one))}, "
            f"the replay {_say(ours.get(one))}"
            for one in sorted(compared)
            if _content(theirs.get(one)) != _content(ours.get(one))
        ],
    )


def _left_out(sides: list[InteractionEnd], kept: Mapping[int, Kept]) -> str | None:
    for end in sides:
        part = kept.get(end.partition)
        if end.state == InteractionState.ERASED:
            return "erased"
        if part is None or end.offset >= part.until:
            return "not read yet"
        if part.since is not None and end.appended_at < part.since:
            return "past retention"
    if any(end.state == InteractionState.OPEN for end in sides):
        return "open"
    return None


def _content(end: InteractionEnd | None) -> tuple[str, str | None, str | None] | None:
    return None if end is None else (end.state, end.excluded_reason, end.digest)


def _say(end: InteractionEnd | None) -> str:
    if end is None:
        return "nothing"
    about = end.excluded_reason or (f"experience {end.digest[:12]}" if end.digest else "nothing")
    return f"{end.state} ({about})"
