from collections.abc import Iterator

import pytest

from tests.feedback_clients import AnyClient, Awaiting, Blocking, MakeClient
from tests.scripted_feedback_api import ScriptedApi, scripted_api


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    """A scripted feedback API."""
    with scripted_api() as api:
        yield api


@pytest.fixture(params=["blocking", "awaiting"])
def make_client(request: pytest.FixtureRequest) -> Iterator[MakeClient]:
    """Makes a client; the test runs with each kind."""
    made: list[Blocking | Awaiting] = []

    def make(url: str, key: str | None = None, **options: object) -> AnyClient:
        kind = Blocking if request.param == "blocking" else Awaiting
        made.append(kind(url, key, **options))
        return made[-1]

    yield make
    for client in made:
        if isinstance(client, Awaiting):
            client.end()
        else:
            client.close(timeout_s=0)
