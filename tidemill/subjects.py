"""Keyed hashes of people: what events, rows and logs hold instead of an end user's own id.

The key stays on this installation; without it a hash cannot be turned back by trying names.
"""

import hmac
import os
import secrets
from json.encoder import encode_basestring_ascii
from pathlib import Path

from tidemill.errors import ConfigurationError
from tidemill.settings import SharedSettings

_SECRET_BYTES = 32
_HASH_CHARACTERS = 32


class SubjectHasher:
    """Turns raw ids of subjects and raters into stable hashes; one person has one hash."""

    def __init__(self, secret: bytes) -> None:
        """Keep the key.

        Raises:
            ConfigurationError: the key is too short to protect anybody.
        """
        if len(secret) < 16:
            raise ConfigurationError(
                f"the secret has {len(secret)} bytes; give at least 16, or leave `secret` out"
            )
        self._keyed = hmac.new(secret, digestmod="sha256")

    def subject(self, tenant: str, raw: str) -> str:
        """Return the hash of a raw id within its tenant: 32 hexadecimal characters."""
        return self.keyed_hash(tenant, raw)

    def keyed_hash(self, *parts: str) -> str:
        """Return the hash of some texts, in order: 32 hexadecimal characters."""
        # The JSON list of the texts, without the detour through a general encoder.
        message = f"[{', '.join([encode_basestring_ascii(part) for part in parts])}]"
        keyed = self._keyed.copy()
        keyed.update(message.encode())
        return keyed.hexdigest()[:_HASH_CHARACTERS]


def is_subject_hash(text: str) -> bool:
    """Tell whether a text may be the hash of somebody."""
    return len(text) == _HASH_CHARACTERS and set(text) <= set("0123456789abcdef")


def load_or_create_secret(shared: SharedSettings) -> bytes:
    """Return the installation's key: the declared one, else the file `secret` in the data folder.

    Several processes may call this at the same time; all get the same key.

    Raises:
        ConfigurationError: the file is empty or cannot be read.
    """
    if shared.secret is not None:
        return shared.secret.encode()
    path = shared.data / "secret"
    if not path.exists():
        _create(path)
    try:
        text = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read the secret in {path}: {error}") from error
    if not text:
        raise ConfigurationError(f"{path} is empty; restore it, or set `secret` in the settings")
    return text.encode()


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"secret.{os.getpid()}.{secrets.token_hex(4)}")
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(handle, secrets.token_hex(_SECRET_BYTES).encode())
        os.fsync(handle)
    finally:
        os.close(handle)
    try:
        # A link never replaces: the first process wins, the others read its key.
        path.hardlink_to(aside)
    except FileExistsError:
        pass
    finally:
        aside.unlink()
