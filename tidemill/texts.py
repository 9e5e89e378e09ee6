"""Which texts every event and every database can hold. Pure."""

import re

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def is_storable(text: str | None) -> bool:
    """Tell whether every database can hold the text: no NUL, no half of a surrogate pair."""
    return text is None or _UNSTORABLE.search(text) is None
