"""Interactions' documents are stored as they are: compressing each costs more than it saves."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _store("EXTERNAL")


def downgrade() -> None:
    _store("EXTENDED")


def _store(how: str) -> None:
    # SQLite never compresses.
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"ALTER TABLE interactions ALTER COLUMN document SET STORAGE {how}")
