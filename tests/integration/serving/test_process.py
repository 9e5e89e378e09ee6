"""The process as a whole: killed, drained, without a base, on a taken port."""

import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import psycopg
import pytest
from sqlalchemy.engine import make_url

from serving.server import Server, ThreadDiedError
from tests.servers import PostgresServer
from tests.serving_process import WHY, Installation, ServingProcess, installation, serving
from tests.tiny_model import tiny_base
from tidemill.errors import ConfigurationError
from tidemill.eventlog.opening import open_log
from tidemill.eventlog.spool import Spool
from tidemill.policy.base_model import BaseModel, load_base
from tidemill.settings import PolicySettings
from tidemill.storage.heartbeats import fetch_heartbeats

pytestmark = pytest.mark.integration


def ask_until_it_ends(server: ServingProcess, acknowledged: list[str]) -> None:
    """Note the id of every answer that came whole."""
    with server.client(timeout=20) as client:
        while True:
            try:
                answer = client.chat.completions.create(
                    model="tide", messages=[{"role": "user", "content": "hi"}], max_tokens=8
                )
            except openai.APIConnectionError:
                return
            except openai.InternalServerError:
                return  # 503: it stops
            acknowledged.append(answer.id)


def recorded(place: Installation) -> set[str]:
    """Return the ids in the log, after what is in the spool was moved there."""
    log = open_log(place.shared)
    sink = log.sink()
    Spool(place.shared.data / "spool").drain(sink)
    sink.close()
    log.close()
    return {event.interaction_id for event in place.interactions()}


def test_a_killed_server_loses_no_acknowledged_completion(tmp_path: Path) -> None:
    with installation(tmp_path / "data") as place:
        version = place.crown(seed=1)
        server = ServingProcess(place)
        acknowledged: list[str] = []
        for _ in range(2):
            server.start()
            server.wait_for_versions(version)
            before = len(acknowledged)
            with ThreadPoolExecutor(8) as pool:
                asking = [pool.submit(ask_until_it_ends, server, acknowledged) for _ in range(8)]
                while len(acknowledged) < before + 40:
                    time.sleep(0.01)
                server.kill()
                for one in asking:
                    one.result()

        assert len(acknowledged) == len(set(acknowledged)) >= 80
        assert set(acknowledged) <= recorded(place)


def test_sigterm_lets_running_requests_finish(tmp_path: Path) -> None:
    with installation(tmp_path / "data") as place:
        version = place.crown(seed=1)
        server = ServingProcess(place)
        server.start()
        server.wait_for_versions(version)
        answers: list[str] = []
        with ThreadPoolExecutor(8) as pool:
            asking = [pool.submit(ask_until_it_ends, server, answers) for _ in range(8)]
            while len(answers) < 20:
                time.sleep(0.01)
            server.process.send_signal(signal.SIGTERM)
            for one in asking:
                one.result()

        assert server.process.wait(timeout=60) == 0
        assert set(answers) <= recorded(place)
        with place.database.reading() as session:
            [beat] = [b for b in fetch_heartbeats(session) if b.part == "serving"]
        assert (beat.ready, beat.detail) == (False, "stopped")


def test_without_a_base_the_server_waits_for_one(tmp_path: Path) -> None:
    with installation(tmp_path / "data") as place:
        version = place.crown(seed=1)
        place.shared.base_path.rename(tmp_path / "elsewhere")
        with serving(place, wait=False) as server:
            body = server.wait_until(lambda body: "tidemill base" in str(body["missing"]))
            assert body["ready"] is False
            assert httpx.get(f"{server.url}/health").status_code == 200

            (tmp_path / "elsewhere").rename(place.shared.base_path)
            server.wait_for_versions(version)


def test_a_base_that_cannot_be_read_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([PermissionError(13, "denied"), RuntimeError("out of memory")])

    def load(path: Path, *, settings: PolicySettings) -> BaseModel:
        for failure in failures:
            raise failure
        return load_base(path, settings=settings)

    with installation(tmp_path / "data") as place:
        version = place.crown(seed=1)
        monkeypatch.setattr("serving.server.load_base", load)
        monkeypatch.setattr("serving.server._BASE_RETRY_S", 0.5)
        with serving(place, wait=False) as server:
            for reason in ("PermissionError: [Errno 13] denied", "RuntimeError: out of memory"):
                server.wait_until(lambda body, reason=reason: body["missing"] == [reason])  # type: ignore[misc]
            server.wait_for_versions(version)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("name", ["watcher", "scheduler", "emitter"])
def test_a_process_that_lost_a_thread_ends_with_an_error(tmp_path: Path, name: str) -> None:
    first = iter([None])

    def die(*_: object) -> None:
        raise ZeroDivisionError(name)

    def connect_once() -> None:
        for _ in first:
            return
        die()

    with installation(tmp_path / "data") as place:
        place.crown(seed=1)
        server = Server(place.shared, ServingProcess(place).settings)
        owner, broken = {
            "watcher": (server._watcher, {"tick": die}),
            "scheduler": (server._scheduler, {"_forget_retired": die}),
            "emitter": (server.service.emitter, {"_connect": connect_once}),
        }[name]
        vars(owner).update(broken)
        with pytest.raises(ThreadDiedError, match=name):
            server.run(threading.Event())


def test_another_base_than_the_versions_are_made_for_is_refused(tmp_path: Path) -> None:
    with installation(tmp_path / "data") as place:
        place.crown(seed=1)
        tiny_base(place.shared.base_path, seed=7)
        with serving(place, wait=False) as server:
            body = server.wait_until(lambda body: "belongs to base" in str(body["missing"]))
            assert body["ready"] is False


def test_a_taken_port_is_said(tmp_path: Path) -> None:
    with installation(tmp_path / "data") as place, socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = ServingProcess(place).settings.model_copy(update={"port": port})
        with pytest.raises(ConfigurationError, match="cannot listen"):
            Server(place.shared, settings).run(threading.Event())


def test_a_database_of_another_schema_is_refused(tmp_path: Path) -> None:
    with installation(tmp_path / "data") as place:
        shared = place.shared.model_copy(update={"data": tmp_path / "fresh"})
        shared.data.mkdir()
        with pytest.raises(ConfigurationError, match="db upgrade"):
            Server(shared, ServingProcess(place).settings).run(threading.Event())


def shut(server: PostgresServer, url: str, *, is_shut: bool) -> None:
    """Let a database take connections or not; those that are open end."""
    name = make_url(url).database
    with psycopg.connect(server.url, autocommit=True) as connection:
        allow = "false" if is_shut else "true"
        connection.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS {allow}".encode())
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        )


def test_serving_goes_on_while_the_database_is_away(
    tmp_path: Path, postgres_server: PostgresServer, postgres_url: str
) -> None:
    database = {"url": postgres_url}
    with installation(tmp_path / "data", database=database) as place:
        first, second = place.crown(seed=1), place.publish(seed=2)
        with serving(place, key_cache_s=0) as server, server.client() as client:

            def ask() -> str | None:
                answer = client.completions.create(model="tide", prompt="a", max_tokens=1)
                return answer.system_fingerprint

            assert ask() == first
            shut(postgres_server, postgres_url, is_shut=True)
            for _ in range(5):
                assert ask() == first
                time.sleep(0.1)

            shut(postgres_server, postgres_url, is_shut=False)
            place.registry.promote(second, why=WHY)
            server.wait_for_versions(second)
            assert ask() == second
