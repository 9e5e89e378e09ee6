"""Words of an operator that go into rows: those that no database could hold are refused."""

import typer

from tidemill.texts import is_storable


def storable(text: str, name: str) -> str:
    """Return a text that every database can hold, and that says something.

    Args:
        text: what the operator typed; bytes that are no UTF-8 come as half surrogate pairs.
        name: of the option or the argument, as the operator knows it.

    Raises:
        BadParameter: it is blank, or not UTF-8.
    """
    if not text.strip():
        raise typer.BadParameter("it says nothing", param_hint=name)
    if not is_storable(text):
        raise typer.BadParameter(f"{text!r} is not UTF-8; type it again", param_hint=name)
    return text
