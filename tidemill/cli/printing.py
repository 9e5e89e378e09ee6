"""Strangers' text on a terminal: shown, never obeyed. Pure."""


def printable(text: str | bytes) -> str:
    """Return a text on one line in which only printable characters are left as they are.

    Control characters, which a terminal would obey, and bytes that are no UTF-8 become escapes.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape", "surrogatepass").decode()
        for one in text
    )
