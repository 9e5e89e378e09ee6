"""Identities: of trajectories, interactions, feedback and policy versions.

No identity holds a client's time. An interaction id carries its trajectory, so feedback that names
only an interaction already has its partition key.
"""

import re
from dataclasses import dataclass
from typing import Self

from uuid_utils import uuid7

VERSION_PATTERN = r"v(0|[1-9][0-9]{0,17})-([0-9a-f]{12})"
UUID_PATTERN = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
FEEDBACK_ID_PATTERN = r"[A-Za-z0-9_.:\-]{1,128}"

_VERSION = re.compile(VERSION_PATTERN)
_UUID = re.compile(UUID_PATTERN)
_INTERACTION_ID = re.compile(rf"{UUID_PATTERN}\.{UUID_PATTERN}")
_FEEDBACK_ID = re.compile(FEEDBACK_ID_PATTERN)


def new_trajectory_id() -> str:
    """Return a fresh UUIDv7."""
    return str(uuid7())


def new_interaction_id(trajectory_id: str) -> str:
    """Return `<trajectory_id>.<UUIDv7>`."""
    return f"{trajectory_id}.{uuid7()}"


def new_feedback_id() -> str:
    """Return a UUIDv7 for feedback whose client named none."""
    return str(uuid7())


def new_erasure_id() -> str:
    """Return a UUIDv7 for a request to erase."""
    return str(uuid7())


def is_trajectory_id(text: str) -> bool:
    """Tell whether the text is a UUID in canonical lower-case form."""
    return _UUID.fullmatch(text) is not None


def is_erasure_id(text: str) -> bool:
    """Tell whether the text is a UUID in canonical lower-case form."""
    return _UUID.fullmatch(text) is not None


def is_interaction_id(text: str) -> bool:
    """Tell whether the text is `<uuid>.<uuid>`."""
    return _INTERACTION_ID.fullmatch(text) is not None


def is_feedback_id(text: str) -> bool:
    """Tell whether a client may use the text as feedback id: 1 to 128 letters, digits, `_.:-`."""
    return _FEEDBACK_ID.fullmatch(text) is not None


def trajectory_of(interaction_id: str) -> str:
    """Return the trajectory that an interaction id names.

    Raises:
        ValueError: the text is no interaction id.
    """
    if not is_interaction_id(interaction_id):
        raise ValueError(f"not an interaction id: {interaction_id!r}; expected <uuid>.<uuid>")
    return interaction_id.split(".", 1)[0]


@dataclass(frozen=True, slots=True, order=True)
class PolicyVersion:
    """`v<number>-<first 12 hex of the content digest>`; numbers only grow, digests never repeat."""

    number: int
    digest12: str

    @classmethod
    def of(cls, number: int, digest: str) -> Self:
        """Build a version from its number and its whole content digest (hexadecimal)."""
        return cls.parse(f"v{number}-{digest[:12]}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a version from its text.

        Raises:
            ValueError: the text is no policy version.
        """
        match = _VERSION.fullmatch(text)
        if match is None:
            raise ValueError(f"not a policy version: {text!r}; expected v<number>-<12 hex>")
        return cls(int(match[1]), match[2])

    def __str__(self) -> str:
        """Return the stored form."""
        return f"v{self.number}-{self.digest12}"
