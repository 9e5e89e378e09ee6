"""Alembic: how the database comes to look as `tidemill/storage/tables` says."""
