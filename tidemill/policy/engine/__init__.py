"""Batched generation with a KV cache, for serving, backfill and the offline suite.

`requests.py` has the records, `batch_engine.py` the engine and `generate`.
"""
