"""What the log holds that is neither: dead letters, duplicates, offsets, acknowledged counts."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# SQLite numbers rows by itself only in a plain INTEGER.
_INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _create_acknowledged_counts()
    _create_dead_letters()
    _create_duplicate_deliveries()
    _create_log_offsets()


def downgrade() -> None:
    op.drop_table("log_offsets")
    op.drop_table("duplicate_deliveries")
    op.drop_table("dead_letters")
    op.drop_table("acknowledged_counts")


def _create_acknowledged_counts() -> None:
    op.create_table(
        "acknowledged_counts",
        sa.Column("process_id", sa.String(), nullable=False),
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("num_acknowledged", _INT, nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("process_id", "topic", name="pk_acknowledged_counts"),
    )


def _create_dead_letters() -> None:
    op.create_table(
        "dead_letters",
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("partition", _INT, nullable=False),
        sa.Column("log_offset", _INT, nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=True),
        sa.Column("record_id", sa.String(), nullable=True),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("appended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("owns_record", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("topic", "partition", "log_offset", name="pk_dead_letters"),
    )
    op.create_index("ix_dead_letters_reason", "dead_letters", ["reason"])
    op.create_index("ix_dead_letters_record_id", "dead_letters", ["record_id"])


def _create_duplicate_deliveries() -> None:
    op.create_table(
        "duplicate_deliveries",
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("partition", _INT, nullable=False),
        sa.Column("log_offset", _INT, nullable=False),
        sa.Column("record_id", sa.String(), nullable=False),
        sa.Column("appended_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("topic", "partition", "log_offset", name="pk_duplicate_deliveries"),
    )


def _create_log_offsets() -> None:
    op.create_table(
        "log_offsets",
        sa.Column("consumer_group", sa.String(), nullable=False),
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("partition", _INT, nullable=False),
        sa.Column("first_offset", _INT, nullable=False),
        sa.Column("next_offset", _INT, nullable=False),
        sa.Column("num_records", _INT, nullable=False),
        sa.Column("appended_until", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("consumer_group", "topic", "partition", name="pk_log_offsets"),
    )
