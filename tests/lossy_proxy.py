"""A proxy before several API processes that keeps the answers to itself, except every n-th one."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

_TIMEOUT_S = 10.0
_PASSED_ON = ("authorization", "content-type")


@dataclass
class LossyProxy:
    """Hands each request to the next API; whoever sends must send `times` times to be answered.

    What an API has not stored is answered as it is, or not at all where it cannot be reached.
    """

    urls: Sequence[str]
    times: int
    port: int = 0
    num_delivered: int = 0
    """Requests that an API has acknowledged."""
    num_answered: int = 0
    """Those whose sender was told."""
    http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=_TIMEOUT_S))
    _turn: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def next_url(self) -> str:
        """Return the API whose turn it is."""
        with self._lock:
            self._turn += 1
            return self.urls[self._turn % len(self.urls)]

    def is_told(self, status: int) -> bool:
        """Count an answer; tell whether the sender gets it."""
        if status >= 300:
            return True
        with self._lock:
            self.num_delivered += 1
            is_last = self.num_delivered % self.times == 0
            self.num_answered += is_last
            return is_last


@contextmanager
def lossy_proxy(urls: Sequence[str], *, times: int) -> Iterator[LossyProxy]:
    """Run one for the length of a test."""
    proxy = LossyProxy(urls, times)
    server = _Server(("127.0.0.1", 0), _handler(proxy))
    proxy.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        proxy.http.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True


def _handler(proxy: LossyProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name: self.headers[name] for name in _PASSED_ON if name in self.headers}
            try:
                url = proxy.next_url() + self.path
                answer = proxy.http.post(url, content=body, headers=headers)
            except httpx.TransportError:
                self.close_connection = True
                return
            if not proxy.is_told(answer.status_code):
                self.close_connection = True
                return
            self.send_response(answer.status_code)
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    return Handler
