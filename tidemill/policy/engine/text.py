"""Text of a growing completion: whole characters only, and nothing past a stop text. Pure."""

from collections.abc import Callable, Sequence

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


class GrowingText:
    """Decodes tokens as they come; the deltas join to `text`."""

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: tuple[str, ...]) -> None:
        self._decode = decode
        self._stop = tuple(text for text in stop if text)
        self._ids: list[int] = []
        self._prefix = 0
        """Tokens before it are decoded for good."""
        self._read = 0
        """Tokens from `_prefix` up to here are context: a token's text can depend on the last."""
        self._decoded = ""
        self._given = 0
        self.is_stopped = False

    @property
    def text(self) -> str:
        """What was decoded so far, cut before the stop text."""
        return self._decoded

    def push(self, token_id: int) -> str:
        """Add a token; return the text that is certain by now."""
        self._ids.append(token_id)
        piece = self._next_piece()
        if piece.endswith(_INCOMPLETE):
            return ""
        self._accept(piece)
        return self._give(len(self._decoded) - self._held_back())

    def finish(self) -> str:
        """Return what was held back, now that no token follows."""
        self._accept(self._next_piece())
        return self._give(len(self._decoded))

    def _next_piece(self) -> str:
        known = self._decode(self._ids[self._prefix : self._read])
        return self._decode(self._ids[self._prefix :])[len(known) :]

    def _accept(self, piece: str) -> None:
        if self.is_stopped:
            return
        self._prefix, self._read = self._read, len(self._ids)
        self._decoded += piece
        found = [at for stop in self._stop if (at := self._decoded.find(stop)) >= 0]
        if found:
            self._decoded = self._decoded[: min(found)]
            self.is_stopped = True

    def _held_back(self) -> int:
        """Return how many last characters could begin a stop text."""
        if self.is_stopped:
            return 0
        longest = max((len(stop) - 1 for stop in self._stop), default=0)
        for length in range(min(longest, len(self._decoded)), 0, -1):
            if any(stop.startswith(self._decoded[-length:]) for stop in self._stop):
                return length
        return 0

    def _give(self, end: int) -> str:
        end = max(end, self._given)
        delta = self._decoded[self._given : end]
        self._given = end
        return delta
