"""Find the environment that the settings name."""

import importlib
import sys
from inspect import isclass
from pathlib import Path
from typing import cast

from tidemill.environments.base import Environment
from tidemill.errors import ConfigurationError


def load_environment(path: str | None) -> Environment:
    """Return the environment at `package.module:attribute`; a class is called without arguments.

    Modules are looked for where Python looks, then in the working folder: a product's own code
    need not be installed.

    Raises:
        ConfigurationError: nothing is named, nothing is there, or it is no environment.
    """
    if path is None:
        raise ConfigurationError(
            "no environment is set; set `environment` to `package.module:attribute`"
        )
    module_name, separator, attribute = path.partition(":")
    if not separator or not module_name or not attribute:
        raise ConfigurationError(f"environment {path!r} is not `package.module:attribute`")
    _see_working_folder()
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"environment {path!r} cannot be loaded: {error}") from error
    environment = found() if isclass(found) else found
    missing = [name for name in ("name", "tasks", "verify") if not hasattr(environment, name)]
    if missing:
        raise ConfigurationError(f"{path!r} is no environment: it lacks {', '.join(missing)}")
    return cast(Environment, environment)


def _see_working_folder() -> None:
    folder = str(Path.cwd())
    if folder not in sys.path:
        # For good, since an environment may import more of its product while it works. Last, so
        # that a product's folder named `serving` or `migrations` never stands in for ours.
        sys.path.append(folder)
