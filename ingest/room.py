"""How much one process holds of requests that are not answered yet: bounded, as its memory is."""

from dataclasses import dataclass

from ingest.api_errors import ProblemError


@dataclass(slots=True, kw_only=True)
class Room:
    """Used on the event loop of one process; whoever adds takes away again."""

    max_records: int
    max_bytes: int
    num_records: int = 0
    """On their way into the log, the wait for a look-up included."""
    num_bytes: int = 0
    """Of bodies, from their first byte to the answer."""

    def add_records(self, number: int) -> None:
        """Count records.

        Raises:
            ProblemError: 429, they would be too many; nothing is counted.
        """
        if self.num_records + number > self.max_records:
            raise ProblemError(429, f"{self.num_records} records are on their way; try again")
        self.num_records += number

    def add_bytes(self, number: int, *, beside: int) -> None:
        """Count bytes.

        Args:
            number: how many more.
            beside: how many the same request was counted for before.

        Raises:
            ProblemError: 429, they would be too many; nothing is counted.
        """
        # What comes alone always has room: else a large one could never be stored.
        if self.num_bytes > beside and self.num_bytes + number > self.max_bytes:
            raise ProblemError(429, f"{self.num_bytes} bytes are on their way; try again")
        self.num_bytes += number
