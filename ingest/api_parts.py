"""What the routes of the feedback API work with."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from fastapi import Request

from ingest.acceptor import Acceptor
from ingest.callers import Callers
from ingest.idempotency import Idempotency
from ingest.quotas import Quotas
from ingest.settings import IngestSettings
from tidemill.storage.database import Database
from tidemill.storage.keys import ApiKey, Scope
from tidemill.storage.patience import within
from tidemill.subjects import SubjectHasher

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The parts of one process that a request may need."""

    settings: IngestSettings
    model: str
    callers: Callers
    hasher: SubjectHasher
    idempotency: Idempotency
    quotas: Quotas
    acceptor: Acceptor
    database: Database
    missing: Callable[[], Awaitable[list[str]]]
    """What keeps the process from being ready, asked for just now."""

    async def ask(self, question: Callable[[], T]) -> T:
        """Return what the database says.

        Raises:
            StorageError: it did not say it in time.
        """
        return await within(self.settings.read_timeout_s, question)

    async def caller(self, request: Request, scope: Scope) -> ApiKey:
        """Return who calls.

        Raises:
            ProblemError: 401 without a valid key, 403 without the scope, 503 when nobody can tell.
        """
        return await self.callers.require(request.headers.get("authorization"), scope)
