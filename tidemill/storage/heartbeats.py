"""Signs of life of the parts."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from tidemill.storage.tables import HeartbeatRow


def write_heartbeat(session: Session, sign: HeartbeatRow) -> None:
    """Write a part's newest sign of life over the last."""
    session.merge(sign)


def fetch_heartbeats(session: Session) -> list[HeartbeatRow]:
    """Return the newest sign of each part, by name."""
    return list(session.scalars(select(HeartbeatRow).order_by(HeartbeatRow.part)))
