import json
import multiprocessing
import socket
from pathlib import Path

import pytest

from tests.servers import free_port
from tidemill.errors import ConfigurationError
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database
from tidemill.storage.keys import Scope, authenticate
from tidemill.supervisor.preparation import (
    choose_addresses,
    data_folder_lock,
    ensure_keys,
    port_of,
    write_private,
)


def _hold(data: Path, ready: "multiprocessing.synchronize.Event") -> None:
    with data_folder_lock(data):
        ready.set()
        multiprocessing.Event().wait()


def test_a_second_up_on_the_same_folder_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=_hold, args=(tmp_path, ready))
    holder.start()
    assert ready.wait(30)
    with (
        pytest.raises(ConfigurationError, match=f"process {holder.pid}"),
        data_folder_lock(tmp_path),
    ):
        pass
    holder.kill()
    holder.join()
    with data_folder_lock(tmp_path):
        pass


def test_port_zero_gives_two_free_ports() -> None:
    addresses = choose_addresses("127.0.0.1", "127.0.0.1", 0)
    assert len({port_of(address) for address in addresses.values()}) == 2
    assert set(addresses) == {"serving", "feedback"}


def test_feedback_takes_the_next_port() -> None:
    port = free_port()
    addresses = choose_addresses("127.0.0.1", "127.0.0.1", port)
    assert addresses["serving"] == f"http://127.0.0.1:{port}"
    assert port_of(addresses["feedback"]) == port + 1


@pytest.mark.parametrize("is_port_given", [False, True])
def test_each_address_is_at_the_host_of_its_part(is_port_given: bool) -> None:
    port = free_port() if is_port_given else 0
    addresses = choose_addresses("127.0.0.1", "127.0.0.2", port)
    assert addresses["serving"].startswith("http://127.0.0.1:")
    assert addresses["feedback"].startswith("http://127.0.0.2:")


def test_a_port_is_looked_for_at_the_host_of_its_part() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.2", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"port {port} on 127.0.0.2"):
            choose_addresses("127.0.0.1", "127.0.0.2", port - 1)


def test_a_host_of_another_machine_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"host 192\.0\.2\.1 cannot be used"):
        choose_addresses("127.0.0.1", "192.0.2.1", 0)


def test_a_taken_port_is_refused_with_the_way_out() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"port {port} .*--port"):
            choose_addresses("127.0.0.1", "127.0.0.1", port)


def test_the_first_start_makes_one_key_for_each_scope(database: Database, tmp_path: Path) -> None:
    shared = SharedSettings(data=tmp_path)
    keys = ensure_keys(shared, database)
    assert keys is not None
    assert set(keys) == set(Scope)
    path = tmp_path / "keys.json"
    assert json.loads(path.read_text()) == keys
    assert path.stat().st_mode & 0o777 == 0o600
    with database.reading() as session:
        for scope, text in keys.items():
            key = authenticate(session, text)
            assert key is not None
            assert key.scopes == {scope}


def test_the_second_start_keeps_the_keys(database: Database, tmp_path: Path) -> None:
    shared = SharedSettings(data=tmp_path)
    ensure_keys(shared, database)
    before = (tmp_path / "keys.json").read_text()
    assert ensure_keys(shared, database) is None
    assert (tmp_path / "keys.json").read_text() == before


def test_private_files_replace_whole_ones(tmp_path: Path) -> None:
    path = tmp_path / "addresses.json"
    write_private(path, {"serving": "a"})
    write_private(path, {"serving": "b"})
    assert json.loads(path.read_text()) == {"serving": "b"}
    assert list(tmp_path.iterdir()) == [path]
