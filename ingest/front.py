"""The door of the feedback API: the routes that carry the traffic are answered at once.

A framework's routing, its middleware and its search for parameters cost more than the check of a
feedback does (`benchmarks/ingest`). Everything else goes through it, wrong methods included.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Front:
    """An ASGI application in front of another."""

    app: FastAPI
    """Answers everything else."""
    posts: Mapping[str, Handler]
    """Handlers of POST, by path; they raise what `answer_error` knows."""
    answer_error: Callable[[Request, Exception], Awaitable[Response]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        handler = None
        if scope["type"] == "http" and scope["method"] == "POST":
            handler = self.posts.get(scope["path"])
        if handler is None:
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await handler(request)
        except ClientDisconnect:
            # Nobody is left to answer, and nothing failed here.
            return
        except Exception as error:
            response = await self.answer_error(request, error)
        await response(scope, receive, send)
