"""Revisions of experiences by late feedback; the ledger by hour from an index."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# SQLite numbers rows by itself only in a plain INTEGER.
_INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "experience_revisions",
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("experience_id", sa.String(), nullable=False),
        sa.Column("feedback_id", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("reward", sa.Double(), nullable=False),
        sa.Column("components", sa.JSON(), nullable=False),
        sa.Column("reward_spec_hash", sa.String(), nullable=False),
        sa.Column("partition", _INT, nullable=False),
        sa.Column("log_offset", _INT, nullable=False),
        sa.Column("appended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("taken_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("taken_by", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint(
            "tenant", "experience_id", "feedback_id", name="pk_experience_revisions"
        ),
    )
    op.create_index(
        "ix_experience_revisions_taken_at", "experience_revisions", ["tenant", "taken_at"]
    )
    op.create_index("ix_interactions_hours", "interactions", ["tenant", "state", "appended_at"])
    op.create_index("ix_feedback_hours", "feedback", ["tenant", "state", "appended_at"])


def downgrade() -> None:
    op.drop_index("ix_feedback_hours", "feedback")
    op.drop_index("ix_interactions_hours", "interactions")
    op.drop_table("experience_revisions")
