"""The peer: a bare FastAPI endpoint that validates the same model and stores nothing."""

import sys

import uvicorn
from fastapi import FastAPI

from ingest.api_schemas import FeedbackBody
from tidemill.process import listen

app = FastAPI()


@app.get("/ready")
async def ready() -> dict[str, bool]:
    """Tell that it answers."""
    return {"ready": True}


@app.post("/v1/feedback", status_code=202)
async def feedback(body: FeedbackBody) -> dict[str, str | None]:
    """Validate one feedback."""
    return {"feedback_id": body.feedback_id, "status": "accepted"}


def main() -> None:
    """Serve on the port that the first argument names, as the product's own process does."""
    config = uvicorn.Config(
        app, lifespan="off", log_config=None, access_log=False, proxy_headers=False, ws="none"
    )
    uvicorn.Server(config).run([listen("127.0.0.1", int(sys.argv[1]), setting="the port")])


if __name__ == "__main__":
    main()
