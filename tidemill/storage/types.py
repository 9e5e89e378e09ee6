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

    def bind_processor(self, dialect: Dialect) -> Callable[[datetime | None], Any]:
        """Refuse naive times, store UTC."""
        return _to_text if dialect.name == "sqlite" else _to_utc

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Give every time its zone back."""
        return _from_text if dialect.name == "sqlite" else _to_utc


def _to_utc(moment: datetime | None) -> datetime | None:
    if moment is None or moment.tzinfo is UTC:
        return moment
    if moment.tzinfo is None:
        raise ValueError(f"naive time {moment.isoformat()}: give it a zone")
    return moment.astimezone(UTC)


def _to_text(moment: datetime | None) -> str | None:
    # As SQLAlchemy writes a time, whose order is that of the texts, at a third of its cost.
    utc = _to_utc(moment)
    return None if utc is None else utc.replace(tzinfo=None).isoformat(" ", "microseconds")


def _from_text(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).replace(tzinfo=UTC)


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
