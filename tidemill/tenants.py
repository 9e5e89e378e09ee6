"""Which names a tenant may have: those that every event, and every database, can hold. Pure."""

import re

_NAME = re.compile(r"[^\x00\ud800-\udfff]{1,128}")


def check_tenant(name: str) -> str:
    """Return a tenant's name.

    Raises:
        ValueError: no event could hold it.
    """
    if _NAME.fullmatch(name) is None:
        raise ValueError(
            f"the tenant {name[:40]!a} has {len(name)} characters; "
            "give 1 to 128 characters of UTF-8, no NUL"
        )
    return name
