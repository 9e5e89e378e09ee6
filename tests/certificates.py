"""Certificates for tests, made by the `openssl` of this machine."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.servers import missing_server


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs certificates; its files lie in one folder."""

    folder: Path

    @classmethod
    def new(cls, folder: Path) -> "Authority":
        """Make an authority in a new folder."""
        if shutil.which("openssl") is None:
            missing_server("no certificates: install openssl")
        folder.mkdir(parents=True)
        authority = cls(folder)
        subject = ["-subj", f"/CN=authority of {folder.name}", "-keyout", str(folder / "ca.key")]
        _request(*subject, "-out", str(authority.certificate))
        return authority

    @property
    def certificate(self) -> Path:
        """What to trust."""
        return self.folder / "ca.pem"

    def issue(self, name: str, *, host: str = "127.0.0.1") -> tuple[Path, Path]:
        """Return the files of a certificate for a host of the loopback, and of its key."""
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        kind = "IP" if host[0].isdigit() else "DNS"
        issuer = ["-CA", str(self.certificate), "-CAkey", str(self.folder / "ca.key")]
        names = ["-subj", f"/CN={name}", "-addext", f"subjectAltName={kind}:{host}"]
        leaf = ["-addext", "basicConstraints=critical,CA:FALSE"]
        files = ["-keyout", str(key), "-out", str(certificate)]
        _request(*issuer, *names, *leaf, *files)
        return certificate, key

    def lock(self, key: Path, password: str) -> Path:
        """Return a copy of a key that only a password opens."""
        locked = key.with_suffix(".locked")
        change = ["pkey", "-in", str(key), "-out", str(locked), "-aes256"]
        _openssl(*change, "-passout", f"pass:{password}")
        return locked

    def key_store(self, name: str) -> Path:
        """Return one file with a certificate and its key, as a broker takes it."""
        certificate, key = self.issue(name)
        store = self.folder / f"{name}.store.pem"
        store.write_text(key.read_text() + certificate.read_text())
        return store


def _request(*arguments: str) -> None:
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-days", "2"]
    _openssl("req", "-x509", *arguments, *key)


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
