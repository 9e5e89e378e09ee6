"""A real HTTP server in place of a judge: answers as a test says, else with the same score."""

import json
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Says:
    """One answer."""

    words: str | None = None
    """Content of the message; None = `body` is sent instead."""
    body: bytes = b""
    status: int = 200
    waits: threading.Event | None = None
    """Nothing is sent before this is set."""


def score(number: Any) -> Says:
    """Return an answer with a score from 0 to 10."""
    return Says(json.dumps({"score": number}))


@dataclass
class ScriptedJudge:
    """Answers in the order of `script`, then with `usual`."""

    script: deque[Says] = field(default_factory=deque)
    usual: Says = field(default_factory=lambda: score(8))
    requests: list[dict[str, Any]] = field(default_factory=list)
    authorization: list[str | None] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)
    """Set when a request has come."""
    port: int = 0

    @property
    def url(self) -> str:
        """Base of the API."""
        return f"http://127.0.0.1:{self.port}/v1"

    def asked_about(self) -> Counter[tuple[str, str]]:
        """Count the requests by answer and criterion."""
        seen = [json.loads(one["messages"][1]["content"]) for one in self.requests]
        return Counter((one["answer"], one["criterion"]) for one in seen)


@contextmanager
def scripted_judge(*answers: Says) -> Iterator[ScriptedJudge]:
    """Serve while the block runs."""
    judge = ScriptedJudge(deque(answers))
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            assert self.path == "/v1/chat/completions"
            with lock:
                judge.requests.append(json.loads(body))
                judge.authorization.append(self.headers["authorization"])
                says = judge.script.popleft() if judge.script else judge.usual
            judge.asked.set()
            if says.waits is not None:
                says.waits.wait(30)
            self._answer(says)

        def _answer(self, says: Says) -> None:
            payload = says.body
            if says.words is not None:
                choice = {"message": {"role": "assistant", "content": says.words}}
                payload = json.dumps({"choices": [choice]}).encode()
            try:
                self.send_response(says.status)
                self.send_header("content-length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)
            except OSError:
                return  # who asked is gone: killed, or out of patience

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    judge.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield judge
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
