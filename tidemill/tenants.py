"""Which names a tenant may have: those that every event, and every database, can hold. Pure."""

from tidemill.texts import is_storable

_MAX_CHARACTERS = 128


def check_tenant(name: str) -> str:
    """Return a tenant's name.

    Raises:
        ValueError: no event could hold it.
    """
    if not 1 <= len(name) <= _MAX_CHARACTERS or not is_storable(name):
        raise ValueError(
            f"the tenant {name[:40]!a} has {len(name)} characters; "
            f"give 1 to {_MAX_CHARACTERS} characters of UTF-8, no NUL"
        )
    return name
