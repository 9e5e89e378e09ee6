"""What became of a dead letter, who decided it and when; the tenant of a repeated delivery."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "dead_letters", sa.Column("state", sa.String(), server_default="open", nullable=False)
    )
    op.add_column("dead_letters", sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("dead_letters", sa.Column("closed_by", sa.String(), nullable=True))
    op.add_column("dead_letters", sa.Column("closed_reason", sa.String(), nullable=True))
    op.create_index("ix_dead_letters_state", "dead_letters", ["state"])
    op.add_column("duplicate_deliveries", sa.Column("tenant", sa.String(), nullable=True))
    op.create_index("ix_duplicate_deliveries_record_id", "duplicate_deliveries", ["record_id"])


def downgrade() -> None:
    op.drop_index("ix_duplicate_deliveries_record_id", "duplicate_deliveries")
    op.drop_column("duplicate_deliveries", "tenant")
    op.drop_index("ix_dead_letters_state", "dead_letters")
    for name in ("closed_reason", "closed_by", "closed_at", "state"):
        op.drop_column("dead_letters", name)
