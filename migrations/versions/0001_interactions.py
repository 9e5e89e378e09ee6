"""Interactions and feedback."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# SQLite numbers rows by itself only in a plain INTEGER.
_INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _create_feedback()
    _create_interactions()


def downgrade() -> None:
    op.drop_table("interactions")
    op.drop_table("feedback")


def _create_feedback() -> None:
    op.create_table(
        "feedback",
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("feedback_id", sa.String(), nullable=False),
        sa.Column("trajectory_id", sa.String(), nullable=False),
        sa.Column("interaction_id", sa.String(), nullable=True),
        sa.Column("target_id", sa.String(), nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("value", sa.JSON(), nullable=True),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("rater", sa.String(), nullable=True),
        sa.Column("body_digest", sa.String(), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("partition", _INT, nullable=False),
        sa.Column("log_offset", _INT, nullable=False),
        sa.Column("appended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "feedback_id", name="pk_feedback"),
        sa.UniqueConstraint("partition", "log_offset", name="uq_feedback_partition_log_offset"),
    )
    op.create_index("ix_feedback_rater", "feedback", ["tenant", "rater"])
    op.create_index(
        "ix_feedback_state_expires_at", "feedback", ["state", "partition", "expires_at"]
    )
    op.create_index("ix_feedback_target", "feedback", ["tenant", "target_id"])


def _create_interactions() -> None:
    op.create_table(
        "interactions",
        sa.Column("interaction_id", sa.String(), nullable=False),
        sa.Column("trajectory_id", sa.String(), nullable=False),
        sa.Column("turn", _INT, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=True),
        sa.Column("policy_version", sa.String(), nullable=False),
        sa.Column("arm", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("excluded_reason", sa.String(), nullable=True),
        sa.Column("document", sa.LargeBinary(), nullable=True),
        sa.Column("partition", _INT, nullable=False),
        sa.Column("log_offset", _INT, nullable=False),
        sa.Column("appended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closes_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("interaction_id", name="pk_interactions"),
        sa.UniqueConstraint("partition", "log_offset", name="uq_interactions_partition_log_offset"),
    )
    op.create_index(
        "ix_interactions_state_closes_at", "interactions", ["state", "partition", "closes_at"]
    )
    op.create_index("ix_interactions_subject", "interactions", ["tenant", "subject"])
    op.create_index("ix_interactions_trajectory_id", "interactions", ["trajectory_id"])
