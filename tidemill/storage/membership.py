"""`column is one of these texts`, as one statement however many there are; and the same of pairs.

SQLAlchemy's own IN writes a parameter for each value and so a new statement for each number of
them; with hundreds of ids that costs more than the answer. Of two columns, a list each would let a
database look for every tenant with every id.
"""

import json
from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Text, TypeDecorator, bindparam, tuple_
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import InstrumentedAttribute
from sqlalchemy.sql import operators
from sqlalchemy.sql.elements import BinaryExpression
from sqlalchemy.types import Boolean, TypeEngine


class _Texts(TypeDecorator[list[str]]):
    """Many texts as one parameter: an array where there are arrays, else a JSON list."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Choose the column type of a dialect."""
        plain: TypeEngine[Any] = Text()
        return dialect.type_descriptor(plain if dialect.name == "sqlite" else ARRAY(Text()))

    def process_bind_param(self, value: list[str] | None, dialect: Dialect) -> Any:
        """Pass the texts on."""
        return json.dumps(value) if dialect.name == "sqlite" else value


class _IsAny(BinaryExpression[bool]):
    inherit_cache = True


@compiles(_IsAny, "sqlite")
def _compile_sqlite(element: _IsAny, compiler: Any, **options: Any) -> str:
    left = compiler.process(element.left, **options)
    right = compiler.process(element.right, **options)
    return f"{left} IN (SELECT value FROM json_each({right}))"  # noqa: S608  compiled parts


@compiles(_IsAny, "postgresql")
def _compile_postgresql(element: _IsAny, compiler: Any, **options: Any) -> str:
    left = compiler.process(element.left, **options)
    right = compiler.process(element.right, **options)
    return f"{left} = ANY({right})"


class _Pairs(TypeDecorator[Collection[tuple[str, str]]]):
    """Many pairs of texts as one parameter: a JSON list."""

    impl = Text
    cache_ok = True

    def process_bind_param(
        self, value: Collection[tuple[str, str]] | None, dialect: Dialect
    ) -> str:
        """Pass the pairs on."""
        del dialect
        return json.dumps(sorted(value or ()))


class _IsAnyPair(BinaryExpression[bool]):
    inherit_cache = True


@compiles(_IsAnyPair, "sqlite")
def _compile_pairs_sqlite(element: _IsAnyPair, compiler: Any, **options: Any) -> str:
    left = compiler.process(element.left, **options)
    right = compiler.process(element.right, **options)
    both = "json_extract(value, '$[0]'), json_extract(value, '$[1]')"
    return f"{left} IN (SELECT {both} FROM json_each({right}))"  # noqa: S608  compiled parts


@compiles(_IsAnyPair, "postgresql")
def _compile_pairs_postgresql(element: _IsAnyPair, compiler: Any, **options: Any) -> str:
    left = compiler.process(element.left, **options)
    right = compiler.process(element.right, **options)
    each = f"jsonb_array_elements(CAST({right} AS jsonb)) AS pair"
    return f"{left} IN (SELECT pair ->> 0, pair ->> 1 FROM {each})"  # noqa: S608  compiled parts


def is_any(
    column: InstrumentedAttribute[str] | InstrumentedAttribute[str | None],
    texts: Collection[str],
) -> ColumnElement[bool]:
    """Return the condition that a column holds one of some texts."""
    values = bindparam(None, sorted(texts), type_=_Texts(), unique=True)
    return _IsAny(column.expression, values, operators.eq, type_=Boolean())


def is_any_pair(
    first: InstrumentedAttribute[str], second: InstrumentedAttribute[str]
) -> ColumnElement[bool]:
    """Return the condition that two columns together hold one of the pairs of parameter `pairs`.

    A statement with it is built once: that costs more than to run it for a few pairs.
    """
    columns = tuple_(first.expression, second.expression)
    pairs = bindparam("pairs", type_=_Pairs())
    return _IsAnyPair(columns, pairs, operators.in_op, type_=Boolean())


def unsearched(column: InstrumentedAttribute[str]) -> ColumnElement[str]:
    """Return a column as an expression that no index is searched by.

    SQLite cannot know how few rows a list of ids means, and would rather read all that are in one
    state.
    """
    return column.expression.concat("")
