"""The routes that tell: the ledger, the declared metrics, the process itself."""

from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from ingest.api_errors import ProblemError
from ingest.api_parts import Api
from ingest.figures import MEDIA_TYPE, render_figures
from ingest.ledger_views import LedgerViews
from tidemill.contracts.ids import is_feedback_id, is_interaction_id
from tidemill.storage.keys import Scope


@dataclass(frozen=True, slots=True)
class Reading:
    """Routes with the scope `read`, and those that need no key."""

    api: Api

    async def get_feedback(self, request: Request) -> Response:
        """Tell where a feedback stands in the ledger."""
        caller = await self.api.caller(request, Scope.READ)
        feedback_id = request.path_params["feedback_id"]
        if not is_feedback_id(feedback_id):
            # No database is asked for a text that it might refuse.
            raise ProblemError(404, "no feedback has such an id")
        views = LedgerViews(self.api.database)
        found = await self.api.ask(lambda: views.feedback(caller.tenant, feedback_id))
        if found is None:
            recent = self.api.acceptor.known_feedback.recall((caller.tenant, feedback_id))
            if recent is None:
                raise ProblemError(404, "no feedback with this id")
            # Durable in the log; the worker has not come to it yet.
            found = {"feedback_id": feedback_id, "state": "accepted", "dead_letters": []}
        return JSONResponse(found)

    async def get_interaction(self, request: Request) -> Response:
        """Tell where an interaction stands in the ledger, and its reward."""
        caller = await self.api.caller(request, Scope.READ)
        interaction_id = request.path_params["interaction_id"]
        if not is_interaction_id(interaction_id):
            raise ProblemError(404, "no interaction has such an id; it is <uuid>.<uuid>")
        views = LedgerViews(self.api.database)
        found = await self.api.ask(lambda: views.interaction(caller.tenant, interaction_id))
        if found is None:
            raise ProblemError(404, "no interaction with this id, or its record was not read yet")
        return JSONResponse(found)

    async def get_metrics_config(self, request: Request) -> Response:
        """Tell which metrics are declared, and the hash that experiences carry."""
        await self.api.caller(request, Scope.READ)
        return JSONResponse(self.api.acceptor.metrics.describe())

    async def get_figures(self, request: Request) -> Response:
        """Tell Prometheus the caller's ledger by state, and what this process answered."""
        caller = await self.api.caller(request, Scope.READ)
        views, acceptor = LedgerViews(self.api.database), self.api.acceptor
        text = render_figures(
            states=await self.api.ask(lambda: views.states(caller.tenant)),
            answered={one.value: number for one, number in acceptor.num_answered.items()},
            in_flight=acceptor.room.num_records,
        )
        return Response(text, headers={"content-type": MEDIA_TYPE})

    async def health(self, _: Request) -> Response:
        """Tell that the process works."""
        return JSONResponse({"status": "ok"})

    async def ready(self, _: Request) -> Response:
        """Tell whether feedback can be stored, and if not, what is missing."""
        missing = await self.api.missing()
        body = {"ready": not missing, "missing": missing}
        return JSONResponse(body, 503 if missing else 200)
