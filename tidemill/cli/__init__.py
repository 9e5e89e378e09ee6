"""The `tidemill` command: the one place where all parts are put together."""
