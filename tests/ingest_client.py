"""The feedback API in this process, on a real database and the embedded log, and a caller of it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx

from ingest.api import build_app
from ingest.api_process import Server
from ingest.member import Member
from ingest.settings import IngestSettings
from tests.factories import NOW, VERSION, make_interaction
from tests.ingest_rig import METRICS
from tidemill.eventlog.opening import open_log
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database
from tidemill.storage.keys import create_key
from tidemill.storage.tables import metadata

INTERACTION = make_interaction()
GOOD = {"interaction_id": INTERACTION.interaction_id, "metric": "accepted", "value": True}
SERVED = {
    "interaction_id": INTERACTION.interaction_id,
    "policy_version": VERSION,
    "content": {"messages": [], "completion": "lights are on"},
    "prompt_ids": [1],
    "completion_ids": [2],
    "consent": True,
    "sampling": {"temperature": 1.0, "max_tokens": 8},
    "served_at": "2026-12-01T12:00:00Z",
}


PATIENCE = {"look_up_timeout_s": 8.0, "answer_within_s": 20.0}
"""On a busy machine a database may need longer than production would wait for it."""


class Client:
    """Calls the application in this process, with a key."""

    def __init__(self, folder: Path, settings: IngestSettings) -> None:
        metrics = folder / "metrics.toml"
        metrics.write_text(METRICS)
        self.shared = SharedSettings(data=folder, metrics=metrics)
        patience = {
            name: s for name, s in PATIENCE.items() if name not in settings.model_fields_set
        }
        settings = settings.model_copy(update=patience)
        self.settings = settings
        self.database = Database(self.shared.database_url)
        metadata.create_all(self.database.engine)
        self.server = Server(self.shared, settings)
        self.server._connect()
        self.app = build_app(self.server.api)
        self.keys = {scope: self.key(scope) for scope in ("admin", "feedback:write", "read")}

    def key(self, scope: str, tenant: str = "default") -> str:
        with self.database.transaction() as session:
            return create_key(session, tenant=tenant, scopes=[scope], label="", now=NOW)[1]

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        text = self.keys["admin"] if key is None else key
        sent = {"authorization": f"Bearer {text}"} if text else {}
        # As Latin-1, so that a test may send what no client would.
        sent |= headers or {}
        raw = [(name.encode(), value.encode("latin-1")) for name, value in sent.items()]

        async def once() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
                return await client.request(method, path, content=content, headers=raw)

        return asyncio.run(once())

    def post(self, body: Any, path: str = "/v1/feedback", **over: Any) -> httpx.Response:
        return self.call("POST", path, body, **over)

    def work(self) -> None:
        """Let a worker read what was stored."""
        log = open_log(self.shared)
        worker = Member(self.database, log, self.settings, self.server.acceptor.metrics)
        while worker.read_once(timeout_s=0.3):
            pass
        worker.close()
        log.close()

    def close(self) -> None:
        self.server._disconnect()
        self.server._database.close()
        self.database.close()
