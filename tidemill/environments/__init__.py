"""Environments: copies of a product's tasks, with deterministic verifiers. No torch here."""
