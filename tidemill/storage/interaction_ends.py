"""How every interaction ended, to hold two databases against each other."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from tidemill.storage.experiences import is_of_interaction
from tidemill.storage.interactions import InteractionKey
from tidemill.storage.tables import ExperienceRow, InteractionRow


@dataclass(frozen=True, slots=True)
class InteractionEnd:
    """One interaction: where it lies in the log, and what became of it."""

    partition: int
    offset: int
    appended_at: datetime
    state: str
    excluded_reason: str | None
    digest: str | None
    """Of its experience's content; None = it has none."""


def fetch_interaction_ends(session: Session) -> dict[InteractionKey, InteractionEnd]:
    """Return the end of every interaction."""
    query = select(
        InteractionRow.tenant,
        InteractionRow.interaction_id,
        InteractionRow.partition,
        InteractionRow.log_offset,
        InteractionRow.appended_at,
        InteractionRow.state,
        InteractionRow.excluded_reason,
        ExperienceRow.digest,
    ).outerjoin(ExperienceRow, is_of_interaction())
    return {(row[0], row[1]): InteractionEnd(*row[2:]) for row in session.execute(query)}
