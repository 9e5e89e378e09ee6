"""Checks of our own, beside ruff, mypy and import-linter: `python -m checks` runs them all."""
