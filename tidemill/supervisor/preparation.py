"""What must be there before any part starts: the folder, its lock, tables, secret, keys, ports."""

import fcntl
import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tidemill.errors import ConfigurationError
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database
from tidemill.storage.keys import Scope, create_key

ADDRESSES_FILE = "addresses.json"
KEYS_FILE = "keys.json"
_LOCK_FILE = "up.lock"


@contextmanager
def data_folder_lock(data: Path) -> Iterator[None]:
    """Hold the data folder: one `tidemill up` at a time; a dead one holds nothing.

    Raises:
        ConfigurationError: another one runs.
    """
    data.mkdir(parents=True, exist_ok=True)
    with (data / _LOCK_FILE).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise ConfigurationError(
                f"another `tidemill up` (process {lock.read().strip() or 'unknown'}) runs on "
                f"{data.resolve()}; stop it, or give --data another folder"
            ) from None
        lock.seek(0)
        lock.truncate()
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def choose_addresses(serving_host: str, feedback_host: str, port: int) -> dict[str, str]:
    """Return the URLs of `serving` (port) and `feedback` (port + 1); port 0 = two free ones.

    Raises:
        ConfigurationError: a host is none of this machine, or a port is taken.
    """
    hosts = (serving_host, feedback_host)
    if port == 0:
        ports = _free_ports(hosts)
    else:
        ports = [port, port + 1]
        for host, wanted in zip(hosts, ports, strict=True):
            _require_free(host, wanted)
    return {
        name: f"http://{host}:{number}"
        for name, host, number in zip(("serving", "feedback"), hosts, ports, strict=True)
    }


def port_of(address: str) -> int:
    """Return the port of one of these URLs."""
    return int(address.rpartition(":")[2])


def ensure_keys(shared: SharedSettings, database: Database) -> dict[str, str] | None:
    """Create one key for each scope at the first start, and keep them in a file for the owner only.

    Returns:
        The new keys by scope, or None when the file was there.
    """
    path = shared.data / KEYS_FILE
    if path.exists():
        return None
    now = datetime.now(UTC)
    with database.transaction() as session:
        keys = {
            scope.value: create_key(
                session, tenant=shared.tenant, scopes=[scope], label="first start", now=now
            )[1]
            for scope in Scope
        }
    write_private(path, keys)
    return keys


def write_private(path: Path, document: dict[str, Any]) -> None:
    """Write JSON that only the owner can read; complete or not at all."""
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(document, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def _free_ports(hosts: Sequence[str]) -> list[int]:
    probes = [socket.socket() for _ in hosts]
    try:
        for host, probe in zip(hosts, probes, strict=True):
            try:
                probe.bind((host, 0))
            except OSError as error:
                raise ConfigurationError(f"host {host} cannot be used ({error})") from None
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _require_free(host: str, port: int) -> None:
    with socket.socket() as probe:
        # As servers do: connections of a server that just ended do not hold its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            raise ConfigurationError(
                f"port {port} on {host} cannot be used ({error}); "
                "give --port another number, or 0 for free ones"
            ) from None
