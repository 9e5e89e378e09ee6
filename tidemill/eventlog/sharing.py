"""How a group on Kafka shares partitions out: each member keeps what it has, as far as is fair.

A share is a set of numbers: partition n of every topic goes to the same member. A partition that
changes hands is first given up and assigned in a second round, so that nobody else has to stop.

Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """What one member says that it holds."""

    member: str
    generation: int
    """The round of the group in which it was given this; -1 = none."""
    numbers: frozenset[int]


def owners_of(claims: Iterable[Claim]) -> dict[int, str]:
    """Return who holds each number; of two claims the one of the later round is true."""
    ordered = sorted(claims, key=lambda claim: (claim.generation, claim.member))
    return {number: claim.member for claim in ordered for number in sorted(claim.numbers)}


def share_out(
    owners: Mapping[int, str], members: Iterable[str], num_partitions: int
) -> dict[str, frozenset[int]]:
    """Return fair shares, which differ by at most one, with the fewest changes of hands.

    Args:
        owners: who holds what now.
        members: everybody who is to have a share.
        num_partitions: numbers go from 0 to this, exclusive.
    """
    held = {member: _held_by(member, owners, num_partitions) for member in members}
    # Who has more keeps more.
    ordered = sorted(held, key=lambda member: (-len(held[member]), member))
    least, num_larger = divmod(num_partitions, max(1, len(ordered)))
    sizes = {member: least + (rank < num_larger) for rank, member in enumerate(ordered)}
    shares = {member: held[member][: sizes[member]] for member in ordered}
    kept = {number for share in shares.values() for number in share}
    free = [number for number in range(num_partitions) if number not in kept]
    for member in ordered:
        missing = sizes[member] - len(shares[member])
        shares[member] += free[:missing]
        del free[:missing]
    return {member: frozenset(share) for member, share in shares.items()}


def first_round(
    owners: Mapping[int, str], shares: Mapping[str, frozenset[int]]
) -> dict[str, frozenset[int]]:
    """Return the shares without what another member still holds."""
    return {
        member: frozenset(number for number in share if owners.get(number, member) == member)
        for member, share in shares.items()
    }


def _held_by(member: str, owners: Mapping[int, str], num_partitions: int) -> list[int]:
    return sorted(
        number for number, owner in owners.items() if owner == member and number < num_partitions
    )
