"""Which candidate is judged next, and which ones it makes superfluous. Pure."""

from collections.abc import Iterable, Sequence

from tidemill.registry.records import PolicyRecord


def origin_of(record: PolicyRecord) -> str:
    """Return who made a version: its learner, else its origin."""
    provenance = record.provenance
    return str(provenance.get("learner") or provenance.get("origin") or "")


def choose_candidate(
    candidates: Sequence[PolicyRecord], *, waiting: Iterable[str] = ()
) -> PolicyRecord | None:
    """Return the candidate to judge next, None without one.

    Each maker's newest candidate stands for the maker; the one that was published first goes
    first, so that a busy learner does not starve the others. `waiting` ones are left out.
    """
    held = set(waiting)
    newest: dict[str, PolicyRecord] = {}
    for record in sorted(candidates, key=lambda record: record.number):
        if record.version not in held:
            newest[origin_of(record)] = record
    return min(newest.values(), key=lambda record: record.number, default=None)


def superseded_by(chosen: PolicyRecord, candidates: Sequence[PolicyRecord]) -> list[PolicyRecord]:
    """Return the older candidates of the same maker: the chosen one holds what they learned."""
    return [
        record
        for record in candidates
        if record.number < chosen.number and origin_of(record) == origin_of(chosen)
    ]
