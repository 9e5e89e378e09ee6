import stat
import threading
from pathlib import Path

import pytest

from tidemill.errors import ConfigurationError
from tidemill.settings import SharedSettings
from tidemill.subjects import SubjectHasher, load_or_create_secret

HASHER = SubjectHasher(b"0123456789abcdef")


def test_one_person_has_one_hash_within_a_tenant() -> None:
    assert HASHER.subject("a", "joe") == HASHER.subject("a", "joe")
    assert len(HASHER.subject("a", "joe")) == 32


def test_tenants_names_and_keys_give_other_hashes() -> None:
    other = SubjectHasher(b"another key, as long")
    hashes = {
        HASHER.subject("a", "joe"),
        HASHER.subject("b", "joe"),
        HASHER.subject("a", "jo"),
        HASHER.subject("a\0j", "oe"),
        HASHER.subject("a", "\ud800"),
        other.subject("a", "joe"),
    }
    assert len(hashes) == 6


def test_a_short_key_protects_nobody() -> None:
    with pytest.raises(ConfigurationError, match="has 5 bytes"):
        SubjectHasher(b"short")


def test_a_declared_secret_is_used(tmp_path: Path) -> None:
    shared = SharedSettings(data=tmp_path, secret="s" * 20)
    assert load_or_create_secret(shared) == b"s" * 20
    assert list(tmp_path.iterdir()) == []


def test_a_secret_is_made_once_and_is_nobody_elses_to_read(tmp_path: Path) -> None:
    shared = SharedSettings(data=tmp_path / "data")
    first = load_or_create_secret(shared)
    assert load_or_create_secret(shared) == first
    path = tmp_path / "data" / "secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["secret"]


def test_many_that_start_at_once_get_the_same_secret(tmp_path: Path) -> None:
    shared = SharedSettings(data=tmp_path)
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(load_or_create_secret(shared)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff"])
def test_a_broken_secret_stops_the_start(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "secret").write_bytes(content)
    with pytest.raises(ConfigurationError, match="secret"):
        load_or_create_secret(SharedSettings(data=tmp_path))
