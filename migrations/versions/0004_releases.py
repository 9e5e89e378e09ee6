"""Policy versions, their moves, traffic, canaries, gate runs."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# SQLite numbers rows by itself only in a plain INTEGER.
_INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _create_canaries()
    _create_gate_runs()
    _create_policy_transitions()
    _create_policy_versions()
    _create_traffic()


def downgrade() -> None:
    op.drop_table("traffic")
    op.drop_table("policy_versions")
    op.drop_table("policy_transitions")
    op.drop_table("gate_runs")
    op.drop_table("canaries")


def _create_canaries() -> None:
    op.create_table(
        "canaries",
        sa.Column("id", _INT, nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("challenger", sa.String(), nullable=False),
        sa.Column("champion", sa.String(), nullable=False),
        sa.Column("number", _INT, nullable=False),
        sa.Column("alpha", sa.Double(), nullable=False),
        sa.Column("share", sa.Double(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("verdict", sa.String(), nullable=True),
        sa.Column("log_e_value", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_canaries"),
    )


def _create_gate_runs() -> None:
    op.create_table(
        "gate_runs",
        sa.Column("id", _INT, nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("verdict", sa.String(), nullable=False),
        sa.Column("reasons", sa.JSON(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_gate_runs"),
    )
    op.create_index("ix_gate_runs_version", "gate_runs", ["model", "tenant", "version"])


def _create_policy_transitions() -> None:
    op.create_table(
        "policy_transitions",
        sa.Column("id", _INT, nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("move", sa.String(), nullable=False),
        sa.Column("from_status", sa.String(), nullable=False),
        sa.Column("to_status", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_policy_transitions"),
    )
    op.create_index(
        "ix_policy_transitions_version", "policy_transitions", ["model", "tenant", "version"]
    )


def _create_policy_versions() -> None:
    op.create_table(
        "policy_versions",
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("number", _INT, nullable=False),
        sa.Column("parent", sa.String(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("step", _INT, nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("snapshot", sa.String(), nullable=True),
        sa.Column("base_digest", sa.String(), nullable=False),
        sa.Column("provenance", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("status_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revision", _INT, nullable=False),
        sa.Column("mirrored_revision", _INT, nullable=False),
        sa.Column("tracking_run", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("version", "model", "tenant", name="pk_policy_versions"),
        sa.UniqueConstraint(
            "model", "tenant", "number", name="uq_policy_versions_model_tenant_number"
        ),
    )
    op.create_index(
        "uq_policy_versions_champion",
        "policy_versions",
        ["model", "tenant"],
        unique=True,
        sqlite_where=sa.text("status = 'champion'"),
        postgresql_where=sa.text("status = 'champion'"),
    )


def _create_traffic() -> None:
    op.create_table(
        "traffic",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("champion", sa.String(), nullable=True),
        sa.Column("challenger", sa.String(), nullable=True),
        sa.Column("challenger_share", sa.Double(), nullable=False),
        sa.Column("salt", sa.String(), nullable=False),
        sa.Column("revision", _INT, nullable=False),
        sa.Column("next_number", _INT, nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("model", "tenant", name="pk_traffic"),
    )
