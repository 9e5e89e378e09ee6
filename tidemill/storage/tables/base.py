"""The declarative base: naming convention and the types that columns share."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Integer, MetaData
from sqlalchemy.orm import DeclarativeBase

from tidemill.storage.types import UtcDateTime


class Row(DeclarativeBase):
    """Root of all tables; constraint names are fixed, so that migrations can name them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012  SQLAlchemy reads this very attribute
        datetime: UtcDateTime,
        # Offsets pass 2^31; SQLite numbers rows by itself only in a plain INTEGER.
        int: BigInteger().with_variant(Integer(), "sqlite"),
        dict[str, Any]: JSON,
        list[Any]: JSON,
    }
