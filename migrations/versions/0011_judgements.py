"""What judges were asked and what they said."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

# The type of every number of ours; only SQLite tells it from BigInteger.
_INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "judgements",
        sa.Column("interaction_id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("judge", sa.String(), nullable=False),
        sa.Column("item", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("scores", sa.JSON(), nullable=False),
        sa.Column("wanted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("gives_up_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("claim", sa.String(), nullable=True),
        sa.Column("num_failures", _INT, nullable=False),
        sa.Column("detail", sa.String(), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("interaction_id", "digest", name="pk_judgements"),
    )
    op.create_index("ix_judgements_state_due_at", "judgements", ["state", "due_at"])
    op.create_index("ix_judgements_digest", "judgements", ["digest"])


def downgrade() -> None:
    op.drop_table("judgements")
