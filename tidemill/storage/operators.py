"""Who acts at a command line, for the rows that tell who did what."""

import getpass


def current_operator() -> str:
    """Return the name of the user that runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container's user may have no name.
        return "operator"
