"""Run one part of ingest as a process: `api_process` or `worker`, with settings as JSON."""

import importlib
import sys

from ingest.settings import IngestSettings
from tidemill.settings import SharedSettings


def main() -> int:
    """Return the part's exit code."""
    module, shared, settings = sys.argv[1:]
    part = importlib.import_module(f"ingest.{module}")
    code: int = part.run(
        SharedSettings.model_validate_json(shared), IngestSettings.model_validate_json(settings)
    )
    return code


if __name__ == "__main__":
    sys.exit(main())
