"""Interactions and experiences are named by their tenant too: two tenants may use the same id.

A wider key refuses nothing that the old one took, so this is an expansion: code that looks up the
id alone finds it by the same index. The way back is refused once two tenants share an id.
"""

from dataclasses import dataclass

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

# SQLite numbers rows by itself only in a plain INTEGER.
_INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_FOREIGN_KEY = "fk_experience_uses_experience_id_experiences"


@dataclass(frozen=True, slots=True)
class _Keys:
    interaction: list[str]
    experience: list[str]
    index: str
    """Its name; trajectories are looked up by it."""
    trajectory: list[str]


_BEFORE = _Keys(
    ["interaction_id"], ["experience_id"], "ix_interactions_trajectory_id", ["trajectory_id"]
)
_AFTER = _Keys(
    ["interaction_id", "tenant"],
    ["experience_id", "tenant"],
    "ix_interactions_trajectory",
    ["trajectory_id", "tenant"],
)


def upgrade() -> None:
    op.add_column("judgements", sa.Column("tenant", sa.String(), nullable=True))
    op.execute(
        "UPDATE judgements SET tenant = (SELECT tenant FROM interactions"
        " WHERE interactions.interaction_id = judgements.interaction_id)"
    )
    op.add_column("experience_uses", sa.Column("tenant", sa.String(), nullable=True))
    op.execute(
        "UPDATE experience_uses SET tenant = (SELECT tenant FROM experiences"
        " WHERE experiences.experience_id = experience_uses.experience_id)"
    )
    _change(_BEFORE, _AFTER)


def downgrade() -> None:
    _change(_AFTER, _BEFORE)
    op.drop_column("experience_uses", "tenant")
    op.drop_column("judgements", "tenant")


def _change(old: _Keys, new: _Keys) -> None:
    if op.get_context().dialect.name == "sqlite":
        _rebuild(_interactions(new))
        # Without its foreign key meanwhile: SQLite does not drop a table that rows refer to.
        _rebuild(_experience_uses(None))
        _rebuild(_experiences(new))
        _rebuild(_experience_uses(new))
        return
    op.drop_constraint(_FOREIGN_KEY, "experience_uses")
    for table, key in (("interactions", new.interaction), ("experiences", new.experience)):
        op.drop_constraint(f"pk_{table}", table)
        op.create_primary_key(f"pk_{table}", table, key)
    op.create_foreign_key(
        _FOREIGN_KEY, "experience_uses", "experiences", new.experience, new.experience
    )
    op.drop_index(old.index, "interactions")
    op.create_index(new.index, "interactions", new.trajectory)


def _rebuild(table: sa.Table) -> None:
    """Copy a table into one of another key; its columns stay."""
    with op.batch_alter_table(table.name, copy_from=table, recreate="always"):
        pass


def _interactions(keys: _Keys) -> sa.Table:
    return sa.Table(
        "interactions",
        sa.MetaData(),
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
        sa.PrimaryKeyConstraint(*keys.interaction, name="pk_interactions"),
        sa.UniqueConstraint("partition", "log_offset", name="uq_interactions_partition_log_offset"),
        sa.Index("ix_interactions_state_closes_at", "state", "partition", "closes_at"),
        sa.Index("ix_interactions_subject", "tenant", "subject"),
        sa.Index(keys.index, *keys.trajectory),
        sa.Index("ix_interactions_hours", "tenant", "state", "appended_at"),
    )


def _experiences(keys: _Keys) -> sa.Table:
    return sa.Table(
        "experiences",
        sa.MetaData(),
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
        sa.PrimaryKeyConstraint(*keys.experience, name="pk_experiences"),
        sa.Index("ix_experiences_context", "context"),
        sa.Index("ix_experiences_evidence", "newest_policy_version", "arm"),
        sa.Index("ix_experiences_queue", "model", "tenant", "state", "closed_at"),
    )


def _experience_uses(keys: _Keys | None) -> sa.Table:
    table = sa.Table(
        "experience_uses",
        sa.MetaData(),
        sa.Column("experience_id", sa.String(), nullable=False),
        sa.Column("learner", sa.String(), nullable=False),
        sa.Column("serial", _INT, nullable=False),
        sa.Column("tenant", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("experience_id", "learner", "serial", name="pk_experience_uses"),
    )
    if keys is not None:
        referred = [f"experiences.{column}" for column in keys.experience]
        foreign_key = sa.ForeignKeyConstraint(keys.experience, referred, name=_FOREIGN_KEY)
        table.append_constraint(foreign_key)
    return table
