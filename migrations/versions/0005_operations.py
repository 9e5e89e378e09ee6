"""Signs of life, swaps and API keys."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# SQLite numbers rows by itself only in a plain INTEGER.
_INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _create_api_keys()
    _create_heartbeats()
    _create_replica_versions()


def downgrade() -> None:
    op.drop_table("replica_versions")
    op.drop_table("heartbeats")
    op.drop_table("api_keys")


def _create_api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("public_id", sa.String(), nullable=False),
        sa.Column("secret_hash", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("public_id", name="pk_api_keys"),
    )


def _create_heartbeats() -> None:
    op.create_table(
        "heartbeats",
        sa.Column("part", sa.String(), nullable=False),
        sa.Column("pid", _INT, nullable=False),
        sa.Column("ready", sa.Boolean(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("counters", sa.JSON(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("part", name="pk_heartbeats"),
    )


def _create_replica_versions() -> None:
    op.create_table(
        "replica_versions",
        sa.Column("id", _INT, nullable=False),
        sa.Column("replica", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("in_flight", _INT, nullable=False),
        sa.Column("pause_ms", sa.Double(), nullable=False),
        sa.Column("load_ms", sa.Double(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_replica_versions"),
    )
