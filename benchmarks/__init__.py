"""Benchmarks: the product and its peers, measured by turns in one run."""
