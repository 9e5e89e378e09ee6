"""The `Idempotency-Key` header: an identity for feedback whose client has no ids of its own."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ingest.api_errors import ProblemError
from tidemill.storage.keys import ApiKey
from tidemill.subjects import SubjectHasher

HEADER = "Idempotency-Key"

_KEY = re.compile(r"[\x21-\x7e]{1,255}")


@dataclass(frozen=True, slots=True)
class Idempotency:
    """Turns keys into feedback ids, and refuses a key whose request is still under way.

    Used on the event loop of one process. Another process does not know what is under way here; it
    gives the same id, so that the worker counts one of the two.
    """

    hasher: SubjectHasher
    _under_way: set[str] = field(default_factory=set, init=False)

    @contextmanager
    def hold(self, header: str | None, caller: ApiKey) -> Iterator[str | None]:
        """Yield the id that a key stands for, for good, while its request is answered.

        Args:
            header: as the client sent it; quotes around it do not count. None = no key, no id.
            caller: who sent it; the same key of another caller stands for another id.

        Raises:
            ProblemError: 422, it is no key; 409, its first request is not answered yet.
        """
        if header is None:
            yield None
            return
        key = header.strip().removeprefix('"').removesuffix('"')
        if _KEY.fullmatch(key) is None:
            raise ProblemError(
                422, "it must be 1 to 255 visible ASCII characters without spaces", field=HEADER
            )
        identity = self.hasher.keyed_hash("idempotency-key", caller.tenant, caller.public_id, key)
        if identity in self._under_way:
            raise ProblemError(409, "the first request with this key is not answered yet; wait")
        self._under_way.add(identity)
        try:
            yield f"ik-{identity}"
        finally:
            self._under_way.remove(identity)
