"""A real HTTP server in place of the feedback API: answers as a test says, else as the API does."""

import json
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Item = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """One answer: in place of the API's, or to some of the items of a batch."""

    status: int = 0
    """0 = the API's own."""
    body: bytes | None = None
    """None = a problem with the status."""
    headers: dict[str, str] = field(default_factory=dict)
    stores: bool = False
    """Whether it stores what it got, whatever it answers."""
    drops: bool = False
    """Whether it ends the connection instead of answering."""
    items: dict[str, str] = field(default_factory=dict)
    """By feedback id: a status in place of the API's."""


@dataclass
class Request:
    """What came, with the key and the content type."""

    path: str
    key: str | None
    content_type: str
    items: list[Item]


@dataclass
class ScriptedApi:
    """Answers in the order of `script`, then as the API does."""

    script: deque[Reply] = field(default_factory=deque)
    choose: Callable[[list[Item]], Reply] | None = None
    """Takes the place of the script where it is given."""
    requests: list[Request] = field(default_factory=list)
    stored: dict[str, Item] = field(default_factory=dict)
    acknowledged: list[str] = field(default_factory=list)
    """Ids, in the order of the 2xx answers."""
    port: int = 0
    _server: ThreadingHTTPServer | None = None
    _thread: threading.Thread | None = None
    _connections: set[socket.socket] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        """Where it listens, also while it is down."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def sent_ids(self) -> list[list[str]]:
        """The feedback ids of each request."""
        return [[item["feedback_id"] for item in one.items] for one in self.requests]

    def start(self) -> None:
        """Listen, on the same port as before."""
        self._server = _Server(("127.0.0.1", self.port), _handler(self))
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        """Refuse connections, and end those that are open."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server = None
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def take(self, request: Request) -> tuple[Reply, bytes]:
        """Return what to answer."""
        with self.lock:
            self.requests.append(request)
            reply = self._next(request.items)
            if reply.drops or reply.status:
                if reply.stores:
                    self._store(request.items, reply)
                return reply, reply.body if reply.body is not None else _problem(reply)
            statuses = self._store(request.items, reply)
        answers = [
            {"index": at, "status": status, "feedback_id": item.get("feedback_id"), "reason": why}
            for at, (item, (status, why)) in enumerate(zip(request.items, statuses, strict=True))
        ]
        if request.path == "/v1/feedback:batch":
            return Reply(207), json.dumps({"items": answers}).encode()
        status = statuses[0][0]
        ids = {name: value for name, value in request.items[0].items() if name.endswith("_id")}
        return Reply(202 if status == "accepted" else 200), json.dumps(
            ids | {"status": status}
        ).encode()

    def _next(self, items: list[Item]) -> Reply:
        if self.choose is not None:
            return self.choose(items)
        return self.script.popleft() if self.script else Reply()

    def _store(self, items: list[Item], reply: Reply) -> list[tuple[str, str | None]]:
        statuses: list[tuple[str, str | None]] = []
        for item in items:
            one = item.get("feedback_id") or item["interaction_id"]
            told = reply.items.get(one)
            if told is None:
                known = self.stored.setdefault(one, item)
                assert known == item, f"{one} came again with another body"
                told = "duplicate" if known is not item else "accepted"
            statuses.append((told, None if told in ("accepted", "duplicate") else f"said {told}"))
        return statuses


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """Say nothing of connections that a test ended."""


def _problem(reply: Reply) -> bytes:
    title, detail = f"title {reply.status}", f"detail {reply.status}"
    problem = {"type": "about:blank", "title": title, "status": reply.status, "detail": detail}
    return json.dumps(problem | {"field": "value"}).encode()


def _handler(api: ScriptedApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            api._connections.add(self.connection)

        def finish(self) -> None:
            api._connections.discard(self.connection)
            super().finish()

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            kind = self.headers["content-type"]
            items = [json.loads(line) for line in raw.split(b"\n")]
            reply, body = api.take(Request(self.path, self.headers["authorization"], kind, items))
            if reply.drops:
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            # Before the client can know of it, so that a test finds it here at once.
            api.acknowledged += _acknowledged(body) if reply.status in (200, 202, 207) else []
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    return Handler


def _acknowledged(body: bytes) -> list[str]:
    with suppress(ValueError, KeyError, TypeError):
        said = json.loads(body)
        items = said.get("items", [said])
        return [i["feedback_id"] for i in items if i["status"] in ("accepted", "duplicate")]
    return []


@contextmanager
def scripted_api(*replies: Reply) -> Iterator[ScriptedApi]:
    """Run one for the length of a test."""
    api = ScriptedApi(script=deque(replies))
    api.start()
    try:
        yield api
    finally:
        api.stop()
