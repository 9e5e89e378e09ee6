"""The routes for people who want their records gone."""

from dataclasses import dataclass
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from ingest.api_errors import ProblemError
from ingest.api_parts import Api
from tidemill.contracts.ids import is_erasure_id
from tidemill.storage.erasures import fetch_erasure, queue_erasure
from tidemill.storage.keys import ApiKey, Scope
from tidemill.storage.tables import ErasureRequestRow
from tidemill.texts import is_storable

_MAX_CHARACTERS = 256
_REPLACEMENT = "\ufffd"
"""What a server makes of bytes that are no UTF-8; hashing it would erase nobody."""


@dataclass(frozen=True, slots=True)
class Subjects:
    """Routes with the scope `admin`."""

    api: Api

    async def delete_subject(self, request: Request) -> Response:
        """Queue the erasure of what is held of an end user: 202, also for a repeat."""
        caller = await self.api.caller(request, Scope.ADMIN)
        raw = request.path_params["subject"]
        if not 1 <= len(raw) <= _MAX_CHARACTERS or not is_storable(raw) or _REPLACEMENT in raw:
            detail = f"give 1 to {_MAX_CHARACTERS} characters of UTF-8, percent-encoded, no NUL"
            raise ProblemError(422, detail, field="subject")
        subject = self.api.hasher.subject(caller.tenant, raw)
        row = await self.api.ask(lambda: self._queue(caller, subject))
        return JSONResponse(_view(row), 202)

    async def get_erasure(self, request: Request) -> Response:
        """Tell where a request to erase stands."""
        caller = await self.api.caller(request, Scope.ADMIN)
        request_id = request.path_params["request_id"]
        found = None
        if is_erasure_id(request_id):
            found = await self.api.ask(lambda: self._find(caller.tenant, request_id))
        if found is None:
            raise ProblemError(404, "no erasure has this request_id")
        return JSONResponse(_view(found))

    def _queue(self, caller: ApiKey, subject: str) -> ErasureRequestRow:
        with self.api.database.transaction() as session:
            return queue_erasure(
                session,
                tenant=caller.tenant,
                subject=subject,
                requested_by=caller.public_id,
                now=self.api.acceptor.now(),
            )

    def _find(self, tenant: str, request_id: str) -> ErasureRequestRow | None:
        with self.api.database.reading() as session:
            return fetch_erasure(session, tenant=tenant, request_id=request_id)


def _view(row: ErasureRequestRow) -> dict[str, Any]:
    return {
        "request_id": row.request_id,
        "state": row.state,
        "requested_at": row.requested_at.isoformat(),
        "finished_at": None if row.finished_at is None else row.finished_at.isoformat(),
    }
