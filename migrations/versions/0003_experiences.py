"""Experiences, learner steps and which step used which."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# SQLite numbers rows by itself only in a plain INTEGER.
_INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _create_experiences()
    _create_learner_steps()
    _create_experience_uses()


def downgrade() -> None:
    op.drop_table("experience_uses")
    op.drop_table("learner_steps")
    op.drop_table("experiences")


def _create_experiences() -> None:
    op.create_table(
        "experiences",
        sa.Column("experience_id", sa.String(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("trajectory_id", sa.String(), nullable=False),
        sa.Column("turn", _INT, nullable=False),
        sa.Column("subject", sa.String(), nullable=True),
        sa.Column("context", sa.String(), nullable=False),
        sa.Column("group_id", sa.String(), nullable=True),
        sa.Column("oldest_policy_version", sa.String(), nullable=False),
        sa.Column("newest_policy_version", sa.String(), nullable=False),
        sa.Column("arm", sa.String(), nullable=False),
        sa.Column("assignment_probability", sa.Double(), nullable=False),
        sa.Column("prompt_ids", sa.LargeBinary(), nullable=False),
        sa.Column("completion_ids", sa.LargeBinary(), nullable=False),
        sa.Column("behaviour_logprobs", sa.LargeBinary(), nullable=True),
        sa.Column("kept_mass", sa.LargeBinary(), nullable=True),
        sa.Column("temperature", sa.Double(), nullable=False),
        sa.Column("is_truncated", sa.Boolean(), nullable=False),
        sa.Column("finish_reason", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("reward", sa.Double(), nullable=False),
        sa.Column("components", sa.JSON(), nullable=False),
        sa.Column("reward_spec_hash", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("dropped_reason", sa.String(), nullable=True),
        sa.Column("num_uses", _INT, nullable=False),
        sa.PrimaryKeyConstraint("experience_id", name="pk_experiences"),
    )
    op.create_index("ix_experiences_context", "experiences", ["context"])
    op.create_index("ix_experiences_evidence", "experiences", ["newest_policy_version", "arm"])
    op.create_index(
        "ix_experiences_queue", "experiences", ["model", "tenant", "state", "closed_at"]
    )


def _create_learner_steps() -> None:
    op.create_table(
        "learner_steps",
        sa.Column("learner", sa.String(), nullable=False),
        sa.Column("serial", _INT, nullable=False),
        sa.Column("step", _INT, nullable=False),
        sa.Column("lineage", _INT, nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("parent_version", sa.String(), nullable=True),
        sa.Column("checkpoint", sa.String(), nullable=True),
        sa.Column("checkpoint_digest", sa.String(), nullable=True),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("learner", "serial", name="pk_learner_steps"),
    )


def _create_experience_uses() -> None:
    op.create_table(
        "experience_uses",
        sa.Column("experience_id", sa.String(), nullable=False),
        sa.Column("learner", sa.String(), nullable=False),
        sa.Column("serial", _INT, nullable=False),
        sa.ForeignKeyConstraint(
            ["experience_id"],
            ["experiences.experience_id"],
            name="fk_experience_uses_experience_id_experiences",
        ),
        sa.PrimaryKeyConstraint("experience_id", "learner", "serial", name="pk_experience_uses"),
    )
