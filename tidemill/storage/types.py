"""Column types that mean the same on SQLite and PostgreSQL."""

import array
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, DateTime, LargeBinary
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator


class UtcDateTime(TypeDecorator[datetime]):
    """An aware UTC time; SQLite itself would forget the zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse naive times, store UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"naive time {value.isoformat()}: give it a zone")
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Give every time its zone back."""
        if value is None:
            return None
        moment: datetime = value
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


class ExactJson(TypeDecorator[Any]):
    """JSON whose lone numbers keep every bit.

    SQLite takes a column of JSON for one of numbers: it reads a number from its text by itself,
    and may miss the last bit. A number that is handed over as one stays as it is.
    """

    impl = JSON
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any] | None:
        """Hand a float to SQLite as it is, everything else as JSON."""
        encode: Callable[[Any], Any] | None = super().bind_processor(dialect)
        if dialect.name != "sqlite" or encode is None:
            return encode
        return lambda value: value if isinstance(value, float) else encode(value)


class _Packed(TypeDecorator[tuple[Any, ...]]):
    """A sequence of numbers as little-endian bytes."""

    impl = LargeBinary
    cache_ok = True
    typecode = ""

    def process_bind_param(self, value: Sequence[Any] | None, dialect: Dialect) -> bytes | None:
        """Pack."""
        if value is None:
            return None
        packed = array.array(self.typecode, value)
        if sys.byteorder == "big":
            packed.byteswap()
        return packed.tobytes()

    def process_result_value(self, value: Any, dialect: Dialect) -> tuple[Any, ...] | None:
        """Unpack."""
        if value is None:
            return None
        packed = array.array(self.typecode)
        packed.frombytes(bytes(value))
        if sys.byteorder == "big":
            packed.byteswap()
        return tuple(packed)


class PackedIds(_Packed):
    """Token ids: int32."""

    cache_ok = True
    typecode = "i"


class PackedFloats(_Packed):
    """Log-probs and masses: float64, so that a replay gives equal bits."""

    cache_ok = True
    typecode = "d"
